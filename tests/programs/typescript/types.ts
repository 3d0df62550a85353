// ---- interfaces => 1
interface Issue { id: number; title?: string; readonly labels: string[] }
const issue: Issue = { id: 1, labels: [] }
issue.id
// ---- a type alias with a return => [1, "d"]
type P = { a: number; b?: string } | null
const p: P = { a: 1 }
return [p!.a, p?.b ?? "d"]
// ---- unions and narrowing => "number 2"
type Shape = { kind: "text"; text: string } | { kind: "number"; n: number }
function show(s: Shape): string {
  switch (s.kind) {
    case "text": return s.text
    case "number": return `number ${s.n}`
  }
}
show({ kind: "number", n: 2 })
// ---- an annotated arrow function as the value => 3
const add = (a: number, b: number = 2): number => a + b
add(1)
// ---- as => 5
const x = 5 as unknown as number
x
// ---- as at the end => 6
6 as number
// ---- satisfies at the end => {"a": 1}
({ a: 1 }) satisfies Record<string, number>
// ---- as const => ["a", "b"]
const labels = ["a", "b"] as const
type Label = (typeof labels)[number]
labels
// ---- a non-null assertion at the end => 7
const m: Map<string, number> = new Map([["k", 7]])
m.get("k")!
// ---- satisfies => [1, 2]
const palette = { red: [1, 2] } satisfies Record<string, [number, number]>
palette.red
// ---- generics => ["a", 1]
function first<T>(xs: T[]): T { return xs[0] }
const box = <T extends string | number>(value: T): { value: T } => ({ value });
[first(["a"]), box(1).value]
// ---- a generic class => 3
class Stack<T> {
  private items: T[] = []
  push(item: T): this { this.items.push(item); return this }
  get size(): number { return this.items.length }
}
new Stack<number>().push(1).push(2).push(3).size
// ---- an enum => [0, 6, "Green"]
enum Color { Red, Green = 5, Blue }
[Color.Red, Color.Blue, Color[5]]
// ---- a const enum and a string enum => [2, "open"]
const enum Level { Low = 1, High = Low << 1 }
enum State { Open = "open", Closed = "closed" }
[Level.High, State.Open]
// ---- functions keep their names => ["boom", "later", "inner"]
function boom(a: number): string { return boom.name }
const name: string = boom(1)
{
  function inner(): string { return inner.name }
  var nested: string = inner()
}
function later(): void {}
[name, later.name, nested]
// ---- sloppy code => ["object", 3, 8]
const o: { a: number } = { a: 3 }
let r: number
with (o) r = a;
[typeof (function (this: any) { return this })(), r, 010]
// ---- the directive in a string is no directive => "object"
const s: string = '"use strict";'
typeof (function (this: any) { return this })()
// ---- a directive in a function only => ["undefined", "object"]
function strict(this: any): string { "use strict"; return typeof this }
function sloppy(this: any): string { return typeof this }
[strict(), sloppy()]
// ---- a namespace => 3
namespace Geometry {
  export const zero = 0
  export function add(a: number, b: number) { return zero + a + b }
}
Geometry.add(1, 2)
// ---- a nested namespace => "deep"
namespace A.B { export const c: string = "deep" }
A.B.c
// ---- a namespace beside await => 4
namespace N { export const one = 1 }
const three = await Promise.resolve(3)
return N.one + three
// ---- a namespace that holds types only => 1
namespace T { export interface I { x: number } }
const v: T.I = { x: 1 }
v.x
// ---- overloads => [1, "a"]
function id(x: number): number
function id(x: string): string
function id(x: any) { return x }
[id(1), id("a")]
// ---- overloaded methods and constructors => "1a"
class A {
  constructor(x: number);
  constructor(x: string);
  constructor(private x: any) {}
  m(): string;
  m(y: string): string;
  m(y: string = ""): string { return this.x + y }
}
new A(1).m("a")
// ---- parameter properties => {"name": "Ada", "team": "platform", "_age": 3}
class Person {
  constructor(public name: string, readonly team: string, protected _age = 3) {}
}
new Person("Ada", "platform")
// ---- an abstract class => "woof"
abstract class Animal {
  abstract sound(): string
  protected speak() { return this.sound() }
}
class Dog extends Animal {
  override sound() { return "woof" }
  public bark(): string { return this.speak() }
}
new Dog().bark()
// ---- implements, modifiers and definite assignment => ["ready", 0]
interface Service { start(): void }
class Tracker implements Service {
  public state!: string
  private static count: number = 0
  readonly #secret?: string
  declare hidden: number
  start(): void { this.state = "ready" }
  static get total(): number { return Tracker.count }
}
const t = new Tracker()
t.start();
[t.state, Tracker.total]
// ---- a decorator of a method => 2
function plusOne(method: any, _context: ClassMethodDecoratorContext) {
  return function (this: any, ...args: any[]) { return method.apply(this, args) + 1 }
}
class A { @plusOne one(): number { return 1 } }
new A().one()
// ---- decorators of a class and of fields => ["field x", "class A"]
const log: string[] = []
const note = (_: unknown, c: DecoratorContext) => { log.push(`${c.kind} ${String(c.name)}`) }
@note class A { @note x = 1 }
log
// ---- a decorator factory => "GET /issues"
const routes: string[] = []
const route = (path: string) => (_: any, context: any) => { routes.push(`${context.name.toUpperCase()} ${path}`) }
class Api { @route("/issues") get() {} }
routes[0]
// ---- an accessor => 5
class A { accessor x: number = 4 }
const a = new A()
a.x += 1
a.x
// ---- declare => "undefined"
declare const foo: number
declare function bar(x: string): void
declare class Baz { q: number }
declare let zz: any
typeof foo
// ---- declare global and declare module => 1
declare global { interface Window { x: number } }
declare module "x" { export const y: number }
1
// ---- declarations of MCP as in the files => 1
declare namespace MCP { namespace tracker { function getIssue(i: { issue_id: number }): Promise<any> } }
const r = await MCP.tracker.getIssue({ issue_id: 1 })
unwrap<{ id: number }>(r).id
// ---- assertion functions and type predicates => ["s", true]
function isString(x: unknown): x is string { return typeof x === "string" }
function assert(x: unknown, message?: string): asserts x { if (!x) throw new Error(message) }
const v: unknown = "s"
assert(isString(v));
[v, isString(v)]
// ---- index signatures and mapped types => {"a": 1}
interface Counts { [label: string]: number }
type Optional<T> = { readonly [K in keyof T]?: T[K] }
type Getters<T> = { [K in keyof T as `get${Capitalize<string & K>}`]: () => T[K] }
const c: Optional<Counts> = { a: 1 }
c
// ---- conditional types and infer => 2
type Awaited2<T> = T extends Promise<infer U extends number> ? U : never
type Ctor = abstract new (...args: any[]) => object
const n: Awaited2<Promise<number>> = 2
n
// ---- template literal types => "on:click"
type Event_ = `on:${"click" | "close"}`
const e: Event_ = "on:click"
e
// ---- unique symbols and keyof => ["sym", "a"]
const key: unique symbol = Symbol("sym")
type Keys = keyof { a: 1; b: 2 }
const k: Keys = "a";
[key.description, k]
// ---- tuples with labels, rest and optional members => [1, "x", true, false]
type Row = [id: number, title: string, ...flags: boolean[]]
type Maybe = [number, string?]
const row: Row = [1, "x", true, false]
const m: Maybe = [1]
row
// ---- this parameters and function types => 3
type Op = (this: { a: number }, b: number) => number
const op: Op = function (b) { return this.a + b }
op.call({ a: 1 }, 2)
// ---- optional parameters and rest types => [1, null, 2]
function f(a: number, b?: string, ...rest: number[]): unknown[] { return [a, b, rest.length] }
f(1, undefined, 2, 3)
// ---- destructured parameters with types => 6
function f({ a, b = 2 }: { a: number; b?: number }, [c]: [number?] = [3]): number { return a + b + (c ?? 0) }
f({ a: 1 })
// ---- catch with unknown => "Error: no"
try {
  throw new Error("no")
} catch (e: unknown) {
  return e instanceof Error ? `${e.name}: ${e.message}` : "?"
}
// ---- for loops with types => 6
let sum: number = 0
for (const n of [1, 2, 3] as number[]) sum += n
for (let i: number = 0; i < 0; i++);
sum
// ---- generators with types => [1, 2]
function* numbers(): Generator<number, void, unknown> { yield 1; yield 2 }
const out: number[] = [...numbers()]
out
// ---- async generators with types => ["a"]
async function* pages(): AsyncGenerator<string> { yield "a" }
const seen: string[] = []
for await (const p of pages()) seen.push(p)
seen
// ---- using with a type => ["b", "d"]
const log: string[] = []
{
  using r: Disposable = { [Symbol.dispose]() { log.push("d") } }
  log.push("b")
}
log
// ---- getters and setters with types => 10
class A {
  #x = 1
  get x(): number { return this.#x }
  set x(v: number) { this.#x = v * 2 }
}
const a: A = new A()
a.x = 5
a.x
// ---- types in strings, comments and templates => "import type { X } from 'y': string"
// import type { X } from "y"
const s: string = "import type { X } from 'y'";
`${s}: string`
// ---- import and export as property names => 3
const o: { import: number; export: number } = { import: 1, export: 2 }
o.import + o.export
// ---- typeof import in a type is not refused => 1
type Fs = { a: number }
const x: Fs["a"] = 1
x
// ---- contextual keywords as names beside types => 6
type type = number
let as: type = 1, of: type = 2, is: type = 3
as + of + is
// ---- keywords as members => [1, 2, 3]
const o: Record<string, number> = { enum: 1, type: 2, interface: 3 };
[o.enum, o.type, o.interface]
// ---- no semicolons => 4
let a: number = 1
let b = a
;[1, 2].forEach((x: number) => { b += x })
type X = string
let c = b as
  number
c
// ---- trailing commas and comments => 3
function f(
  a: number, // one
  b: number, /* two */
): number {
  return a + b
}
f(1, 2,) // the end
// ---- a hashbang => 1
#!/usr/bin/env -S npx tsx
const x: number = 1
x
// ---- a directive => "undefined"
"use strict"
const f = function (): string { return typeof (this as any) }
f()
// ---- a directive and a return => 1
"use strict"
type A = string
const a: number = 1
return a
// ---- an instantiation expression => [2]
const f = (...xs) => xs;
const g = f<number>;
g(2);
// ---- a ternary with typed arrow functions => 1
const a: boolean = true, b = 1
const r = a ? (b) : (c: number): number => c
r
// ---- angle bracket assertions => 5
const x = <number><unknown>5
x
// ---- a generic arrow function with a comma => "g"
const f = <T,>(x: T): T => x
f("g")
// ---- a type at the end leaves nothing => nothing
const a: number = 1
type T = typeof a
// ---- an interface at the end leaves nothing => nothing
const a: number = 1
interface Last { a: number }
// ---- an enum at the end leaves nothing => nothing
enum E { A }
// ---- a namespace at the end leaves nothing => nothing
namespace N { export const a = 1 }
// ---- an expression after an enum => 1
enum E { A, B }
E.B
// ---- an expression after an interface => 1
let n: number = 1
interface A {}
n
// ---- emoji and unicode names with types => ["😀", 2]
const größe: number = 2
const s: string = "😀";
[s, größe]
