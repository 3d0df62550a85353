// The objects for programs. `install` makes those that depend on the catalog, once per catalog: the result is part of
// the warm image of its runs.
const MAX_NAME = 1024;

function textArgument(fn, name, v) {
  if (typeof v !== "string") {
    throw new NativeTypeError(fn + " takes " + name + " as a string, not " + (v === null ? "null" : typeof v));
  }
  if (v.length > MAX_NAME) throw new NativeTypeError(fn + " takes " + name + " of at most " + MAX_NAME + " characters");
  return jsonStringify(v);
}

// The arguments are a string of JSON within the request, so that only this call fails if the host cannot read them.
// A call with other arguments than one plain object gets its message from the host, which knows the signature.
function callFields(id, args) {
  let text = ',"target":' + id + ',"count":' + args.length;
  if (args.length > 0 && args[0] !== undefined) {
    const input = argumentJson(args[0], "the input");
    if (input === undefined) throw new NativeTypeError("a " + typeof args[0] + " has no JSON form");
    text += ',"input":' + quoted(input);
  }
  if (args.length > 1 && args[1] !== undefined) {
    text += ',"options":' + quoted(argumentJson(args[1], "the second argument") ?? "null");
  }
  return text;
}

const MAX_SENT_DEPTH = 200; // the host has a lower limit

// Values that JSON would send as {} or as another kind of value, by tag, with what to pass instead. A tag can be
// forged, so kinds with a method of their own are recognized by that method.
const PASS_TEXT = "pass a string";
const PASS_LIST = "pass [...iterator]";
const PASS_DATA = "pass plain data";
const BY_TAG = {
  __proto__: null,
  "[object RegExp]": "a RegExp, which JSON has no form for; pass its source",
  "[object Error]": "an Error, which JSON has no form for; pass its message",
  "[object URLSearchParams]": "a URLSearchParams, which JSON has no form for; pass String(params)",
};
for (const [kinds, instead] of [
  ["Array Iterator,Map Iterator,Set Iterator,String Iterator,RegExp String Iterator,Generator,Iterator,Iterator Helper", PASS_LIST],
  ["AsyncGenerator,WeakMap,WeakSet,WeakRef,FinalizationRegistry,SharedArrayBuffer", PASS_DATA],
  ["Symbol", PASS_TEXT],
]) {
  for (const kind of kinds.split(",")) {
    BY_TAG["[object " + kind + "]"] = (/^[AEIO]/.test(kind) ? "an " : "a ") + kind + ", which JSON has no form for; " + instead;
  }
}

const AS_BYTES = ", which JSON has no form for; pass [...bytes], or bytes.toBase64() where the tool takes base64";

function unsendable(v) {
  const tag = objectToString(v);
  if (tag === "[object Object]" || tag === "[object Array]") return null;
  if (tag === "[object Promise]") return "a promise; await it first";
  if (is(mapSize, v)) return "a Map, which JSON has no form for; pass Object.fromEntries(map)";
  if (is(setSize, v)) return "a Set, which JSON has no form for; pass [...set]";
  const view = typedArrayTag(v);
  if (view === "Uint8Array") return "a Uint8Array" + AS_BYTES;
  if (view !== undefined) return (view === "Int8Array" || view === "Int16Array" || view === "Int32Array" ? "an " : "a ") + view + ", which JSON has no form for; pass [...array]";
  if (is(arrayBufferByteLength, v)) return "an ArrayBuffer, which JSON has no form for; pass [...new Uint8Array(buffer)]";
  if (is(dataViewByteLength, v)) return "a DataView, which JSON has no form for; pass [...new Uint8Array(view.buffer)]";
  return BY_TAG[tag] ?? null;
}

// Return the JSON of an argument, or undefined if it has none. The glue encodes plain data.
function argumentJson(v, whole) {
  return plainJson(v, 0, MAX_STRING) ?? argumentText(v, whole);
}

