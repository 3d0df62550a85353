// The built-ins that the prelude uses, captured before any guest code runs. Guest code can replace every property of
// every built-in, so the prelude must not look up any property that it could have replaced. Three rules:
//   - call methods through `uncurry`, never as `value.method()`;
//   - give property descriptors no prototype, so that a polluted Object.prototype cannot add a getter to them;
//   - build what leaves the guest by joining strings, which looks up no property.
const uncurry = Function.prototype.bind.bind(Function.prototype.call);
const { apply } = Reflect;
const { defineProperty, freeze, keys: objectKeys, create: objectCreate, getOwnPropertyDescriptor } = Object;
const getPrototypeOf = Object.getPrototypeOf;
const { parse: jsonParse, stringify: jsonStringify, rawJSON, isRawJSON } = JSON;
const { isArray } = Array;
const { hasOwn } = Object;
const { captureStackTrace } = Error;
const NativePromise = Promise;
const NativeError = Error;
const NativeTypeError = TypeError;
const NativeRangeError = RangeError;
const syntaxErrorPrototype = SyntaxError.prototype;
const NativeMap = Map;
const NativeWeakMap = WeakMap;
const NativeProxy = Proxy;
const AsyncFunction = getPrototypeOf(async function () {}).constructor;
const NativeString = String;
const NativeBigInt = BigInt;
const mapGet = uncurry(Map.prototype.get);
const mapSet = uncurry(Map.prototype.set);
const mapDelete = uncurry(Map.prototype.delete);
const mapForEach = uncurry(Map.prototype.forEach);
const mapSize = uncurry(getOwnPropertyDescriptor(Map.prototype, "size").get);
const setSize = uncurry(getOwnPropertyDescriptor(Set.prototype, "size").get);
const numberValueOf = uncurry(Number.prototype.valueOf);
const stringValueOf = uncurry(String.prototype.valueOf);
const booleanValueOf = uncurry(Boolean.prototype.valueOf);
const bigIntValueOf = uncurry(BigInt.prototype.valueOf);
const setForEach = uncurry(Set.prototype.forEach);
const weakGet = uncurry(WeakMap.prototype.get);
const weakSet = uncurry(WeakMap.prototype.set);
const stringSlice = uncurry(String.prototype.slice);
const stringIndexOf = uncurry(String.prototype.indexOf);
const stringCharCodeAt = uncurry(String.prototype.charCodeAt);
const objectToString = uncurry(Object.prototype.toString);
const bigIntToString = uncurry(BigInt.prototype.toString);
const symbolToString = uncurry(Symbol.prototype.toString);
const regExpToString = uncurry(RegExp.prototype.toString);
const dateToISOString = uncurry(Date.prototype.toISOString);
const dateGetTime = uncurry(Date.prototype.getTime);
const mathFloor = Math.floor;
const isFinite_ = Number.isFinite;
const { toPrimitive } = Symbol;
const nativeClock = performance.now.bind(performance);
const typedArrayLength = uncurry(getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), "length").get);
const typedArrayTag = uncurry(getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get);
const arrayBufferByteLength = uncurry(getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get);
const dataViewByteLength = uncurry(getOwnPropertyDescriptor(DataView.prototype, "byteLength").get);
const NativeUint8Array = Uint8Array;
const NativeUint32Array = Uint32Array;

// The engine's own errors differ from imitations of a guest by their prototype, which no guest can reach.
const internalErrorPrototype = typeof InternalError === "function" ? InternalError.prototype : null;
if (internalErrorPrototype !== null) {
  delete globalThis.InternalError;
  delete internalErrorPrototype.constructor;
}

// A guest's hook here would receive frames of the prelude.
defineProperty(NativeError, "prepareStackTrace", { __proto__: null, value: undefined, writable: false, configurable: false });

function hidden(v) {
  return { __proto__: null, value: v, writable: true, enumerable: false, configurable: true };
}

function defineGlobal(name, v, { fixed = false } = { __proto__: null }) {
  defineProperty(globalThis, name, { __proto__: null, value: v, writable: !fixed, enumerable: false, configurable: !fixed });
}

// Return a named, frozen function for the guest.
function exposed(name, fn) {
  return freeze(named(name, fn));
}

// Return a function in place of one of the language, as ordinary as that.
function named(name, fn) {
  return defineProperty(fn, "name", { __proto__: null, value: name, writable: false, enumerable: false, configurable: true });
}

// With the engine's own functions, a long chain of helpers would overflow the stack; see `glue.wat`.
const iteratorHelperPrototype = getPrototypeOf([].values().map((item) => item));
const { setFunction } = natives;
setFunction(0, iteratorHelperPrototype.next);
setFunction(1, iteratorHelperPrototype.return);
for (const name of ["next", "return"]) defineProperty(iteratorHelperPrototype, name, hidden(natives[name]));
setFunction(20, Object);

// The engine's own asUintN forgets that its result is never negative.
const { asUintN } = BigInt;
const asUnsigned = {
  asUintN(bits, bigint) {
    const size = +bits;
    const n = asUintN(size, bigint);
    return n < 0n ? n + (1n << NativeBigInt(mathFloor(size))) : n;
  },
};
defineProperty(BigInt, "asUintN", hidden(asUnsigned.asUintN));
