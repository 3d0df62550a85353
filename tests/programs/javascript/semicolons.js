// ---- standard style => [1, 2, 3]
const a = [1, 2]
const b = a.concat(3)
b
// ---- a leading semicolon before a bracket => [2, 4]
const out = []
;[1, 2].forEach((x) => out.push(x * 2))
out
// ---- a leading semicolon before a parenthesis => "ran"
let state = "not yet"
;(() => { state = "ran" })()
state
// ---- a leading semicolon before a template => "ok"
const a = "ok"
;`${a}`
// ---- a leading semicolon before the last bracket => ["x"]
const one = "x"
;[one]
// ---- a leading semicolon before the last parenthesis => {"one": 1}
const one = 1
;({ one })
// ---- a leading semicolon before an awaited call => 3
const wait = async (x) => x
;(await wait(3))
// ---- an array on the next line is an index => 2
const list = [1, 2]
list
[1]
// ---- a parenthesis on the next line is a call => 5
const twice = (x) => x * 2
const r = twice
(2.5)
r
// ---- a bracket after an arrow function with a block => ["one", "few"]
const say = (n) => {
  return n === 1 ? "one" : "few"
}
[1, 2].map(say)
// ---- a parenthesis after an arrow function with a block => "done"
const main = async () => {
  return "done"
}
(async () => { return await main() })()
// ---- a template after an arrow function with a block => "2!"
const twice = (n) => { return n * 2 } // no semicolon
`${twice(1)}!`
// ---- an arrow function with a block at the end is still a declaration => nothing
const f = () => {
  return 1
}
// ---- a parenthesis after a function expression is a call => 2
const one = function (x) { return x }
(2)
one
// ---- a line that begins with a dot => "A"
const s = "a"
s
  .toUpperCase()
// ---- an operator at the end of a line => 6
const total = 1 +
  2 +
  3
total
// ---- an operator at the start of a line => 6
1
  + 2
  + 3
// ---- increments on their own line => [1, 1]
let a = 0
let b = 0
a
++b
a++
;[a, b]
// ---- return and its value on two lines => nothing
return
{ a: 1 }
// ---- break and continue without semicolons => [0, 2]
const seen = []
for (let i = 0; i < 9; i++) {
  if (i === 1) continue
  if (i === 3) break
  seen.push(i)
}
seen
// ---- do while without a semicolon => 3
let n = 0
do n++
while (n < 3)
n
// ---- do while with the next statement on the same line => 3
let n = 0
do { n++ } while (n < 3) n
// ---- if without braces => "b"
let r
if (false)
  r = "a"
else
  r = "b"
r
// ---- everything on one line => 6
const a = 1; const b = 2; const c = 3; a + b + c
// ---- class fields without semicolons => [1, 2, 3]
class A {
  x = 1
  y = 2
  static z = 3
  get
  w() { return 4 }
}
const a = new A();
[a.x, a.y, A.z]
// ---- class fields named get, set and static => [1, 2, 3]
class A {
  get = 1
  set = 2
  static = 3
}
const { get, set, static: s } = new A()
;[get, set, s]
// ---- a regular expression after a line break and a semicolon => true
const text_ = "abc"
;/b/.test(text_)
// ---- a division that looks like a regular expression => 2
const a = 8, b = 2, g = 2
a /b/ g
// ---- throw and catch without semicolons => "no"
let r
try { throw new Error("no") } catch (e) { r = e.message }
r
// ---- async on the line before a function => "function"
var async = 1
async
function f() {}
typeof f
// ---- blank lines and tabs around everything => 1


		const a = 1


	a


// ---- let on a line of its own => 1
let
a = 1
a
// ---- an arrow function with a body on the next line => 4
const f = x =>
  x + 3
f(1)
// ---- a comma at the end of arguments => 3
const sum = (a, b,) => a + b
sum(1, 2,)
// ---- many semicolons => 2
;;; const a = 1;;
;
a + 1;;
;
