function isError(v) {
  try {
    return objectToString(v) === "[object Error]";
  } catch {
    return false; // reading its tag has thrown
  }
}

function toText(v) {
  if (typeof v === "string") return v;
  if (v === undefined) return "undefined";
  if (typeof v === "symbol") return symbolToString(v);
  if (typeof v === "function") return functionLabel(v);
  if (typeof v === "bigint") return bigIntToString(v) + "n";
  if (typeof v === "number") return v === 0 && 1 / v < 0 ? "-0" : "" + v;
  if (typeof v === "object" && v !== null && isError(v)) {
    const headline = safeString(read(v, "name")) + ": " + safeString(read(v, "message"));
    return clip(headline + ownFrames(framesOf(v)), MAX_ERROR_TEXT);
  }
  const shown = toJsonText(v);
  return shown === '"[Promise]"' ? "[Promise; await it to see its value]" : shown;
}

function emitText(text) {
  output('{"type":"text","text":' + jsonStringify(text) + "}");
}

// Return true for the arguments that `forEach` and `map` give to a callback, of which only the element is meant.
function isOfCallback(values) {
  return values.length === 3 && typeof values[1] === "number" && isArray(values[2]) && read(values[2], values[1]) === values[0];
}

defineGlobal(
  "text",
  exposed("text", (...values) => {
    const count = isOfCallback(values) ? 1 : values.length || 1;
    let line = "";
    for (let i = 0; i < count; i++) {
      const v = values[i];
      line += (i === 0 ? "" : " ") + (typeof v === "bigint" ? bigIntToString(v) : toText(v));
    }
    emitText(line);
  }),
);

defineGlobal("json", exposed("json", (v) => output('{"type":"json","value":' + toJsonText(v) + "}")));

function isMimeType(text) {
  const slash = stringIndexOf(text, "/");
  if (slash < 1 || slash === text.length - 1 || text.length > 100) return false;
  for (let i = 0; i < text.length; i++) {
    const c = stringCharCodeAt(text, i);
    if (c <= 32 || c >= 127 || c === 34 || c === 44) return false;
  }
  return true;
}

const IMAGE_HELP =
  'image() takes an MCP image block, { type: "image", data: "<base64>", mimeType: "image/png" }, or the result that holds it';

function cannotShow(why) {
  return new NativeTypeError(why === "" ? IMAGE_HELP : why + "; " + IMAGE_HELP);
}

function advice(text) {
  return new NativeTypeError("image(): " + text);
}

// Return a MIME type without its parameters.
function essence(mimeType) {
  const end = stringIndexOf(mimeType, ";");
  return end < 0 ? mimeType : stringSlice(mimeType, 0, end);
}

function binaryOutput(mimeType, data, uri, found) {
  const shown = essence(mimeType);
  if (data === "") throw cannotShow("its data is empty");
  if (data.length > outputLimit) {
    const most = withThousands(mathFloor((outputLimit * 3) / 4));
    const size = withThousands(mathFloor((data.length * 3) / 4));
    found.tooLarge = new NativeRangeError(
      "image(): " + size + " bytes are more than the output can hold (" + most + "); ask for a smaller picture",
    );
    throw found.tooLarge;
  }
  if (!isMimeType(shown)) throw cannotShow(jsonStringify(clip(mimeType, 100)) + " is no MIME type");
  return (
    '{"type":"image","mimeType":' + jsonStringify(shown) + ',"data":' + jsonStringify(data) +
    (uri === undefined ? "" : ',"uri":' + jsonStringify(clip(uri, 2000))) + "}"
  );
}

function dataUrl(text, found) {
  const comma = stringSlice(text, 0, 5) === "data:" ? stringIndexOf(text, ";base64,") : -1;
  if (comma < 0) {
    if (stringSlice(text, 0, 4) === "http") throw advice("there is no network here to fetch an address from; call a tool that gives the picture");
    throw cannotShow("a string alone does not say what it is");
  }
  return binaryOutput(stringSlice(text, 5, comma), stringSlice(text, comma + 8), undefined, found);
}

const MAX_BLOCKS = 10_000;

// Return what can be shown of a list. The rest is ignored, while a single value that cannot be shown is refused.
function listed(list, found, depth) {
  const length = lengthOf(list);
  if (length === 0) throw cannotShow("there is no content in it");
  const before = found.count;
  let refusal;
  for (let i = 0; i < length && i < MAX_BLOCKS; i++) {
    try {
      binaries(read(list, i), found, depth + 1);
    } catch (error) {
      if (isEngineFault(error) || error === found.tooLarge) throw error;
      if (refusal === undefined || refusal === found.isText) refusal = error;
    }
  }
  if (found.count === before) throw refusal;
}

