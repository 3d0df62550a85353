// The mailbox. What leaves the guest in a turn is kept as text; what comes in settles a promise the guest waits for.
// Guest code never calls the host: it leaves a message here and the host reads it when the job queue is dry.
const pending = new NativeMap();
const bridgeErrors = new NativeWeakMap();
let lastId = 0;

// Calls that remember where they were made, for the error they may end with; a flood of calls does not.
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

// A promise whose own `constructor` lets `await` use it as it is, whatever becomes of Promise.prototype. The glue makes
// such a promise with what settles it.
const OWN_CONSTRUCTOR = freeze(hidden(NativePromise));
const { deferred } = natives;
setFunction(7, NativePromise);

function newPromise(executor) {
  const promise = new NativePromise(executor);
  defineProperty(promise, "constructor", OWN_CONSTRUCTOR);
  return promise;
}

// The stack of who called the function `above`. Frames of ours would cost more than all else in a call.
function stackAbove(above) {
  const at = objectCreate(null);
  captureStackTrace(at, above);
  return at.stack;
}

// `fields` is a function because reading the guest's arguments may throw: that rejects, it does not throw.
// With `boxed` the answer is an array, whose first element, if any, is the value: there is no undefined in JSON.
// `above` is the function of ours that the guest has called.
function request(op, fields, boxed = false, call = false, above = request) {
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
  mapSet(pending, id, { __proto__: null, resolve, reject, site, boxed, call, timer: null });
  if (call) liveCalls += 1;
  return promise;
}

// Above the frames of a program, so that what went wrong is not looked for in its text.
const OUR_FRAME = "    at request (native)\n";

function bridgeError(plain, site) {
  const error = new NativeError(plain.message);
  defineProperty(error, "name", hidden(plain.name));
  defineProperty(error, "code", hidden(plain.code));
  if (plain.data !== null) defineProperty(error, "data", hidden(plain.data));
  defineProperty(error, "stack", hidden(site));
  weakSet(bridgeErrors, error, plain.code);
  return error;
}

function unbox(list) {
  return list.length === 0 ? undefined : list[0];
}

// A nested call. Beyond `callLimit` unsettled ones the host would refuse them one by one; a flood is refused here, with
// one rejection for all, so that it costs the guest little.
let callLimit = 0;
let liveCalls = 0;
let refusal = null;

function requestCall(op, fields, above) {
  if (liveCalls >= callLimit) {
    if (refusal === null) {
      const message = "too many calls in flight: " + liveCalls + " are unsettled; await some before making more";
      const plain = { __proto__: null, name: "ToolCallError", message, code: "too_many_pending_tool_calls", data: null };
      refusal = newPromise((resolve, reject) => reject(bridgeError(plain, new NativeError().stack)));
    }
    return refusal;
  }
  return request(op, fields, false, true, above);
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
  if (waiting.call && error === null) watchError(id, value);
  if (error === null) waiting.resolve(waiting.boxed ? unbox(value) : value);
  else waiting.reject(bridgeError(error, OUR_FRAME + waiting.site));
}

// The texts of results with `isError` that the program has not looked at, by the number of their call. The first read of
// `isError` counts as looking: by unwrap, by the program, or by JSON, since a model then sees it. The results themselves
// are not kept: they may be large, and the program may change them.
const unchecked = new NativeMap();
const MAX_UNCHECKED = 32;

function watchError(id, result) {
  if (result === null || typeof result !== "object" || !hasOwn(result, "isError") || result.isError !== true) return;
  if (mapSize(unchecked) >= MAX_UNCHECKED) return;
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
      // Of an object that inherits from the result, as an assignment to a plain property does.
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

// Unhandled rejections; the engine reports both the rejection and a handler that comes late.
const unhandled = new NativeMap();
const MAX_UNHANDLED = 32;

function onRejection(promise, reason, handled) {
  if (handled) mapDelete(unhandled, promise);
  else if (mapSize(unhandled) < MAX_UNHANDLED) mapSet(unhandled, promise, { __proto__: null, reason });
}
