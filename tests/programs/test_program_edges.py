"""Tests of where an implicit return goes and where it does not, and what is taken for a shell command.

More of both stands in `test_preflight.py`; here are the cases at the edge.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import Session
from test_programs import Written, every, from_elsewhere

from codemode_mcp.program.mcp_uses import check_members
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.prepare import looks_like_shell
from codemode_mcp.program.program_form import take_fence

RETURNING = {
    "bracket after an arrow function": ("const f = () => {}\n[1].map(f)", "const f = () => {}\nreturn ([1].map(f))"),
    "parenthesis after an arrow function": (
        "f = async () => {}\n(await f());",
        "f = async () => {}\nreturn ((await f()));",
    ),
    "call chain after an arrow function": (
        "let a = 1, f = x => {}\n(f)()\n.b[0] // c",
        "let a = 1, f = x => {}\nreturn ((f)()\n.b[0]) // c",
    ),
    "operator after an arrow function": ("f = () => {}\n-a + 1", "f = () => {}\nreturn (-a + 1)"),
    "template after an arrow function": ("f = () => {} // a\n/* b */`c`", "f = () => {} // a\n/* b */return (`c`)"),
    "arrow function in an alternative": ("f = a ? b : () => {}\n(f)", "f = a ? b : () => {}\nreturn ((f))"),
    "arrow function and a comment": ("f = () => {} // a", "return (f = () => {}) // a"),
    "arrow function alone and a comment": ("() => { a } /* b */ // c\n", "return (() => { a }) /* b */ // c\n"),
    "function expression and a comment": ("f = function () {} // a\n;", "return (f = function () {}) // a\n;"),
    "method and a comment": ("o = { f() {} } // a", "return (o = { f() {} }) // a"),
    "directive after a statement": ('f()\n"use strict"', 'f()\nreturn ("use strict")'),
    "directive after a string in parentheses": ('("a")\n"use strict"', '("a")\nreturn ("use strict")'),
    "using as a name": ("var using\nusing", "var using\nreturn (using)"),
    "interface as a name": ("var interface\ninterface // a", "var interface\nreturn (interface) // a"),
    "return in a getter": ("({ get a() { return 1 } })", "return (({ get a() { return 1 } }))"),
    "return in a static block's function": (
        "class A { static { (() => { return 1 })() } } A",
        "class A { static { (() => { return 1 })() } } return (A)",
    ),
    "return in a default value": ("f = (a = () => { return 1 }) => a", "return (f = (a = () => { return 1 }) => a)"),
    "hashbang": ("#!/usr/bin/env node\na", "#!/usr/bin/env node\nreturn (a)"),
    "byte order mark": ("\ufeffa", "\ufeffreturn (a)"),
    "carriage return alone": ("a\rb\r", "a\rreturn (b)\r"),
    "no-break space": ("a;\u00a0b\u00a0", "a;\u00a0return (b)\u00a0"),
    "await over lines": ("await\nf(\n1\n)", "return (await\nf(\n1\n))"),
    "await in parentheses": ("(await f()).a", "return ((await f()).a)"),
    "else and an expression": ("if (a) b\nelse c\nd", "if (a) b\nelse c\nreturn (d)"),
    "label and an expression": ("a: b\nc", "a: b\nreturn (c)"),
    "comment that ends the file": ("a /*", None),
}

NOTHING_TO_RETURN = {
    "arrow function with a block": "const f = () => {\n  return 1\n}",
    "index of a value over two lines": "const a = b\n[1]",
    "call of a function expression over two lines": "const a = function () {}\n(1)",
    "arrow function without a block": "const f = x => x\n[1]",
    "let on a line of its own": "let\na",
    "let and several names": "let\n  a = 1,\n  b = 2\n",
    "two directives": '"use strict"\n"use asm"',
    "directives and comments": "/* a */ 'use strict' // b\n",
    "return in braces in braces": "{{ return 1 }} a",
    "return in a catch": "try { a } catch { return 1 }\nb",
    "return in a labelled loop": "x: for (;;) { return 1 }\na",
    "return in else": "if (a) b; else return 1; c",
    "return in a with": "with (a) return b; c",
    "return in a case": "switch (a) { default: return 1 }\nb",
    "only semicolons": ";;;",
    "class with a static block": "class A { static { b } }",
}

SHELL = [
    "ls -la | grep x",
    "curl -X POST https://example.com -d '{}'",
    "git status && npm test",
    "git status; git log",
    "cd x; ls",
    "cd -",
    "ls; pwd",
    "ls && pwd",
    "env | grep X",
    "ls /",
    "npx tsc --noEmit",
    "python3 - <<EOF\nprint(1)\nEOF",
    "cat <<'EOF' > x.txt\nhi\nEOF",
    "cat < in > out",
    "FOO=1 npm test",
    "FOO=bar BAZ=1 ./run.sh",
    "export FOO=1 && node x.js",
    "./run.sh",
    "../gradlew build --info",
    "/usr/bin/env ls",
    "chmod +x run.sh",
    "kill -9 123",
    "sleep 5",
    "sort names.txt | uniq -c",
    "test -f x && echo y",
    "[ -f x ] && echo y",
    "[[ -n $x ]] && ls",
    "while true; do sleep 1; done",
    "while read line; do echo $line; done < x",
    "function deploy { npm run build; }",
    "alias ll='ls -l'",
    "set -euo pipefail\ncd x",
    "source .venv/bin/activate",
    ". ./env.sh",
    "make",
    "bash\nls",
    "Get-ChildItem -Recurse",
    "\ufeffls -la",
    "\n\n  # first\n  ls -la",
    "#!/usr/bin/env -S bash -e\nls",
    "ls -la",
]

NO_SHELL = [
    "echo(1)",
    "echo (1)",
    "find(x => x > 1)",
    "test",
    "test(1)",
    "sort (a)",
    "sleep(5)",
    "await sleep(5)",
    "time - 1",
    "kill(1)",
    "kill -9;",
    "node -1;",
    "node -1; 2",
    "node.x - 1",
    "node - 1",
    "node && node.next",
    "node?.next",
    "node || null",
    "cat | dog",
    "a | b",
    "git?.status()",
    "go.fast()",
    "make`x`",
    "env['HOME']",
    "date.getTime()",
    "history.length",
    "set.add(1)",
    "source.map((x) => x)",
    "exit(1)",
    "FOO=1",
    "FOO = 1, BAR = 2",
    "$.x",
    "$(x)",
    "[-1, 2]",
    "[[1], [2]]",
    "[ -a, b ]",
    "./x/",
    "/usr/.test(x)",
    "/a/g.test(b)",
    ".5",
    "while (a) { b }",
    "function f() {}",
    "function f () {}",
    "cp<number>(1)",
    "cp <number>(1)",
    "type Foo = string",
    "const ls = 0, la = 1; ls -la",
    "// first\nconst ls = 0\nls -la",
    "/* ls -la */ 1",
    "`\nls -la\n`",
    "#!/usr/bin/env node\nls()",
    "#!/usr/bin/env -S npx tsx\n1",
]


@pytest.mark.parametrize(("source", "returning"), RETURNING.values(), ids=RETURNING)
def test_the_value_of_the_last_statement_is_returned(source: str, returning: str | None) -> None:
    assert inspect(source, "javascript").returning == returning


@pytest.mark.parametrize("source", NOTHING_TO_RETURN.values(), ids=NOTHING_TO_RETURN)
def test_no_return_is_put_in(source: str) -> None:
    assert inspect(source, "javascript").returning is None


_BEGINS_A_FENCE = re.compile(".*forms: .*(?:a fence(?: with.*| that.*)?|in a fence)$")


@pytest.mark.parametrize("program", [*every("javascript", "*.js"), *every("typescript", "*.ts")])
def test_the_preflight_raises_no_alarm_over_valid_programs(program: Written) -> None:
    members = {"tracker": None, "reports": None, "scratch": None}
    for code in (program.code, from_elsewhere(program.code)):
        assert looks_like_shell(code) is None
        fenced = take_fence(code)
        assert (fenced is not None) == (_BEGINS_A_FENCE.match(program.id) is not None)
        source = code if fenced is None else fenced.source
        check_members(inspect(source, "typescript"), members, "typescript")


@pytest.mark.parametrize("source", SHELL)
def test_a_shell_command_is_recognised(source: str) -> None:
    assert "MCP." in (looks_like_shell(source) or "")


@pytest.mark.parametrize("source", NO_SHELL)
def test_code_that_looks_a_little_like_shell_is_code(source: str) -> None:
    assert looks_like_shell(source) is None


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("git status && npm test", "MCP.<server>.<tool>"),
        ("cat <<EOF > x\n1\nEOF", "MCP.<server>.<tool>"),
        ("```js\nreturn 1\n```\nor\n```js\nreturn 2\n```", "several Markdown fences"),
        ("```return 1```", "Markdown fence"),
        ("```js return 1\n```", "Markdown fence"),
        ("Look:\n```bash\nls -la\n```", "MCP.<server>.<tool>"),
        ("```python\nprint(1)\n```", "Python"),
    ],
    ids=["commands", "here document", "several fences", "fence in a line", "code beside a label", "shell", "Python"],
)
@pytest.mark.parametrize("language", [None, "javascript", "typescript"])
async def test_what_is_no_program_is_answered_with_advice(
    session: Session, source: str, advice: str, language: str | None
) -> None:
    answer = await session.exec(source, **({} if language is None else {"language": language}))
    assert answer.code in ("invalid_input", "typescript_transform_failed")
    assert advice in answer.error
    assert answer.telemetry["counts"]["call"] == 0


@pytest.mark.anyio
@pytest.mark.parametrize("expression", ["/[z-a]/", "/(/"])
async def test_a_mistake_in_a_regular_expression_is_told_where_it_is(session: Session, expression: str) -> None:
    answer = await session.exec(f"const a = 1;\nconst r = {expression};\nreturn a", language="javascript")
    assert answer.code == "invalid_input"
    assert "cell.js:2:11" in answer.error


@pytest.mark.anyio
async def test_a_template_after_a_missing_semicolon_is_told_with_advice(session: Session) -> None:
    answer = await session.exec('const name = "a"\n`${name}!`')
    assert "semicolon" in answer.error


def test_every_program_has_its_own_name() -> None:
    names = [param.id for param in (*every("javascript", "*.js"), *every("typescript", "*.ts"))]
    assert len(names) == len(set(names))
    written = "".join(path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*script/*.[jt]s")))
    assert len(names) == written.count("// ---- ")