// Collect the outputs of a value: a block, contents of a resource, a message of a prompt, or a result with any of
// these.
function binaries(v, found, depth) {
  if (typeof v === "string") return add(found, dataUrl(v, found));
  if (v === null || typeof v !== "object" || depth > 8) throw cannotShow("");
  if (isPromise(v)) throw advice("it was given a promise; await it first");
  if (isArray(v)) return listed(v, found, depth);
  const type = read(v, "type");
  const mimeType = read(v, "mimeType");
  const data = read(v, "data");
  const blob = read(v, "blob");
  const uri = read(v, "uri");
  if (typeof data === "string" && typeof mimeType === "string") return add(found, binaryOutput(mimeType, data, undefined, found));
  if (typeof blob === "string" && typeof uri === "string") {
    const known = typeof mimeType === "string" && isMimeType(essence(mimeType)) ? mimeType : "application/octet-stream";
    return add(found, binaryOutput(known, blob, uri, found));
  }
  if (type === "resource") return binaries(read(v, "resource"), found, depth + 1);
  if (type === "resource_link") {
    const link = typeof uri === "string" ? jsonStringify(clip(uri, 500)) : "...";
    throw advice("a link has no data; read it first: image(await MCP.<server>.resources.read({ uri: " + link + " }))");
  }
  if (type === "text") throw (found.isText = advice("a block of text is shown with text(block.text)"));
  if (typeof read(v, "text") === "string" && typeof uri === "string") {
    throw (found.isText = advice("a resource that is text is shown with text(contents.text)"));
  }
  for (let i = 0; i < HOLDERS.length; i++) {
    const held = read(v, HOLDERS[i]);
    if (isArray(held)) return listed(held, found, depth);
  }
  const content = read(v, "content"); // of a message of a prompt
  if (content !== null && typeof content === "object") return binaries(content, found, depth + 1);
  throw cannotShow("");
}

const HOLDERS = ["content", "contents", "messages"];

function add(found, text) {
  if (found.count >= MAX_BLOCKS) return;
  found[found.count] = text;
  found.count += 1;
}

defineGlobal(
  "image",
  exposed("image", (v) => {
    const found = { __proto__: null, count: 0, tooLarge: null, isText: null };
    binaries(v, found, 0);
    for (let i = 0; i < found.count; i++) {
      if (outputSize + found[i].length > outputLimit) {
        const size = withThousands(mathFloor((found[i].length * 3) / 4));
        emitText("[left out, about " + size + " bytes: all outputs of a program together were too large]");
      }
      output(found[i]);
    }
  }),
);

// The host attaches the app of the last such output to the answer. The result is sent as it is now.
const MAX_SHOWN = 1_048_576;
const SHOW_HELP =
  "show() takes the result of a tool that has an app, as the call has returned it: show(await MCP.server.tool({...}))";

defineGlobal(
  "show",
  exposed("show", (result) => {
    if (isPromise(result)) throw new NativeTypeError("show() was given a promise; await it first");
    const fields = result === null || typeof result !== "object" ? undefined : weakGet(appCalls, result);
    if (fields === undefined) throw new NativeTypeError(SHOW_HELP);
    const text = '{"type":"app"' + fields + ',"result":' + toWholeJsonText(result) + "}";
    if (text.length > MAX_SHOWN) {
      throw new NativeRangeError(
        "show(): the result and its input have " + withThousands(text.length) + " characters, and an app takes at most " +
          withThousands(MAX_SHOWN) + "; ask the tool for less",
      );
    }
    if (outputSize + text.length > outputLimit) emitText("[an app was left out: all outputs of a program together were too large]");
    output(text);
  }),
);

// The placeholders of `console`, as in Node.js. Objects are written as JSON, as everywhere.
const PLACEHOLDERS = "sdifjoOc%";
const parseInt_ = parseInt;
const parseFloat_ = parseFloat;

function placed(kind, v) {
  if (kind === "c") return "";
  if (kind === "j") return encode(v, null, 0) ?? "undefined";
  if (kind === "o" || kind === "O") return typeof v === "string" ? quoted(v) : toText(v);
  if (kind === "s") return typeof v === "function" || (typeof v === "object" && v !== null && hasOwnText(v)) ? safeString(v) : toText(v);
  if (typeof v === "bigint" && kind !== "f") return toText(v);
  if (typeof v === "symbol" || (kind === "d" && typeof v === "object" && v !== null)) return "NaN";
  return toText(kind === "d" ? +v : kind === "i" ? parseInt_(safeString(v)) : parseFloat_(safeString(v)));
}