// Return the JSON of an argument that is not plain data. Values that JSON would silently empty or omit are refused by
// their path, except undefined.
function argumentText(v, whole) {
  const within = objectCreate(null); // the objects around the current one, and then their names there
  const names = objectCreate(null);
  let depth = 0;
  return jsonStringify(v, function (name, given) {
    const item = typeof given === "string" || isRawJSON(given) ? bigIntIn(this, name) ?? given : given;
    let refused = null;
    if (item === null || typeof item !== "object") {
      if (typeof item === "bigint" && bigIntToString(item).length <= MAX_DIGITS) return rawJSON(bigIntToString(item));
      if (typeof item === "number" && isBeyond(item) && isFinite_(item)) return rawJSON(numberJson(item));
      if (depth === 0 || name === "toJSON" || (typeof item !== "function" && typeof item !== "symbol" && typeof item !== "bigint")) return item;
      refused = typeof item === "bigint" ? "a bigint of more than " + MAX_DIGITS + " digits; pass String(n)"
        : (typeof item === "function" ? "a function" : "a symbol") + ", which JSON has no form for; leave it out";
    }
    while (depth > 0 && within[depth - 1] !== this) depth -= 1;
    names[depth] = name;
    if (refused === null) refused = unsendable(item);
    if (refused !== null) {
      let path = "";
      for (let i = 1; i <= depth; i++) {
        path += isArray(within[i - 1]) ? "[" + names[i] + "]" : (path === "" ? "" : ".") + clip(names[i], 100);
      }
      throw new NativeTypeError((path === "" ? whole : clip(path, 300)) + " is " + refused);
    }
    within[depth] = item;
    depth += 1;
    if (depth > MAX_SENT_DEPTH) throw new NativeTypeError(whole + " is nested deeper than 100 levels; nothing was sent");
    return item;
  });
}

const MAX_LIMIT = 1e6; // the host has a lower limit

function limitArgument(v) {
  if (typeof v !== "number" || !isFinite_(v) || v < 1 || mathFloor(v) !== v) {
    throw new NativeTypeError("the option limit must be a positive integer, not " + clip(toJsonText(v), 100));
  }
  return v > MAX_LIMIT ? MAX_LIMIT : v;
}

function options(v, names) {
  let text = "";
  if (v === undefined || v === null) return text;
  if (typeof v !== "object") throw new NativeTypeError("the options are an object, { " + names[0] + ": ... }, not a " + typeof v);
  const given = objectKeys(v);
  for (let i = 0; i < given.length && i < 100; i++) {
    let known = false;
    for (let j = 0; j < names.length; j++) known = known || names[j] === given[i];
    if (!known) {
      let all = names[0];
      for (let j = 1; j < names.length; j++) all += ", " + names[j];
      throw new NativeTypeError("there is no option " + clip(given[i], 100) + "; there is " + all);
    }
  }
  for (let i = 0; i < names.length; i++) {
    const option = v[names[i]];
    if (option === undefined) continue;
    if (names[i] === "limit") text += ',"limit":' + limitArgument(option);
    else if (option === true) text += ',"' + names[i] + '":true';
    else if (typeof option === "string") text += ',"' + names[i] + '":' + textArgument("the option " + names[i], "a name", option);
    else if (option !== false) throw new NativeTypeError("the option " + names[i] + " cannot be " + clip(toJsonText(option), 100));
  }
  return text;
}

// Return the arguments of a search as members of a request. Models write `search("x", { limit: 5 })`, `search("x", 5)`
// and `search({ query: "x", limit: 5 })`. Each argument is read once.
function searchFields(fn, given, opts, names) {
  let query = given;
  let chosen = typeof opts === "number" ? { __proto__: null, limit: opts } : opts;
  if (given !== null && typeof given === "object" && !isArray(given) && !isPromise(given)) {
    if (opts !== undefined) {
      throw new NativeTypeError(fn + " takes one object with the query and the options, or the query and then the options, not both");
    }
    const { query: asked, ...others } = given;
    query = asked;
    chosen = others;
  }
  if (typeof query !== "string") {
    throw new NativeTypeError(
      fn + " takes the query as a string, not " + (isPromise(query) ? "a promise" : isArray(query) ? "an array" : query === null ? "null" : typeof query) +
        "; write " + fn + '("what you need") or ' + fn + '({ query: "what you need", ' + names[0] + ": 5 })",
    );
  }
  return ',"query":' + textArgument(fn, "a query", query) + options(chosen, names);
}

const MAX_PATHS = 64; // the host has the same limit

