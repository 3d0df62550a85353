"""Tests of what `preflight` finds in a program, and what it leaves alone."""

from __future__ import annotations

import gc
import json
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program.inspection import MemberCall
from codemode_mcp.program.mcp_uses import check_members
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.prepare import looks_like_shell

MEMBERS = {
    "github": [
        *("createIssue", "create_issue", "createIssueComment", "listIssues"),
        *("resources", "resources.list", "resources.read", "prompts", "prompts.list", "prompts.get"),
    ],
    "chromeDevtools": ["click"],
    "chrome-devtools": ["click"],
    "sleepy": None,
}

VALID = """
return obj.import + obj.export + obj.require
const o = { import: 1, export: 2, require: 3 }; o.import
o.import("x")
o?.import?.("x")
class A { import() { return 1 } export = 2; static require(x) { return x } }
class A { get import() { return 1 } }
const s = "import x from 'y'"; s
const t = `export default ${s} require("x")`; t
// import x from "y"
/* import("x"); require("y") */ 1
<!-- import("x")
const r = /import\\("x"\\)/; r
const require = (x) => x; require("x")
function f(require) { return require("x") }
function f({ require }) { return require("x") }
try { f() } catch (require) { require("x") }
loader.require("x")
loader["require"]("x")
typeof require
typeof module !== "undefined"
const module = { exports: 1 }; module.exports
const module = {}; module.exports = 1
const exports = {}; exports.a = 1
function wrap(module, exports) { exports.a = module.exports }
import_("x"); $import("x"); important("x")
text("export const a = 1")
process.env
define = (names, f) => f(); define(["a"], () => 1)
typeof define === "function" && define.amd
typeof (System) === "undefined"
function define(x) { return x } define(1)
const { System } = x; System.y
class System {} new System()
({ define } = x); a.define(1); a?.System.module
define: for (;;) break define
const r\\u0065quire = (x) => x; require("x")
"r\\u0065quire('x')"
await MCP.github.createIssue({ title: "x" })
await MCP.github["create_issue"]({ title: "x" })
await MCP["github"].createIssue({})
await MCP["chrome-devtools"].click({})
await MCP[`github`][`listIssues`]()
await MCP.github.$api("createIssue", { schema: true })
await MCP.$api()
await MCP.github.resources.list()
await MCP.github.prompts.get({ name: "x" })
await MCP.sleepy.whatever()
MCP.github.hasOwnProperty("x")
MCP.github.toString()
await MCP?.nope.foo()
await MCP.nope?.foo()
await MCP.github.foo?.()
await MCP.github?.foo()
if (MCP.nope) await MCP.nope.foo()
if (MCP.github.foo) await MCP.github.foo()
if ("foo" in MCP.github) await MCP.github.foo()
if ("nope" in MCP) await MCP.nope.foo()
if (!MCP.nope) return 1; await MCP.nope.foo()
if (typeof MCP.github.foo === "function") await MCP.github.foo()
MCP.github.foo && await MCP.github.foo()
MCP.github.foo || text("none"); MCP.github.foo()
const f = MCP.github.foo ?? MCP.github.createIssue
const r = MCP.github.foo ? await MCP.github.foo() : null
const r = MCP.github.foo === undefined ? null : MCP.github.foo()
while (MCP.github.foo) MCP.github.foo()
if (Object.keys(MCP.github).includes("foo")) MCP.github.foo()
try { await MCP.github.foo() } catch { text("no") }
try { await Promise.all([1].map(() => MCP.nope.foo())) } catch (e) { text(e.message) }
function f(MCP) { return MCP.nope.foo() }
const f = (MCP) => MCP.nope.foo()
const f = MCP => MCP.nope.foo()
const f = ({ MCP }) => MCP.nope.foo()
const f = ([a, { b: MCP = 1 }]) => MCP.nope.foo()
{ const MCP = fake; MCP.nope.foo() }
for (const MCP of fakes) MCP.nope.foo()
try { x() } catch (MCP) { MCP.nope.foo() }
MCP.nope.foo(); var MCP = fake
class MCP { static a() {} } MCP.a()
MCP[name].foo()
MCP.github[name]()
const { github, ...rest } = MCP; rest
const { nope = null } = MCP
const all = MCP; all.nope.foo()
MCP.github.createIssue.name
"MCP.nope.foo()"
this.MCP.nope.foo()
a.MCP.nope.foo()
const x = { MCP: 1 }
""".strip().splitlines()

