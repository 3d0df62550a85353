"""Requests that a killed process has left unanswered, answered by the next process as their notes say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import Raw, counting, events, until

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("noting_server.py")


class Place:
    """The files of one test, which its processes share."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.folder = folder
        self.log = folder / "counted"
        self.notes = folder / "notes"
        self.config = folder / "config.json"
        tools = {"codeMode": {"timeoutMs": 20_000}}
        self.config.write_text(
            json.dumps({"mcpServers": {"up": counting(self.log)}, "tools": tools, **fields}), "utf-8"
        )

    def noted(self) -> list[Any]:
        return [json.loads(line) for line in self.notes.read_text("utf-8").splitlines()] if self.notes.exists() else []

    @asynccontextmanager
    async def server(self, *interrupted: Any) -> AsyncIterator[Raw]:
        env = {"XDG_STATE_HOME": str(self.folder / "state"), "INTERRUPTED": json.dumps(interrupted)}
        stderr = self.folder / "stderr"
        with stderr.open("wb") as errlog:
            command = [sys.executable, str(SCRIPT), str(self.config), str(self.notes)]
            root = str(Path(__file__).parents[2])
            process = await anyio.open_process(command, stderr=errlog, env={**os.environ, **env, "PYTHONPATH": root})
            try:
                client = Raw(process, stderr)
                await client.initialize("2025-11-25")
                yield client
            finally:
                with anyio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.kill()
                    await process.aclose()

    async def kill(self, client: Raw) -> None:
        client.process.kill()
        await client.process.wait()


async def failure(client: Raw, request: int, tool: str, **arguments: Any) -> str:
    await client.send_call(request, tool, arguments)
    result = (await client.answer_to(request))["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["code"] == "aborted"
    error = result["structuredContent"]["error"]
    assert error in result["content"][0]["text"]
    return error


HOLD = "text('before'); const r = await MCP.up.hold({ name: 'x' }); return 'done'"


async def test_a_program_without_calls_is_called_again(tmp_path: Path) -> None:
    place, code = Place(tmp_path), "await new Promise((r) => setTimeout(r, 60_000))"
    async with place.server() as client:
        await client.send_call(7, "exec", {"code": code})
        await until(place.noted)
        await place.kill(client)
    ((request, run, dispatched),) = place.noted()
    assert (request, dispatched) == (7, False)
    async with place.server([7, run, dispatched]) as client:
        assert "None of its calls was sent. Call exec again." in await failure(client, 7, "exec", code=code)
        # Only that request is answered so.
        answer = await client.call("exec", {"code": "return 1"})
        assert answer["result"]["structuredContent"]["value"] == 1


async def test_a_program_whose_call_was_sent_is_not_called_again_blindly(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.server() as client:
        await client.send_call(7, "exec", {"code": HOLD})
        await until(lambda: "call x" in events(place.log))
        await place.kill(client)
    (_, run, first), (_, same, second) = place.noted()
    assert (run, first, second) == (same, False, True)
    async with place.server([7, run, True]) as client:
        assert "Check what they have changed before you repeat them." in await failure(client, 7, "exec", code=HOLD)
    assert events(place.log).count("call x") == 1


async def test_a_stored_program_is_resumed_by_wait(tmp_path: Path) -> None:
    place = Place(tmp_path)
    code = "await yield_control(); await new Promise((r) => setTimeout(r, 60_000)); return 1"
    async with place.server() as client:
        answer = await client.call("exec", {"code": code})
        run = answer["result"]["structuredContent"]["runId"]
        await client.send_call(7, "wait", {"runId": run})
        await until(lambda: [7, run, False] in place.noted())
        await place.kill(client)
    async with place.server([7, run, False]) as client:
        error = await failure(client, 7, "wait", runId=run)
        assert f'To resume it, call wait again with runId "{run}". Do not call exec.' in error
        ended = (await client.call("wait", {"runId": run, "cancel": True}))["result"]["structuredContent"]
        assert ended["code"] == "aborted"
    async with place.server([8, run, False]) as client:
        assert f'call wait again with runId "{run}"' in await failure(client, 8, "wait", runId=run)


async def test_an_unknown_run_is_not_found_for_a_request_that_never_reached_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.server([7, None, False], [8, None, False]) as client:
        assert "None of the program's calls was sent. Call exec again." in await failure(client, 7, "exec", code="1")
        error = await failure(client, 8, "wait", runId="run_" + "A" * 24)
        assert "was not stored, so it cannot be resumed. Some of its calls may have been sent" in error


@pytest.mark.parametrize("fields", [{"tools": {"codeMode": False}}, {"expose": {"mode": "direct"}}])
async def test_a_direct_call_that_was_sent_is_not_sent_again(tmp_path: Path, fields: dict[str, Any]) -> None:
    place = Place(tmp_path, **fields)
    async with place.server() as client:
        await client.send_call(7, "up__hold", {"name": "x"})
        await until(lambda: "call x" in events(place.log))
        await place.kill(client)
    assert place.noted() == [[7, None, True]]
    async with place.server([7, None, True]) as client:
        await client.send_call(7, "up__hold", {"name": "x"})
        result = (await client.answer_to(7))["result"]
        assert result["isError"] is True
        assert "outcome_unknown" in result["content"][0]["text"]
    assert events(place.log).count("call x") == 1
