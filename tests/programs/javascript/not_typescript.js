// ---- comparisons that look like type arguments => false
const a = 1, b = 2, c = 3
a < b > (c)
// ---- comparisons as arguments => [true, false]
const f = (...xs) => xs, a = 1, b = 2, c = 3, d = 2
f(a < b, c > d && false)
// ---- two comparisons in a call that look like one generic call => [true, true]
const f = (...xs) => xs, a = 1, b = 2, c = 3
f(a < b, c > (2))
// ---- a label and an expression => 1
const b = 1
a: b
b
// ---- a ternary with arrow functions => [2, 3]
const pick = (x, y) => x ? (y) : z => z + 1;
[pick(true, 2), pick(false, 0)(2)]
// ---- a ternary with parentheses and an arrow function => 5
const a = false
const f = a ? (x) => x : (x, y) => x + y
f(2, 3)
// ---- a ternary with an object and a label look alike => {"b": 1}
const a = true, b = 1
a ? { b } : { c: 2 }
// ---- as on a line of its own => 3
let x = 1
let as = 2
x
as
x + as
// ---- a name followed by an exclamation mark on the next line => true
const a = false
a
!a
// ---- a not-equal without spaces => true
const a = 1, b = 2
a!=b
// ---- a double negation => true
const a = 1
!!a
// ---- a call of a name in angle brackets of numbers => true
1 < 2 && 3 > (2)
// ---- declare as a call => 1
const declare = (x) => x
declare(1)
// ---- type as a call => "t"
const type = (x) => x
type("t")
// ---- type as the target of an assignment => 3
let type
type = 3
// ---- namespace as the object of a member => 4
const namespace = { x: 4 }
namespace.x
// ---- abstract before a class on the next line => "A"
var abstract = 1
abstract
class A {}
A.name
// ---- interface before a block on the next line => 1
var interface = 1, Foo = 2
interface
Foo
{ 3 }
interface
// ---- an at sign in a string => "@decorator class"
const s = "@decorator class"
s
// ---- optional chaining against a ternary with a decimal => 0.5
return true?.5:1
// ---- an arrow function that returns a comparison => true
const f = (a) => a < 3 > false
f(1)
// ---- shifts => [1, 8, 4294967295]
[4 >> 2, 1 << 3, -1 >>> 0]
// ---- a regular expression that looks like a type assertion => true
/<number>/.test("<number>")
// ---- markup in a string that looks like JSX => "<div className='a'>"
const jsx = "<div className='a'>"
jsx
// ---- a colon after parentheses in an object => {"f": 1}
const o = { f(x) { return x } };
({ f: o.f(1) })
// ---- an object that looks like an interface => {"name": "string", "age": "number"}
const schema = { name: "string", age: "number" }
schema
// ---- destructuring with renaming that looks like a type => "v"
const { a: string } = { a: "v" }
string
// ---- a parameter with renaming that looks like a type => 2
const f = ({ a: number }) => number
f({ a: 2 })
// ---- unique and readonly as members => 3
const o = { readonly: 1, unique: 2 }
o.readonly + o.unique
// ---- a method called declare in a class => 1
class A { declare() { return 1 } readonly = 2; type() { return 3 } }
new A().declare()
// ---- a field called declare => [1, 2]
class A { declare = 1; abstract = 2 }
const a = new A();
[a.declare, a.abstract]
// ---- of and in as names inside loops => [1]
const r = []
for (var of of [1]) r.push(of)
r
// ---- async as a name in a loop => [1]
const r = []
for (async = 0; async < 1; async++) r.push(1)
r
// ---- an enum made by hand => ["A", 0]
const Enum = Object.freeze({ A: 0, 0: "A" });
[Enum[0], Enum.A]