VALID_TYPESCRIPT = [
    "namespace N { export const a = 1; import b = X.c } N.a",
    'declare module "x" { export const y: number }',
    "declare global { interface Window { x: number } }",
    "declare namespace MCP { function t(i: {}): Promise<any> } MCP.github.createIssue({})",
    "declare const MCP: any; await MCP.github.createIssue({})",
    'type A = typeof import("x")',
    "type P = Parameters<typeof MCP.nope.foo>[0]",
    "const f = async (x: { import: string }): Promise<void> => { x.import }",
    "await MCP.github!.createIssue!({} as any)",
    "const x = <T,>(y: T): T => y",
    "enum E { import = 1, export }",
    "namespace System { export const a = 1 } System.a",
    "module System { const a = 1 }",
    "let x: System; const y = z as module; y",
    "class A { [module: string]: any; define?: number }",
    "const is = (module: any): module is string => true",
    "if (MCP.nope as any) MCP.nope.foo()",
]

REFUSED = [
    ('import "x"', 1, 1),
    ('import x from "y"', 1, 1),
    ('import * as x from "y"', 1, 1),
    ('const a = 1;\nimport { x } from "y";', 2, 1),
    ('import x, { y } from "z"', 1, 1),
    ('import data from "./x.json" with { type: "json" }', 1, 1),
    ('const m = await import("fs")', 1, 17),
    ('import("x").then(f)', 1, 1),
    ("const m = await import(name)", 1, 17),
    ('import.defer("x")', 1, 1),
    ("import.meta.url", 1, 1),
    ("const here = new URL('.', import.meta.url)", 1, 27),
    ("export const a = 1", 1, 1),
    ("const a = 1;\r\nexport default a;", 2, 1),
    ("export { a }", 1, 1),
    ('export * from "x"', 1, 1),
    ("export function f() {}", 1, 1),
    ('require("fs")', 1, 1),
    ('const { a } = require("fs")', 1, 15),
    ("function f() { return require(name) }", 1, 23),
    ('require.resolve("x")', 1, 1),
    ('require?.("x")', 1, 1),
    ('globalThis.require("x")', 1, 1),
    ('{ const require = f; require("a") }\nrequire("b")', 2, 1),
    ("module.exports = { a: 1 }", 1, 1),
    ('module["exports"].a = 1', 1, 1),
    ("exports.a = 1", 1, 1),
    ("exports['a'] = 1", 1, 1),
    ("createRequire('x')('y')", 1, 1),
    ("importScripts('x')", 1, 1),
    ("process.binding('fs')", 1, 1),
    ("process.getBuiltinModule('fs')", 1, 1),
    ('const s = "\U0001f600"; import("x")', 1, 17),
    ('`${"a"}${await import("x")}`', 1, 16),
    ("/* import */ /import/; import('x')", 1, 24),
    ("// a\u2028import('x')", 2, 1),
    ("import x from", 1, 1),
    ("return (require)('fs')", 1, 9),
    ("return (0, require)('fs')", 1, 12),
    ("const l = require\nreturn l('fs')", 1, 11),
    ("return r\\u0065quire('fs')", 1, 8),
    ("return r\\u{0065}quire('fs')", 1, 8),
    ("f({ require })", 1, 5),
    ("System.import('x')", 1, 1),
    ("const load = System", 1, 14),
    ("define(['a'], () => 1)", 1, 1),
    ("const m = module", 1, 11),
    ("module['require']('x')", 1, 1),
    ("typeof require === 'function' ? require('fs') : null", 1, 33),
    ("typeof require === 'function' ? require : null", 1, 33),
    ("require ??= 1", 1, 1),
    ("async () => {\n  return require('fs')\n}", 2, 10),
    ("export default async () => {\n  return (require)('fs')\n}", 2, 11),
    ("export default async () => 1\nexport const a = 1", 1, 1),
    ("export const a = 1\nexport default async () => 1", 1, 1),
    ("export default 42", 1, 1),
    ("module.exports = { run: async () => 1 }", 1, 1),
]

REFUSED_TYPESCRIPT = [
    ('import type { X } from "y"', 1, 1),
    ('import { type X } from "y"', 1, 1),
    ('import x = require("y")', 1, 1),
    ("export type A = number", 1, 1),
    ("export interface A {}", 1, 1),
    ("export = 1", 1, 1),
    ("const a: number = 1\nexport declare const b: number", 2, 1),
]

