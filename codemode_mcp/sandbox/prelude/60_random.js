// Randomness of one run, from 32 bytes the host draws for it: the engine's own generator is frozen into the warm image
// and would give every run the same numbers. ChaCha20 (RFC 8439) in counter mode.
const chachaState = new NativeUint32Array(16);
const chachaBlock = new NativeUint32Array(16);
let chachaUsed = 16;

function seedRandom(hex) {
  chachaState[0] = 0x61707865;
  chachaState[1] = 0x3320646e;
  chachaState[2] = 0x79622d32;
  chachaState[3] = 0x6b206574;
  for (let i = 0; i < 8; i++) {
    let word = 0;
    for (let j = 0; j < 8; j++) {
      const c = stringCharCodeAt(hex, i * 8 + j);
      word = (word << 4) | (c < 58 ? c - 48 : c - 87);
    }
    chachaState[4 + i] = word;
  }
  for (let i = 12; i < 16; i++) chachaState[i] = 0;
  chachaUsed = 16;
}

function quarter(a, b, c, d) {
  const x = chachaBlock;
  let t;
  x[a] += x[b]; t = x[d] ^ x[a]; x[d] = (t << 16) | (t >>> 16);
  x[c] += x[d]; t = x[b] ^ x[c]; x[b] = (t << 12) | (t >>> 20);
  x[a] += x[b]; t = x[d] ^ x[a]; x[d] = (t << 8) | (t >>> 24);
  x[c] += x[d]; t = x[b] ^ x[c]; x[b] = (t << 7) | (t >>> 25);
}

function nextWord() {
  if (chachaUsed === 16) {
    for (let i = 0; i < 16; i++) chachaBlock[i] = chachaState[i];
    for (let round = 0; round < 10; round++) {
      quarter(0, 4, 8, 12); quarter(1, 5, 9, 13); quarter(2, 6, 10, 14); quarter(3, 7, 11, 15);
      quarter(0, 5, 10, 15); quarter(1, 6, 11, 12); quarter(2, 7, 8, 13); quarter(3, 4, 9, 14);
    }
    for (let i = 0; i < 16; i++) chachaBlock[i] += chachaState[i];
    if (++chachaState[12] === 0) chachaState[13] += 1;
    chachaUsed = 0;
  }
  return chachaBlock[chachaUsed++];
}

defineProperty(
  Math,
  "random",
  hidden(exposed("random", () => (nextWord() >>> 5) * 1.1102230246251565e-16 + (nextWord() >>> 6) * 1.4901161193847656e-8)),
);

const HEX = "0123456789abcdef";

function getRandomValues(array) {
  const tag = typedArrayTag(array);
  if (tag === undefined || tag === "Float32Array" || tag === "Float64Array" || tag === "Float16Array") {
    throw new NativeTypeError("crypto.getRandomValues takes an integer typed array");
  }
  const bytes = new NativeUint8Array(viewBuffer(array), viewOffset(array), viewByteLength(array));
  const length = typedArrayLength(bytes);
  if (length > 65536) throw new NativeRangeError("crypto.getRandomValues gives at most 65536 bytes at once");
  for (let i = 0; i < length; i++) bytes[i] = nextWord();
  return array;
}
const viewPrototype = getPrototypeOf(Uint8Array.prototype);
const viewBuffer = uncurry(getOwnPropertyDescriptor(viewPrototype, "buffer").get);
const viewOffset = uncurry(getOwnPropertyDescriptor(viewPrototype, "byteOffset").get);
const viewByteLength = uncurry(getOwnPropertyDescriptor(viewPrototype, "byteLength").get);

function randomUUID() {
  let text = "";
  for (let i = 0; i < 32; i++) {
    let digit = nextWord() & 15;
    if (i === 12) digit = 4;
    if (i === 16) digit = 8 | (digit & 3);
    text += (i === 8 || i === 12 || i === 16 || i === 20 ? "-" : "") + HEX[digit];
  }
  return text;
}

defineGlobal(
  "crypto",
  freeze({ getRandomValues: exposed("getRandomValues", getRandomValues), randomUUID: exposed("randomUUID", randomUUID) }),
);
