// Timers. The host keeps their due times, also during a suspension, and the guest keeps the callbacks.
const MAX_TIMERS = 10_000;
let liveTimers = 0;

function startTimer(callback, delay, args, repeat) {
  if (typeof callback !== "function") {
    throw new NativeTypeError("a timer takes a function to call, not " + (callback === null ? "null" : typeof callback));
  }
  if (liveTimers >= MAX_TIMERS) throw new NativeRangeError("too many timers: at most " + MAX_TIMERS + " at a time");
  let ms = +delay;
  ms = ms > 0 ? (ms < 2147483647 ? mathFloor(ms) : ms === Infinity ? 1 : 2147483647) : 0;
  if (repeat && ms < 1) ms = 1;
  const id = post("timer", ',"ms":' + ms);
  liveTimers += 1;
  mapSet(pending, id, { __proto__: null, call: false, timer: { __proto__: null, callback, args, ms: repeat ? ms : null } });
  return id;
}

function fireTimer(id, timer) {
  if (timer.ms === null) {
    mapDelete(pending, id);
    liveTimers -= 1;
  } else {
    calls += (calls === "" ? "" : ",") + '{"id":' + id + ',"op":"timer","ms":' + timer.ms + "}";
  }
  // In a job, so that an error is reported like an unhandled rejection and does not stop other callbacks.
  newPromise((resolve) => {
    resolve(apply(timer.callback, undefined, timer.args));
  });
}

function clearTimer(id) {
  if (typeof id !== "number") return;
  const waiting = mapGet(pending, id);
  if (waiting === undefined || waiting.timer === null) return;
  mapDelete(pending, id);
  liveTimers -= 1;
  post("clear", ',"target":' + id);
}

defineGlobal("setTimeout", exposed("setTimeout", (callback, delay, ...args) => startTimer(callback, delay, args, false)));
defineGlobal("setInterval", exposed("setInterval", (callback, delay, ...args) => startTimer(callback, delay, args, true)));
defineGlobal("clearTimeout", exposed("clearTimeout", (id) => clearTimer(id)));
defineGlobal("clearInterval", exposed("clearInterval", (id) => clearTimer(id)));

// `queueMicrotask` of the glue calls this for each microtask, and for an argument that is not a function.
setFunction(4, (callback) => {
  if (typeof callback !== "function") throw new NativeTypeError("queueMicrotask takes a function");
  try {
    callback();
  } catch (error) {
    newPromise((_, reject) => reject(error));
  }
});
defineGlobal("queueMicrotask", exposed("queueMicrotask", natives.queueMicrotask));

// The time since the run started, including suspensions, also on another machine.
let elapsedAtTurn = 0;
let clockAtTurn = 0;

function setClock(elapsed) {
  elapsedAtTurn = elapsed;
  clockAtTurn = nativeClock();
}

function elapsedNow() {
  return elapsedAtTurn + (nativeClock() - clockAtTurn);
}

defineGlobal("performance", freeze({ now: exposed("now", () => elapsedNow()) }));