MISTAKES = [
    ("MCP.github.createIsue({})", "MCP.github.createIsue", "Nearest: createIssue, createIssueComment."),
    ("await MCP.github.create_isue({})", "MCP.github.create_isue", "Nearest: createIssue"),
    ('MCP.github["create-isue"]({})', 'MCP.github["create-isue"]', "Nearest: createIssue"),
    ("const f = () => MCP.github.create({})", "MCP.github.create ", "Nearest: createIssue, createIssueComment."),
    ("MCP.github.zzz()", "MCP.github.zzz", "MCP.github has: createIssue"),
    ("MCP.githb.createIssue({})", "MCP.githb ", "Nearest: github."),
    ("const { githb } = MCP; githb.createIssue()", "MCP.githb ", "Nearest: github."),
    ("const gh = MCP.githb; gh.x()", "MCP.githb ", "Nearest: github."),
    ("[1].map(MCP.gitHub.createIssue)", "MCP.gitHub ", "Nearest: github."),
    ("(await MCP.github.createIsue({}))?.content", "MCP.github.createIsue", "Nearest: createIssue"),
    ("MCP.github.createIsue({}).catch(() => 1)", "MCP.github.createIsue", "Nearest: createIssue"),
    ("try { MCP.github.createIsue() } finally { f() }", "MCP.github.createIsue", "Nearest: createIssue"),
    ("if (await MCP.github.createIsue()) f()", "MCP.github.createIsue", "Nearest: createIssue"),
    ("if (MCP.github.listIssues) MCP.github.createIsue()", "MCP.github.createIsue", "Nearest: createIssue"),
    ("{ const MCP = 1 } MCP.github.createIsue()", "MCP.github.createIsue", "Nearest: createIssue"),
    ('MCP["chrome-devtools"].clik()', 'MCP["chrome-devtools"].clik', 'Read API.read("mcp/index.d.ts").'),
    ("MCP.chromeDevtools.clik()", "MCP.chromeDevtools.clik", 'Read API.read("mcp/chromeDevtools.d.ts").'),
]

RETURNING = [
    ("1", "return (1)"),
    ("1;", "return (1);"),
    ("1 // the end", "return (1) // the end"),
    ("1; /* end */ // end\n", "return (1); /* end */ // end\n"),
    ("1;;;", "return (1);;;"),
    ("const a = 1\na", "const a = 1\nreturn (a)"),
    ("a, b", "return (a, b)"),
    ("x = 1", "return (x = 1)"),
    ("await f()", "return (await f())"),
    ("(a)", "return ((a))"),
    ("({ a: 1 })", "return (({ a: 1 }))"),
    ("[1, 2]", "return ([1, 2])"),
    ("`a${b}`", "return (`a${b}`)"),
    ("x => x", "return (x => x)"),
    ("async () => 1", "return (async () => 1)"),
    ("new Map()", "return (new Map())"),
    ("a\n  .b()\n  .c()", "return (a\n  .b()\n  .c())"),
    ("f(\n  // why\n  1\n)\r\n", "return (f(\n  // why\n  1\n))\r\n"),
    ("a\n(b)", "return (a\n(b))"),
    ("a\n++b", "a\nreturn (++b)"),
    ("a; b", "a; return (b)"),
    ("if (a) { b } c", "if (a) { b } return (c)"),
    ("function f() { return 1 }\nf()", "function f() { return 1 }\nreturn (f())"),
    ("const f = () => { return 1 }; f()", "const f = () => { return 1 }; return (f())"),
    ("class A { m() { return 1 } } new A().m()", "class A { m() { return 1 } } return (new A().m())"),
    ('"use strict"; 1', '"use strict"; return (1)'),
    ('f(); "done"', 'f(); return ("done")'),
    ("<!-- x\n1", "<!-- x\nreturn (1)"),
    ('"\U0001f600"; a', '"\U0001f600"; return (a)'),
    ("yield_control()", "return (yield_control())"),
    ("a ? b : c", "return (a ? b : c)"),
    ("!function () { return 1 }()", "return (!function () { return 1 }())"),
]

RETURNING_TYPESCRIPT = [
    ("x as Foo", "return (x as Foo)"),
    ("x!", "return (x!)"),
    ("f<number>(1)", "return (f<number>(1))"),
    ("x satisfies Foo", "return (x satisfies Foo)"),
    ("interface A { x: number }\nconst a: A = { x: 1 };\na.x", None),
]