// Return paths as members of a request. They are arguments, arrays of them, or what `paths.map` passes.
function pathFields(fn, member, what, given) {
  let text = "";
  let count = 0;
  for (let i = 0; i < (given.length > 1 && typeof given[1] === "number" ? 1 : given.length); i++) {
    const each = isArray(given[i]) ? given[i] : [given[i]];
    for (let j = 0; j < each.length; j++) {
      count += 1;
      if (count > MAX_PATHS) throw new NativeTypeError(fn + " takes at most " + MAX_PATHS + " paths");
      text += (count === 1 ? ',"' + member + '":' : count === 2 ? ',"more":[' : ",") + textArgument(fn, what, each[j]);
    }
  }
  if (count === 0) throw new NativeTypeError(fn + ' takes a path, such as "mcp/<server>.d.ts#<tool>"; no path was given');
  return count === 1 ? text : text + "]";
}

defineGlobal(
  "API",
  freeze({
    list: exposed("list", (...paths) =>
      request("api_list", () => pathFields("API.list", "prefix", "a prefix", paths.length === 0 || paths[0] === undefined ? [""] : paths))),
    read: exposed("read", (...paths) => request("api_read", () => pathFields("API.read", "path", "a path", paths))),
    search: exposed("search", (query, opts) =>
      request("api_search", () => searchFields("API.search", query, opts, ["limit", "server"]))),
  }),
  { __proto__: null, fixed: true },
);

defineGlobal("yield_control", exposed("yield_control", (reason) =>
  request("yield", () => ',"reason":' + (reason === undefined ? "null" : jsonStringify(clip(safeString(reason), 500))))));

// An error is reported like an unhandled rejection, since the caller has no promise to await.
defineGlobal("store", exposed("store", (key, v) => {
  const name = textArgument("store", "a key", key);
  request("store", () => ',"key":' + name + ',"value":' + jsonStringify(toWholeJsonText(v)));
}));

defineGlobal("load", exposed("load", (key) => request("load", () => ',"key":' + textArgument("load", "a key", key), true)));

function isPromise(v) {
  try {
    return objectToString(v) === "[object Promise]";
  } catch {
    return false;
  }
}

function isText(block) {
  return block !== null && typeof block === "object" && block.type === "text" && typeof block.text === "string";
}

function textResource(block) {
  const resource = block !== null && typeof block === "object" && block.type === "resource" ? block.resource : undefined;
  return resource !== null && typeof resource === "object" && typeof resource.text === "string" ? resource : undefined;
}

function parsed(text) {
  try {
    return parseExactly(stringCharCodeAt(text, 0) === 0xfeff ? stringSlice(text, 1) : text); // without a byte order mark
  } catch {
    return text;
  }
}

// Return true if a text beside structured content is that content in another form: its JSON, a string in it, or the
// content of a wrapper that SDKs put around what is no object.
function repeats(text, structured) {
  const first = stringCharCodeAt(text, 0);
  if (text === "" || first === 123 || first === 91) return true; // { [
  const names = objectKeys(structured);
  if (names.length === 1 && names[0] === "result") return true;
  for (let i = 0; i < names.length; i++) if (structured[names[i]] === text) return true;
  return false;
}

// The parts of results that `unwrap` has left out, by tools: those of the first result, and the number of results.
const leftOut = new NativeMap();
const MAX_LEFT_OUT = 32;
const MAX_PARTS = 3;

const isOther = (block) => !isText(block);
const isData = (block) => !isText(block) && textResource(block) === undefined;

// `isLeft` is true for the blocks that are left out. `taken`: the value instead, if it is no usual one.
function noteLeftOut(result, isLeft, taken = "") {
  const tool = weakGet(resultTools, result) ?? "";
  const known = mapGet(leftOut, tool);
  if (known !== undefined) known.count += 1;
  else if (mapSize(leftOut) < MAX_LEFT_OUT) {
    mapSet(leftOut, tool, { __proto__: null, parts: partsText(result.content, isLeft, taken !== ""), taken, count: 1 });
  }
}

function partsText(content, isLeft, quotes) {
  let text = "";
  let count = 0;
  for (let i = 0; i < content.length; i++) {
    if (!isLeft(content[i])) continue;
    count += 1;
    if (count <= MAX_PARTS) text += (count === 1 ? "" : ", ") + partText(content[i], quotes) + place(i);
  }
  return count > MAX_PARTS ? text + " and " + (count - MAX_PARTS) + " more" : text;
}

