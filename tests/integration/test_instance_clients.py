"""Restrictions and logs of single clients of the shared instance, and answers to clients after its crash."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.attached import Attached, greeted, instance
from tests.integration.harness import counting, events, until, write_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the relay of these tests uses a Unix socket"),
]

COUNT = "try { await (MCP.up ?? {})['count']({ name: 'x' }); return 'made' } catch (error) { return error.message }"


@pytest.fixture(autouse=True)
def _own_folders(own_cache: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)


async def wait(client: Attached, run_id: str) -> dict[str, Any]:
    result = await client.request("tools/call", {"name": "wait", "arguments": {"runId": run_id}})
    found: dict[str, Any] = result["structuredContent"]
    return found


async def test_restrictions_bind_the_client_that_gave_them_and_its_runs(tmp_path: Path) -> None:
    contexts = {"careful": {"for": [], "deny": ["mcp:up:count", "core:results:list"]}}
    config = write_config(tmp_path, {"up": counting(tmp_path / "up")}, contexts=contexts)
    async with (
        instance(config),
        greeted(config) as free,
        greeted(config, options={"readOnly": True}) as bound,
        greeted(config, options={"context": "careful"}) as careful,
    ):
        runs = [await client.exec(f"await yield_control(); {COUNT}") for client in (bound, careful)]
        for run in runs:
            assert "made" not in str(await wait(free, run["runId"]))
        assert events(tmp_path / "up") == []
        run = await free.exec(f"await yield_control(); {COUNT}")
        assert (await wait(bound, run["runId"]))["value"] == "made"
        lists = [(await client.request("tools/list"))["tools"] for client in (free, bound, careful)]
        assert [each[0]["annotations"]["readOnlyHint"] for each in lists] == [False, True, False]

        ref = (await free.exec("return 'x'.repeat(40_000)"))["value"]["ref"]
        found = [(await client.request("resources/list"))["resources"] for client in (free, bound, careful)]
        assert [[each["name"] for each in listed] for listed in found] == [[f"result-{ref[7:]}.txt"]] * 2 + [[]]
        for client in (bound, careful):  # a read is like `load`, for which the ref is enough
            read = await client.request("resources/read", {"uri": f"codemode://results/{ref[7:]}"})
            assert read["contents"][0]["text"] == "x" * 40_000


@pytest.mark.parametrize("direct", [True, False])
async def test_a_client_has_the_log_of_its_own_programs(tmp_path: Path, direct: bool) -> None:
    servers = {name: counting(tmp_path / name) for name in ("up", "down")}
    config = write_config(tmp_path, servers)
    file = tmp_path / "own.log"
    code = "await MCP.SERVER.refuse({}); " if direct else ""  # the first call waits for the connection
    code += "try { await MCP.SERVER.reject({}) } catch {} return 1"
    options = {"logLevel": "debug", "logFile": file.name}
    async with instance(config), greeted(config) as one, greeted(config, options=options) as other:
        for client, server in ((one, "up"), (other, "down")):
            assert (await client.exec(code.replace("SERVER", server)))["value"] == 1
        await until(lambda: "call mcp:down:reject" in file.read_text("utf-8"))
        await one.request("ping")
        logs = ["".join(note.get("log", "") for note in client.notes) for client in (one, other)]
        assert "call mcp:up:reject" in logs[0]
        assert "call mcp:down:reject" not in logs[0]
        assert "call mcp:up:reject" not in file.read_text("utf-8") + logs[1]


async def test_a_request_that_a_killed_instance_leaves_is_answered_by_the_next_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "up")}, codeMode={"timeoutMs": 20_000})
    async with instance(config) as process:
        async with greeted(config) as client:
            params = {"name": "exec", "arguments": {"code": "await MCP.up.hold({ name: 'x' }); return 1"}}
            number = await client.start("tools/call", params)
            await until(lambda: "call x" in events(tmp_path / "up"))
            os.kill(process.pid, signal.SIGKILL)
            assert await client.line() is None
        await process.wait()
        progress = [note for note in client.notes if note.get("progress") == number]
    assert [note["dispatched"] for note in progress] == [False, True]
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    async with instance(config), greeted(config) as client:
        for run, dispatched, said in (
            (progress[1]["run"], True, "Check what they have changed before you repeat them."),
            (progress[0]["run"], False, "None of its calls was sent. Call exec again."),
        ):
            await client.note({"interrupted": message, "run": run, "dispatched": dispatched})
            with anyio.fail_after(30):
                result = (await client.answer(number))["result"]
            assert result["isError"] is True
            assert said in result["structuredContent"]["error"]
        # Without a run, nothing was done for the request, so it is carried out.
        repeated = {**message, "params": {"name": "exec", "arguments": {"code": "return 2"}}}
        await client.note({"interrupted": repeated, "run": None, "dispatched": False})
        assert (await client.answer(number))["result"]["structuredContent"]["value"] == 2
    assert events(tmp_path / "up").count("call x") == 1
