// ---- one return => 1
return 1
// ---- a return with a semicolon => 1
return 1;
// ---- an expression => 3
1 + 2
// ---- an expression with a semicolon => 3
1 + 2;
// ---- an expression after declarations => 42
const a = 40
const b = 2
a + b
// ---- a call => 3
Math.max(1, 2, 3)
// ---- an awaited call => "done"
await new Promise((resolve) => setTimeout(() => resolve("done"), 1))
// ---- a promise that is not awaited => "done"
Promise.resolve("done")
// ---- a promise of a promise in an array is left as it is => ["[Promise]"]
[Promise.resolve(1)]
// ---- a thenable => 7
({ then(resolve) { resolve(7) } })
// ---- an object literal in parentheses => {"a": 1, "b": {"c": 2}}
({ a: 1, b: { c: 2 } })
// ---- braces at the end are a block with a label => nothing
{ a: 1 }
// ---- an empty pair of braces is a block => nothing
{}
// ---- braces in an assignment are an object => {"a": 1}
let o
o = { a: 1 }
// ---- an array => [1, [2, 3]]
[1, [2, 3]]
// ---- an array over several lines with a comma at the end => [{"id": 1}, {"id": 2}]
[
  { id: 1 },
  { id: 2 },
]
// ---- a string that comes after other statements => "the end"
const x = 1;
"the end"
// ---- a string alone is a directive => nothing
"use strict"
// ---- two directives => nothing
"use strict"
'use asm'
// ---- a string in parentheses is an expression => "use strict"
("use strict")
// ---- a directive and an expression => "undefined"
"use strict";
(function () { return typeof this })()
// ---- a directive and a return => 5
'use strict'
return 5
// ---- a directive at the end is a string => "use strict"
const y = 1;
"use strict"
// ---- a template => "2 and 3"
const n = 2;
`${n} and ${n + 1}`
// ---- a regular expression => "/a[/]b/gi"
/a[/]b/gi
// ---- a regular expression that is tested => true
/^\d+$/.test("42")
// ---- an arrow function => "[Function]"
[(x) => x][0]
// ---- an arrow function without parentheses => "[Function]"
[x => x * 2][0]
// ---- an async arrow function is not called => "[Function]"
[async () => 1][0]
// ---- an assigned arrow function => "[Function: f]"
let f
f = () => 1
// ---- a class expression in parentheses => "Point"
(class Point {}).name
// ---- new => {"x": 1}
class Point { constructor() { this.x = 1 } }
new Point()
// ---- new without parentheses => "1970-01-01T00:00:00.000Z"
new Date(0)
// ---- new Map => {"a": 1}
new Map([["a", 1]])
// ---- void => nothing
void 0
// ---- a comma expression => 3
1, 2, 3
// ---- an assignment => 5
let five
five = 5
// ---- an assignment to an undeclared name => 5
undeclared = 5
// ---- an assignment to a member => 6
const target = {}
target.value = 6
// ---- a compound assignment => 8
let eight = 3
eight += 5
// ---- a logical assignment => "kept"
let kept = null
kept ??= "kept"
// ---- destructuring as the last expression => [2, 1]
let p = 1, q = 2;
[p, q] = [q, p]
// ---- destructuring of an object as the last expression => {"d": 4}
let d;
({ d } = { d: 4 })
// ---- an increment => 1
let count = 0
++count
// ---- a decrement that gives the value before => 3
let left = 3
left--
// ---- delete => true
const gone = { a: 1 }
delete gone.a
// ---- typeof => "undefined"
typeof nothingOfThatName
// ---- in => true
"a" in { a: 1 }
// ---- a comparison => false
1 > 2
// ---- negation => true
!0
// ---- minus => -5
-5
// ---- a ternary => "yes"
1 < 2 ? "yes" : "no"
// ---- a ternary over lines => "large"
const size = 11
size > 10
  ? "large"
  : "small"