NOTHING_TO_RETURN = [
    "",
    "// only a comment",
    "return 1",
    "if (a) return 1; b",
    "{ return 1 } b",
    "for (;;) { if (x) return 1 }\nb",
    "try { return 1 } finally {} b",
    '"use strict"',
    "'use asm';",
    "{ a: 1 }",
    "{ a: 1, b: 2 }",
    "{}",
    "const a = 1",
    "function f() {}",
    "async function f() {}",
    "function* f() {}",
    "class A {}",
    "if (a) b",
    "label: a",
    "for (const x of y) f(x)",
    "throw new Error()",
    "a b",
    "f(",
    "1 +",
    "namespace N { const a = 1 }",
    "type A = 1",
    "\0\0",
]


@pytest.mark.parametrize("source", VALID)
def test_valid_javascript_raises_no_alarm(source: str) -> None:
    check_members(inspect(source, "javascript"), MEMBERS, "javascript")


@pytest.mark.parametrize("source", VALID_TYPESCRIPT)
def test_valid_typescript_raises_no_alarm(source: str) -> None:
    check_members(inspect(source, "typescript"), MEMBERS, "typescript")


@pytest.mark.parametrize(("source", "line", "column"), REFUSED)
def test_module_access_is_refused_with_its_position(source: str, line: int, column: int) -> None:
    with pytest.raises(ProgramError, match=rf"\(cell\.js:{line}:{column}\)") as raised:
        inspect(source, "javascript")
    assert raised.value.code == "module_access_denied"
    assert "MCP, tools and API" in raised.value.message


@pytest.mark.parametrize(("source", "line", "column"), REFUSED_TYPESCRIPT)
def test_typescript_module_syntax_is_refused_with_its_position(source: str, line: int, column: int) -> None:
    with pytest.raises(ProgramError, match=rf"\(cell\.ts:{line}:{column}\)") as raised:
        inspect(source, "typescript")
    assert raised.value.code == "module_access_denied"


ROUNDED = "JavaScript rounds {} (cell.js:{}), because it is beyond 2^53{}; write {} to keep all digits"


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (
            "await MCP.a.b({ id: 725653563933458433 })",
            ROUNDED.format("725653563933458433", "1:21", "", "725653563933458433n"),
        ),
        ("\nreturn -9007199254740993", ROUNDED.format("9007199254740993", "2:9", "", "9007199254740993n")),
        ("725_653_563_933_458_433", ROUNDED.format("725_653_563_933_458_433", "1:1", "", "725_653_563_933_458_433n")),
        (
            "[9007199254740993, `${9007199254740995}`]",
            ROUNDED.format("9007199254740993", "1:2", " (2 integers of this program are)", "9007199254740993n"),
        ),
        ("x = " + "9" * 400, ROUNDED.format("9" * 40 + "…", "1:5", "", "an n behind it")),
        ("9007199254740991 + 9007199254740992 + 10000000000000000000", ""),
        ("725653563933458433n", ""),
        ("'725653563933458433' + `725653563933458433` // 725653563933458433", ""),
        ("/725653563933458433/.test(a.b725653563933458433)", ""),
        ("[0.725653563933458433, 725653563933458433.5, 725653563933458433e2, 0x725653563933458433]", ""),
    ],
)
def test_integers_that_javascript_rounds_are_noted(source: str, note: str) -> None:
    assert inspect(source, "javascript").rounded == note
    assert inspect(source, "typescript").rounded == note.replace("cell.js", "cell.ts")


@pytest.mark.parametrize(("source", "expression", "advice"), MISTAKES)
def test_a_misspelt_member_is_refused_with_the_nearest_names(source: str, expression: str, advice: str) -> None:
    with pytest.raises(ProgramError) as raised:
        check_members(inspect(source, "javascript"), MEMBERS, "javascript")
    assert raised.value.code == "invalid_input"
    assert raised.value.message.startswith(expression)
    assert advice in raised.value.message


def test_the_message_for_a_misspelt_member_is_complete() -> None:
    source = "const a = 1;\n\nawait MCP.github.createIsue({ a })"
    with pytest.raises(ProgramError) as raised:
        check_members(inspect(source, "javascript"), MEMBERS, "javascript")
    assert raised.value.message == (
        "MCP.github.createIsue does not exist (cell.js:3:7). Nearest: createIssue, createIssueComment. "
        'Read API.read("mcp/github.d.ts").'
    )


