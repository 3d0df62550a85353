// The mailbox. Requests of a turn are collected here as text, and completions settle the promises of the guest.
// Guest code never calls the host. The host reads the requests when the job queue is empty.
const pending = new NativeMap();
const bridgeErrors = new NativeWeakMap();
let lastId = 0;

// Maximum number of pending calls that remember their stack, for the error with which they may end.
const MAX_SITES = 500;
let calls = "";
let outputs = "";
let outputSize = 0;
let outputLimit = 0;
let outputItems = 0;
const MAX_ITEMS = 10_000;
let droppedItems = 0;
let droppedSize = 0;

// `fields` is JSON text of further members, each with a leading comma.
function post(op, fields) {
  const id = ++lastId;
  calls += (calls === "" ? "" : ",") + '{"id":' + id + ',"op":"' + op + '"' + fields + "}";
  return id;
}

// With its own `constructor`, a promise can be awaited whatever the guest does to Promise.prototype. `deferred` of the
// glue returns such a promise with the functions that settle it.
const OWN_CONSTRUCTOR = freeze(hidden(NativePromise));
const { deferred } = natives;
setFunction(7, NativePromise);

function newPromise(executor) {
  const promise = new NativePromise(executor);
  defineProperty(promise, "constructor", OWN_CONSTRUCTOR);
  return promise;
}

// Return the stack of the caller of `above`. Frames of ours would cost more than the rest of a call.
function stackAbove(above) {
  const at = objectCreate(null);
  captureStackTrace(at, above);
  return framesOf(at);
}

// `fields` is a function, since reading the arguments of the guest may throw, which has to reject the promise.
// With `boxed` the answer is an array with at most one value, since JSON has no undefined.
// `above` is the function of ours that the guest has called. With `app`, `show` takes the result. `program` is the saved
// program that the answer begins, if it is no error; see 76_programs.js. `tool` is the id of the tool, if it is known.
function request(op, fields, boxed = false, call = false, above = request, app = false, program = null, tool = null) {
  const site = mapSize(pending) < MAX_SITES ? stackAbove(above) : "";
  const made = deferred();
  const promise = made[0];
  const resolve = made[1];
  const reject = made[2];
  let text;
  try {
    text = fields();
  } catch (error) {
    if (isEngineFault(error)) reject(error);
    else {
      const text = clip(safeString(read(error, "message")), 500);
      const message = call ? "the arguments cannot be sent as JSON: " + text : text;
      reject(bridgeError({ __proto__: null, name: "TypeError", message, code: "nested_tool_failed", data: null }, OUR_FRAME + site));
    }
    return promise;
  }
  const id = post(op, text);
  mapSet(pending, id, { __proto__: null, resolve, reject, site, boxed, call, timer: null, app: app ? text : null, program, tool });
  if (call) liveCalls += 1;
  return promise;
}

// The innermost frame of such errors. It tells the host not to search the program for their cause.
const OUR_FRAME = "    at request (native)\n";

function bridgeError(plain, site) {
  const error = new NativeError(plain.message);
  defineProperty(error, "name", hidden(plain.name));
  defineProperty(error, "code", hidden(plain.code));
  if (plain.data !== null) defineProperty(error, "data", hidden(plain.data));
  setRawStack(error, site);
  weakSet(bridgeErrors, error, plain.code);
  return error;
}

function unbox(list) {
  return list.length === 0 ? undefined : list[0];
}

// Make a nested call. The host would refuse each call beyond `callLimit` unsettled ones. A flood of calls is refused
// here, with one rejection for all of them, which costs the guest little.
let callLimit = 0;
let liveCalls = 0;
let refusal = null;

function requestCall(op, fields, above, app = false, program = null, tool = null) {
  if (liveCalls >= callLimit) {
    if (refusal === null) {
      const message = "too many calls in flight: " + liveCalls + " are unsettled; await some before making more";
      const plain = { __proto__: null, name: "ToolCallError", message, code: "too_many_pending_tool_calls", data: null };
      refusal = newPromise((resolve, reject) => reject(bridgeError(plain, framesOf(new NativeError()))));
    }
    return refusal;
  }
  return request(op, fields, false, true, above, app, program, tool);
}

// error: null | { name, message, code, data }
function settle(id, value, error) {
  const waiting = mapGet(pending, id);
  if (waiting === undefined) return;
  if (waiting.call) {
    liveCalls -= 1;
    refusal = null;
  }
  if (waiting.timer !== null) {
    fireTimer(id, waiting.timer);
    return;
  }
  mapDelete(pending, id);
  if (waiting.program !== null && error === null) {
    runProgram(waiting, id, value);
    return;
  }
  if (waiting.call && error === null) watchResult(id, value, waiting.tool);
  if (waiting.app !== null && error === null && value !== null && typeof value === "object") weakSet(appCalls, value, waiting.app);
  if (error === null) waiting.resolve(waiting.boxed ? unbox(value) : value);
  else waiting.reject(bridgeError(error, OUR_FRAME + waiting.site));
}

// The fields of calls of tools with an app, by their results, for `show`. Calls of other tools are not kept.
const appCalls = new NativeWeakMap();

// The texts of results with `isError` that the program has not looked at, by the numbers of their calls. Any read of
// `isError` counts as looking: by `unwrap`, by the program, or by JSON, since a model sees it then. The results are not
// kept, since they may be large, and the program may change them.
const unchecked = new NativeMap();
const MAX_UNCHECKED = 32;

// The tools of results, for the notes of `unwrap`.
const resultTools = new NativeWeakMap();

function watchResult(id, result, tool) {
  if (result === null || typeof result !== "object") return;
  if (tool !== null) weakSet(resultTools, result, tool);
  if (!hasOwn(result, "isError") || result.isError !== true || mapSize(unchecked) >= MAX_UNCHECKED) return;
  mapSet(unchecked, id, errorText(result));
  const replace = (target, value) => {
    mapDelete(unchecked, id);
    const now = getOwnPropertyDescriptor(target, "isError");
    if (now !== undefined && !now.configurable) return;
    defineProperty(target, "isError", { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  };
  const accessor = {
    get: () => (replace(result, true), true),
    set(value) {
      // `this` may inherit from the result. An assignment to a plain property defines it there, too.
      replace(this, value);
    },
  };
  const { get, set } = accessor;
  defineProperty(result, "isError", { __proto__: null, get, set, enumerable: true, configurable: true });
}

function errorText(result) {
  const content = getOwnPropertyDescriptor(result, "content")?.value;
  const block = isArray(content) ? getOwnPropertyDescriptor(content, 0)?.value : undefined;
  const text = block === null || typeof block !== "object" ? undefined : getOwnPropertyDescriptor(block, "text")?.value;
  return typeof text === "string" ? clip(text, 300) : "";
}

function output(text) {
  if (outputSize + text.length > outputLimit || outputItems >= MAX_ITEMS) {
    droppedItems += 1;
    droppedSize += text.length;
    return;
  }
  outputSize += text.length;
  outputItems += 1;
  outputs += (outputs === "" ? "" : ",") + text;
}

// Unhandled rejections. The engine reports a rejection, and later a handler for it if there is one.
const unhandled = new NativeMap();
const MAX_UNHANDLED = 32;

function onRejection(promise, reason, handled) {
  if (handled) mapDelete(unhandled, promise);
  else if (mapSize(unhandled) < MAX_UNHANDLED) mapSet(unhandled, promise, { __proto__: null, reason });
}
