function toText(v) {
  if (typeof v === "string") return v;
  if (v === undefined) return "undefined";
  if (typeof v === "symbol") return symbolToString(v);
  if (typeof v === "function") return functionLabel(v);
  if (typeof v === "bigint") return bigIntToString(v) + "n";
  if (typeof v === "number") return "" + v;
  if (typeof v === "object" && v !== null && objectToString(v) === "[object Error]") {
    const stack = read(v, "stack");
    const headline = safeString(read(v, "name")) + ": " + safeString(read(v, "message"));
    return clip(typeof stack === "string" && stack !== "" ? headline + "\n" + stack : headline, MAX_ERROR_TEXT);
  }
  return toJsonText(v);
}

function emitText(text) {
  output('{"type":"text","text":' + jsonStringify(text) + "}");
}

defineGlobal("text", exposed("text", (v) => emitText(toText(v))));

defineGlobal("json", exposed("json", (v) => output('{"type":"json","value":' + toJsonText(v) + "}")));

defineGlobal(
  "image",
  exposed("image", (block) => {
    const data = block !== null && typeof block === "object" ? read(block, "data") : undefined;
    const mimeType = block !== null && typeof block === "object" ? read(block, "mimeType") : undefined;
    if (typeof data !== "string" || typeof mimeType !== "string") {
      throw new NativeTypeError('image() takes an MCP image block: { type: "image", data: "<base64>", mimeType: "image/png" }');
    }
    output('{"type":"image","mimeType":' + jsonStringify(mimeType) + ',"data":' + jsonStringify(data) + "}");
  }),
);

const consoleObject = {};
for (const method of ["log", "info", "warn", "error", "debug", "dir", "table", "trace"]) {
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
defineGlobal("console", consoleObject);