function place(number) {
  return " in result.content[" + number + "]";
}

// Return a description of a part, with its name and its size, but without its data. With `quotes`, a text begins it.
function partText(block, quotes) {
  const type = read(block, "type");
  const kind = "1 " + (typeof type === "string" && type !== "" ? clip(type, 40) : "unknown block");
  const held = type === "resource" ? read(block, "resource") : block;
  if (held === null || typeof held !== "object") return kind;
  const uri = held.uri ?? held.name;
  const named = kind + (typeof uri === "string" ? " " + clip(uri, 200) : "");
  if (typeof held.text === "string") {
    return quotes ? named + " " + jsonStringify(clip(held.text, 200)) : named + " (" + withThousands(held.text.length) + " characters)";
  }
  const data = held.blob ?? held.data;
  const size = typeof data === "string" ? withThousands(mathFloor((data.length * 3) / 4)) + " bytes" : "";
  const mimeType = typeof held.mimeType === "string" ? clip(held.mimeType, 100) : "";
  if (size === "" && mimeType === "") return named;
  return named + " (" + mimeType + (size !== "" && mimeType !== "" ? ", " : "") + size + ")";
}

// Return the error of a result with `isError`. Its message has all texts, and the structured content unless the text is
// its JSON. The program finds the whole result in `result`.
const MAX_STRUCTURED = 2000;

function toolError(result, content) {
  const structured = result.structuredContent ?? null;
  let text = "";
  let left = false;
  for (let i = 0; i < content.length; i++) {
    const from = isText(content[i]) ? content[i] : textResource(content[i]);
    if (from === undefined) left = true;
    else text += (text === "" ? "" : "\n") + from.text;
  }
  if (left) noteLeftOut(result, isData);
  const value = parsed(text);
  const isJson = value !== text;
  const shown = structured === null || (isJson && toJsonText(value) === toJsonText(structured)) ? "" : clip(toJsonText(structured), MAX_STRUCTURED);
  const says = "the tool reported an error: ";
  let message = "the tool reported an error without a text";
  if (text !== "") message = (isJson ? says : "") + text + (shown === "" ? "" : "\nstructuredContent: " + shown);
  else if (shown !== "") message = says + shown;
  const data = structured === null ? null : { structuredContent: structured };
  const error = bridgeError(
    { __proto__: null, name: "ToolError", message: clip(message, MAX_ERROR_TEXT), code: "nested_tool_failed", data },
    framesOf(new NativeError()),
  );
  defineProperty(error, "result", hidden(result));
  return error;
}

defineGlobal("unwrap", exposed("unwrap", (result) => {
  if (result === null || typeof result !== "object" || isPromise(result)) {
    const given = result === null ? "null" : typeof result === "object" ? "a promise" : typeof result;
    throw new NativeTypeError("unwrap() takes the result of a call, not " + given + ": write unwrap(await MCP.server.tool({...}))");
  }
  if (result.content === undefined && result.structuredContent === undefined && result.isError === undefined) {
    const part = isArray(result.contents) ? ", such as its contents[0].text" : "";
    throw new NativeTypeError("unwrap() takes the result of a tool call, not " + shape(result) + "; that is data already, use it as it is" + part);
  }
  const content = isArray(result.content) ? result.content : [];
  if (result.isError === true) throw toolError(result, content);
  const structured = result.structuredContent;
  let text; // of all text blocks, one below the other
  let other = -1; // the number of the only block that is no text; -2 if there are several
  for (let i = 0; i < content.length; i++) {
    const block = content[i];
    if (!isText(block)) other = other === -1 ? i : -2;
    else text = text === undefined ? block.text : text + "\n" + block.text;
  }
  if (structured !== undefined && structured !== null) {
    const beside = text !== undefined && typeof structured === "object" && !repeats(text, structured);
    if (beside || other !== -1) noteLeftOut(result, beside ? () => true : isOther);
    return structured;
  }
  const file = other >= 0 ? textResource(content[other]) : undefined;
  if (file !== undefined) {
    // Servers that read files send a status beside the file.
    if (text !== undefined && text !== "" && text !== file.text) {
      noteLeftOut(result, isText, "the text of the resource" + (typeof file.uri === "string" ? " " + clip(file.uri, 200) : "") + place(other));
    }
    return parsed(file.text);
  }
  if (text === undefined) return result.content;
  if (other !== -1) noteLeftOut(result, isOther);
  return parsed(text);
}));

