// ---- nested templates => "a-b1-c"
const n = 1
;`a-${`b${n}-${`c`}`}`
// ---- a tagged template => "x=1;y=2;"
const tag = (strings, ...values) => strings.slice(0, -1).map((s, i) => `${s}${values[i]}`).join("") + strings.at(-1)
tag`x=${1};y=${2};`
// ---- a tagged template with a member => "a\\nb"
String.raw`a\nb`
// ---- a template over lines => "one\n  two\n"
`one
  two
`
// ---- a template with braces and quotes => "{ \"a\": 'b' } }"
`{ "a": 'b' } ${"}"}`
// ---- a template with a function in it => "1,2"
`${[1, 2].map((x) => { return `${x}` }).join(",")}`
// ---- an escaped backtick and dollar => "`${x}`"
`\`\${x}\``
// ---- a Markdown fence inside a template => "```js\nreturn 1\n```"
const fence = "```";
`${fence}js
return 1
${fence}`
// ---- a Markdown report => "# Issues\n\n- **1** a\n- **2** b"
const rows = [{ id: 1, t: "a" }, { id: 2, t: "b" }]
const md = ["# Issues", "", ...rows.map((r) => `- **${r.id}** ${r.t}`)].join("\n")
md
// ---- emoji => ["😀", 2, 1]
const s = "😀";
[s, s.length, [...s].length]
// ---- joined emoji and flags => ["👨‍👩‍👧", "🇩🇪"]
["👨‍👩‍👧", "🇩🇪"]
// ---- emoji before the last expression on the same line => "🎉!"
const party = "🎉"; party + "!"
// ---- text in many scripts => "日本語 العربية ελληνικά"
"日本語" + " العربية" + " ελληνικά"
// ---- escapes => "A\u00e9😀\t\"'"
"\x41\u00e9\u{1F600}\t\"\'"
// ---- a line continuation => "one two"
const s = "one \
two"
s
// ---- a regular expression with a slash in a class => ["a/b"]
"x a/b y".match(/\w[/]\w/)
// ---- a regular expression with escapes and quotes => true
/\/\*["'`]\$\{/.test("/*\"${")
// ---- a regular expression with named groups => {"year": "2026", "month": "05"}
const { groups } = /(?<year>\d{4})-(?<month>\d{2})/.exec("on 2026-05-04")
;({ ...groups })
// ---- a regular expression after a parenthesis => 1
if (true) /x/.test("x")
1
// ---- a regular expression after return => true
return /a|b/.test("b")
// ---- a regular expression with unicode classes => true
/^\p{Lu}\p{Ll}+$/u.test("Élan")
// ---- division chains => 2.5
const a = 10, b = 2, c = 2
a / b / c
// ---- replace with a function => "A-B"
"a-b".replace(/[a-z]/g, (c) => c.toUpperCase())
// ---- matchAll => ["1", "22"]
[..."a1b22".matchAll(/\d+/g)].map((m) => m[0])
// ---- numbers in all forms => [255, 10, 8, 1000000, 0.5, 1e-7, 5]
[0xff, 0b1010, 0o10, 1_000_000, .5, 1e-7, 5.]
// ---- big integers => [18446744073709551616, true]
[2n ** 64n, 1n < 2]
// ---- shorthand, computed and spread members => {"a": 1, "k1": 2, "b": 3}
const a = 1, more = { b: 3 }
;({ a, ["k" + 1]: 2, ...more })
// ---- JSON as a program in parentheses => {"name": "x", "tags": ["a"], "n": null}
({
  "name": "x",
  "tags": ["a"],
  "n": null
})
// ---- JSON of an array as a program => [{"a": true}, {"a": false}]
[{ "a": true }, { "a": false }]
// ---- a quoted key in braces falls through to what parses => nothing
{ "use strict"; }
// ---- arrays with holes => [1, null, 3]
[1, , 3]
// ---- dates => "2026-05-04T00:00:00.000Z"
new Date(Date.UTC(2026, 4, 4))
// ---- sets and typed arrays => [[1, 2], [3, 4]]
[new Set([1, 1, 2]), Uint8Array.of(3, 4)]
// ---- symbols => "Symbol(x)"
Symbol("x")
// ---- an error as a value => {"name": "TypeError", "message": "bad"}
new TypeError("bad")
// ---- a cycle => {"self": "[Circular]"}
const o = {}
o.self = o
o
// ---- undefined members are left out => {"b": null}
({ a: undefined, b: null })
// ---- a value with toJSON => "json"
({ toJSON() { return "json" } })
// ---- minus zero and infinity => [0, null]
[-0, Infinity]
// ---- JSON.stringify with indentation => "{\n  \"a\": 1\n}"
JSON.stringify({ a: 1 }, null, 2)
// ---- base64 and bytes => ["aGk=", [104, 105]]
[btoa("hi"), new TextEncoder().encode("hi")]
// ---- addresses => ["example.com", "1", "https://example.com/a?q=x+y"]
const url = new URL("https://example.com/a?q=1")
const q = url.searchParams.get("q")
url.searchParams.set("q", "x y");
[url.hostname, q, url.href]
// ---- text that looks like a program in another language => "def f():\n    return 1\n"
const python = `def f():
    return 1
`
python
// ---- HTML in a template => "<ul><li>a</li></ul>"
`<ul>${["a"].map((x) => `<li>${x}</li>`).join("")}</ul>`
// ---- less-than and HTML in a string => "<!-- <script>alert(1)</script> -->"
const html = "<!-- <script>alert(1)</script> -->"
html
