// Guest values as JSON text, by fixed rules (docs/values.md). Nothing that a value does when it is read makes this
// throw. Only a lack of time, memory or stack ends it.
const MAX_DEPTH = 100;
const MAX_ERROR_TEXT = 8192;

function safeString(v) {
  try {
    return typeof v === "symbol" ? symbolToString(v) : NativeString(v);
  } catch {
    return "[unprintable]";
  }
}

function clip(text, limit) {
  return text.length > limit ? stringSlice(text, 0, limit) + "…" : text;
}

function read(object, key) {
  try {
    return object[key];
  } catch {
    return undefined;
  }
}

function functionLabel(fn) {
  const name = read(fn, "name");
  return typeof name === "string" && name !== "" ? "[Function: " + clip(name, 200) + "]" : "[Function]";
}

function thrown(what, error) {
  const message = error !== null && typeof error === "object" ? read(error, "message") : error;
  return jsonStringify("[" + what + " threw: " + clip(safeString(message), 200) + "]");
}

// Binary data in MCP content, such as pictures, is replaced by a mark unless the whole value is kept. Only blocks and
// contents of MCP are affected, never other strings of the program, nor data that is shorter than a mark.
const MIN_MARKED = 100;
let marking = true;

function ownString(object, key) {
  try {
    const property = getOwnPropertyDescriptor(object, key);
    return property !== undefined && typeof property.value === "string" ? property.value : undefined;
  } catch {
    return undefined;
  }
}

function isBase64Digit(c) {
  return (c >= 97 && c <= 122) || (c >= 65 && c <= 90) || (c >= 47 && c <= 57) || c === 43 || c === 45 || c === 95;
}

function isBinary(object, key, data) {
  for (let i = 0; i < 64; i++) {
    const c = stringCharCodeAt(data, i);
    if (!isBase64Digit(c) && c !== 10 && c !== 13) return false;
  }
  if (key === "blob") return ownString(object, "uri") !== undefined;
  const type = ownString(object, "type");
  return (type === "image" || type === "audio") && ownString(object, "mimeType") !== undefined;
}

const { grouped } = natives;

function withThousands(n) {
  return grouped("" + n);
}

function binaryMark(object, key, data) {
  let length = data.length;
  while (length > data.length - 2 && stringCharCodeAt(data, length - 1) === 61) length -= 1;
  const mimeType = ownString(object, "mimeType");
  const what = clip(mimeType === undefined || mimeType === "" ? "binary" : mimeType, 100);
  const show = key === "blob" ? "image(contents) passes it on" : "show it with image(block)";
  return "[" + what + ", " + withThousands(mathFloor((length * 3) / 4)) + " bytes; " + show + "]";
}

// Most values are plain data, or consist mostly of it, which the glue encodes. Of other values, only the first levels
// are searched for plain data, so that the search costs little.
const { plainJson } = natives;
const PLAIN_DEPTH = 3;
const LARGE = 2_000_000; // the glue needs more memory for a text
const MAX_STRING = 2147483647;

function quoted(text) {
  return (text.length < LARGE ? plainJson(text, 0, MAX_STRING) : undefined) ?? jsonStringify(text);
}

// Integers beyond 2^53 are BigInts here, and digits in JSON. Where programs read JSON again, or the host has to know what a
// number was, a Number beyond 2^53 has an exponent with E, which no other JSON has: 9007199254740992E0, 1E30.
const LARGEST = 9007199254740991;
const MAX_DIGITS = 4300; // Python reads no more; the glue has this limit, too

function isBeyond(v) {
  return v > LARGEST || v < -LARGEST;
}

function numberJson(v) {
  const text = "" + v;
  const at = stringIndexOf(text, "e");
  return at < 0 ? text + "E0" : stringSlice(text, 0, at) + "E" + stringSlice(text, at + 1);
}

function bigIntJson(v) {
  const digits = bigIntToString(v);
  return digits.length > MAX_DIGITS ? '"' + digits + '"' : digits;
}

// Return the value of a JSON text. Integers beyond 2^53 become BigInts, and strings if they have too many digits, which
// the host lets through only in texts. With a reviver, the engine takes three times as long.
const { longDigits } = natives;

function parseExactly(text) {
  return longDigits(text) ? jsonParse(text, reviveBigInt) : jsonParse(text);
}