function headerRequest(server) {
  return exposed("$api", (tool, opts) =>
    request("header", () =>
      ',"server":' + (server === null ? "null" : server) +
      ',"tool":' + (tool === undefined ? "null" : textArgument("$api", "a tool name", tool)) + options(opts, ["schema"])));
}

function member(object, name, v) {
  defineProperty(object, name, { __proto__: null, value: v, writable: false, enumerable: true, configurable: false });
}

function alias(object, name, v) {
  defineProperty(object, name, { __proto__: null, value: v, writable: false, enumerable: false, configurable: false });
}

// `app`: true if the tool has an app, which `show` attaches to the answer.
function caller(name, id, app = false) {
  const target = jsonStringify(id);
  const call = (...args) => requestCall("call", () => callFields(target, args), call, app, null, id);
  return exposed(name, call);
}

// Names that the language itself looks up on an object that is awaited, or converted to JSON or to a string.
const NOT_TOOLS = { __proto__: null, then: true, toJSON: true, toString: true, valueOf: true };

// Return an invented name in a form for ids in errors and logs. Without / and : it is not the id of an operation, such
// as resources/list, and cannot name another server.
function plainName(name) {
  let plain = "";
  for (let i = 0; i < name.length && i < 100; i++) {
    const c = stringCharCodeAt(name, i);
    const fits = (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) || c === 95 || c === 36 || c === 45;
    plain += fits ? name[i] : "_";
  }
  return plain;
}

// Return the object of a server that is down or still starts, and whose tools are unknown. Each call rejects with the
// reason. `group`: the prefix of the names, such as "resources."; may be empty.
function unreachable(object, server, group) {
  return new NativeProxy(freeze(object), {
    __proto__: null,
    get(known, name) {
      if (typeof name !== "string" || name === "$api" || NOT_TOOLS[name]) return known[name];
      if (name === "resources" || name === "prompts") return known[name] ?? unreachable(objectCreate(null), server, name + ".");
      return caller(name, "mcp:" + server + ":" + group + plainName(name));
    },
  });
}

// Return the object of a server with held tools. A name of a held tool gives a function whose calls reject with the
// reason, but no program can list the names.
function withHeld(object, server, names) {
  const held = objectCreate(null);
  for (let i = 0; i < names.length; i++) if (!NOT_TOOLS[names[i]]) held[names[i]] = true;
  return new NativeProxy(object, {
    __proto__: null,
    get(known, name) {
      if (typeof name !== "string" || held[name] !== true) return known[name];
      return known[name] ?? caller(name, "mcp:" + server + ":" + name);
    },
  });
}

const REFLECT = { __proto__: null };
const TRAPS = [
  "has", "ownKeys", "getOwnPropertyDescriptor", "set", "defineProperty", "deleteProperty", "isExtensible", "preventExtensions",
  "getPrototypeOf", "setPrototypeOf",
];
for (let i = 0; i < TRAPS.length; i++) REFLECT[TRAPS[i]] = Reflect[TRAPS[i]];

// Return a frozen object of thousands of functions: `known`, and those that `fill` adds when a program first looks up
// an unknown name. Until then they take no memory, which would be copied at the start of every program.
function filledLater(known, fill) {
  const target = objectCreate(null);
  let empty = true;
  function filled() {
    if (!empty) return target;
    const names = objectKeys(known);
    for (let i = 0; i < names.length; i++) member(target, names[i], known[names[i]]);
    fill(target);
    empty = false;
    return freeze(target);
  }
  const handler = {
    __proto__: null,
    get: (_, name) => (typeof name !== "string" || NOT_TOOLS[name] ? undefined : known[name] ?? filled()[name]),
  };
  for (let i = 0; i < TRAPS.length; i++) {
    const trap = TRAPS[i];
    handler[trap] = (...args) => {
      filled();
      return apply(REFLECT[trap], undefined, args);
    };
  }
  return new NativeProxy(target, freeze(handler));
}