def test_an_unknown_server_without_any_configured_says_so() -> None:
    expected = r"^MCP\.github does not exist \(cell\.ts:1:1\)\. No MCP server is configured\.$"
    with pytest.raises(ProgramError, match=expected):
        check_members(inspect("MCP.github.x()", "typescript"), {}, "typescript")


def test_each_mistake_is_told_once_and_five_at_most() -> None:
    source = "MCP.github.q0();" * 3 + "".join(f"MCP.github.q{n}();" for n in range(9))
    with pytest.raises(ProgramError) as raised:
        check_members(inspect(source, "javascript"), MEMBERS, "javascript")
    assert [line.split()[0] for line in raised.value.message.splitlines()] == [f"MCP.github.q{n}" for n in range(5)]


def test_hostile_names_stay_short_and_on_one_line_in_messages() -> None:
    name = "\x07" * 5000
    with pytest.raises(ProgramError) as raised:
        check_members(inspect(f'MCP.github["{name}"]()', "javascript"), MEMBERS, "javascript")
    assert len(raised.value.message) < 400
    assert raised.value.message.isprintable()


def test_positions_of_member_calls_count_utf16_units_and_javascript_lines() -> None:
    found = inspect('"\U0001f600"; MCP.a.b()\r\nMCP.c.d();\u2028 MCP.e', "javascript")
    assert found.member_calls == (
        MemberCall("a", "b", 1, 7),
        MemberCall("c", "d", 2, 1),
        MemberCall("e", None, 3, 2),
    )


@pytest.mark.parametrize(
    ("source", "servers"),
    [
        ("1 + 1", set()),
        ("MCP.github.createIssue()", {"github"}),
        ('MCP["my-server"].x(); MCP[`b`].y()', {"my-server", "b"}),
        ("const { a, b: c, d = 1 } = MCP", {"a", "b", "d"}),
        ("MCP?.a?.b()", {"a"}),
        ('"a" in MCP', {"a"}),
        ("typeof MCP", set()),
        ("(MCP) => MCP.a.b()", set()),
        ('API.read("mcp/github.d.ts")', {"github"}),
        ("globalThis.text(1)", set()),
        ('"MCP"; // MCP\n/MCP/', set()),
        ("MCP[name].x()", None),
        ("const all = MCP", None),
        ("f(MCP)", None),
        ("({ MCP })", None),
        ("Object.keys(MCP)", None),
        ("for (const s in MCP) f(s)", None),
        ("const { a, ...rest } = MCP", None),
        ("MCP.$api()", None),
        ("MCP.hasOwnProperty('a')", None),
        ("globalThis.MCP.a.b()", None),
        ("globalThis[name]", None),
        ('API.search("issues")', None),
        ('API.read("mcp/index.d.ts")', None),
        ("API.read(path)", None),
        ('eval("MCP.a.b()")', None),
        ('new Function("return MCP")', None),
    ],
)
def test_the_servers_a_program_reaches_are_told_when_they_can_be(source: str, servers: set[str] | None) -> None:
    assert inspect(source, "javascript").servers == servers


@pytest.mark.parametrize(("source", "returning"), RETURNING)
def test_the_last_expression_is_returned(source: str, returning: str) -> None:
    assert inspect(source, "javascript").returning == returning


@pytest.mark.parametrize(("source", "returning"), RETURNING_TYPESCRIPT)
def test_the_last_expression_of_typescript_is_returned(source: str, returning: str | None) -> None:
    found = inspect(source, "typescript").returning
    assert found is not None
    assert returning is None or found == returning


@pytest.mark.parametrize("source", NOTHING_TO_RETURN)
def test_what_is_no_expression_or_returns_by_itself_is_left_alone(source: str) -> None:
    assert inspect(source, "typescript").returning is None


def test_positions_in_the_rewritten_program_become_the_authors() -> None:
    found = inspect('"\U0001f600"; a\n; b(\nc)', "javascript")
    assert found.returning == '"\U0001f600"; a\n; return (b(\nc))'
    assert [found.author_position(*at) for at in [(1, 7), (2, 1), (2, 3), (2, 11), (2, 12), (3, 1)]] == [
        (1, 7),
        (2, 1),
        (2, 3),
        (2, 3),
        (2, 4),
        (3, 1),
    ]


