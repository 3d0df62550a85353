// Randomness of one run, from a seed of 32 bytes by the host. The state of the engine's own generator is part of the
// warm image, so every run would have the same numbers. The glue has the generator: ChaCha20 (RFC 8439), counter mode.
const { seed, randomBytes } = natives;
const fromHex = Uint8Array.fromHex;

function seedRandom(hex) {
  seed(apply(fromHex, NativeUint8Array, [hex]));
}

defineProperty(Math, "random", hidden(natives.random));

function getRandomValues(array) {
  const tag = typedArrayTag(array);
  if (tag === undefined || tag === "Float32Array" || tag === "Float64Array" || tag === "Float16Array") {
    throw new NativeTypeError("crypto.getRandomValues takes an integer typed array");
  }
  const bytes = new NativeUint8Array(viewBuffer(array), viewOffset(array), viewByteLength(array));
  const length = typedArrayLength(bytes);
  if (length > 65536) throw new NativeRangeError("crypto.getRandomValues gives at most 65536 bytes in one call");
  typedArraySet(bytes, randomBytes(length));
  return array;
}
const viewPrototype = getPrototypeOf(Uint8Array.prototype);
const viewBuffer = uncurry(getOwnPropertyDescriptor(viewPrototype, "buffer").get);
const viewOffset = uncurry(getOwnPropertyDescriptor(viewPrototype, "byteOffset").get);
const typedArraySet = uncurry(viewPrototype.set);
const viewByteLength = uncurry(getOwnPropertyDescriptor(viewPrototype, "byteLength").get);

defineGlobal(
  "crypto",
  freeze({ getRandomValues: exposed("getRandomValues", getRandomValues), randomUUID: exposed("randomUUID", natives.randomUUID) }),
);