const builtInTexts = [Object.prototype.toString, Error.prototype.toString, Array.prototype.toString, Date.prototype.toString, RegExp.prototype.toString];

// Return true for an object whose `toString` is not one of the built-in objects.
function hasOwnText(v) {
  const method = read(v, "toString");
  for (let i = 0; i < builtInTexts.length; i++) if (method === builtInTexts[i]) return false;
  return typeof method === "function";
}

function lineOf(values) {
  let line = "";
  let next = 0;
  const format = values[0];
  if (values.length > 1 && typeof format === "string" && stringIndexOf(format, "%") >= 0) {
    next = 1;
    for (let at = 0; at < format.length; at++) {
      const kind = format[at] === "%" && at + 1 < format.length ? format[at + 1] : " ";
      if (stringIndexOf(PLACEHOLDERS, kind) < 0 || (kind !== "%" && next === values.length)) line += format[at];
      else {
        line += kind === "%" ? "%" : placed(kind, values[next++]);
        at += 1;
      }
    }
  }
  for (let i = next; i < values.length; i++) line += (i === 0 ? "" : " ") + toText(values[i]);
  return line;
}

let groupIndent = "";

function printLine(line) {
  if (groupIndent === "") return emitText(line);
  let text = groupIndent;
  for (let i = 0; i < line.length; i++) text += line[i] === "\n" ? "\n" + groupIndent : line[i];
  emitText(text);
}

// Return the rows of a table with some columns alone.
function chosenColumns(rows, columns) {
  if (!isArray(columns) || rows === null || typeof rows !== "object") return rows;
  const chosen = isArray(rows) ? [] : {};
  const names = objectKeys(rows);
  for (let i = 0; i < names.length; i++) {
    const row = {};
    const given = read(rows, names[i]);
    for (let j = 0; j < lengthOf(columns); j++) {
      const name = safeString(read(columns, j));
      const value = given === null || typeof given !== "object" ? undefined : read(given, name);
      if (value !== undefined) defineProperty(row, name, { __proto__: null, value, enumerable: true });
    }
    defineProperty(chosen, names[i], { __proto__: null, value: row, enumerable: true });
  }
  return chosen;
}

const consoleObject = {};

function printer(method, line) {
  consoleObject[method] = exposed(method, (...values) => printLine(line(values)));
}

for (const method of ["log", "info", "warn", "error", "debug"]) printer(method, lineOf);
printer("dir", (values) => toText(values[0]));
printer("table", (values) => toText(chosenColumns(values[0], values[1])));
printer("trace", (values) => "Trace" + (values.length === 0 ? "" : ": ") + lineOf(values) + ownFrames(stackAbove(consoleObject.trace)));
for (const method of ["group", "groupCollapsed"]) {
  consoleObject[method] = exposed(method, (...values) => {
    if (values.length > 0) printLine(lineOf(values));
    if (groupIndent.length < 200) groupIndent += "  ";
  });
}
consoleObject.groupEnd = exposed("groupEnd", () => {
  groupIndent = stringSlice(groupIndent, 2);
});
consoleObject.assert = exposed("assert", (condition, ...values) => {
  if (condition) return;
  if (values.length > 0) values[0] = toText(values[0]);
  printLine("Assertion failed" + (values.length === 0 ? "" : ": ") + lineOf(values));
});
consoleObject.clear = exposed("clear", () => undefined);

const tallies = new NativeMap();
const stopwatches = new NativeMap();

function labelled(method, work) {
  consoleObject[method] = exposed(method, (label) => {
    work(label === undefined ? "default" : clip(safeString(label), 200));
  });
}

function lap(label) {
  const began = mapGet(stopwatches, label);
  if (began !== undefined) printLine(label + ": " + mathFloor((elapsedNow() - began) * 1000) / 1000 + " ms");
}

labelled("count", (label) => {
  const tally = (mapGet(tallies, label) ?? 0) + 1;
  mapSet(tallies, label, tally);
  printLine(label + ": " + tally);
});
labelled("countReset", (label) => mapDelete(tallies, label));
labelled("time", (label) => mapSet(stopwatches, label, elapsedNow()));
labelled("timeLog", lap);
labelled("timeEnd", (label) => {
  lap(label);
  mapDelete(stopwatches, label);
});
defineGlobal("console", consoleObject);