def test_the_rewritten_programs_parse_in_a_javascript_engine() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    rewritten = [inspect(source, "javascript").returning for source in (*VALID, *(source for source, _ in RETURNING))]
    script = """
        const AsyncFunction = (async () => {}).constructor
        const fails = (code) => { try { new AsyncFunction(code); return false } catch { return true } }
        console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).filter(fails)))
    """
    texts = json.dumps([text for text in rewritten if text is not None])
    done = subprocess.run([node, "-e", script], input=texts, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


_WORDS = [
    "MCP", ".a", ".b()", "?.", "import", "export", "require", "(", ")", "{", "}", "[", "]", "`", "${", '"', "'", "//",
    "/*", "*/", "\n", "\r\n", "\u2028", ";", ",", "=>", "=", "return", "await", "const", "x", "1", "\U0001f600",
    "\0", "<!--", "-->", "typeof", "in", "try{", "}catch{", "namespace", "function", "class", "as", "type", ":", "/",
    "<", " ", "\ud800",
]  # fmt: skip
_LINE_ENDS = re.compile("\r\n|[\n\r\u2028\u2029]")


@given(st.one_of(st.text(), st.lists(st.sampled_from(_WORDS), max_size=40).map("".join)))
def test_any_text_is_inspected_or_refused_and_keeps_its_lines(source: str) -> None:
    try:
        found = inspect(source, "typescript")
        check_members(found, MEMBERS, "typescript")
    except ProgramError as error:
        assert error.code in {"module_access_denied", "invalid_input"}  # noqa: PT017 - either outcome is fine
        return
    assert found.source == source
    assert looks_like_shell(source) is None or "shell" in str(looks_like_shell(source))
    if found.returning is not None:
        lines = zip(_LINE_ENDS.split(source), _LINE_ENDS.split(found.returning), strict=True)
        assert sum(before != after for before, after in lines) in {1, 2}


@pytest.mark.parametrize(
    "source",
    [
        "(" * 10_000 + "MCP.a.b()" + ")" * 10_000,
        "(" * 100_000,
        "`${" * 30_000,
        "f(() => {" * 5_000 + "MCP.a.b();" * 5_000,
        "MCP.a.b();\n" * 20_000,
        "{ let MCP; MCP.a.b() }" * 10_000,
        "".join(chr(n * 7919 % 0xFFFF) for n in range(300_000)),
        "x" * 1_000_000,
        '"\U0001f600";\n' * 100_000,
    ],
    ids=["parentheses", "open", "templates", "functions", "calls", "scopes", "junk", "long", "astral"],
)
def test_hostile_source_takes_bounded_time(source: str) -> None:
    start = time.thread_time()
    inspect(source, "javascript")
    assert time.thread_time() - start < 10


def test_sources_are_inspected_in_threads_side_by_side() -> None:
    sources = [f"MCP.server{n}.call();\n" * 2_000 for n in range(8)]
    with ThreadPoolExecutor(len(sources)) as threads:
        found = list(threads.map(inspect, sources, ["javascript"] * len(sources)))
    assert [result.servers for result in found] == [{f"server{n}"} for n in range(len(sources))]
    assert all(len(result.member_calls) == 2_000 for result in found)


@pytest.mark.parametrize(
    "source",
    [
        "ls -la",
        "ls",
        "pwd\n",
        "curl https://example.com/x",
        'curl -s "https://example.com" | jq .name',
        "npm install x",
        "$ git status",
        "git status",
        "git commit -m 'x'",
        "#!/bin/bash\nls",
        "#!/usr/bin/env python3",
        "# list files\nls -la /tmp",
        "cat /etc/passwd",
        "cd /tmp && make",
        "cd ..",
        "cat ./x.txt",
        'echo "hi"',
        "echo $HOME",
        "python3 -c 'print(1)'",
        "pip install requests",
        "sudo rm -rf /",
        "docker ps",
        "export TOKEN=abc",
        "grep -r foo .",
        "find . -name x",
        "if [ -f x ]; then echo; fi",
        "for f in *.txt; do cat $f; done",
        "mkdir -p a/b",
        "chmod 755 a",
    ],
)
def test_shell_commands_are_recognised(source: str) -> None:
    guidance = looks_like_shell(source)
    assert guidance is not None
    assert "MCP." in guidance


@pytest.mark.parametrize(
    "source",
    [
        *VALID,
        *VALID_TYPESCRIPT,
        *NOTHING_TO_RETURN,
        *(source for source, _ in RETURNING),
        *(source for source, _ in RETURNING_TYPESCRIPT),
        "find(x => x)",
        "find (x)",
        "date = 3",
        "const ls = 1; ls -1",
        "env.HOME",
        "git.status()",
        "git\n.status()",
        "cat\n",
        "sort - a",
        "head + tail",
        "node / 2",
        "node\n/2/1",
        "go in x",
        "cat instanceof Cat",
        "make as any",
        "$ in x",
        "$(x)",
        "$ .x",
        "#!/usr/bin/env node\n1",
        "echo: for (;;) break echo",
        "which ? 1 : 2",
        "test(1)",
        "for (const f of x) f()",
        "if (x) y()",
        "tail = []",
        "env == 1",
        "cp => cp",
        "export const a = 1",
    ],
)
def test_javascript_is_not_taken_for_a_shell_command(source: str) -> None:
    assert looks_like_shell(source) is None


# memory


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_inspecting_a_program_keeps_no_text_of_it(size: int) -> None:
    def held() -> int:
        """Bytes that live views show."""
        gc.collect()
        total = 0
        for view in gc.get_objects():
            if type(view) is memoryview:
                try:
                    total += view.nbytes
                except ValueError:  # released
                    continue
        return total

    inspect("1;\n" * size, "javascript")
    before = held()
    for _ in range(5):
        inspect("1;\n" * size, "javascript")
    assert held() - before < size


GROUPS = {
    "docs": ["search", "resources", "resources.list", "resources.read"],
    "plain": ["search"],
    "unknown": None,
}


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("MCP.docs.resources.lst()", "MCP.docs.resources.lst does not exist (cell.js:1:1). Nearest: list. "),
        (
            'await MCP.docs["resources"]["raed"]({})',
            "MCP.docs.resources.raed does not exist (cell.js:1:7). Nearest: read. ",
        ),
        (
            "MCP.docs.resources.xyz()",
            "MCP.docs.resources.xyz does not exist (cell.js:1:1). MCP.docs.resources has: list, read. ",
        ),
        ("MCP.plain.prompts.list()", "MCP.plain.prompts does not exist (cell.js:1:1). This server has no prompts."),
        ("MCP.docs.prompts.get({})", "MCP.docs.prompts does not exist (cell.js:1:1). This server has no prompts."),
        ("if (MCP.docs.resources) MCP.docs.resources.lst()", None),
        ("MCP.docs.resources.lst(); MCP.plain.search()", "MCP.docs.resources.lst does not exist"),
        ("MCP.docs.readResource({})", "MCP.docs.readResource does not exist (cell.js:1:1). Nearest: resources.read"),
        ("MCP.docs.resources.list()", None),
        ("MCP.docs.resources.toString()", None),
        ("MCP.docs.resources[name]()", None),
        ("MCP.docs.resources.lst?.()", None),
        ("MCP.docs.resources?.lst()", None),
        ("MCP.plain.prompts?.list()", None),
        ("MCP.plain?.prompts.list()", None),
        ("if (MCP.plain.prompts) MCP.plain.prompts.list()", None),
        ("MCP.plain.prompts && MCP.plain.prompts.list()", None),
        ('if ("prompts" in MCP.plain) MCP.plain.prompts.list()', None),
        ('if ("lst" in MCP.docs.resources) MCP.docs.resources.lst()', None),
        ('typeof MCP.docs.resources.lst === "function" && MCP.docs.resources.lst()', None),
        ("try { MCP.plain.prompts.list() } catch {}", None),
        ("MCP.unknown.prompts.list()", None),
        ("const MCP = x; MCP.plain.prompts.list()", None),
        ("for (const key in MCP.plain) text(key); MCP.plain.prompts.list()", None),
        ("const f = MCP.docs.resources.lst", None),
    ],
)
def test_operations_and_groups_that_do_not_exist_fail_unless_the_code_asks(code: str, complaint: str | None) -> None:
    found = inspect(code, "javascript")
    if complaint is None:
        check_members(found, GROUPS, "javascript")
        return
    with pytest.raises(ProgramError) as refused:
        check_members(found, GROUPS, "javascript")
    assert refused.value.code == "invalid_input"
    assert refused.value.message.startswith(complaint)