// ---- a chain over lines => 12
[1, 2, 3]
  .map((x) => x * 2)
  .filter((x) => x > 0)
  .reduce((a, b) => a + b, 0)
// ---- an optional chain => nothing
const maybe = null
maybe?.a.b.c
// ---- nullish coalescing => "default"
null ?? "default"
// ---- null => nothing
null
// ---- false => false
false
// ---- zero => 0
0
// ---- an empty string after a statement => ""
const _ = 1;
""
// ---- NaN => nothing
NaN
// ---- this => true
this !== null
// ---- a big integer => 9007199254740993
9007199254740993n
// ---- a name => [1]
const list = [1]
list
// ---- let at the end gives nothing => nothing
let last = 1
// ---- const at the end gives nothing => nothing
const last = 1;
// ---- a function at the end gives nothing => nothing
let called = 0
function last() { return 1 }
// ---- a class at the end gives nothing => nothing
class Last { a() { return 1 } }
// ---- an if at the end gives nothing => nothing
if (true) { 1 }
// ---- a loop at the end gives nothing => nothing
for (const x of [1, 2]) { x }
// ---- a try at the end gives nothing => nothing
try { 1 } catch { 2 }
// ---- a block at the end gives nothing => nothing
{ 1 }
// ---- a switch at the end gives nothing => nothing
switch (1) { case 1: "one" }
// ---- an expression after a function => 1
function one() { return 1 }
one()
// ---- an expression after a class => 1
class One { get value() { return 1 } }
new One().value
// ---- an expression after a block => 2
{ const inner = 1 }
2
// ---- an expression after an if with a nested return => 2
const f = (x) => { if (x) { return 1 } return 2 }
f(false)
// ---- returns in getters, setters and methods do not count => 4
const o = {
  get a() { return 1 },
  set a(v) { return },
  b() { return 2 },
  async c() { return 3 },
  *d() { return 4 },
  [`e`]() { return 5 },
}
o.d().next().value
// ---- returns in class members and static blocks do not count => 6
class Counter {
  static #n = 0
  static { (() => { return 1 })(); Counter.#n = 5 }
  static next() { return ++Counter.#n }
  field = () => { return 7 }
}
Counter.next()
// ---- a return in a callback does not count => [2, 4]
[1, 2].map(function (x) { return x * 2 })
// ---- the word return in a string, comment and name does not count => "return"
// return nothing
const o = { return: "return" } /* return 2 */
o.return
// ---- a return in an if at the top counts => "early"
const issues = []
if (issues.length === 0) return "early"
issues.length
// ---- a return that is not reached leaves nothing => nothing
if (false) return "early"
"late"
// ---- a return in a loop counts => 2
for (const x of [1, 2, 3]) {
  if (x === 2) return x
}
"none"
// ---- a return in a try counts => "tried"
try {
  return "tried"
} catch (e) {
  text(e.message)
}
"after"
// ---- a return in a finally counts => "finally"
try { throw new Error("x") } catch { return "catch" } finally { return "finally" }
// ---- a return in a switch counts => "b"
switch ("b") {
  case "a": return "a"
  case "b": return "b"
}
// ---- a return in a bare block counts => 1
{ return 1 }
// ---- a return in a labelled block counts => 1
outer: { if (true) { return 1 } break outer }
// ---- a return without a value => nothing
return
// ---- a return without a value before an expression => nothing
return
42
// ---- code after a return => 1
return f()
function f() { return 1 }
// ---- a return of an object over lines => {"a": 1, "b": 2}
return {
  a: 1,
  b: 2,
};
// ---- a return of an awaited array => [1, 2]
return await Promise.all([1, Promise.resolve(2)])
// ---- only a comment => nothing
// nothing to do
// ---- empty statements after the expression => 1
1;;;
// ---- an expression and a block comment => 1
1 /* one */ ; /* and
nothing else */
// ---- yield_control as an expression => nothing
yield_control()
