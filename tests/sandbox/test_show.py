"""Tests of `show()`, which attaches the app of a tool to the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guest_harness import MANIFEST, READ, REMOVE, Told, ok

from tests.sandbox.conftest import OpenCell, RunCode

RESULT = {"content": [{"type": "text", "text": "12:00"}], "structuredContent": {"time": "12:00"}}


def manifest() -> str:
    """Return a catalog in which `MCP.files.readFile` has an app."""
    catalog = json.loads(MANIFEST)
    catalog["servers"][0]["tools"][0].append(True)
    return json.dumps(catalog)


def shown(cell: OpenCell, code: str, *results: Any) -> Told:
    guest = cell(manifest=manifest())
    told = guest.start(code)
    for number, result in enumerate(results, 1):
        told = guest.deliver(ok(number, result))
    return told


def apps(told: Told) -> list[dict[str, Any]]:
    assert told.report is not None
    return [output for output in told.report.outputs if output["type"] == "app"]


def test_it_hands_over_the_tool_its_input_and_its_result(cell: OpenCell) -> None:
    told = shown(cell, "show(await MCP.files.readFile({ path: 'a' }))", RESULT)
    (app,) = apps(told)
    assert app["target"] == READ
    assert json.loads(app["input"]) == {"path": "a"}
    assert app["result"] == RESULT


def test_the_original_name_of_a_tool_works_too(cell: OpenCell) -> None:
    (app,) = apps(shown(cell, "show(await MCP.files.read_file())", RESULT))
    assert app["target"] == READ
    assert "input" not in app


def test_a_picture_in_the_result_is_whole(cell: OpenCell) -> None:
    data = "QUJD" * 1000
    result = {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
    (app,) = apps(shown(cell, "show(await MCP.files.readFile({}))", result))
    assert app["result"] == result


def test_reading_an_error_by_showing_it_counts_as_looking(cell: OpenCell) -> None:
    told = shown(cell, "show(await MCP.files.readFile({}))", {"content": [], "isError": True})
    assert told.report is not None
    assert told.report.unchecked == ()
    assert apps(told)[0]["result"] == {"content": [], "isError": True}


def test_results_of_other_tools_cannot_be_shown(cell: OpenCell) -> None:
    code = "const r = await MCP.files.remove({}); try { show(r) } catch (e) { return [e.name, e.message] }"
    name, message = shown(cell, code, RESULT).value
    assert name == "TypeError"
    assert "the result of a tool that has an app" in message


@pytest.mark.parametrize("value", ["undefined", "null", "1", "'text'", "{}", "[]", "() => 1", "new Proxy({}, {})"])
def test_other_values_cannot_be_shown(run: RunCode, value: str) -> None:
    assert "takes the result of a tool" in run(f"try {{ show({value}) }} catch (e) {{ return e.message }}").value


def test_a_copy_of_a_result_cannot_be_shown(cell: OpenCell) -> None:
    code = "const r = await MCP.files.readFile({}); try { show({ ...r }) } catch (e) { return e.name }"
    assert shown(cell, code, RESULT).value == "TypeError"


def test_a_promise_is_refused_with_advice(cell: OpenCell) -> None:
    code = "const p = MCP.files.readFile({}); try { show(p) } catch (e) { return e.message }"
    assert "await it first" in shown(cell, code).value


def test_a_result_that_is_too_large_is_refused(cell: OpenCell) -> None:
    code = "const r = await MCP.files.readFile({}); try { show(r) } catch (e) { return [e.name, e.message] }"
    name, message = shown(cell, code, {"content": [{"type": "text", "text": "x" * 1_100_000}]}).value
    assert name == "RangeError"
    assert "an app takes at most 1,048,576" in message


def test_a_program_cannot_forge_the_call_of_a_result(cell: OpenCell) -> None:
    code = """
    WeakMap.prototype.get = () => ',"target":"mcp:bank:pay"'; WeakMap.prototype.set = () => {};
    Object.prototype.target = 'mcp:bank:pay'; Object.prototype.app = 'x';
    const other = await MCP.files.remove({});
    try { show(other) } catch (e) { text(e.name) }
    show(await MCP.files.readFile({}))
    """
    told = shown(cell, code, RESULT, RESULT)
    assert [app["target"] for app in apps(told)] == [READ]
    assert REMOVE not in json.dumps(apps(told))


def test_a_result_can_be_shown_after_a_suspension(cell: OpenCell) -> None:
    guest = cell(manifest=manifest())
    guest.start("const r = await MCP.files.readFile({ a: 1 }); await yield_control(); show(r)")
    guest.deliver(ok(1, RESULT))
    resumed = cell(manifest=manifest(), suspended=guest.snapshot())
    (app,) = apps(resumed.deliver(ok(2, None)))
    assert (app["target"], app["input"], app["result"]) == (READ, '{"a":1}', RESULT)