function reviveBigInt(name, v, context) {
  if (typeof v !== "number" || !isBeyond(v)) return v;
  const { source } = context;
  if (stringIndexOf(source, ".") >= 0 || stringIndexOf(source, "e") >= 0 || stringIndexOf(source, "E") >= 0) return v;
  return source.length > MAX_DIGITS ? source : NativeBigInt(source);
}

// Return the JSON text of a value, or undefined for a value that JSON.stringify omits.
function encode(v, ancestors, depth) {
  switch (typeof v) {
    case "string":
      return quoted(v);
    case "number":
      return !isFinite_(v) ? "null" : marking || !isBeyond(v) ? "" + v : numberJson(v);
    case "boolean":
      return v ? "true" : "false";
    case "bigint":
      return bigIntJson(v);
    case "symbol":
      return jsonStringify(symbolToString(v));
    case "function":
      return jsonStringify(functionLabel(v));
    case "undefined":
      return undefined;
  }
  if (v === null) return "null";
  if (depth < PLAIN_DEPTH) {
    const text = plainJson(v, depth, marking ? MIN_MARKED : MAX_STRING);
    if (text !== undefined) return text;
  }
  for (let a = ancestors; a !== null; a = a.up) if (a.value === v) return '"[Circular]"';
  if (depth >= MAX_DEPTH) return '"[Too deep]"';
  const here = { __proto__: null, value: v, up: ancestors };
  try {
    return encodeObject(v, here, depth);
  } catch (error) {
    if (isEngineFault(error)) throw error;
    return thrown("reading", error);
  }
}

function isEngineFault(error) {
  if (internalErrorPrototype === null || error === null || typeof error !== "object") return false;
  try {
    return getPrototypeOf(error) === internalErrorPrototype;
  } catch {
    return false; // a proxy, which the engine never throws
  }
}

function is(method, v) {
  try {
    method(v);
    return true;
  } catch {
    return false;
  }
}

const boxes = [numberValueOf, stringValueOf, booleanValueOf, bigIntValueOf];

function encodeObject(v, here, depth) {
  let toJSON;
  try {
    toJSON = v.toJSON;
  } catch (error) {
    return thrown("toJSON", error);
  }
  // The `toJSON` of an error must not hide its name and message.
  if (typeof toJSON === "function" && !isError(v)) {
    let replaced;
    try {
      replaced = apply(toJSON, v, [""]);
    } catch (error) {
      if (isEngineFault(error)) throw error;
      return thrown("toJSON", error);
    }
    if (isRawJSON(replaced)) return encode(parseExactly(replaced.rawJSON), here, depth + 1);
    if (replaced !== v) return encode(replaced, here, depth + 1) ?? "null";
  }
  if (isArray(v)) return encodeArray(v, v.length, here, depth);
  const tag = objectToString(v);
  if (tag === "[object Object]") return encodeMembers(v, here, depth, "");
  if (tag === "[object Error]") return encodeError(v, here, depth);
  if (tag === "[object Promise]") return '"[Promise]"';
  if (tag === "[object RegExp]") return jsonStringify(regExpToString(v));
  // A tag can be forged. The real kind of an object is the one whose methods accept it.
  if (is(mapSize, v)) return encodeMap(v, here, depth);
  if (is(setSize, v)) return encodeSet(v, here, depth);
  if (is(dateGetTime, v)) return isFinite_(dateGetTime(v)) ? jsonStringify(dateToISOString(v)) : "null";
  if (is(arrayBufferByteLength, v)) return '{"type":"ArrayBuffer","byteLength":' + arrayBufferByteLength(v) + "}";
  for (let i = 0; i < boxes.length; i++) if (is(boxes[i], v)) return encode(apply(boxes[i], undefined, [v]), here, depth) ?? "null";
  if (typedArrayTag(v) !== undefined) return encodeArray(v, typedArrayLength(v), here, depth);
  return encodeMembers(v, here, depth, "");
}

function encodeArray(v, length, here, depth) {
  let text = "[";
  for (let i = 0; i < length; i++) {
    let item;
    try {
      item = encode(v[i], here, depth + 1) ?? "null";
    } catch (error) {
      if (isEngineFault(error)) throw error;
      item = thrown("getter", error);
    }
    text += i === 0 ? item : "," + item;
  }
  return text + "]";
}

