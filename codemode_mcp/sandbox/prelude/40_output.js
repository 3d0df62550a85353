function isError(v) {
  try {
    return objectToString(v) === "[object Error]";
  } catch {
    return false; // reading its tag throws
  }
}

function toText(v) {
  if (typeof v === "string") return v;
  if (v === undefined) return "undefined";
  if (typeof v === "symbol") return symbolToString(v);
  if (typeof v === "function") return functionLabel(v);
  if (typeof v === "bigint") return bigIntToString(v) + "n";
  if (typeof v === "number") return "" + v;
  if (typeof v === "object" && v !== null && isError(v)) {
    const stack = read(v, "stack");
    const headline = safeString(read(v, "name")) + ": " + safeString(read(v, "message"));
    return clip(typeof stack === "string" ? headline + ownFrames(stack) : headline, MAX_ERROR_TEXT);
  }
  return toJsonText(v);
}

function emitText(text) {
  output('{"type":"text","text":' + jsonStringify(text) + "}");
}

defineGlobal("text", exposed("text", (v) => emitText(toText(v))));

defineGlobal("json", exposed("json", (v) => output('{"type":"json","value":' + toJsonText(v) + "}")));

function isPicture(mimeType) {
  if (stringSlice(mimeType, 0, 6) !== "image/" || mimeType.length > 100) return false;
  for (let i = 6; i < mimeType.length; i++) {
    const c = stringCharCodeAt(mimeType, i);
    if (c < 43 || c > 122 || c === 44 || c === 47) return false;
  }
  return mimeType.length > 6;
}

defineGlobal(
  "image",
  exposed("image", (block) => {
    const data = block !== null && typeof block === "object" ? read(block, "data") : undefined;
    const mimeType = block !== null && typeof block === "object" ? read(block, "mimeType") : undefined;
    if (typeof data !== "string" || typeof mimeType !== "string" || !isPicture(mimeType)) {
      throw new NativeTypeError(
        'image() takes one MCP image block, { type: "image", data: "<base64>", mimeType: "image/png" }; ' +
          "of a tool's result it is the one in result.content whose type is image",
      );
    }
    output('{"type":"image","mimeType":' + jsonStringify(mimeType) + ',"data":' + jsonStringify(data) + "}");
  }),
);

const consoleObject = {};
for (const method of ["log", "info", "warn", "error", "debug", "dir", "table", "trace", "group", "groupCollapsed"]) {
  consoleObject[method] = exposed(method, (...values) => {
    let line = "";
    for (let i = 0; i < values.length; i++) line += (i === 0 ? "" : " ") + toText(values[i]);
    emitText(line);
  });
}
consoleObject.assert = exposed("assert", (condition, ...values) => {
  if (condition) return;
  let line = "Assertion failed";
  for (let i = 0; i < values.length; i++) line += (i === 0 ? ": " : " ") + toText(values[i]);
  emitText(line);
});
for (const method of ["groupEnd", "clear"]) consoleObject[method] = exposed(method, () => undefined);

const tallies = new NativeMap();
const stopwatches = new NativeMap();

function labelled(method, work) {
  consoleObject[method] = exposed(method, (label) => {
    work(label === undefined ? "default" : clip(safeString(label), 200));
  });
}

function lap(label) {
  const began = mapGet(stopwatches, label);
  if (began !== undefined) emitText(label + ": " + mathFloor((elapsedNow() - began) * 1000) / 1000 + " ms");
}

labelled("count", (label) => {
  const tally = (mapGet(tallies, label) ?? 0) + 1;
  mapSet(tallies, label, tally);
  emitText(label + ": " + tally);
});
labelled("countReset", (label) => mapDelete(tallies, label));
labelled("time", (label) => mapSet(stopwatches, label, elapsedNow()));
labelled("timeLog", lap);
labelled("timeEnd", (label) => {
  lap(label);
  mapDelete(stopwatches, label);
});
defineGlobal("console", consoleObject);
