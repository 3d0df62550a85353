// The four entries the host calls, with one string in and, from `collect`, one string out. `fault` is handed what ended
// the job queue early.
let state = "pending";
let result = "null";
let failure = "null";
let fault_ = "null";
let returning = false; // its value is being written as JSON, or was when that failed
let tooLarge = 0; // characters of its value, if the host would not take that
const MAX_VALUE = 24 * 1024 * 1024; // the host's MAX_TURN_BYTES

async function runCell(cell) {
  try {
    const promise = apply(cell, undefined, []);
    defineProperty(promise, "constructor", hidden(NativePromise));
    const value = await promise;
    returning = true;
    if (typeof value === "string" && value.length > MAX_VALUE) tooLarge = value.length;
    else {
      result = toJsonText(value);
      if (result.length > MAX_VALUE) {
        tooLarge = result.length;
        result = "null";
      }
    }
    state = "done";
  } catch (error) {
    try {
      failure = describe(error);
    } catch (fault) {
      failure = describe(fault); // reading it took the last of the memory
    }
    state = "failed";
  }
}

// The engine pastes the text into a function and evaluates that, so a text can close the function and open another. In a
// block with a label that it cannot know, such a text does not parse. Blocks refuse some good programs too, so the host
// asks for this (with a label) only where its own parser stumbles.
function compile(body, label) {
  let cell;
  try {
    cell = new AsyncFunction(body);
  } catch (error) {
    if (label === null || getPrototypeOf(error) === syntaxErrorPrototype) throw error;
  }
  if (label !== null) new AsyncFunction(label + ":{" + body + "\nbreak " + label + "}");
  return cell;
}

// start: { code, fallback: string | null, label: string | null, seed: 64 hex digits, outputLimit, callLimit, file, elapsed, zones, args, namespaces }
function start(text) {
  const message = jsonParse(text);
  seedRandom(message.seed);
  setClock(message.elapsed);
  outputLimit = message.outputLimit;
  callLimit = message.callLimit;
  cellFile = message.file;
  setZones(message.zones);
  defineNamespaces(message.namespaces);
  defineGlobal("args", freeze(message.args));
  let cell;
  try {
    cell = compile(message.code, message.label);
  } catch (error) {
    if (message.fallback === null) return syntaxError(error);
    try {
      cell = compile(message.fallback, message.label);
    } catch (second) {
      return syntaxError(second);
    }
  }
  runCell(cell);
}

function syntaxError(error) {
  failure = describe(error);
  state = "syntax";
}

// deliver: { elapsed, completions: [[id, value, null | { name, message, code, data }]] }
function deliver(text) {
  const message = jsonParse(text);
  setClock(message.elapsed);
  const { completions } = message;
  for (let i = 0; i < completions.length; i++) settle(completions[i][0], completions[i][1], completions[i][2]);
}

// Describing a rejection may run a proxy's traps, and so may never end: the next attempt is without.
let describing = false;

function collect() {
  if (state === "pending" && outputs === "" && fault_ === "null" && droppedItems === 0) {
    const text = '{"state":"pending","calls":[' + calls + "]}";
    calls = "";
    return text;
  }
  let rejections = "";
  let errors = "";
  if ((state === "done" || state === "failed") && !describing) {
    describing = true;
    mapForEach(unhandled, (entry) => {
      rejections += (rejections === "" ? "" : ",") + describeQuietly(entry.reason);
    });
    describing = false;
  }
  if (state === "done" || state === "failed") {
    mapForEach(unchecked, (text, id) => {
      errors += (errors === "" ? "" : ",") + '{"id":' + id + ',"text":' + jsonStringify(text) + "}";
    });
  }
  const text =
    '{"state":"' + state + '","value":' + result + ',"error":' + failure + ',"fault":' + fault_ +
    ',"calls":[' + calls + '],"outputs":[' + outputs + '],"droppedItems":' + droppedItems +
    ',"droppedSize":' + droppedSize + ',"rejections":[' + rejections + '],"unchecked":[' + errors + '],"returning":' + returning + ',"tooLarge":' + tooLarge + "}";
  calls = "";
  outputs = "";
  return text;
}

function fault(error) {
  fault_ = describe(error);
}

function moduleDenied() {
  const message = "there are no modules here; call tools through MCP and tools, and read API for their declarations";
  return bridgeError(
    { __proto__: null, name: "TypeError", message, code: "module_access_denied", data: null },
    new NativeError().stack,
  );
}

return [start, deliver, collect, fault, onRejection, moduleDenied, install];