// text: JSON, [[source, sourceName, [[name, description, label | null, 1 if it is a function of `tools` else 0]]]]
function installMany(text, known) {
  let groups = null;
  let listed = null;
  const read = () => (groups ??= jsonParse(text));
  const list = () => {
    const entries = [];
    for (let i = 0; i < read().length; i++) {
      const source = groups[i][0];
      const sourceName = groups[i][1];
      const rows = groups[i][2];
      for (let j = 0; j < rows.length; j++) {
        const name = rows[j][0];
        const id = source + ":" + sourceName + ":" + name;
        const label = rows[j][2];
        const description = rows[j][1];
        const entry = label === null ? { id, name, description, source, sourceName } : { id, name, label, description, source, sourceName };
        member(entries, entries.length, freeze(entry));
      }
    }
    return freeze(entries);
  };
  const getter = exposed("ALL_TOOLS", () => (listed ??= list()));
  defineProperty(globalThis, "ALL_TOOLS", { __proto__: null, get: getter, set: undefined, enumerable: false, configurable: false });
  const tools = filledLater(known, (target) => {
    for (let i = 0; i < read().length; i++) {
      const before = groups[i][0] + ":" + groups[i][1] + ":";
      const rows = groups[i][2];
      for (let j = 0; j < rows.length; j++) if (rows[j][3] === 1) member(target, rows[j][0], caller(rows[j][0], before + rows[j][0]));
    }
  });
  defineGlobal("tools", tools, { __proto__: null, fixed: true });
}

// manifest: { servers: [{ identifier, alias, name, down, tools: [[identifier, alias | null, id, true if it has an app]],
//                         groups: [[group, [[name, id]]]], held: undefined | [name] }],
//             tools: [catalog entry], named: [[name, id]], programs: undefined | [[name, id]] }, or, of thousands of tools, tools: see `installMany`, named: []
function install(text) {
  const manifest = jsonParse(text);
  const mcp = objectCreate(null);
  for (let i = 0; i < manifest.servers.length; i++) {
    const server = manifest.servers[i];
    const object = objectCreate(null);
    for (let j = 0; j < server.tools.length; j++) {
      const tool = server.tools[j];
      const fn = caller(tool[0], tool[2], tool[3] === true);
      member(object, tool[0], fn);
      if (tool[1] !== null) alias(object, tool[1], fn);
    }
    for (let j = 0; j < server.groups.length; j++) {
      const group = objectCreate(null);
      const operations = server.groups[j][1];
      for (let k = 0; k < operations.length; k++) member(group, operations[k][0], caller(operations[k][0], operations[k][1]));
      member(object, server.groups[j][0], freeze(group));
    }
    alias(object, "$api", headerRequest(jsonStringify(server.identifier)));
    let shown = freeze(object);
    if (server.tools.length === 0 && server.down) shown = unreachable(object, server.name, "");
    else if (server.held !== undefined) shown = withHeld(object, server.name, server.held);
    member(mcp, server.identifier, shown);
    if (server.alias !== null) alias(mcp, server.alias, shown);
  }
  alias(mcp, "$api", headerRequest(null));
  defineGlobal("MCP", freeze(mcp), { __proto__: null, fixed: true });

  const tools = objectCreate(null);
  member(tools, "search", exposed("search", (query, opts) =>
    request("search", () => searchFields("tools.search", query, opts, ["limit"]))));
  member(tools, "describe", exposed("describe", (id) =>
    request("describe", () => ',"target":' + textArgument("tools.describe", "an id", id))));
  const callById = (id, ...args) =>
    requestCall("call_by_id", () => callFields(textArgument("tools.call", "an id", id), args), callById);
  member(tools, "call", exposed("call", callById));
  if (typeof manifest.tools === "string") installMany(manifest.tools, tools);
  else {
    for (let i = 0; i < manifest.tools.length; i++) freeze(manifest.tools[i]);
    defineGlobal("ALL_TOOLS", freeze(manifest.tools), { __proto__: null, fixed: true });
    for (let i = 0; i < manifest.named.length; i++) member(tools, manifest.named[i][0], caller(manifest.named[i][0], manifest.named[i][1]));
    defineGlobal("tools", freeze(tools), { __proto__: null, fixed: true });
  }
  installPrograms(manifest.programs);
}
