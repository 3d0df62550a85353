"""Tests of what the prelude gives to a program, and the messages of each thing a program can call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from guest_harness import MANIFEST, READ, REMOVE, ok

from codemode_mcp.sandbox.messages import (
    ApiList,
    ApiRead,
    ApiSearch,
    ClearTimer,
    Completion,
    Describe,
    GuestError,
    Header,
    Load,
    Store,
    Timer,
    ToolCall,
    ToolSearch,
    YieldControl,
)
from tests.sandbox.conftest import OpenCell, RunCode

PRELUDE = Path(__file__).parents[2] / "codemode_mcp" / "sandbox" / "prelude"

# how it is written


@pytest.mark.parametrize("file", sorted(PRELUDE.glob("[0-9]*.js")), ids=lambda file: file.name)
def test_the_numbered_files_have_no_template_literals_with_substitutions(file: Path) -> None:
    """Check that none calls String.prototype.concat, which a guest can replace."""
    source = re.sub(r"(?m)^\s*//.*$", "", file.read_text("utf-8"))
    assert "`" not in source


def test_there_are_numbered_prelude_files() -> None:
    assert len(list(PRELUDE.glob("[0-9]*.js"))) >= 8


# what cannot be changed


@pytest.mark.parametrize(
    "path",
    [
        "MCP", "MCP.files", "MCP.files.readFile", "MCP.files.resources", "MCP.files.resources.list", "MCP.$api",
        "tools", "tools.list", "tools.call", "API", "API.list", "ALL_TOOLS", "ALL_TOOLS[0]", "namespaces",
        "text", "json", "load",
    ],
)  # fmt: skip
def test_what_a_program_works_with_is_frozen(run: RunCode, path: str) -> None:
    assert run(f"return [Object.isFrozen({path}), typeof {path}]").value in ([True, "object"], [True, "function"])


@pytest.mark.parametrize("name", ["MCP", "tools", "API", "ALL_TOOLS", "namespaces"])
def test_the_names_themselves_cannot_be_replaced(run: RunCode, name: str) -> None:
    code = (
        f"'use strict'; const before = {name}; const errors = [];"
        f"try {{ globalThis.{name} = 1 }} catch (e) {{ errors.push(e.name) }}"
        f"try {{ Object.defineProperty(globalThis, '{name}', {{ value: 1 }}) }} catch (e) {{ errors.push(e.name) }}"
        f"try {{ delete globalThis.{name} }} catch (e) {{ errors.push(e.name) }} return [{name} === before, errors]"
    )
    assert run(code).value == [True, ["TypeError"] * 3]


# requests

STORED = "[725653563933458433,9007199254740992E0,1E+21,9007199254740991]"


@pytest.mark.parametrize(
    ("code", "request_"),
    [
        ("MCP.files.readFile({ a: [1] })", ToolCall(1, READ, '{"a":[1]}')),
        ("MCP['my-files'].read_file({})", ToolCall(1, READ, "{}")),
        ("MCP.files.readFile()", ToolCall(1, READ, count=0)),
        ("MCP.files.readFile({}, 2)", ToolCall(1, READ, "{}", count=2, options="2")),
        (
            "MCP.files.readFile({}, { timeoutMs: 5 })",
            ToolCall(1, READ, "{}", count=2, options='{"timeoutMs":5}'),
        ),
        ("MCP.files.readFile({}, undefined)", ToolCall(1, READ, "{}", count=2)),
        ("MCP.files.readFile({}, () => 1)", ToolCall(1, READ, "{}", count=2, options="null")),
        ("MCP.lost.resources.list()", ToolCall(1, "mcp:lost:resources.list", count=0)),
        ("MCP.lost.prompts.get({})", ToolCall(1, "mcp:lost:prompts.get", "{}")),
        ("MCP.lost['resources/list']({})", ToolCall(1, "mcp:lost:resources_list", "{}")),
        ("MCP.lost['x:y\\n\\u202ez \\ud800é']({})", ToolCall(1, "mcp:lost:x_y__z___", "{}")),
        ("MCP.lost['9'.repeat(5_000_000)]({})", ToolCall(1, "mcp:lost:" + 100 * "9", "{}")),
        ("MCP.lost['']({})", ToolCall(1, "mcp:lost:", "{}")),
        ("MCP.files.resources.list({})", ToolCall(1, "mcp:my-files:resources/list", "{}")),
        ("MCP.lost.any_$thing({})", ToolCall(1, "mcp:lost:any_$thing", "{}")),
        ("tools.list({})", ToolCall(1, "plugin:issues:list", "{}")),
        ("tools.call('plugin:issues:list', { a: 1 })", ToolCall(1, "plugin:issues:list", '{"a":1}', by_id=True)),
        ("tools.search('x', { limit: 3 })", ToolSearch(1, "x", 3)),
        ("tools.describe('plugin:issues:list')", Describe(1, "plugin:issues:list")),
        ("API.list()", ApiList(1, "")),
        ("API.list('mcp/a', 'mcp/b')", ApiList(1, "mcp/a", ("mcp/b",))),
        ("API.read('mcp/files.d.ts')", ApiRead(1, "mcp/files.d.ts")),
        ("API.read('a', 'b#c', 'd')", ApiRead(1, "a", ("b#c", "d"))),
        ("API.read(['a', 'b'], 'c')", ApiRead(1, "a", ("b", "c"))),
        ("API.read(['a'])", ApiRead(1, "a")),
        ("['a'].map(API.read)", ApiRead(1, "a")),
        ("API.search('q', { limit: 2, server: 'files' })", ApiSearch(1, "q", 2, "files")),
        ("API.search({ query: 'q', limit: 2, server: 'files' })", ApiSearch(1, "q", 2, "files")),
        ("API.search('q', 2)", ApiSearch(1, "q", 2, None)),
        ("tools.search({ query: 'x', limit: 3 })", ToolSearch(1, "x", 3)),
        ("MCP.$api()", Header(1, None, None)),
        ("MCP.files.$api('readFile', { schema: true })", Header(1, "files", "readFile", schema=True)),
        ("store('k', { a: 1n })", Store(1, "k", '{"a":1}')),
        ("store('k', [725653563933458433n, 2 ** 53, 1e21, 2 ** 53 - 1])", Store(1, "k", STORED)),
        ("load('k')", Load(1, "k")),
        ("yield_control('why')", YieldControl(1, "why")),
    ],
)
def test_a_call_leaves_one_message_of_the_exact_form(run: RunCode, code: str, request_: Any) -> None:
    assert run(f"{code}; return 1").requests == [request_]


def test_a_held_name_is_a_function_that_no_program_can_list(cell: OpenCell) -> None:
    manifest = json.loads(MANIFEST)
    names = ["remove", "secret tool", "__proto__", "constructor", "then", "toString", "resources"]
    manifest["servers"][0]["held"] = names
    code = """
        const files = MCP.files;
        const named = ["secret tool", "__proto__", "constructor", "then", "toString", "resources", "other"];
        MCP["my-files"]["secret tool"]({});
        files.remove({});
        files.__proto__({});
        const listed = [];
        for (const name in files) listed.push(name);
        return [
          named.map((name) => typeof files[name]), named.filter((name) => name in files || Object.hasOwn(files, name)),
          listed, Reflect.ownKeys(files).sort(), Object.getPrototypeOf(files), (await files) === files,
          Object.isFrozen(files),
        ];
    """
    told = cell(manifest=json.dumps(manifest)).start(code)
    kinds = ["function", "function", "function", "undefined", "undefined", "object", "undefined"]
    members = ["$api", "readFile", "read_file", "remove", "resources"]
    assert told.value == [
        kinds,
        ["resources"],
        ["readFile", "remove", "resources"],
        members,
        None,
        True,
        True,
    ]
    targets = [each.target for each in told.requests]
    assert targets == ["mcp:my-files:secret tool", REMOVE, "mcp:my-files:__proto__"]


@pytest.mark.parametrize(
    "given", ["() => 1", "Symbol('s')", "{ a: 10n ** 4300n }", "(() => { const a = {}; a.a = a; return a })()"]
)
def test_arguments_without_a_json_form_reject_and_send_nothing(run: RunCode, given: str) -> None:
    told = run(f"try {{ await MCP.files.readFile({given}) }} catch (e) {{ return [e.name, e.message] }}")
    assert told.value[0] == "TypeError"
    assert "cannot be sent as JSON" in told.value[1]
    assert told.requests == []


def test_a_failed_call_is_an_error_with_code_data_and_the_place_it_was_made(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "async function caller() { return await MCP.files.readFile({}) }"
        "try { await caller() } catch (e) { return [e instanceof Error, e.name, e.message, e.code, e.data, e.stack] }",
        file="cell.js",
    )
    error = GuestError("no such file", name="ToolCallError", code="nested_tool_failed", data='{"path":"x"}')
    *told, stack = guest.deliver(Completion(1, error=error)).value
    assert told == [True, "ToolCallError", "no such file", "nested_tool_failed", {"path": "x"}]
    assert stack.startswith("ToolCallError: no such file\n    at caller (cell.js:1:")


def test_an_uncaught_failure_carries_its_code_and_an_imitation_does_not(cell: OpenCell) -> None:
    for code, expected in (
        ("await MCP.files.readFile({})", "E_CODE"),
        (
            "try { await MCP.files.readFile({}) } catch (e) { throw Object.assign(new Error(''), { code: e.code }) }",
            None,
        ),
    ):
        guest = cell()
        guest.start(code)
        report = guest.deliver(Completion(1, error=GuestError("no", code="E_CODE"))).report
        assert report is not None
        assert report.error is not None
        assert report.error.code == expected


def test_an_answer_to_an_unknown_request_or_one_that_was_answered_is_ignored(cell: OpenCell) -> None:
    guest = cell()
    guest.start("const a = await MCP.files.readFile({}); const b = await MCP.files.readFile({}); return [a, b]")
    assert guest.deliver(ok(99, "x")).requests == []
    guest.deliver(ok(1, "a"), ok(1, "again"))
    assert guest.deliver(ok(1, "x"), ok(2, "b")).value == ["a", "b"]


@pytest.mark.parametrize(("answer", "expected"), [([], None), ([None], None), ([[1]], [1])])
def test_load_opens_the_box_it_is_answered_with(cell: OpenCell, answer: Any, expected: Any) -> None:
    guest = cell()
    guest.start("const v = await load('k'); return [v === undefined, v]")
    assert guest.deliver(ok(1, answer)).value == [answer == [], expected]


@pytest.mark.parametrize(
    "code", ["store(1, 2)", "store()", "await load(1)", "await API.read()", "await tools.describe({})"]
)
def test_names_that_are_no_strings_are_type_errors_and_send_nothing(run: RunCode, code: str) -> None:
    told = run(f"try {{ {code} }} catch (e) {{ return e.name }}")
    assert told.value == "TypeError"
    assert told.requests == []


# unwrap

FILE = {"type": "resource", "resource": {"uri": "repo://a.txt", "mimeType": "text/plain", "text": "THE FILE"}}
RESULTS: list[tuple[Any, Any]] = [
    ({"content": [], "structuredContent": {"a": 1}}, {"a": 1}),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}, {"a": 1}),
    ({"content": [{"type": "text", "text": '{"a":[1]}'}]}, {"a": [1]}),
    ({"content": [{"type": "text", "text": "plain"}]}, "plain"),
    ({"content": [{"type": "text", "text": "[1,"}, {"type": "text", "text": "2]"}]}, [1, 2]),
    ({"content": [{"type": "text", "text": ""}]}, ""),
    ({"content": []}, []),
    ({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]},
     [{"type": "image", "data": "AA==", "mimeType": "image/png"}]),
    ({"content": [None, 1, {"type": "text"}, {"type": "text", "text": "7"}]}, 7),
    ({"content": [{"type": "text", "text": "x"}], "structuredContent": None}, "x"),
    ({"content": [{"type": "text", "text": "read a.txt"}, FILE]}, "THE FILE"),
    ({"content": [FILE, {"type": "text", "text": "read a.txt"}]}, "THE FILE"),
    ({"content": [FILE]}, "THE FILE"),
    ({"content": [{"type": "text", "text": "read"}, {"type": "resource", "resource": {"text": "[1]"}}]}, [1]),
    ({"content": [{"type": "text", "text": "two files"}, FILE, FILE]}, "two files"),
    ({"content": [{"type": "text", "text": "x"}, FILE], "structuredContent": {"a": 1}}, {"a": 1}),
    ({"content": [{"type": "text", "text": "x"}, {"type": "resource", "resource": {"blob": "AA=="}}]}, "x"),
    ({"content": [{"type": "text", "text": "x"}, {"type": "resource", "resource": None}]}, "x"),
]  # fmt: skip


@pytest.mark.parametrize(("result", "expected"), RESULTS)
def test_unwrap_gives_what_a_result_holds(cell: OpenCell, result: Any, expected: Any) -> None:
    guest = cell()
    guest.start("return unwrap(await MCP.files.readFile({}))")
    assert guest.deliver(ok(1, result)).value == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "text", "text": "no such file"}], "no such file"),
        ([], "the tool reported an error without a text"),
        ([{"type": "text", "text": ""}], "the tool reported an error without a text"),
    ],
)
def test_unwrap_throws_the_error_a_result_reports(cell: OpenCell, content: Any, message: str) -> None:
    guest = cell()
    guest.start("unwrap(await MCP.files.readFile({}))")
    report = guest.deliver(ok(1, {"content": content, "isError": True})).report
    assert report is not None
    assert report.error is not None
    assert (report.error.name, report.error.message, report.error.code) == ("ToolError", message, "nested_tool_failed")


@pytest.mark.parametrize("given", ["null", "undefined", "'s'", "1", "MCP.files.readFile({})"])
def test_unwrap_refuses_what_is_no_result(run: RunCode, given: str) -> None:
    told = run(f"try {{ unwrap({given}) }} catch (e) {{ return [e.name, e.message] }}")
    assert told.value[0] == "TypeError"
    assert "await" in told.value[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{ contents: [{ text: 'x' }] }", "an object with: contents; that is data already, use it as it is, such as"),
        ("{ resources: [] }", "an object with: resources; that is data already"),
        ("[1]", "an array of 1; that is data already"),
    ],
)
def test_unwrap_says_what_it_was_given_instead_of_a_result(run: RunCode, given: str, told: str) -> None:
    message = run(f"try {{ unwrap({given}) }} catch (e) {{ return e.message }}").value
    assert message.startswith(f"unwrap() takes the result of a tool call, not {told}")


# output


@pytest.mark.parametrize("method", ["log", "info", "warn", "error", "debug"])
def test_console_writes_its_values_as_one_text(run: RunCode, method: str) -> None:
    assert run(f"console.{method}('a', 1, {{ b: [true] }}, undefined, 2n)").texts == ['a 1 {"b":[true]} undefined 2n']


def test_outputs_have_their_forms_and_their_order(run: RunCode) -> None:
    told = run("text('t'); json({ a: 1 }); image({ type: 'image', data: 'AA==', mimeType: 'image/png' }); text(7)")
    assert told.report is not None
    assert told.report.outputs == (
        {"type": "text", "text": "t"},
        {"type": "json", "value": {"a": 1}},
        {"type": "image", "mimeType": "image/png", "data": "AA=="},
        {"type": "text", "text": "7"},
    )


# timers


def test_timers_are_asked_for_and_fire_in_the_order_the_host_says(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(
        "const order = []; setTimeout((...a) => order.push('a', ...a), 30, 1, 2); setTimeout(() => order.push('b'),"
        " 10);"
        "await MCP.files.readFile({}); return order"
    )
    assert told.requests == [Timer(1, 30), Timer(2, 10), ToolCall(3, READ, "{}")]
    guest.deliver(ok(2))
    guest.deliver(ok(1))
    assert guest.deliver(ok(3)).value == ["b", "a", 1, 2]


@pytest.mark.parametrize(
    ("delay", "ms"), [("", 0), (", -5", 0), (", NaN", 0), (", 1.9", 1), (", '20'", 20), (", 1e12", 2147483647)]
)
def test_a_delay_becomes_whole_milliseconds(run: RunCode, delay: str, ms: int) -> None:
    assert run(f"setTimeout(() => {{}}{delay})").requests == [Timer(1, ms)]


def test_a_cleared_timer_does_not_fire(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(
        "const id = setTimeout(() => text('fired'), 10); clearTimeout(id); clearTimeout(id); clearTimeout();"
        "clearTimeout({}); await MCP.files.readFile({})"
    )
    assert told.requests == [Timer(1, 10), ClearTimer(2, 1), ToolCall(3, READ, "{}")]
    assert guest.deliver(ok(1), ok(3)).texts == []


def test_clearing_a_timer_does_not_touch_a_call_with_that_number(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start("const p = MCP.files.readFile({}); clearTimeout(1); clearInterval(1); return await p")
    assert told.requests == [ToolCall(1, READ, "{}")]
    assert guest.deliver(ok(1, "here")).value == "here"


def test_an_interval_goes_round_until_it_is_cleared(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(
        "await new Promise((done) => { let n = 0; const id = setInterval(() => {"
        "text(++n); if (n === 3) { clearInterval(id); done() } }, 20) }); return 'over'"
    )
    assert told.requests == [Timer(1, 20)]
    for number in (1, 2):
        told = guest.deliver(ok(1))
        assert told.texts == [str(number)]
        assert told.requests == [Timer(1, 20)]
    told = guest.deliver(ok(1))
    assert told.texts == ["3"]
    assert told.value == "over"
    assert told.requests[-1] == ClearTimer(2, 1)
    assert guest.deliver(ok(1)).texts == []


def test_a_callback_that_throws_is_told_and_stops_no_other(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "setTimeout(() => { throw new RangeError('in a timer') }, 1); setTimeout(() => text('second'), 1);"
        "await MCP.files.readFile({}); return 1"
    )
    told = guest.deliver(ok(1), ok(2), ok(3))
    assert told.texts == ["second"]
    assert told.value == 1
    assert told.report is not None
    assert [(each.name, each.message) for each in told.report.rejections] == [("RangeError", "in a timer")]


def test_timers_that_take_no_function_or_are_too_many_are_refused(run: RunCode) -> None:
    assert run("try { setTimeout('text(1)', 1) } catch (e) { return e.name }").value == "TypeError"
    told = run("let n = 0; try { for (;;) { setTimeout(() => {}, 1); n++ } } catch (e) { return [n, e.name] }")
    assert told.value == [10_000, "RangeError"]
