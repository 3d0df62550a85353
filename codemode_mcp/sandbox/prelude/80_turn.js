// The four functions that the host calls. `start` and `deliver` take a string, `collect` returns one, and `fault` takes
// the error that ended the job queue early.
let state = "pending";
let result = "null";
let failure = "null";
let fault_ = "null";
let returning = false; // the program has returned, and its value is converted to JSON
let lost = ""; // of the value, see lostIn
let tooLarge = 0; // characters of its value if that is larger than MAX_VALUE
const MAX_VALUE = 24 * 1024 * 1024; // MAX_TURN_BYTES of the host

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
      } else if (stringIndexOf(result, "null") >= 0) lost = lostValue(value);
    }
    state = "done";
  } catch (error) {
    try {
      failure = describe(error);
    } catch (fault) {
      failure = describe(fault); // reading the error has used up the memory
    }
    state = "failed";
  }
}

// The engine puts the text into a function and evaluates that, so a text could close the function and open another.
// Within a block with an unknown label, such a text does not parse. A block refuses some valid programs, too, so the
// host passes a label only if its own parser finds errors.
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

// start: { code, fallback: string | null, label: string | null, seed: 64 hex digits, outputLimit, callLimit, file, lines, elapsed, zones, args,
//          saving: null | { language, source }, namespaces }
function start(text) {
  const message = parseExactly(text);
  seedRandom(message.seed);
  setClock(message.elapsed);
  outputLimit = message.outputLimit;
  callLimit = message.callLimit;
  cellFile = message.file;
  cellLines = message.lines;
  setZones(message.zones);
  defineNamespaces(message.namespaces);
  defineGlobal("args", freeze(message.args));
  if (message.saving !== null) defineSaving(message.saving);
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
  const message = parseExactly(text);
  setClock(message.elapsed);
  const { completions } = message;
  for (let i = 0; i < completions.length; i++) settle(completions[i][0], completions[i][1], completions[i][2]);
}

// Reading a rejection may run traps of a proxy and never end. The next attempt leaves rejections out.
let describing = false;

function collect() {
  if (setSize(keptTargets) > 0) setClear(keptTargets);
  if (state === "pending" && outputs === "" && fault_ === "null" && droppedItems === 0) {
    const text = '{"state":"pending","calls":[' + calls + "]}";
    calls = "";
    return text;
  }
  let rejections = "";
  let errors = "";
  let parts = "";
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
    mapForEach(leftOut, (left, tool) => {
      parts +=
        (parts === "" ? "" : ",") + '{"tool":' + jsonStringify(tool) + ',"parts":' + jsonStringify(left.parts) +
        ',"taken":' + jsonStringify(left.taken) + ',"count":' + left.count + "}";
    });
  }
  const text =
    '{"state":"' + state + '","value":' + result + ',"error":' + failure + ',"fault":' + fault_ +
    ',"calls":[' + calls + '],"outputs":[' + outputs + '],"droppedItems":' + droppedItems +
    ',"droppedSize":' + droppedSize + ',"rejections":[' + rejections + '],"unchecked":[' + errors + '],"leftOut":[' + parts + '],"returning":' + returning + ',"tooLarge":' + tooLarge + ',"lost":' + jsonStringify(lost) + "}";
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
    framesOf(new NativeError()),
  );
}

return [start, deliver, collect, fault, onRejection, moduleDenied, install, addIntl];