function encodeMembers(v, here, depth, start) {
  const names = objectKeys(v);
  let text = start;
  for (let i = 0; i < names.length; i++) {
    let member;
    const name = names[i];
    try {
      const item = v[name];
      member =
        typeof item === "string" && marking && item.length > MIN_MARKED && (name === "data" || name === "blob") && isBinary(v, name, item)
          ? jsonStringify(binaryMark(v, name, item))
          : encode(item, here, depth + 1);
    } catch (error) {
      if (isEngineFault(error)) throw error;
      member = thrown("getter", error);
    }
    if (member !== undefined) text += (text === "" ? "" : ",") + jsonStringify(name) + ":" + member;
  }
  return "{" + text + "}";
}

const ofErrors = ["code", "data", "cause", "errors"];

function encodeError(v, here, depth) {
  let text = '"name":' + jsonStringify(clip(safeString(read(v, "name")), 200));
  text += ',"message":' + jsonStringify(clip(safeString(read(v, "message")), MAX_ERROR_TEXT));
  for (let i = 0; i < ofErrors.length; i++) {
    const own = getOwnPropertyDescriptor(v, ofErrors[i]);
    if (own === undefined || own.enumerable !== false) continue;
    text += ',"' + ofErrors[i] + '":' + (encode(read(v, ofErrors[i]), here, depth + 1) ?? "null");
  }
  return encodeMembers(v, here, depth, text);
}

function encodeMap(v, here, depth) {
  let stringKeys = true;
  let pairs = "";
  let members = "";
  mapForEach(v, (item, key) => {
    const text = encode(item, here, depth + 1) ?? "null";
    if (typeof key === "string") members += (members === "" ? "" : ",") + jsonStringify(key) + ":" + text;
    else stringKeys = false;
    pairs += (pairs === "" ? "[" : ",[") + (encode(key, here, depth + 1) ?? "null") + "," + text + "]";
  });
  return stringKeys ? "{" + members + "}" : "[" + pairs + "]";
}

function encodeSet(v, here, depth) {
  let text = "";
  setForEach(v, (item) => {
    text += (text === "" ? "" : ",") + (encode(item, here, depth + 1) ?? "null");
  });
  return "[" + text + "]";
}

function toJsonText(v) {
  return encode(v, null, 0) ?? "null";
}

// Return the first number or date in plain data that JSON has no form for, such as "NaN" or "value.average is NaN"; the
// empty string if there is none. It runs no code of the guest, except traps of proxies.
const MAX_SEARCHED = 1000;

function lostIn(v, path, budget) {
  budget.left -= 1;
  if (budget.left < 0) return "";
  if (typeof v === "number" && !isFinite_(v)) return path + NativeString(v);
  if (v === null || typeof v !== "object") return "";
  if (is(dateGetTime, v)) return dateGetTime(v) === dateGetTime(v) ? "" : path + "Invalid Date";
  const names = objectKeys(v);
  for (let i = 0; i < names.length && budget.left > 0; i++) {
    const property = getOwnPropertyDescriptor(v, names[i]);
    const member = isArray(v) ? "[" + names[i] + "]" : "." + clip(names[i], 100);
    const place = (path === "" ? "value" : stringSlice(path, 0, path.length - 4)) + member + " is ";
    const found = property === undefined || !hasOwn(property, "value") ? "" : lostIn(property.value, place, budget);
    if (found !== "") return found;
  }
  return "";
}

function lostValue(v) {
  try {
    return lostIn(v, "", { __proto__: null, left: MAX_SEARCHED });
  } catch {
    return "";
  }
}

// Return JSON text for values that are stored and not shown.
function toWholeJsonText(v) {
  const before = marking;
  marking = false;
  try {
    return toJsonText(v);
  } finally {
    marking = before;
  }
}

// Return the author's frames of an engine stack, one per line, with the author's line numbers: the text of a cell
// starts on the third line of what the engine runs, as does that of a saved program, whose frames name its file. Frames
// of ours and of built-ins are dropped. For TypeScript, `cellLines` has the author's line of each line, or columns with the
// line from there on; the frames have no columns then.
let cellFile = null;
let cellLines = null;
const WRAPPER_LINES = 2;

