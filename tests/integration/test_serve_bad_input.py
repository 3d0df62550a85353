"""Arguments that no client should send. Every one of them gets a result that says what is wrong; nothing breaks."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from attached import instance
from harness import Raw, Session, raw, serve, write_config

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    async with serve(write_config(folder, {})) as session:
        yield session


@pytest.fixture(scope="module", params=["legacy", "modern"])
async def client(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Raw]:
    async with raw(write_config(folder, {})) as client:
        if request.param == "legacy":
            await client.initialize("2025-11-25")
        yield client


async def call(client: Raw, **params: Any) -> dict[str, Any]:
    answer = await client.request("tools/call", {**client.envelope, **params})
    assert "result" in answer, answer
    return answer["result"]


@pytest.mark.parametrize("how", ["private", "relay"])
async def test_malformed_lines_and_byte_order_marks_are_answered_from_the_first_line_on(
    tmp_path: Path, how: str
) -> None:
    config = write_config(tmp_path, {})
    is_shared = how == "relay" and sys.platform != "win32"
    async with (
        instance(config) if is_shared else nullcontext(),
        raw(config, serve=[] if is_shared else ["--private"]) as client,
    ):
        await client.send_bytes(b"{bad\n")
        assert (await client.message())["error"]["code"] == -32700
        await client.send_bytes(b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 5}\n')
        assert (await client.answer_to(5))["error"]["code"] == -32600
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 7.0, "method": "initialize", "params": greeting}
        await client.send_bytes(b"\xef\xbb\xbf" + json.dumps(message).encode() + b"\n")
        assert "result" in await client.answer_to(7)
        client.envelope = {}
        result = (await client.call("exec", {"code": "return 2"}))["result"]
        assert result["structuredContent"]["value"] == 2


EXEC = {
    "nothing": (None, ["empty"]),
    "no code": ({}, ["empty", "code"]),
    "empty code": ({"code": ""}, ["empty"]),
    "white space": ({"code": " \n\t\r\n "}, ["empty"]),
    "empty alias": ({"command": ""}, ["empty"]),
    "null code": ({"code": None}, ["empty"]),
    "number": ({"code": 1}, ["code", "a number"]),
    "list": ({"code": ["return 1"]}, ["code", "an array"]),
    "object": ({"code": {}}, ["code", "an object"]),
    "boolean": ({"code": True}, ["code", "a boolean"]),
    "alias differs": ({"code": "return 1", "command": "return 2"}, ["code", "command", "differ"]),
    "alias is a number": ({"code": "return 1", "command": 2}, ["command", "a number"]),
    "mistyped name": ({"cod": "return 1"}, ["'cod'", "did you mean 'code'"]),
    "null": ({"code": None, "language": None}, ["code is empty"]),
    "mistyped alias": ({"commnd": "return 1", "timeout": 5}, ["'commnd'", "did you mean 'command'"]),
    "another name": ({"timeout": 5}, ["'timeout'", "it takes code, language"]),
    "language is a number": ({"code": "return 1", "language": 3}, ["language", "a number"]),
    "language is a list": ({"code": "return 1", "language": ["javascript"]}, ["language", "an array"]),
}


@pytest.mark.parametrize("case", EXEC)
async def test_exec_says_what_is_wrong_with_its_arguments(client: Raw, case: str) -> None:
    arguments, words = EXEC[case]
    result = await call(client, name="exec", arguments=arguments)
    assert result["isError"] is True
    assert result["structuredContent"]["code"] == "invalid_input"
    for word in words:
        assert word in result["content"][0]["text"]


WAIT = {
    "nothing": (None, ["runId"]),
    "no runId": ({}, ["runId"]),
    "empty": ({"runId": ""}, ["runId"]),
    "number": ({"runId": 7}, ["runId", "a number"]),
    "unknown": ({"runId": "run_x"}, ["there is no run 'run_x'"]),
    "mistyped": ({"runid": "x"}, ["'runid'", "did you mean"]),
    "code": ({"runId": "run_x", "code": "return 1"}, ["there is no run 'run_x'", "Ignored unknown arguments: 'code'"]),
    "null": ({"runId": None, "cancel": None}, ["runId is missing"]),
    "cancel": ({"runId": "x", "cancel": "yes"}, ["cancel", "a string"]),
    "from start": ({"runId": "x", "fromStart": 1}, ["fromStart", "a number"]),
}


@pytest.mark.parametrize("case", WAIT)
async def test_wait_says_what_is_wrong_with_its_arguments(client: Raw, case: str) -> None:
    arguments, words = WAIT[case]
    result = await call(client, name="wait", arguments=arguments)
    assert result["isError"] is True
    assert result["structuredContent"]["code"] == "invalid_input"
    for word in words:
        assert word in result["content"][0]["text"]


@pytest.mark.parametrize("language", ["python", "JavaScript", "", "tsx"])
async def test_other_languages_are_not_supported(client: Raw, language: str) -> None:
    result = await call(client, name="exec", arguments={"code": "return 1", "language": language})
    assert result["structuredContent"]["code"] == "unsupported_language"
    assert "javascript" in result["content"][0]["text"]


@pytest.mark.parametrize("language", ["js", "javascript", None])
async def test_null_means_absent_and_what_is_unknown_is_ignored_and_named(client: Raw, language: str | None) -> None:
    unknown = {"wait_for_previous": True, "x": 1, "y": None}
    arguments = {"code": "return 1", "command": None, "language": language, **unknown}
    result = await call(client, name="exec", arguments=arguments)
    assert result["structuredContent"]["value"] == 1
    note = "Ignored unknown arguments: 'wait_for_previous', 'x'; exec takes code, language"
    assert result["structuredContent"]["notes"] == [note]
    assert result["content"][0]["text"] == f"1\n{note}"
    refused = await call(client, name="exec", arguments={**arguments, "code": "return ("})
    assert (refused["isError"], refused["structuredContent"]["notes"]) == (True, [note])


async def test_ts_is_typescript(client: Raw) -> None:
    result = await call(client, name="exec", arguments={"code": "const n: number = 2; return n", "language": "ts"})
    assert result["structuredContent"]["value"] == 2
    wrong = await call(client, name="exec", arguments={"code": "const n: number = 2; return n", "language": "js"})
    assert wrong["structuredContent"]["code"] == "invalid_input"


async def test_a_wait_with_null_for_what_is_absent_resumes_the_run(client: Raw) -> None:
    waiting = await call(client, name="exec", arguments={"code": "await yield_control('later'); return 3"})
    arguments = {"runId": waiting["structuredContent"]["runId"], "run_id": None, "cancel": None, "fromStart": None}
    assert "it yielded control (later)" in waiting["structuredContent"]["next"]
    result = await call(client, name="wait", arguments=arguments)
    assert result["structuredContent"] == {"status": "completed", "value": 3}


@pytest.mark.parametrize("name", ["nope", "", "MCP.tracker.listIssues", "x" * 5000, "Exec"])
async def test_other_tools_do_not_exist(client: Raw, name: str) -> None:
    result = await call(client, name=name, arguments={})
    assert result["isError"] is True
    assert "exec and wait" in result["content"][0]["text"]
    assert len(result["content"][0]["text"]) < 500


async def test_arguments_that_are_no_object_are_refused(client: Raw) -> None:
    for arguments in ("return 1", ["return 1"], 5):
        answer = await client.request("tools/call", {**client.envelope, "name": "exec", "arguments": arguments})
        assert "Traceback" not in str(answer)
        assert answer["error"]["code"] == -32602
    assert (await call(client, name="exec", arguments={"code": "1"}))["structuredContent"]["value"] == 1


async def test_the_alias_alone_and_both_alike_are_fine(session: Session) -> None:
    assert (await session.call("exec", {"command": "return 1"})).value == 1
    assert (await session.call("exec", {"command": "return 1", "code": "return 1"})).value == 1
    assert (await session.call("exec", {"code": "return 1", "command": None, "language": None})).value == 1


async def test_run_id_has_an_alias(session: Session) -> None:
    suspended = await session.exec("await yield_control(); return 1")
    assert (await session.call("wait", {"run_id": suspended.run_id})).value == 1


@pytest.mark.parametrize("language", ["javascript", "typescript"])
@pytest.mark.usefixtures("esbuild")
async def test_a_megabyte_of_code_runs(session: Session, language: str) -> None:
    comment = "// " + "x" * 97 + "\n"
    assert await session.value(comment * 10_500 + "return 1", language=language) == 1
    statements = "n += 1;\n" * 130_000
    assert await session.value(f"let n = 0;\n{statements}return n", language=language) == 130_000


async def test_a_megabyte_that_is_no_program_is_refused(session: Session) -> None:
    conditional = "return " + "1?" * 60_000 + "1" + ":1" * 60_000
    lists = "[" * 20_000 + "]" * 20_000
    for code in ("(" * 100_000, "\\" * 200_000, "a" * 1_000_000 + " b", "`${" * 50_000, lists, conditional):
        answer = await session.exec(code)
        assert answer.code == "invalid_input"
        assert len(answer.read) < 5_000
    assert await session.value("return 1") == 1


async def test_characters_of_every_kind_reach_the_program(session: Session) -> None:
    assert await session.value('return "é😀\\u0000".length') == 4
    assert await session.value('return "a\0b".length') == 3
    assert await session.value('return "\u2028\ufeff\x7f\x1b".length') == 4
    assert await session.value("// \u202e\nreturn 1") == 1
    assert await session.value("\ufeffreturn 1") == 1
    assert await session.value("return 1\r\n") == 1
    nul = await session.exec("return 1 \0")
    assert nul.code == "invalid_input"


async def test_half_a_surrogate_pair_breaks_nothing(client: Raw) -> None:
    # `json` writes it as an escape, which is what a sloppy client does.
    result = await call(client, name="exec", arguments={"code": 'return "\ud83d".length'})
    assert result["structuredContent"].get("value") == 1 or result["structuredContent"]["code"] == "invalid_input"
    result = await call(client, name="exec", arguments={"code": 'return "a" + String.fromCharCode(0xd83d)'})
    assert result["structuredContent"]["value"][0] == "a"
    result = await call(client, name="exec", arguments={"\udc00": 1})
    assert result["structuredContent"]["code"] == "invalid_input"
    result = await call(client, name="wait", arguments={"runId": "\ud83d"})
    assert result["structuredContent"]["code"] == "invalid_input"
    result = await call(client, name="exec", arguments={"code": "throw new Error(String.fromCharCode(0xdc00))"})
    assert result["structuredContent"]["code"] == "internal_error"
    result = await call(client, name="exec", arguments={"code": "text(String.fromCharCode(0xdc00)); return 1"})
    assert result["structuredContent"]["value"] == 1


async def test_a_shell_command_is_met_with_guidance(session: Session) -> None:
    answer = await session.exec("curl https://example.com | sh")
    assert answer.code == "invalid_input"
    assert "shell" in answer.error
