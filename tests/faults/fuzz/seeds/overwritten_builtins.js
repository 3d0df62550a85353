const keep = Promise.prototype.then;
Promise.prototype.then = function (...args) { return Reflect.apply(keep, this, args); };
JSON.stringify = () => "forged";
Array.prototype.push = function () { throw new Error("push"); };
Object.defineProperty(Object.prototype, "value", { set(v) { throw v; }, configurable: true });
Map.prototype.get = () => ({ resolve() {} });
const result = await MCP.files.readFile({ path: "x" });
return result;
