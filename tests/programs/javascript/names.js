// ---- async as a name => 1
var async = 1
async
// ---- async as a function => 2
function async(x) { return x }
async(2)
// ---- async arrow with one parameter => 3
const f = async x => x
await f(3)
// ---- await as a name in a function that is not async => 4
function f() { var await = 4; return await }
f()
// ---- yield as a name => 5
var yield = 5
yield
// ---- let as a name => 6
var let = 6
let
// ---- of as a name => [1, 2]
const of = [1, 2]
const r = []
for (const x of of) r.push(x)
r
// ---- get, set and static as names => 6
const get = 1, set = 2
var static = 3
get + set + static
// ---- type as a name => "bug"
const type = "bug"
type
// ---- type on a line before another name => 2
let type = 1, Foo = 1
type
Foo = 2
// ---- interface as a name => 1
var interface = 1
interface
// ---- declare, namespace and abstract as names => 6
let declare = 1, namespace = 2, abstract = 3
declare + namespace + abstract
// ---- namespace before a name on the next line => "n"
let namespace = "n", Foo = 1
namespace
Foo
namespace
// ---- as and satisfies as names => 3
const as = 1, satisfies = 2
as + satisfies
// ---- is, keyof, infer, readonly and unique as names => 15
const is = 1, keyof = 2, infer = 3, readonly = 4, unique = 5
is + keyof + infer + readonly + unique
// ---- any, unknown, never, object, string, number and symbol as names => 28
const any = 1, unknown = 2, never = 3, object = 4, string = 5, number = 6, symbol = 7
any + unknown + never + object + string + number + symbol
// ---- enum as a member => 1
const o = { enum: 1 }
o.enum
// ---- private, public and protected as names => 6
var private = 1, public = 2, protected = 3
private + public + protected
// ---- module and global as names => 3
const module = 1, global = 2
module + global
// ---- from, target and meta as names => 6
const from = 1, target = 2, meta = 3
from + target + meta
// ---- override, accessor, out and asserts as names => 10
const override = 1, accessor = 2, out = 3, asserts = 4
override + accessor + out + asserts
// ---- using as a name => 1
const using = 1
using
// ---- undefined as a member and NaN as a key => [1, 2]
const o = { undefined: 1, NaN: 2 };
[o.undefined, o.NaN]
// ---- unicode names => [1, 2, 3, 4]
const größe = 1, 变量 = 2, ñandú = 3, имя = 4;
[größe, 变量, ñandú, имя]
// ---- escaped names => 1
const \u0061bc = 1
abc
// ---- names in the astral planes => 2
const 𝒳 = 2
𝒳
// ---- dollars and underscores => 6
const $ = 1, _ = 2, $_$ = 3
$ + _ + $_$
// ---- a function called $ => "li"
const $ = (selector) => selector
$("li")
// ---- a shadowed text function => "mine"
const text = () => "mine"
text()
// ---- a shadowed tools and API => [1, 2]
const tools = 1, API = 2;
[tools, API]
// ---- a shadowed JSON => "{}"
{
  const JSON = { stringify: () => "{}" }
  var seen = JSON.stringify(1)
}
seen
// ---- names of built-ins as variables => [1, 2, 3]
const name = 1, status = 2, event = 3;
[name, status, event]
// ---- a variable called result and one called output => 3
const result = 1, output = 2
result + output
// ---- console, store and load as members => 6
const o = { console: 1, store: 2, load: 3 }
o.console + o.store + o.load
// ---- constructor and __proto__ as keys => ["c", "null prototype"]
const o = { constructor: "c", __proto__: null };
[o.constructor, Object.getPrototypeOf(o) === null ? "null prototype" : "?"]
// ---- command names as variables => 10
const ls = 1, cat = 2, git = 3, node = 4
ls + cat + git + node
// ---- a command name with a minus => -1
const ls = 0, la = 1
ls -la
// ---- a test function => true
const test = (x) => x === 1
test(1)
// ---- find and echo as functions => [2, "hi"]
const find = (f) => [1, 2, 3].find(f)
const echo = (x) => x;
[find((x) => x > 1), echo("hi")]
// ---- pipes of numbers => 7
const a = 1, b = 2, c = 4
a | b | c
