// Runs programs in Node, one after the other: each line of standard input is the body of an async function as JSON, and
// each line of standard output its outcome. Timers run without waiting, in the order in which they are due.
"use strict";
const { Console } = require("node:console");
const { Writable } = require("node:stream");
const AsyncFunction = (async () => {}).constructor;
const { setImmediate: afterMicrotasks } = globalThis;

let printed = [];
const stream = new Writable({ write(chunk, _, done) { printed.push(String(chunk).replace(/\n$/, "")); done(); } });

let timers = [];
let clock = 0;
let lastTimer = 0;
const start = (callback, ms, args, repeat) => {
  const delay = Math.max(1, Math.floor(ms) || 1);
  timers.push({ id: ++lastTimer, due: clock + delay, callback, args, repeat: repeat ? delay : 0 });
  return lastTimer;
};
const stop = (id) => { timers = timers.filter((timer) => timer.id !== id); };
globalThis.setTimeout = (callback, ms, ...args) => start(callback, ms, args, false);
globalThis.setInterval = (callback, ms, ...args) => start(callback, ms, args, true);
globalThis.clearTimeout = globalThis.clearInterval = stop;
process.on("unhandledRejection", () => {});

async function run(body) {
  printed = [];
  timers = [];
  clock = 0;
  globalThis.console = new Console({ stdout: stream, stderr: stream, colorMode: false });
  let outcome = null;
  const settled = (value, error) => {
    const said = error && { name: String(error.name), message: String(error.message) };
    outcome ??= { value, error: said, outputs: [...printed] };
  };
  let program;
  try {
    program = new AsyncFunction(body);
  } catch (error) {
    return { value: null, error: { name: error.name, message: error.message }, outputs: [] };
  }
  program().then(
    (value) => settled(JSON.parse(JSON.stringify(value) ?? "null"), null),
    (error) => settled(null, error instanceof Error ? error : { name: "Uncaught", message: String(error) }),
  ).catch((error) => settled(null, { name: "unreadable", message: String(error) }));
  for (;;) {
    await new Promise((resolve) => afterMicrotasks(resolve));
    if (outcome !== null) return outcome;
    const next = timers.reduce((a, b) => (a === null || b.due < a.due ? b : a), null);
    if (next === null) return { value: null, error: { name: "pending", message: "" }, outputs: printed };
    clock = next.due;
    if (next.repeat > 0) next.due += next.repeat;
    else stop(next.id);
    try { next.callback(...next.args); } catch {}
  }
}

(async () => {
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    const outcome = await run(JSON.parse(line));
    process.stdout.write(JSON.stringify(outcome) + "\n");
  }
})();
