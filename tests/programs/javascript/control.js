// ---- labelled loops => [[0, 0], [0, 1], [2, 0]]
const seen = []
outer: for (let i = 0; i < 3; i++) {
  for (let j = 0; j < 3; j++) {
    if (i === 1) continue outer
    if (i === 0 && j === 2) continue outer
    if (i === 2 && j === 1) break outer
    seen.push([i, j])
  }
}
seen
// ---- a labelled block => "left"
let r = "left"
done: { if (r) break done; r = "stayed" }
r
// ---- switch with fallthrough and default => ["few", "few", "many"]
const say = (n) => {
  switch (n) {
    case 1:
    case 2: { return "few" }
    default:
      return "many"
  }
}
[1, 2, 3].map(say)
// ---- switch (true) => "mid"
const n = 5
let r
switch (true) {
  case n < 3: r = "low"; break
  case n < 8: r = "mid"; break
  default: r = "high"
}
r
// ---- try, catch and finally => ["try", "catch: x", "finally"]
const log = []
try { log.push("try"); throw new Error("x") }
catch ({ message }) { log.push("catch: " + message) }
finally { log.push("finally") }
log
// ---- a nested try with a rethrow => "outer inner"
try {
  try { throw new Error("inner") } catch (e) { throw new Error("outer " + e.message, { cause: e }) }
} catch (e) {
  text(e.cause.message)
  return e.message
}
// ---- throw of what is no error => {"code": 404}
try { throw { code: 404 } } catch (e) { return e }
// ---- using => ["open", "work", "close"]
const log = []
{
  using file = { [Symbol.dispose]() { log.push("close") } }
  log.push("open")
  log.push("work")
}
log
// ---- await using => ["work", "closed"]
const log = []
async function run() {
  await using session = { async [Symbol.asyncDispose]() { log.push("closed") } }
  log.push("work")
}
await run()
log
// ---- while with a complex condition => 16
let n = 1
while (n < 10 && n !== 0) n *= 2
n
// ---- for with several variables => [3, 0]
let i, j
for (i = 0, j = 3; i < j; i++, j--);
for (i = 3, j = 0; false;);
[i, j]
// ---- an endless for with a break => 10
let n = 0
for (;;) { if (++n === 10) break }
n
// ---- for in => ["a", "b"]
const keys = []
for (const k in { a: 1, b: 2 }) keys.push(k)
keys
// ---- for of over entries => "a=1&b=2"
const parts = []
for (const [k, v] of Object.entries({ a: 1, b: 2 })) parts.push(`${k}=${v}`)
parts.join("&")
// ---- for of over a map with destructuring => 3
let sum = 0
for (const [, { n }] of new Map([["a", { n: 1 }], ["b", { n: 2 }]])) sum += n
sum
// ---- if else chains => "warm"
const t = 20
let r
if (t < 0) r = "freezing"
else if (t < 15) r = "cold"
else if (t < 25) { r = "warm" }
else r = "hot"
r
// ---- nested ternaries => "b"
const x = 2
x === 1 ? "a" : x === 2 ? "b" : x === 3 ? "c" : "d"
// ---- short circuits => [0, "x", null]
[0 && 1, "" || "x", null ?? null]
// ---- exponent and precedence => [512, -8, 7]
[2 ** 3 ** 2, (-2) ** 3, 1 + 2 * 3]
// ---- comma in for and return => 3
return (1, 2, 3)
// ---- debugger does nothing => 1
debugger
1
// ---- an empty statement as a loop body => 3
let n = 0
while (++n < 3);
n
// ---- deep nesting => 5
if (true) { for (const a of [1]) { while (true) { try { switch (a) { case 1: { return (() => { return 5 })() } } } finally {} } } }
// ---- many declarations in one => 10
const a = 1, b = a + 1, c = b + 1,
  d = c + 1
a + b + c + d
// ---- sorting and ranking => ["c", "a", "b"]
const scores = { a: 2, b: 1, c: 3 }
Object.keys(scores).sort((x, y) => scores[y] - scores[x])
// ---- a counter by key => {"bug": 2, "docs": 1}
const counts = {}
for (const label of ["bug", "docs", "bug"]) counts[label] = (counts[label] || 0) + 1
counts
// ---- reduce into an object => {"a": [1, 3], "b": [2]}
[["a", 1], ["b", 2], ["a", 3]].reduce((acc, [k, v]) => ({ ...acc, [k]: [...(acc[k] ?? []), v] }), {})
// ---- chunks => [[1, 2], [3, 4], [5]]
const chunk = (xs, n) => xs.length ? [xs.slice(0, n), ...chunk(xs.slice(n), n)] : []
chunk([1, 2, 3, 4, 5], 2)
// ---- a timeout race => "timeout"
const never = new Promise(() => {})
const timeout = (ms) => new Promise((r) => setTimeout(r, ms, "timeout"))
await Promise.race([never, timeout(5)])
// ---- an interval that is cleared => 3
let n = 0
await new Promise((resolve) => {
  const timer = setInterval(() => { if (++n === 3) { clearInterval(timer); resolve() } }, 1)
})
n
// ---- the order of microtasks and timers => ["sync", "micro", "promise", "timer"]
const log = []
setTimeout(() => log.push("timer"), 0)
queueMicrotask(() => log.push("micro"))
Promise.resolve().then(() => log.push("promise"))
log.push("sync")
await new Promise((r) => setTimeout(r, 5))
log