function ownFrames(stack) {
  let frames = "";
  let rest = stack;
  while (rest !== "") {
    const end = stringIndexOf(rest, "\n");
    const line = end < 0 ? rest : stringSlice(rest, 0, end);
    rest = end < 0 ? "" : stringSlice(rest, end + 1);
    let at = stringIndexOf(line, "<input>:");
    let file = cellFile;
    let place = at < 0 ? "" : stringSlice(line, at + 8);
    if (at < 0) {
      at = stringIndexOf(line, "programs/");
      const ends = at < 0 ? -1 : stringIndexOf(line, ".js:");
      if (ends < at) continue;
      file = stringSlice(line, at, ends + 3);
      place = stringSlice(line, ends + 4);
    }
    const colon = stringIndexOf(place, ":");
    let number = +stringSlice(place, 0, colon) - WRAPPER_LINES;
    let column = stringSlice(place, colon);
    if (cellLines !== null && file === cellFile) {
      const parts = cellLines[number - 1] ?? 0;
      number = typeof parts === "number" ? parts : parts[1];
      for (let i = 2; i < parts.length && parts[i] < +stringSlice(column, 1, stringIndexOf(column, ")")); i += 2) number = parts[i + 1];
      column = stringSlice(column, stringIndexOf(column, ")"));
    }
    if (file !== null && number >= 1) frames += "\n" + stringSlice(line, 0, at) + file + ":" + number + column;
  }
  return frames;
}

// The frames of the engine are hidden in an error, and its `stack` is made of them when it is read for the first time: by
// then the error has the name that its constructor gives it. Reading it runs no other code of the guest.
const { rawStack, setRawStack } = natives;

function framesOf(v) {
  return rawStack(v) ?? "";
}

const stackAccessor = {
  get stack() {
    let holder = this;
    let raw;
    try {
      while (holder !== null && (raw = rawStack(holder)) === undefined) holder = getPrototypeOf(holder);
    } catch {}
    if (raw === undefined) return undefined;
    const name = read(holder, "name");
    const message = read(holder, "message");
    const first = name === undefined ? "Error" : safeString(name);
    const second = message === undefined ? "" : safeString(message);
    const text = (first === "" || second === "" ? first + second : first + ": " + second) + ownFrames(raw);
    replaceStack(holder, text);
    return text;
  },
  set stack(v) {
    replaceStack(this, v);
  },
};

function replaceStack(object, v) {
  try {
    defineProperty(object, "stack", hidden(v));
  } catch {} // it is frozen, or no object
}

const accessor = getOwnPropertyDescriptor(stackAccessor, "stack");
setFunction(15, freeze(accessor.get));
setFunction(16, freeze(accessor.set));

// Return a string property without running code of the guest, or undefined.
function quietly(object, key) {
  try {
    for (let o = object, steps = 0; o !== null && steps < 8; o = getPrototypeOf(o), steps++) {
      const property = getOwnPropertyDescriptor(o, key);
      if (property !== undefined) return typeof property.value === "string" ? property.value : undefined;
    }
  } catch {}
  return undefined;
}

// Return the report of an unhandled rejection. It is made after the program, outside its time.
function describeQuietly(error) {
  if (error === null || typeof error !== "object") return describe(error);
  const name = quietly(error, "name");
  const message = quietly(error, "message");
  return (
    '{"name":' + jsonStringify(clip(name === undefined ? "Error" : name, 200)) +
    ',"message":' + jsonStringify(clip(message === undefined ? "" : message, 1000)) +
    ',"stack":' + jsonStringify(clip(framesOf(error), MAX_ERROR_TEXT)) +
    ',"engine":false,"code":null}'
  );
}

// Return the length of an array; 0 for anything else, including a proxy that pretends to be an array.
function lengthOf(v) {
  try {
    const length = isArray(v) ? v.length : 0;
    return typeof length === "number" ? length : 0;
  } catch {
    return 0;
  }
}

// Return the causes and parts of an error, one per line. An AggregateError says nothing without them.
function origins(error) {
  if (!isError(error)) return "";
  let text = "";
  const errors = read(error, "errors");
  const length = lengthOf(errors);
  for (let i = 0; i < length && i < 5; i++) text += "\n- " + headline(read(errors, i));
  const cause = getOwnPropertyDescriptor(error, "cause");
  return cause === undefined ? text : text + "\ncaused by " + headline(cause.value);
}

function headline(v) {
  const text = isError(v) ? safeString(read(v, "name")) + ": " + safeString(read(v, "message")) : toJsonText(v);
  return clip(text, 500);
}

