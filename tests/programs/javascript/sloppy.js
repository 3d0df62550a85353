// ---- with => 3
const o = { a: 1, b: 2 }
let r
with (o) r = a + b
r
// ---- an old octal number => 8
010
// ---- an old octal escape => "A"
const s = "\101"
s
// ---- assigning to an undeclared name => 5
function set() { leaked = 5 }
set()
leaked
// ---- a function in a block is seen outside => "inside"
{ function inner() { return "inside" } }
inner()
// ---- arguments => [2, "b"]
function f() { return [arguments.length, arguments[1]] }
f("a", "b")
// ---- arguments and parameters are linked => 9
function f(a) { arguments[0] = 9; return a }
f(1)
// ---- delete of a name => false
var x = 1
delete x
// ---- this in a plain function is the global object => true
(function () { return this === globalThis })()
// ---- var twice => 2
var a = 1
var a = 2
a
// ---- a function declared twice => 2
function f() { return 1 }
function f() { return 2 }
f()
// ---- parameters of the same name => 2
function f(a, a) { return a }
f(1, 2)
// ---- var in a loop is one variable => [3, 3, 3]
var fs = []
for (var i = 0; i < 3; i++) fs.push(function () { return i })
fs.map(function (f) { return f() })
// ---- writing to a constant of an object is ignored => 1
const o = Object.freeze({ a: 1 })
o.a = 2
o.a
// ---- strict mode throws on the same => "TypeError"
"use strict"
const o = Object.freeze({ a: 1 })
try { o.a = 2 } catch (e) { return e.name }
// ---- strict mode in one function => ["undefined", "object"]
function strict() { "use strict"; return typeof this }
function sloppy() { return typeof this }
[strict(), sloppy()]
// ---- a directive in the body of an arrow function => "undefined"
(() => { "use strict"; return (function () { return typeof this })() })()
// ---- a class body is strict => "undefined"
class A { m() { return (function () { return typeof this })() } }
new A().m()
// ---- old methods => ["<b>x</b>", "b"]
["x".bold(), "abc".substr(1, 1)]
// ---- callee => 6
(function (n) { return n <= 1 ? 1 : n * arguments.callee(n - 1) })(3)
// ---- a label on a function => 1
foo: function f() { return 1 }
f()
// ---- getters of the old kind => 4
const o = {}
o.__defineGetter__("x", function () { return 4 })
o.x
// ---- if with a function declaration as its body => "function"
if (true) function g() {}
typeof g
// ---- prototypes by hand => "I am Ada"
function Person(name) { this.name = name }
Person.prototype.say = function () { return "I am " + this.name }
new Person("Ada").say()
// ---- string concatenation and loops of the old kind => "1, 2, 3"
var out = "", i
for (i = 1; i <= 3; i++) {
  out += i
  if (i < 3) out += ", "
}
out
