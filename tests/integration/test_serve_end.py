"""The end of input ends the server and everything that it has started, in time, whatever it does."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.integration.harness import (
    SECONDS,
    counting,
    events,
    handshaken,
    is_running,
    other,
    pids,
    until,
    write_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.harness import Raw

pytestmark = pytest.mark.anyio

ENDS_WITHIN = 5.0
"""Seconds, as promised."""


async def check_end(client: Raw, *children: int) -> None:
    """End the input, and see that all is over."""
    began = time.monotonic()
    assert await client.end() == 0
    assert time.monotonic() - began < ENDS_WITHIN
    await until(lambda: not any(map(is_running, children)))


def process_id(path: Path) -> int:
    return int(path.read_text("utf-8").split()[-1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_children_that_neither_see_the_end_nor_listen_to_signals(tmp_path: Path) -> None:
    files = [tmp_path / "one.pid", tmp_path / "two.pid"]
    servers = {
        f"stubborn{number}": other("raw_server.py", "stubborn", f"pid={file}") for number, file in enumerate(files)
    }
    async with handshaken(write_config(tmp_path, servers)) as client:
        code = "return (await Promise.all([MCP.stubborn0.echo({}), MCP.stubborn1.echo({})])).length"
        answer = await client.call("exec", {"code": code})
        assert answer["result"]["structuredContent"]["value"] == 2
        await client.send_call(2, "exec", {"code": "return await MCP.stubborn0.hang({})"})
        await check_end(client, *map(process_id, files))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_signals_that_come_together_are_one(tmp_path: Path) -> None:
    file = tmp_path / "one.pid"  # its end takes a while, since it has to be killed
    async with handshaken(
        write_config(tmp_path, {"stubborn": other("raw_server.py", "stubborn", f"pid={file}")})
    ) as client:
        answer = await client.call("exec", {"code": "return (await MCP.stubborn.echo({})).isError ?? 1"})
        assert answer["result"]["structuredContent"]["value"] == 1
        # As `timeout` does, to the process and to its group.
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            client.process.send_signal(number)
        with anyio.fail_after(SECONDS):
            assert await client.process.wait() == 0
        assert not is_running(process_id(file))


async def test_a_program_that_computes(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "log")}, codeMode={"timeoutMs": 40_000})
    async with handshaken(config) as client:
        answer = await client.call("exec", {"code": "return unwrap(await MCP.one.count({ name: 'x' }))"})
        assert answer["result"]["structuredContent"]["value"] == "x"
        await client.send_call(2, "exec", {"code": "for (;;);"})
        await client.send_call(3, "exec", {"code": "return 2"})  # answered while the loop runs, so that it has begun
        assert (await client.answer_to(3))["result"]["structuredContent"]["value"] == 2
        await check_end(client, *pids(tmp_path / "log"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_a_signal_suspends_what_is_open_where_a_store_keeps_it_and_lets_calls_go(tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "config.json"
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    config.write_text(json.dumps({"mcpServers": {"one": counting(log)}, "store": store}), "utf-8")
    async with handshaken(config) as client:
        code = (
            "const call = MCP.one.hold({ name: 'x' }); text('before'); await yield_control(); return unwrap(await call)"
        )
        await client.send_call(1, "exec", {"code": code})
        suspended = (await client.answer_to(1))["result"]["structuredContent"]
        await client.send_call(
            2, "exec", {"code": "await MCP.one.count({ name: 'y' }); await MCP.one.peek({ name: 'z' })"}
        )
        await until(lambda: {"call x", "call z"} <= {*events(log)})
        client.process.terminate()
        opened = (await client.answer_to(2))["result"]["structuredContent"]
        assert opened["status"] == "waiting"
        with anyio.fail_after(ENDS_WITHIN):
            assert await client.process.wait() == 0
        await until(lambda: not any(map(is_running, pids(log))))
    async with handshaken(config) as client:
        await client.send_call(1, "wait", {"runId": suspended["runId"]})
        ended = (await client.answer_to(1))["result"]["structuredContent"]
        assert ended["code"] == "nested_tool_failed", "it is unknown whether it was done"
        assert events(log).count("call x") == 1
        await client.send_call(2, "wait", {"runId": opened["runId"]})
        await until(lambda: events(log).count("call z") == 2)
        assert events(log).count("call y") == 1
        assert await client.end() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_calls_in_flight_through_the_proxy(tmp_path: Path) -> None:
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    servers = {"stubborn": other("raw_server.py", "stubborn", f"pid={pid_file}"), "one": counting(log)}
    async with handshaken(write_config(tmp_path, servers, codeMode=False)) as client:
        await client.send_call(1, "stubborn__echo", {})
        assert "result" in await client.answer_to(1)
        await client.send_call(2, "stubborn__hang", {})
        await client.send_call(3, "one__hold", {"name": "x"})
        await until(lambda: "call x" in events(log))
        await check_end(client, process_id(pid_file), *pids(log))


async def test_a_change_of_the_configuration_that_is_being_read(tmp_path: Path) -> None:
    log, started = tmp_path / "log", tmp_path / "started"
    one = counting(log)
    config = write_config(tmp_path, {"one": one})
    code = f"import os, time; print(os.getpid(), file=open({str(started)!r}, 'w'), flush=True); time.sleep(600)"
    slow = {**one, "env": {"SECRET": {"command": [sys.executable, "-c", code]}}}
    async with handshaken(config) as client:
        await client.send_call(1, "exec", {"code": "return unwrap(await MCP.one.count({ name: 'x' }))"})
        await client.answer_to(1)
        write_config(tmp_path, {"one": slow})
        await until(lambda: started.exists() and started.read_text("utf-8").endswith("\n"))
        await check_end(client, process_id(started), *pids(log))
