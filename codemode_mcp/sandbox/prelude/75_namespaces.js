// Namespaces of plugins: objects with data and functions. They differ between runs, so they are made when a run
// starts, before its code. A function sends the id of its namespace and its path, which no program can change, and the
// host looks these up in its own copy. `namespaces` has all namespaces by their global names, and MCP.
const MAX_ARGUMENTS = 32;

// Return the arguments as members of a request: each is a string of JSON, or null for undefined.
function argumentTexts(args) {
  let count = args.length;
  while (count > 0 && args[count - 1] === undefined) count -= 1;
  if (count > MAX_ARGUMENTS) throw new NativeTypeError("a call takes at most " + MAX_ARGUMENTS + " arguments");
  let text = ',"arguments":[';
  for (let i = 0; i < count; i++) {
    const json = args[i] === undefined ? "null" : argumentJson(args[i], "the input");
    if (json === undefined) throw new NativeTypeError("a " + typeof args[i] + " has no JSON form");
    text += (i === 0 ? "" : ",") + (args[i] === undefined ? "null" : quoted(json));
  }
  return text + "]";
}

function namespaceCaller(name, id, path) {
  const target = ',"namespace":' + jsonStringify(id) + ',"path":' + jsonStringify(path);
  const call = (...args) => requestCall("namespace", () => target + argumentTexts(args), call);
  return exposed(name, call);
}

function freezeAll(v) {
  if (v === null || typeof v !== "object") return v;
  const names = objectKeys(v);
  for (let i = 0; i < names.length; i++) freezeAll(v[names[i]]);
  return freeze(v);
}

// Return a namespace whose scope could not be made. Its contents are unknown, so it has every function. Each call
// rejects with the reason, and use as data throws it.
function brokenNamespace(target, id, path, reason) {
  const fail = () => {
    throw bridgeError(
      { __proto__: null, name: "ToolCallError", message: reason, code: "nested_tool_failed", data: null },
      framesOf(new NativeError()),
    );
  };
  return new NativeProxy(freeze(target), {
    __proto__: null,
    get(known, name) {
      if (name === toPrimitive) return fail;
      if (typeof name !== "string" || NOT_TOOLS[name]) return undefined;
      const inner = clip((path === "" ? "" : path + ".") + plainName(name), 500);
      return brokenNamespace(namespaceCaller(plainName(name), id, inner), id, inner, reason);
    },
    ownKeys: path === "" ? fail : undefined,
  });
}

// list: [{ id, global, data, functions: [[key, ...]], reason: null | string }]
function defineNamespaces(list) {
  const namespaces = objectCreate(null);
  const mcp = getOwnPropertyDescriptor(globalThis, "MCP");
  if (mcp !== undefined) member(namespaces, "MCP", mcp.value);
  for (let i = 0; i < list.length; i++) {
    const { id, global, data, functions, reason } = list[i];
    for (let j = 0; j < functions.length; j++) {
      const keys = functions[j];
      let object = data;
      let path = "";
      for (let k = 0; k < keys.length - 1; k++) {
        path += keys[k] + ".";
        object = object[keys[k]];
      }
      const last = keys[keys.length - 1];
      member(object, last, namespaceCaller(last, id, path + last));
    }
    const shown = reason === null ? freezeAll(data) : brokenNamespace(objectCreate(null), id, "", reason);
    member(namespaces, global, shown);
    // The host does not register a name that is in use already.
    if (getOwnPropertyDescriptor(globalThis, global) === undefined) defineGlobal(global, shown, { __proto__: null, fixed: true });
  }
  defineGlobal("namespaces", freeze(namespaces), { __proto__: null, fixed: true });
}
