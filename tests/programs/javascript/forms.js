// ---- an arrow function => 42
async () => { return 42 }
// ---- an arrow function without a block => 42
() => 42
// ---- an arrow function in parentheses, and a semicolon => 42
(async () => { return 42; });
// ---- comments around an arrow function => 42
// The program.
/* It gives 42. */
async () => 42 // really
;
// That is all.
// ---- an arrow function that is called => 42
(async () => { return 42 })()
// ---- a named function => 42
async function main() {
  return 42
}
// ---- a named function that is not asynchronous => 42
function compute() { return 42; }
// ---- a named function that calls itself => 120
function factorial(n) {
  if (typeof n !== "number") return factorial(5)
  return n < 2 ? 1 : n * factorial(n - 1)
}
// ---- a function without a name => 42
async function () { return 42 }
// ---- a function that is called => 42
async function main() { return 42 }
main()
// ---- a function that is awaited => 42
async function main() { return 42 }
await main();
// ---- a function that is called, with a handler => 42
const main = async () => 42
main().catch(console.error)
// ---- two functions => nothing
function one() { return 1 }
function two() { return 2 }
// ---- a function after a directive => true
"use strict";
async () => { return this === undefined || true }
// ---- a generator is not called => nothing
function* numbers() { yield 1 }
// ---- an arrow function after what it needs => 42
const half = 21
async () => half * 2
// ---- export default of an arrow function => 42
export default async () => 42
// ---- export default of a function without a name => 42
export default async function () { return 42 }
// ---- export default of a named function => 42
export default async function run() {
  return 42;
}
// ---- export default of a function after what it needs => 42
const half = 21
export default async function run() { return half * 2 }
// ---- export default of a function's name => 42
async function run() { return 42 }

export default run;
// ---- module.exports => 42
module.exports = async () => 42
// ---- module.exports of a name => 42
const run = async () => 42
module.exports = run;
// ---- a module of the program's own => "[Function]"
const module = {}; module.exports = () => 1
// ---- destructured globals => [true, true, true, true]
async ({ MCP, API, tools, text }) => [MCP, API, tools, text].map((given) => given !== undefined)
// ---- destructured globals with a default and another name => "object"
async ({ MCP: servers = {}, nothing = 1 } = {}) => typeof servers
// ---- globals as an object => ["object", "function", true]
async (codemode) => [typeof codemode.MCP, typeof codemode.text, codemode.ALL_TOOLS === ALL_TOOLS]
// ---- globals for a named function => "object"
async function main({ MCP }, more) { return more === undefined ? typeof MCP : "more" }
// ---- without parameters nothing is given => 0
function main() { return arguments.length }
// ---- a fence => 42
```js
return 42
```
// ---- a fence without a label => 42

```
42
```

// ---- a fence that is not closed => 42
```javascript
const x = 42;
x
// ---- a fence with prose around it => 42
Here's what you asked for (see `MCP`):

```js
const x = 21
return x * 2
```

It returns 42; that's all.
// ---- an arrow function in a fence => 42
Use this.

```js
async () => { return 42; }
```
// ---- an export in a fence => 42
```JavaScript
export default async function main() { return 42 }
```
// ---- a fence in a comment => 42
/*
```js
return 1
```
*/
42
// ---- a fence in a template => "\n```js\nfoo()\n```\n"
const text = `
\`\`\`js
foo()
\`\`\`
`
text
// ---- a promise of a call in an arrow function => "ISSUES"
async () => { const { MCP } = globalThis; return "issues".toUpperCase() }
// ---- a word of a module loader that is asked for => "undefined"
typeof require
