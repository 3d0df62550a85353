"""Values on their whole way: from a program to the client, into a call, and out of one, as docs/values.md says.

The server behind it shows the very text that reached it, and answers with text that no well-behaved server would send.
What values become when a program ends is a table of its own, in `tests/sandbox/test_values.py`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness import REPOSITORY, SERVERS, Session, serve, write_config

pytestmark = pytest.mark.anyio

SECTIONS = re.split(r"\n###? ", (REPOSITORY / "docs" / "values.md").read_text("utf-8"))

MIB = 1024 * 1024


def rows(section: str) -> list[str]:
    [text] = [each for each in SECTIONS if each.startswith(section)]
    return re.findall(r"^\| (.+?) \| ", text, re.MULTILINE)[1:]


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    servers = {"echo": {"command": sys.executable, "args": [str(SERVERS / "echo.py"), str(folder)]}}
    settings = {"maxOutputBytes": 10 * MIB, "memoryLimitBytes": 256 * MIB, "maxToolResultBytes": 12 * MIB}
    async with serve(write_config(folder, servers, codeMode=settings)) as session:
        yield session


# into a call

SENT: dict[str, list[tuple[str, str]]] = {
    "string, finite number, boolean, null, array, plain object": [
        ("{ a: 'text', b: [1, true, null, {}] }", '{"a":"text","b":[1,true,null,{}]}'),
        ("{ a: 'é😀\\u2028\\u2029\\u0000\"\\\\' }", '{"a":"é😀\u2028\u2029\\u0000\\"\\\\"}'),
        (
            "{ a: 1e20, b: 1e-7, c: 2 ** 53 - 1, d: 0.1, e: -0 }",
            '{"a":100000000000000000000,"b":1e-7,"c":9007199254740991,"d":0.1,"e":0}',
        ),
        ("{ b: 1, 2: 1, 1: 1 }", '{"1":1,"2":1,"b":1}'),
        ("Object.freeze({ a: 1 })", '{"a":1}'),
        ("Object.assign(Object.create(null), { a: 1 })", '{"a":1}'),
        ("Object.create({ inherited: 1 })", "{}"),
        ("new (class A { x = 1; #y = 2; get z() { return 3 } })()", '{"x":1}'),
        ('JSON.parse(\'{"__proto__": {"x": 1}}\')', '{"__proto__":{"x":1}}'),
        ("new Proxy({ a: 1 }, {})", '{"a":1}'),
        ("(function () { return arguments })(1, 2)", '{"0":1,"1":2}'),
        ("{ a: [1, , 3], b: Object.assign([1], { extra: 2 }) }", '{"a":[1,null,3],"b":[1]}'),
        ("globalThis", "{}"),
    ],
    "`undefined`": [
        ("{ a: undefined, [Symbol('k')]: 1, d: null }", '{"d":null}'),
        ("{ a: [undefined, 1] }", '{"a":[null,1]}'),
    ],
    "`NaN`, `Infinity`": [("{ a: NaN, b: [Infinity, -Infinity] }", '{"a":null,"b":[null,null]}')],
    "`Date`, an object with `toJSON`": [
        ("{ a: new Date(0), b: new Date(NaN) }", '{"a":"1970-01-01T00:00:00.000Z","b":null}'),
        ("{ toJSON: () => ({ b: 1 }) }", '{"b":1}'),
        ("{ a: { toJSON: (key) => key }, b: { toJSON: () => undefined } }", '{"a":"a"}'),
        ("{ a: 1, toJSON() { return this } }", '{"a":1}'),
        ("{ a: 1, toJSON: 'no function' }", '{"a":1,"toJSON":"no function"}'),
        ("{ a: new URL('http://a/b') }", '{"a":"http://a/b"}'),
    ],
    "`Number`, `String`, `Boolean` object": [
        ("{ a: Object('s'), b: Object(1), c: Object(true), d: [Object(2)] }", '{"a":"s","b":1,"c":true,"d":[2]}')
    ],
    "an instance of a class of the program's own": [
        ("new (class Query { a = 1; #b = 2; c() {} get d() { return 1 } })()", '{"a":1}'),
        ("{ q: new (class { get [Symbol.toStringTag]() { return 'Query' } a = 1 })() }", '{"q":{"a":1}}'),
        ("{ a: Object.fromEntries(new Map([['a', 1]])), b: [...new Set([1])] }", '{"a":{"a":1},"b":[1]}'),
        ("{ a: [...new Uint8Array([1, 2])], b: new Uint8Array([1, 2]).toBase64() }", '{"a":[1,2],"b":"AQI="}'),
    ],
    "half of a surrogate pair": [("{ a: 'x\\ud800y', '\\udc00': 1 }", '{"a":"x\ufffdy","\ufffd":1}')],
    "`bigint`": [
        ("{ a: 725653563933458433n, b: [-(2n ** 64n)] }", '{"a":725653563933458433,"b":[-18446744073709551616]}'),
        ("{ a: 5n, b: 10n ** 30n, c: Object(7n) }", '{"a":5,"b":1000000000000000000000000000000,"c":7}'),
        ("{ a: 725653563933458433n, b: new Date(0) }", '{"a":725653563933458433,"b":"1970-01-01T00:00:00.000Z"}'),
    ],
    "a Number beyond 2^53": [
        ("{ a: 2 ** 53, b: 123456789012345680000 }", '{"a":9007199254740992,"b":123456789012345680000}'),
        ("{ a: 1e21, b: [-1e300], c: new Date(NaN) }", '{"a":1e+21,"b":[-1e+300],"c":null}'),
    ],
    "anything but one object": [("", "{}"), ("undefined", "{}")],
}

NEST = "((n) => {{ let a = 1; for (let i = 0; i < n; i++) a = [a]; return {{ a }} }})({})"

REFUSED: dict[str, list[tuple[str, str]]] = {
    "`bigint`": [("{ a: [10n ** 4300n] }", "a[0] is a bigint of more than 4300 digits"), ("5n", "got number 5")],
    "a promise, anywhere in it": [
        ("{ a: 1, b: Promise.resolve(1) }", "b is a promise; await it first"),
        ("Promise.resolve({ a: 1 })", "the input is a promise; await it first"),
        ("{ a: [{ b: Promise.resolve(1) }] }", "a[0].b is a promise; await it first"),
    ],
    "`Map`, `Set`, anywhere in it": [
        ("new Map([['a', 1]])", "the input is a Map"),
        ("{ a: new Map() }", "a is a Map, which JSON has no form for; pass Object.fromEntries(map)"),
        ("{ a: 1, b: [0, { c: new Set([1]) }] }", "b[1].c is a Set, which JSON has no form for; pass [...set]"),
        ("{ a: new (class Cache extends Map { get [Symbol.toStringTag]() { return 'Cache' } })() }", "a is a Map"),
        (
            "{ a: new Proxy({}, { get: (t, k) => (k === 'b' ? new Set() : t[k]), ownKeys: () => ['b'],"
            "getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }) }) }",
            "a.b is a Set",
        ),
        ("new (class { a = 1; found = new Map() })()", "found is a Map"),
    ],
    "typed array, `ArrayBuffer`, `DataView`, anywhere in it": [
        ("{ a: { b: 1 }, c: { d: new ArrayBuffer(2) } }", "c.d is an ArrayBuffer"),
        ("{ data: new Uint8Array([1]) }", "data is a Uint8Array, which JSON has no form for; pass [...bytes], or"),
        ("new Int16Array(2)", "the input is an Int16Array, which JSON has no form for; pass [...array]"),
        ("{ a: [new Float64Array(1)] }", "a[0] is a Float64Array"),
        ("{ a: new DataView(new ArrayBuffer(1)) }", "a is a DataView"),
        ("{ a: new (class Bytes extends Uint8Array {})(1) }", "a is a Uint8Array"),
    ],
    "function, symbol, as a member or in an array": [
        ("{ a: 1, done: () => 1 }", "done is a function, which JSON has no form for; leave it out"),
        ("{ a: [1, Symbol('s')] }", "a[1] is a symbol"),
        ("{ a: { b: class {} } }", "a.b is a function"),
        ("MCP", "echo.echo is a function"),
        ("new (class { a = 1; go = () => this.a })()", "go is a function"),
    ],
    "`Error`, `RegExp`, iterator, `URLSearchParams`, `WeakMap` and the like, anywhere in it": [
        ("{ why: Object.assign(new Error('m'), { status: 404 }) }", "why is an Error, which JSON has no"),
        ("{ a: /x/ }", "a is a RegExp"),
        ("{ a: new Map([[1, 2]]).values() }", "a is a Map Iterator, which JSON has no form for; pass [...iterator]"),
        ("{ a: [1].map((x) => x).values().map((x) => x) }", "a is an Iterator Helper"),
        ("{ a: (function* () {})() }", "a is a Generator"),
        ("{ a: new URLSearchParams('b=1') }", "a is a URLSearchParams, which JSON has no form for; pass"),
        ("{ a: new WeakMap(), b: 1 }", "a is a WeakMap"),
        ("{ a: Object(Symbol()) }", "a is a Symbol"),
    ],
    "a cycle; a getter, proxy or `toJSON` that throws": [
        ("(() => { const a = {}; a.a = a; return a })()", "circular"),
        ("{ get a() { throw new Error('why not') } }", "why not"),
        ("{ toJSON() { throw new Error('why not') } }", "why not"),
        ("new Proxy({}, { ownKeys() { throw new Error('why not') } })", "why not"),
        ("(() => { const p = Proxy.revocable({}, {}); p.revoke(); return p.proxy })()", "revoked proxy"),
        ("{ get a() { throw null } }", "cannot be sent as JSON"),
    ],
    "nested deeper than 100 levels": [
        (NEST.format(1_000), "deeper than 100 levels"),
        (NEST.format(20_000), "deeper than 100 levels"),
    ],
    "anything but one object": [
        ("[1]", "got array [1]"),
        ("null", "got null"),
        ("'text'", 'got string "text"'),
        ("5", "got number 5"),
        ("true", "got boolean true"),
        ("Symbol('s')", "a symbol has no JSON form"),
        ("() => 1", "a function has no JSON form"),
        ("{ toJSON: () => 5 }", "got number 5"),
        ("{ toJSON: () => undefined }", "has no JSON form"),
        ("new Date(0)", 'got string "1970-01-01T'),
        ("{}, {}, {}", "3 arguments"),
    ],
}


def cases(table: dict[str, list[tuple[str, str]]]) -> list[object]:
    return [pytest.param(*case, id=f"{row[:30]}: {case[0]}"[:90]) for row, found in table.items() for case in found]


def test_every_row_about_arguments_has_a_case_here() -> None:
    assert set(rows("Into a call")) == {*SENT, *REFUSED}


@pytest.mark.parametrize(("expression", "expected"), cases(SENT))
async def test_an_argument_reaches_the_server_as_the_documentation_says(
    session: Session, expression: str, expected: str
) -> None:
    request = await session.value(f"return (await MCP.echo.echo({expression})).content[0].text")
    params = json.loads(request)["params"]
    assert json.dumps(params["arguments"], ensure_ascii=False) == json.dumps(json.loads(expected), ensure_ascii=False)
    # Not only the value, the text too: it was not decoded and encoded again on the way.
    assert f'"arguments":{expected}' in request


@pytest.mark.parametrize(("expression", "words"), cases(REFUSED))
async def test_an_argument_without_a_json_form_is_refused_before_anything_is_sent(
    session: Session, expression: str, words: str
) -> None:
    answer = await session.exec(f"return await MCP.echo.echo({expression})")
    assert answer.code == "nested_tool_failed"
    assert words in answer.error
    caught = f"try {{ await MCP.echo.echo({expression}) }} catch (e) {{ return [e instanceof Error, e.code] }}"
    assert await session.value(caught) == [True, "nested_tool_failed"]
    assert answer.telemetry["counts"]["call"] in (0, 1)
    assert not any(call["dispatched"] for call in answer.telemetry["calls"])


async def test_an_argument_of_a_hundred_levels_is_sent(session: Session) -> None:
    request = await session.value(f"return (await MCP.echo.echo({NEST.format(99)})).content[0].text")
    assert json.dumps(json.loads(request)["params"]["arguments"]).count("[") == 99


async def test_an_argument_of_a_hundred_and_one_levels_is_refused(session: Session) -> None:
    answer = await session.exec(f"return await MCP.echo.echo({NEST.format(100)})")
    assert answer.status == "failed"


async def test_large_arguments_are_sent_whole(session: Session) -> None:
    code = """
        const wide = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => ["k" + i, i]));
        const text = (await MCP.echo.echo(wide)).content[0].text;
        const long = (await MCP.echo.echo({ a: "é".repeat(1_000_000) })).content[0].text;
        return [JSON.stringify(JSON.parse(text).params.arguments) === JSON.stringify(wide), long.split("é").length];
    """
    assert await session.value(code) == [True, 1_000_001]


# out of a call

GIVEN: dict[str, list[tuple[str, str]]] = {
    "string, number, boolean, null, array, object": [
        ('{"a":"x","b":[1,-1.5,true,null,{}]}', '{"a":"x","b":[1,-1.5,true,null,{}]}'),
        ('{"a":1.0,"b":1e2,"c":0.1,"d":5e-324,"e":1e-400}', '{"a":1,"b":100,"c":0.1,"d":5e-324,"e":0}'),
        ('{"b":1,"2":2,"1":3}', '{"1":3,"2":2,"b":1}'),
        ('{"a":"\u2028\\u2029\\u0000\\ud83d\\ude00"}', '{"a":"\u2028\u2029\\u0000😀"}'),
        ('{"":1,"toJSON":2,"then":3,"constructor":4}', '{"":1,"toJSON":2,"then":3,"constructor":4}'),
        ("[1]", "[1]"),
        ('"text"', '"text"'),
        ("true", "true"),
    ],
    "integer beyond 2^53": [
        ('{"a":9007199254740991}', '{"a":9007199254740991}'),
        ('{"a":-9007199254740991}', '{"a":-9007199254740991}'),
        ('{"a":9007199254740992}', '{"a":9007199254740992}'),
        ('{"a":9007199254740993}', '{"a":9007199254740993}'),
        (
            '{"a":[-9007199254740993,{"b":18446744073709551615}]}',
            '{"a":[-9007199254740993,{"b":18446744073709551615}]}',
        ),
        ('{"a":123456789012345678901234567890}', '{"a":123456789012345678901234567890}'),
        (
            '{"a":1234567890123456789e2,"b":12345678901234567890.5}',
            '{"a":123456789012345680000,"b":12345678901234567000}',
        ),
        ('{"a":"9007199254740993"}', '{"a":"9007199254740993"}'),
    ],
    "number beyond 1.8e308, `NaN`, `Infinity`": [
        ('{"a":1e400,"b":-1e400}', '{"a":null,"b":null}'),
        ('{"a":NaN,"b":[Infinity,-Infinity]}', '{"a":null,"b":[null,null]}'),
    ],
    "the same key twice": [('{"a":1,"a":2}', '{"a":2}'), ('{"a":{"b":1},"a":{"c":2}}', '{"a":{"c":2}}')],
    "`__proto__`": [('{"__proto__":{"x":1},"a":1}', '{"__proto__":{"x":1},"a":1}')],
    "half of a surrogate pair": [('{"a":"x\\ud800y","\\udc00":1}', '{"a":"x\ufffdy","\ufffd":1}')],
}

UNREADABLE: dict[str, list[tuple[str, str]]] = {
    "nested deeper than some hundred levels": [
        ('{"a":' + "[" * 1_000 + "]" * 1_000 + "}", "nested too deeply"),
        ('{"a":' * 1_000 + "1" + "}" * 1_000, "nested too deeply"),
        ("[" * 20_000 + "]" * 20_000, "nested too deeply"),
    ],
    "integer of more than 4,300 digits": [('{"a":' + "1" * 4_301 + "}", "an integer of more than 4,300 digits")],
    "text that is not JSON": [
        ("{'a':1}", "is not JSON"),
        ('{"a":1,}', "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        ("undefined", "is not JSON"),
        ('{"a":', "is not JSON"),
    ],
    "more than `maxToolResultBytes`": [('"' + "x" * (13 * MIB) + '"', "maxToolResultBytes")],
}


def given(folder: Path, content: str) -> str:
    """Return the expression for a result with this as its `structuredContent`."""
    (folder / "given").write_text(content, "utf-8")
    return 'unwrap(await MCP.echo.give({ name: "given" }))'


def test_every_row_about_results_has_a_case_here() -> None:
    assert set(rows("Out of a call")) == {*GIVEN, *UNREADABLE}


@pytest.mark.parametrize(("content", "expected"), cases(GIVEN))
async def test_a_result_is_in_the_program_what_the_documentation_says(
    session: Session, folder: Path, content: str, expected: str
) -> None:
    code = f"const r = {given(folder, content)}; return [JSON.stringify(r), r]"
    text, value = await session.value(code)
    assert text == expected
    # And on to the client, member by member; a `toJSON` that is no function stays a member.
    assert value == json.loads(expected)


async def test_a_member_called_proto_gives_an_object_no_other_prototype(session: Session, folder: Path) -> None:
    code = f"""
        const r = {given(folder, '{"__proto__":{"x":1}}')};
        return [r.x, ({{}}).x, Object.keys(r), Object.getPrototypeOf(r) === Object.prototype];
    """
    assert await session.value(code) == [None, None, ["__proto__"], True]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(*case, id=f"{row}-{number}")
        for row, found in UNREADABLE.items()
        for number, case in enumerate(found)
    ],
)
async def test_a_result_that_cannot_be_read_fails_that_call_alone(
    session: Session, folder: Path, content: str, words: str
) -> None:
    answer = await session.exec(f"return {given(folder, content)}")
    assert answer.code == "nested_tool_failed"
    assert words in answer.error
    assert "MCP.echo.give" in answer.error
    assert await session.value(f"return {given(folder, '7')}") == 7


async def test_a_result_of_four_hundred_levels_is_read(session: Session, folder: Path) -> None:
    nested = '{"a":' + "[" * 399 + "]" * 399 + "}"
    assert await session.value(f"return JSON.stringify({given(folder, nested)})") == nested


async def test_large_results_arrive_whole(session: Session, folder: Path) -> None:
    content = json.dumps({"a": "x" * 10_000_000, **{f"k{i}": i for i in range(100_000)}})
    code = (
        f"const r = {given(folder, content)}; return [r.a.length, new Set(r.a).size, Object.keys(r).length, r.k99999]"
    )
    answer = await session.finish(await session.exec(code))
    assert answer.value == [10_000_000, 1, 100_001, 99_999]


# out of a program


async def test_a_value_and_an_output_reach_the_client_alike(session: Session) -> None:
    cases: list[tuple[str, Any]] = [
        ("'é😀\\u2028\\u2029\\u0000\\u001b'", "é😀\u2028\u2029\0\x1b"),
        ("{ '\\udc00': ['\\ud800'] }", {"\ufffd": ["\ufffd"]}),
        ("[2 ** 53, 1e21, 5e-324, -0, 0.1 + 0.2, 9007199254740993n]", [2**53, 1e21, 5e-324, 0, 0.1 + 0.2, 2**53 + 1]),
        ('JSON.parse(\'{"__proto__": {"a": 1}}\')', {"__proto__": {"a": 1}}),
        (
            "{ status: 'failed', code: 'timeout', isError: true }",
            {"status": "failed", "code": "timeout", "isError": True},
        ),
    ]
    for expression, expected in cases:
        answer = await session.exec(f"const v = {expression}; json(v); return [v]")
        assert answer.value == [expected]
        assert answer.structured["output"] == [{"type": "json", "value": expected}]
