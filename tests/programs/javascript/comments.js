// ---- a line comment at the end => 1
1 // one
// ---- a line comment at the end after a semicolon => 1
1; // one
// ---- comments everywhere => 3
/* a */ const /* b */ a /* c */ = /* d */ 1 /* e */, /* f */ b = 2 // g
/* h */ a /* i */ + /* j */ b /* k */ // l
/* m */
// ---- a comment between return and its value => 1
return /* the value */ 1
// ---- a comment of several lines after return ends it => nothing
return /*
*/ 1
// ---- JSDoc => "[1]"
/**
 * @param {number[]} xs the numbers; `import x from "y"`
 * @returns {string}
 */
function show(xs) { return JSON.stringify(xs) }

/** @type {number[]} */
const xs = [1]
show(xs)
// ---- a licence header => 1
/*!
 * (c) the author
 */
1
// ---- a comment that ends a block => 2
{
  // nothing here
}
2
// ---- commented-out code at the end => "kept"
"a"; "kept"
// return 1
// require("x")
// ---- commented-out imports at the start => 1
// import fs from "fs";
// const x = require("x");
/* export default 1 */
1
// ---- a comment in a call => 3
Math.max(
  1, // one
  /* two */ 2,
  3, // three
)
// ---- a comment in an array => [1, 3]
[
  1,
  // 2,
  3,
]
// ---- a comment in a chain => 4
[1, 2]
  // double
  .map((x) => x * 2)
  /* the last one */
  .at(-1)
// ---- a comment with an apostrophe and a backtick => 1
// don't `stop
1
// ---- a comment in an arrow function => 2
((x /* number */) => /* sum */ x + 1 /* end */)(1)
// ---- a comment in an object => {"a": 1}
({ /* first */ a: 1, // one
})
// ---- an HTML comment => 1
<!-- this is a comment too
1
// ---- the end of an HTML comment => 1
1
--> and this
// ---- a decrement and a comparison are no comment => true
let n = 1
n-->0
// ---- a hashbang => 1
#!/usr/bin/env node
1
// ---- a hashbang and a return => 2
#!/usr/bin/env -S node --no-warnings
// second line
return 2
// ---- a comment with no end of line => 1
1 //
// ---- a slash in a string is no comment => "https://example.com/*x*/"
const url = "https://example.com/*x*/" // the address
url
// ---- a comment inside a template is text => "a // b /* c */ 1"
`a // b /* c */ ${1 /* one */}`
// ---- source map and eslint comments => 1
/* eslint-disable no-undef */
/* global MCP */
// @ts-check
1
//# sourceMappingURL=cell.js.map
// ---- a comment about an error => 1
1
// @ts-expect-error: nothing
// ---- a shell-like comment => 1
// $ npm install
// ls -la
1
