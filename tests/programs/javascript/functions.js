// ---- an immediately invoked function => 1
(function () { return 1 })()
// ---- an immediately invoked arrow function => 2
(() => 2)()
// ---- an immediately invoked async arrow function => 3
(async () => { return 3 })()
// ---- an immediately invoked async function with a semicolon => 4
(async function main() {
  await null;
  return 4;
})();
// ---- an awaited immediately invoked function => 5
await (async () => { await null; return 5 })()
// ---- a returned immediately invoked function => 6
return (async () => 6)()
// ---- a main function that is called => "main"
async function main() {
  const value = await Promise.resolve("main")
  return value
}
main()
// ---- a main function that is called and returned => "main"
const main = async () => "main"
return await main()
// ---- a main function with a catch => "caught: no"
async function main() { throw new Error("no") }
main().catch((e) => `caught: ${e.message}`)
// ---- then chains => 4
Promise.resolve(1).then((x) => x + 1).then((x) => x * 2)
// ---- finally => [1, "cleaned"]
const log = []
const x = await Promise.resolve(1).finally(() => { log.push("cleaned") });
[x, ...log]
// ---- an exclamation mark before the function => true
!function () {}()
// ---- void before the function => nothing
void (async () => { text("ran") })()
// ---- closures => [1, 2, 1]
const counter = () => { let n = 0; return () => ++n }
const a = counter(), b = counter();
[a(), a(), b()]
// ---- closures over a loop variable => [0, 1, 2]
const fs = []
for (let i = 0; i < 3; i++) fs.push(() => i)
fs.map((f) => f())
// ---- currying => 6
const add = (a) => (b) => (c) => a + b + c
add(1)(2)(3)
// ---- recursion => 120
const factorial = (n) => (n <= 1 ? 1 : n * factorial(n - 1))
factorial(5)
// ---- hoisting => "hoisted"
const r = later()
function later() { return "hoisted" }
r
// ---- defaults, rest and spread => [1, 2, [3, 4]]
const f = (a, b = 2, ...rest) => [a, b, rest]
f(...[1, undefined], ...[3, 4])
// ---- destructured parameters with defaults => ["t", 10, ["x"]]
function search({ title = "t", limit = 10, labels: [first = "x", ...others] = [] } = {}) {
  return [title, limit, [first, ...others]]
}
search()
// ---- nested destructuring => [1, 3, {"e": 5}]
const { a: { b: [x, , y] }, ...rest } = { a: { b: [1, 2, 3] }, e: 5 };
[x, y, rest]
// ---- a generator => [0, 1, 1, 2, 3, 5]
function* fibonacci() {
  let [a, b] = [0, 1]
  while (true) { yield a; [a, b] = [b, a + b] }
}
const first = []
for (const n of fibonacci()) { if (first.length === 6) break; first.push(n) }
first
// ---- yield* and return values => [1, 2, "end"]
function* inner() { yield 1; yield 2; return "end" }
function* outer() { const r = yield* inner(); yield r }
[...outer()]
// ---- an async generator => [1, 2, 3]
async function* pages() { for (let i = 1; i <= 3; i++) { await null; yield i } }
const seen = []
for await (const page of pages()) seen.push(page)
seen
// ---- for await over promises => ["a", "b"]
const r = []
for await (const x of [Promise.resolve("a"), "b"]) r.push(x)
r
// ---- an iterable object => [3, 2, 1]
const countdown = { *[Symbol.iterator]() { for (let i = 3; i > 0; i--) yield i } };
[...countdown]
// ---- an async iterable object => [0, 1]
const source = { [Symbol.asyncIterator]() { let i = 0; return { next: async () => ({ value: i, done: i++ >= 2 }) } } }
const got = []
for await (const x of source) got.push(x)
return got
// ---- iterator helpers => [4, 16]
[1, 2, 3, 4].values().filter((x) => x % 2 === 0).map((x) => x * x).toArray()
// ---- a class with everything => ["rex: woof", 2, "Dog(rex)", true]
class Animal {
  static count = 0
  #name
  constructor(name) { this.#name = name; Animal.count++ }
  get name() { return this.#name }
  set name(v) { this.#name = v }
  speak() { return `${this.name}: ...` }
  toString() { return `${this.constructor.name}(${this.#name})` }
  static isAnimal(x) { return #name in x }
}
class Dog extends Animal {
  speak() { return super.speak().replace("...", "woof") }
}
const rex = new Dog("Rex")
rex.name = rex.name.toLowerCase()
new Dog("other");
[rex.speak(), Animal.count, String(rex), Animal.isAnimal(rex)]
// ---- a class expression with a computed method => 8
const key = "run"
const A = class { [key + "It"]() { return 8 } }
new A().runIt()
// ---- a mixin => ["a", "b"]
const B = (Base) => class extends Base { b() { return "b" } }
class A { a() { return "a" } }
const x = new (B(A))();
[x.a(), x.b()]
// ---- a subclass of Error => ["RetryError", "failed", 3, true]
class RetryError extends Error {
  constructor(message, attempts) { super(message); this.name = "RetryError"; this.attempts = attempts }
}
try { throw new RetryError("failed", 3) } catch (e) {
  return [e.name, e.message, e.attempts, e instanceof RetryError]
}
// ---- a proxy => "no a"
const p = new Proxy({}, { get: (_, key) => `no ${String(key)}` })
p.a
// ---- a getter defined on an object => 7
const o = Object.defineProperty({}, "x", { get() { return 7 } })
o.x
// ---- call, apply and bind => [1, 2, 3]
function f() { return this.v }
const g = f.bind({ v: 3 });
[f.call({ v: 1 }), f.apply({ v: 2 }, []), g()]
// ---- a function with properties => 2
function f() { return f.calls = (f.calls ?? 0) + 1 }
f(); f()
f.calls
// ---- memoisation => [6, 1]
let computed = 0
const memo = new Map()
const f = (n) => { if (!memo.has(n)) { computed++; memo.set(n, n * 2) } return memo.get(n) }
f(3); f(3);
[f(3), computed]
// ---- compose => 9
const compose = (...fs) => (x) => fs.reduceRight((v, f) => f(v), x)
compose((x) => x + 1, (x) => x * 2)(4)
// ---- an arrow function that returns an object => {"a": 1}
const f = () => ({ a: 1 })
f()
// ---- an arrow function with a block returns nothing => nothing
const f = () => { a: 1 }
f()
// ---- Promise.withResolvers => "later"
const { promise, resolve } = Promise.withResolvers()
setTimeout(() => resolve("later"), 1)
await promise
// ---- async functions in parallel => [1, 2, 3]
const work = async (n) => { await null; return n }
await Promise.all([1, 2, 3].map(work))
// ---- sequential awaits in a loop => 6
let sum = 0
for (const n of [1, 2, 3]) sum += await Promise.resolve(n)
sum
// ---- await in odd places => [3, "b", 2]
const o = { [await "key"]: (await 1) + await 2 }
const t = `${await "b"}`
const d = ((x) => x)(await 2);
[o.key, t, d]
// ---- await in a default of destructuring => 4
const { a = await Promise.resolve(4) } = {}
a
// ---- await of a value that is no promise => 1
await 1
// ---- a number of awaits in one expression => 3
await 1 + await 2
// ---- allSettled => ["fulfilled", "rejected"]
const results = await Promise.allSettled([Promise.resolve(1), Promise.reject(new Error("x"))])
results.map((r) => r.status)
// ---- any => 2
await Promise.any([Promise.reject(1), Promise.resolve(2)])
// ---- structuredClone and Object.groupBy => {"odd": [1, 3], "even": [2]}
const copy = structuredClone([1, 2, 3])
Object.groupBy(copy, (x) => (x % 2 ? "odd" : "even"))
