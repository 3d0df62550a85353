// ---- import, export and require as property names => 6
const obj = { import: 1, export: 2, require: 3 }
obj.import + obj.export + obj.require
// ---- import and export as methods => ["i", "e", "r"]
const obj = { import() { return "i" }, export: () => "e", require: function () { return "r" } };
[obj.import("x"), obj.export(), obj.require("y")]
// ---- class methods named import and export => ["i", "e", "s"]
class Porter {
  import() { return "i" }
  async export() { return "e" }
  static require() { return "s" }
}
const p = new Porter()
return [p.import("./x.js"), await p.export(), Porter.require("fs")]
// ---- a getter named import => 4
const o = { get import() { return 4 } }
o.import
// ---- a class field named export => [1, 2]
class A { export = 1; static import = 2 }
[new A().export, A.import]
// ---- quoted keys => {"import": 1, "require('x')": 2}
({ "import": 1, "require('x')": 2 })
// ---- import in strings => "import fs from 'fs'; require('x'); export default 1"
const code = "import fs from 'fs'; require('x');"
code + ' export default 1'
// ---- import in a template => "import x from 'y'\nexport const z = 1\nrequire(\"w\")"
const name = "x";
`import ${name} from 'y'
export const z = 1
require("w")`
// ---- import in a regular expression => ["import a from 'b'", "require('c')"]
const source = "import a from 'b'; const c = require('c')";
[source.match(/import .* from '[^']+'/)[0], source.match(/require\((?:'[^']+')\)/)[0]]
// ---- counting the imports of a file => 2
const file = ["import a from 'a'", "import('b')", "const x = 1"].join("\n")
file.split("\n").filter((line) => /^import\b|require\(/.test(line)).length
// ---- a local function called require => "loaded fs"
function require(name) { return `loaded ${name}` }
require("fs")
// ---- a local constant called require => "fs!"
const require = (name) => name + "!"
require("fs")
// ---- a parameter called require => "x"
((require) => require("x"))((y) => y)
// ---- a module wrapper written by hand => 3
const modules = { a(module, exports, require) { exports.value = 1 }, b(module, exports, require) { module.exports = { value: require("a").value + 2 } } }
function load_(name) {
  const module = { exports: {} }
  modules[name](module, module.exports, load_)
  return module.exports
}
load_("b").value
// ---- a variable called module => "core"
const module = { name: "core", exports: [] }
module.name
// ---- a variable called exports => [1]
const exports = []
exports.push(1)
exports
// ---- a variable called process => "local"
const process = { env: { HOME: "local" } }
process.env.HOME
// ---- a parameter called process => 2
const run = (process) => process(1)
run((x) => x + 1)
// ---- typeof of names that are not there => ["undefined", "undefined", "undefined", "undefined"]
[typeof require, typeof module, typeof exports, typeof process]
// ---- a guard for Node => "not node"
typeof process !== "undefined" && process.versions?.node ? "node" : "not node"
// ---- the guard of a universal module => "global"
(function (root, factory) {
  if (typeof define === "function" && define.amd) return "amd"
  if (typeof module === "object") return "commonjs"
  return factory()
})(this, () => "global")
// ---- a word that begins with import => ["important", 2]
const important = "important", exporter = 2, requirements = 3;
[important, exporter]
// ---- names with dollars and underscores around them => 6
const $import = 1, _require = 2, export_ = 3
$import + _require + export_
// ---- destructuring of reserved names => [1, 2]
const { import: a, export: b } = { import: 1, export: 2 };
[a, b]
// ---- an optional member named import => 1
const o = { import: () => 1 }
o?.import?.()
// ---- a member in brackets => 1
const o = { import: () => 1 }
o["import"]("x")
// ---- a private method named import => 9
class A { #import() { return 9 } run() { return this.#import() } }
new A().run()
// ---- keys of a JSON document => ["import", "export", "module", "require"]
const doc = JSON.parse('{"import": 1, "export": 2, "module": 3, "require": 4}')
Object.keys(doc)
// ---- a label called module => 1
module: for (;;) break module
1
// ---- text about modules in a call => "Use import() or require() to load modules."
const comment = { body: "Use import() or require() to load modules." }
comment.body
// ---- a new.target and a meta of its own => [true, 1]
function F() { this.isNew = new.target === F }
const importer = { meta: 1 };
[new F().isNew, importer.meta]
// ---- eval of plain arithmetic => 3
eval("1 + 2")
// ---- a function made of text => 5
new Function("a", "b", "return a + b")(2, 3)
// ---- the word await in a string and as a member => ["await", 1]
const o = { await: 1, async: 2, yield: 3 };
["await", o.await]
