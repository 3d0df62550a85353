"""Values that a program gets in Node.js, and gets here: what the engine by itself says otherwise.

`tests/differential` compares generated programs with Node itself. These are the cases that were wrong.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.sandbox import binary
from tests.sandbox.conftest import OpenCell, RunCode

SETS: dict[str, tuple[str, Any]] = {
    "letters of all scripts stay": (
        r"'Hello Wörld, 東京!'.replace(/[^\p{L}\p{N}\s]/gv, '')",
        "Hello Wörld 東京",
    ),
    "a property": (r"'naïve café'.match(/\p{L}+/gv)", ["naïve", "café"]),
    "a character of two units": (r"[/^.$/v.test('😀'), '😀'.replace(/[😀😁]/gv, 'x')]", [True, "x"]),
    "an intersection": (r"[/[[a-z]&&[aeiou]]/v.test('e'), /[\p{L}&&\p{ASCII}]/v.test('é')]", [True, False]),
    "a difference": (r"'abc123'.match(/[\w--\d]+/v)[0]", "abc"),
    "a difference without letters": (r"['é', 'a'].map((c) => /[\p{L}--[a-z]]/v.test(c))", [True, False]),
    "a complement of a set": (r"['b', 'c'].map((c) => /[^[a-z]--[aeiou]]/v.test(c))", [False, False]),
    "sets in a set": (r"'a1_-'.match(/[[a-z][0-9]_]+/v)[0]", "a1_"),
    "several operators": (r"['a', 'e', 'x'].map((c) => /[[a-z]--[aeiou]--x]/v.test(c))", [False, False, False]),
    "escapes that only sets have": (r"'a&b-c'.split(/[\&\-]/v)", ["a", "b", "c"]),
    "a caret after a set": (r"['^', 'b', 'x'].map((c) => /[[b]^]/v.test(c))", [True, True, False]),
    "a constructor": (r"'aé'.match(new RegExp('[\\p{L}--[a-z]]', 'v'))[0]", "é"),
    "an evaluated literal": (r"eval('/[\\w--\\d]+/v').exec('1a')[0]", "a"),
    "both cases": (r"['a', 'A', 'é'].map((c) => /[\p{Lu}--É]/iv.test(c))", [True, True, False]),
    "a complement of a property in both cases": (r"['a', '1'].map((c) => /[\P{Lu}]/iv.test(c))", [False, True]),
    "behind a look back": (r"'ab1'.match(/(?<=[[a-z]--a])\d/v)[0]", "1"),
    "its own flags and source": (
        r"((r) => [r.flags, r.unicode, r.unicodeSets, r.source, String(r)])(/[\w--\d]/gv)",
        ["gv", False, True, r"[\w--\d]", r"/[\w--\d]/gv"],
    ),
    "a copy": (
        r"((r) => [new RegExp(r).exec('1a')[0], new RegExp(r.source, r.flags).exec('1a')[0]])(/[\w--\d]/v)",
        ["a", "a"],
    ),
    "an empty match between characters": (
        r"['😀a'.split(/(?:)/v), '😀a'.replace(/(?:)/gv, '-')]",
        [["😀", "a"], "-😀-a-"],
    ),
    "groups with names": (r"'x=1'.match(/(?<k>[\p{L}])=(?<v>\d)/v).groups.k", "x"),
    "a pattern without sets": (r"'a.b'.split(/\./v)", ["a", "b"]),
}
"""Regular expressions with the flag `v`."""

PATTERNS: dict[str, tuple[str, Any]] = {
    "a property in both cases": (
        r"[/\p{Lu}/iu.test('a'), /\p{Ll}/iu.test('A'), /\P{Lu}/iu.test('a')]",
        [True, True, True],
    ),
    "a choice that forgets": ("/((a)|b)+/.exec('ab')", ["ab", "b", None]),
    "pairs that forget": (r"'a=1&b=2&&'.match(/(?:(\w)=(\d)&?|(&))+/).slice(1)", [None, None, "&"]),
    "a lazy repetition that forgets": (r"/^(?:(\d+)h|(\d+)m)+?$/.exec('5h3m').slice(1)", [None, "3"]),
    "a group that stays": (r"/(z)((a+)?(b+)?(c))*/.exec('zaacbbbcac')", ["zaacbbbcac", "z", "ac", "a", None, "c"]),
}
"""Other regular expressions."""

DATES: dict[str, str | None] = {
    **dict.fromkeys(
        ("0000-00-00", "2026-07-00", "2026-00-10", "0000-00-00 00:00:00", "32/01/2026", "November 32, 2000")
    ),
    **dict.fromkeys(
        ("2026-03-05 +0200", "Thu Mar 05 2026 +0100", "1/32/2026", "Q1 2026", "tomorrow", "", "2026-13-01")
    ),
    **dict.fromkeys(("2026-03-05T25:00:00Z", "2026-03-05T10:60", "2026-03-05T24:00:01Z", "2026-03-05 10:00 words")),
    "2026-03-05 10:00Z": "2026-03-05T10:00:00.000Z",
    "2026-03-05 10:00+01:00": "2026-03-05T09:00:00.000Z",
    "Mar 5 2026 10:00Z": "2026-03-05T10:00:00.000Z",
    "5/3/2026 10:00Z": "2026-05-03T10:00:00.000Z",
    "2026-03-05T10:00:00z": "2026-03-05T10:00:00.000Z",
    "2026-03-05t10:00:00Z": "2026-03-05T10:00:00.000Z",
    "2026-04-22 GMT+0200": "2026-04-21T22:00:00.000Z",
    "2026-02-30": "2026-03-02T00:00:00.000Z",
    "2026": "2026-01-01T00:00:00.000Z",
    "2026-03": "2026-03-01T00:00:00.000Z",
    "2026-03-05T24:00": "2026-03-06T00:00:00.000Z",
    "2026-03-05T10:00:00.123456789+05:30": "2026-03-05T04:30:00.123Z",
    "+002026-03-05": "2026-03-05T00:00:00.000Z",
    "0050-03-05": "0050-03-05T00:00:00.000Z",
    "0050-03-05 10:00:00": "1950-03-05T10:00:00.000Z",
    "2026-03-05 10:00 junk": "2026-06-03T10:00:00.000Z",
    "March 5, 2026 3:04 PM EST": "2026-03-05T20:04:00.000Z",
    "5 Mar 26": "2026-03-05T00:00:00.000Z",
    "Mar 5": "2001-03-05T00:00:00.000Z",
    "Thu, 05 Mar 2026 10:00:00 GMT (a comment (nested))": "2026-03-05T10:00:00.000Z",
}
"""Texts of dates, each with its time; None for an invalid date."""

OTHERS: dict[str, tuple[str, Any]] = {
    "Date as text": ("String(new Date(0))", "Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)"),
    "Date called as a function": ("Date().endsWith('GMT+0000 (Coordinated Universal Time)')", True),
    "the time of a date as text": ("new Date(0).toTimeString()", "00:00:00 GMT+0000 (Coordinated Universal Time)"),
    "an invalid date as text": ("`${new Date(NaN)}`", "Invalid Date"),
    "a subclass of Date": (
        "new (class D extends Date {})('2026-03-05 10:00Z').toISOString()",
        "2026-03-05T10:00:00.000Z",
    ),
    "an object as a date": ("new Date({ toString: () => '0000-00-00' }).getTime()", None),
    "a setter with no number": ("((d) => (d.setDate(undefined), d.getTime()))(new Date(0))", None),
    "the names of Date": ("[Date.length, Date.name, Date.parse.length, Object.keys(new Date(0))]", [7, "Date", 1, []]),
    "the target of a WeakRef": ("new WeakRef({ a: 1 }).deref()", {"a": 1}),
    "no promise that resolves": (
        "await Promise.any([Promise.reject(1)]).catch((e) => [e.message, String(e), e.stack, e.errors])",
        ["All promises were rejected", *["AggregateError: All promises were rejected"] * 2, [1]],
    ),
    "asUintN of a negative number": ("String(BigInt.asUintN(64, -1n))", "18446744073709551615"),
    "asUintN of a large number": ("String(BigInt.asUintN(32, 12345678901234567890n))", "3944680146"),
    "the members of a text": ("({ ...'ab', c: 1 })", {"0": "a", "1": "b", "c": 1}),
    "push to an array with holes": (
        "((a) => (a.push(7), [a.length, Object.keys(a), a[0]]))(Array(2))",
        [3, ["2"], None],
    ),
    "built-in functions": (
        "[Math.random, (1).toLocaleString, 'a'.localeCompare].map((f) => Object.getOwnPropertyDescriptor(f, 'name')"
        ".configurable && Object.getOwnPropertyDescriptor(f, 'length').configurable && Object.isExtensible(f))",
        [True, True, True],
    ),
}


@pytest.mark.parametrize(("code", "value"), (SETS | PATTERNS | OTHERS).values(), ids=(SETS | PATTERNS | OTHERS).keys())
def test_an_expression_has_the_value_that_it_has_in_node(run: RunCode, code: str, value: Any) -> None:
    assert run(f"return {code}").value == value


def test_texts_are_the_dates_that_they_are_in_node(run: RunCode) -> None:
    parsed = "[Date.parse(text), new Date(text).getTime()].every(isNaN) ? null : new Date(text).toISOString()"
    told = run(f"return {json.dumps(list(DATES))}.map((text) => {parsed})")
    assert dict(zip(DATES, told.value, strict=True)) == DATES


BREAKING = """
const { defineProperty, getOwnPropertyNames } = Object;
const broken = { get() { throw new TypeError('broken') } };
const classes = [Array, String, RegExp, Map, Set, Number];
const symbols = [Symbol.iterator, Symbol.match, Symbol.replace, Symbol.split, Symbol.matchAll, Symbol.search];
const names = [];
for (let i = 0; i < classes.length; i++) names[i] = getOwnPropertyNames(classes[i].prototype);
for (let i = 0; i < classes.length; i++) {
  const { prototype } = classes[i];
  const own = names[i];
  for (let j = 0; j < own.length; j++) {
    if (own[j] !== 'constructor' && own[j] !== 'length') defineProperty(prototype, own[j], broken);
  }
  for (let j = 0; j < symbols.length; j++) defineProperty(prototype, symbols[j], broken);
}
"""


def test_a_program_that_breaks_all_built_ins_changes_no_pattern_and_no_date(run: RunCode) -> None:
    told = run(
        BREAKING + "const made = RegExp('[\\\\w--\\\\d]', 'v');"
        "return { made: typeof made, march: Date.parse('Mar 5, 2026 10:00Z'), none: Date.parse('0000-00-00'),"
        "  stack: new Error('x').stack, text: Date.prototype.toString.call(new Date(0)) }"
    )
    assert told.value == {
        "made": "object",
        "march": 1772704800000,
        "none": None,
        "stack": "Error: x",
        "text": "Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)",
    }


REFUSED = {
    r"/\p{RGI_Emoji}/v": r"\p{Emoji_Presentation}",
    r"/[\q{abc|d}]/v": "write (?:...|...)",
    r"/[ab&&c]/v": "into brackets of its own",
    r"/[a-z--b]/v": "into brackets of its own",
    r"/[a&&b--c]/v": "into brackets of its own",
    r"/[(]/v": "( in a set of the flag v needs a backslash",
    r"/[a!!b]/v": "!! in a set of the flag v needs a backslash",
}


@pytest.mark.parametrize(("literal", "advice"), REFUSED.items(), ids=REFUSED.keys())
def test_a_pattern_that_cannot_be_read_is_refused_with_what_to_write(run: RunCode, literal: str, advice: str) -> None:
    report = run(f"const other = /x/g;\nreturn {literal}.test('a')").report
    assert report is not None
    assert report.error is not None
    assert (report.state, report.error.name) == ("syntax", "SyntaxError")
    assert advice in report.error.message
    pattern, _, flags = literal[1:].rpartition("/")
    code = f"try {{ new RegExp({json.dumps(pattern)}, '{flags}') }} catch (e) {{ return [e.name, e.message] }}"
    assert run(code).value == ["SyntaxError", report.error.message]


# stacks

FAILING = """class MyError extends Error { constructor(m) { super(m); this.name = "MyError" } }
function fail(what) {
  throw what;
}
const stacks = [];
for (const what of [new Error("disk full"), new MyError("own"), new TypeError(), "no error"]) {
  try { fail(what) } catch (e) { stacks.push(e.stack) }
}
try { null.x } catch (e) { stacks.push(e.stack) }
try { JSON.parse("{") } catch (e) { stacks.push(e.stack) }
try { await load() } catch (e) { stacks.push(e.stack) }
return stacks"""


def test_a_stack_begins_with_the_name_and_the_message_and_has_lines_of_the_program_alone(run: RunCode) -> None:
    stacks = run(FAILING, file="cell.js").value
    assert [stack and stack.splitlines()[0] for stack in stacks] == [
        *("Error: disk full", "MyError: own", "TypeError", None, "TypeError: cannot read property 'x' of null"),
        stacks[5].splitlines()[0],
        "TypeError: load takes a key as a string, not undefined",
    ]
    assert stacks[5].startswith("SyntaxError: ")
    frames = [frame for stack in stacks if stack for frame in stack.splitlines()[1:]]
    assert frames[0].startswith("    at anonymous (cell.js:6:")
    assert {frame.rpartition("(")[2].partition(":")[0] for frame in frames} == {"cell.js"}
    lines = {int(frame.split(":")[1]) for frame in frames}
    assert lines <= {1, 6, 9, 10, 11}


def test_a_stack_is_made_when_it_is_first_read_and_can_be_replaced(run: RunCode) -> None:
    told = run(
        "const e = new Error('a'); e.message = 'b'; const first = e.stack; e.message = 'c';"
        "const own = Object.getOwnPropertyDescriptor(e, 'stack'); const kept = e.stack; e.stack = 'mine';"
        "const held = { name: 'N', message: 'm' }; Error.captureStackTrace(held);"
        "return [first, kept === first, own.enumerable, own.writable, e.stack, held.stack,"
        "  Object.getOwnPropertyNames(new Error('x')).sort(), Object.create(new Error('up')).stack]"
    )
    first, *rest = told.value
    assert first == "Error: b"
    assert rest == [True, False, True, "mine", "N: m", ["message", "stack"], "Error: up"]


def test_an_error_keeps_its_frames_for_the_host_whatever_the_program_makes_of_its_stack(run: RunCode) -> None:
    report = run("const e = new Error('x'); e.stack = 'no frames'; Object.freeze(e); throw e").report
    assert report is not None
    assert report.error is not None
    assert report.error.stack.startswith("    at anonymous (<input>:3:")


def test_frames_of_typescript_have_the_lines_that_the_host_gives(cell: OpenCell) -> None:
    code = "const a = 1; function f() { return new Error('x').stack } return [new Error('y').stack, f()]"
    lines = "[[0,7,13,9,59,12]]"
    stacks = cell().start(code, file="cell.ts", lines=lines).value
    assert [stack.splitlines()[1:] for stack in stacks] == [
        ["    at anonymous (cell.ts:12)"],
        ["    at f (cell.ts:9)", "    at anonymous (cell.ts:12)"],
    ]


def test_the_accessors_of_a_stack_do_nothing_with_other_values(run: RunCode) -> None:
    told = run(
        "const { get, set } = Object.getOwnPropertyDescriptor(new Error(), 'stack');"
        "const frozen = Object.freeze({}); set.call(frozen, 1); set.call(5, 1);"
        "const trap = new Proxy(new Error('in'), { get() { throw 1 }, getOwnPropertyDescriptor() { throw 2 } });"
        "return [get.call({}), get.call(5), get.call(undefined), get.call(trap), Object.keys(frozen),"
        "  Object.isFrozen(get), typeof get.prototype]"
    )
    assert told.value == [None, None, None, None, [], True, "undefined"]


PRIVATE = {
    "methods": "class A { #m() { return 1 } t() { return this.#m() } } HIDE(A.prototype); return new A().t()",
    "methods, before": (
        "class A { #m() { return 1 } t() { return this.#m() } static { HIDE(A.prototype) } } return new A().t()"
    ),
    "static methods": (
        "class A { static { HIDE(A) } static #m() { return 1 } static t() { return this.#m() } } return A.t()"
    ),
    "methods of errors": (
        "class B { constructor() { return new Error() } } class A extends B { #m() { return 1 } #f = 0;"
        "  static t(o) { return o.#m() + o.#f } } const a = new A(); HIDE(a); return A.t(a)"
    ),
    "fields": "class A { #f = 1; t() { HIDE(this); return this.#f } } return new A().t()",
    "no member of an error": (
        "class A { #f = 1; #m() {} static t(o) { return #f in o || #m in o } } return A.t(new Error()) ? 2 : 1"
    ),
}


@pytest.mark.parametrize("code", PRIVATE.values(), ids=PRIVATE.keys())
def test_hidden_frames_change_no_private_member_of_a_class(run: RunCode, code: str) -> None:
    assert run(code.replace("HIDE", "Error.captureStackTrace")).value == 1


def test_no_program_can_list_copy_or_name_hidden_frames(run: RunCode) -> None:
    told = run(
        "const e = new Error('x'), seen = [];"
        "const trap = new Proxy(e, { get(t, k) { seen.push(typeof k, k); return t[k] },"
        "  defineProperty(t, k, d) { seen.push(k); return Reflect.defineProperty(t, k, d) } });"
        "trap.stack; Error.captureStackTrace(trap); Object.assign({}, trap); text(trap);"
        "const keys = [...Reflect.ownKeys(e), ...Object.getOwnPropertySymbols(e)]; for (const k in e) keys.push(k);"
        "return [keys.sort(), Object.keys({ ...e }), [...new Set(seen.map(String))].sort()]"
    )
    keys, copied, seen = told.value
    assert (keys, copied) == (["message", "stack"], [])
    assert {each for each in seen if "frames" in each} == set()
    assert "stack" in seen


TARGETS = (
    *(
        "[]",
        "function () {}",
        "new Uint8Array(2)",
        "Object('text')",
        "Object.freeze({})",
        "Object.preventExtensions({ stack: 1 })",
    ),
    *(
        "(function () { return arguments })(1)",
        "new Proxy({}, {})",
        "Object.create(null)",
        "globalThis",
        "new Map()",
        "class A {}",
    ),
    *(
        "new (class extends Array {})()",
        "Object.seal(new Error())",
        "JSON",
        "Proxy.revocable({}, {}).proxy",
        "new Date()",
    ),
)


@pytest.mark.parametrize("target", TARGETS)
def test_any_object_can_get_a_stack_or_refuses_it(run: RunCode, target: str) -> None:
    told = run(
        f"const it = {target}, hide = () => {{ try {{ Error.captureStackTrace(it) }} catch (e) {{ return e.name }} }};"
        "const names = [hide(), hide()]; let kind; try { kind = typeof it.stack } catch (e) { kind = e.name }"
        "return [names, kind]"
    )
    names, kind = told.value
    assert set(names) <= {None, "TypeError"}
    assert kind in ("string", "undefined", "number", "TypeError")


def test_an_engine_whose_code_is_not_as_expected_is_refused() -> None:
    prepared = binary.prepare(binary.load())
    with pytest.raises(binary.RuntimeUnavailable, match="unexpected code"):
        binary.with_hooks(binary.with_hooks(prepared))