// Return the report of a thrown value for the host, which has only texts.
function describe(error) {
  let name = "Error";
  let message = "";
  let stack = "";
  let engine = false;
  const code = error !== null && typeof error === "object" ? weakGet(bridgeErrors, error) : undefined;
  if (error !== null && (typeof error === "object" || typeof error === "function")) {
    name = read(error, "name");
    message = read(error, "message");
    stack = framesOf(error);
    engine = isEngineFault(error);
    if (typeof name !== "string" || name === "") name = "Error";
    if (typeof message !== "string") message = message === undefined ? clip(toJsonText(error), 1000) : safeString(message);
    message = clip(message, MAX_ERROR_TEXT) + origins(error);
  } else {
    name = "Uncaught";
    message = typeof error === "string" ? error : (safeString(error));
  }
  return (
    '{"name":' + jsonStringify(clip(name, 200)) +
    ',"message":' + jsonStringify(clip(message, 2 * MAX_ERROR_TEXT)) +
    ',"stack":' + jsonStringify(clip(stack, MAX_ERROR_TEXT)) +
    ',"engine":' + (engine ? "true" : "false") +
    ',"code":' + (code === undefined ? "null" : jsonStringify(code)) + "}"
  );
}

// Return a description of a value for an error message: its kind, and the first names in an object.
const MAX_NAMES = 12;

function shape(v) {
  if (v === null || v === undefined) return NativeString(v);
  if (typeof v !== "object") return "a " + typeof v;
  try {
    if (isPromise(v)) return "a promise";
    if (isArray(v)) return "an array of " + v.length;
    const names = objectKeys(v);
    if (names.length === 0) return "an object without members";
    let text = "";
    for (let i = 0; i < names.length && i < MAX_NAMES; i++) text += (i === 0 ? "" : ", ") + clip(names[i], 40);
    return "an object with: " + text + (names.length > MAX_NAMES ? ", ..." : "");
  } catch {
    return "an object";
  }
}

// The message of the engine has the unexpected token but not the given text, so that is added.
const MAX_BEGINNING = 60;

function explainParse(text) {
  if (typeof text !== "string") return "JSON.parse takes text, not " + shape(text);
  if (text === "") return "the text is empty";
  let at = 0;
  while (at < text.length && stringCharCodeAt(text, at) <= 32) at += 1;
  const first = stringCharCodeAt(text, at);
  const plain = first !== 123 && first !== 91 && first !== 34; // { [ "
  return (plain ? "this is plain text: " : "this text is no JSON: ") + quoted(clip(text, MAX_BEGINNING));
}

// JSON.parse of the glue calls this with the error of the engine's own, and the text, unless there is a reviver.
setFunction(5, jsonParse);
setFunction(6, function (text) {
  // For a string, the engine has made the error with its own message. Without memory it is null.
  if (typeof text === "string") {
    if (this !== null && getPrototypeOf(this) === syntaxErrorPrototype) this.message += "; " + explainParse(text);
  } else if (isError(this) && getPrototypeOf(this) === syntaxErrorPrototype) {
    defineProperty(this, "message", hidden(safeString(read(this, "message")) + "; " + explainParse(text)));
  }
});
defineProperty(JSON, "parse", hidden(natives.parse));

// JSON.stringify writes a bigint as its digits. The engine calls `toJSON` before a replacer, which gets the bigint, as it
// would without that.
const { toJSON, stringify } = {
  toJSON() {
    return rawJSON(bigIntToString(bigIntValueOf(this)));
  },
  stringify(v, replacer, space) {
    if (typeof replacer !== "function") return jsonStringify(v, replacer, space);
    const replace = function (name, item) {
      const replaced = apply(replacer, this, [name, isRawJSON(item) ? bigIntIn(this, name) ?? item : item]);
      return typeof replaced === "bigint" ? rawJSON(bigIntToString(replaced)) : replaced;
    };
    return jsonStringify(v, replace, space);
  },
};
defineProperty(NativeBigInt.prototype, "toJSON", hidden(toJSON));
defineProperty(JSON, "stringify", hidden(stringify));

function bigIntIn(holder, name) {
  const v = getOwnPropertyDescriptor(holder, name)?.value;
  return typeof v === "bigint" ? v : undefined;
}
