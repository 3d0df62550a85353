"""The process: what it says about a wrong configuration, and how it ends with all that it has started."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import (
    ENDS_WITHIN,
    Raw,
    cli,
    counting,
    events,
    handshaken,
    is_running,
    other,
    pids,
    raw,
    until,
    write_config,
)

pytestmark = pytest.mark.anyio

SIGNALS = {"SIGTERM": ["SIGTERM"], "SIGINT": ["SIGINT"], "together": ["SIGTERM", "SIGTERM", "SIGINT"]}
"""Signals by name; `timeout` sends several together, to the process and to its group."""


def ends(*ways: str) -> pytest.MarkDecorator:
    no_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
    marked = [way if way == "input" else pytest.param(way, marks=no_signals) for way in ways]
    return pytest.mark.parametrize("how", marked)


async def check_end(client: Raw, how: str, *children: int) -> None:
    """End the input or send signals. Fail unless the process and its children end; nothing else ends them."""
    with anyio.fail_after(ENDS_WITHIN):
        if how == "input":
            assert await client.end() == 0
        else:
            for name in SIGNALS[how]:
                client.process.send_signal(getattr(signal, name))
            assert await client.exit_code() == 0
        await until(lambda: not any(map(is_running, children)))


def process_id(path: Path) -> int:
    return int(path.read_text("utf-8").split()[-1])


# a wrong configuration


def test_all_mistakes_of_one_file_are_reported_together(tmp_path: Path) -> None:
    servers: dict[str, Any] = {
        "one": {"comand": "x"},
        "two": {},
        "three": {"command": "x", "url": "http://h/"},
        "four": {"command": 4},
        "five": {"command": "${NO_SUCH_VARIABLE}"},
        "six": {"url": "ftp://h/"},
        "seven": {"command": "x", "args": "not a list"},
    }
    tools = {"codeMode": {"timeoutMs": True, "languages": []}, "resultFormat": "html"}
    done = cli("serve", "--config", str(write_config(tmp_path, servers, **tools)))
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid_config" in done.stderr
    problems = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
    assert len(problems) == len(set(problems)) == 10
    for server in servers:
        assert sum(f"mcpServers.{server}" in problem for problem in problems) == 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    done = cli("serve", "--config", str(tmp_path / "nowhere.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in " ".join(done.stderr.split())


# the end


@ends("input", "SIGTERM", "SIGINT")
async def test_it_ends_with_its_children(tmp_path: Path, how: str) -> None:
    logs = [tmp_path / "one", tmp_path / "two"]
    async with handshaken(write_config(tmp_path, {log.name: counting(log) for log in logs})) as client:
        code = 'MCP.one.hold({ name: "parked" }); await yield_control(); return await MCP.two.hold({ name: "never" })'
        answer = await client.call("exec", {"code": code})
        assert answer["result"]["structuredContent"]["status"] == "waiting"
        await client.send_call(99, "exec", {"code": 'return await MCP.two.hold({ name: "open" })'})
        await until(lambda: "call parked" in events(logs[0]) and "call open" in events(logs[1]))
        children = [pid for log in logs for pid in pids(log)]
        assert len(children) == len(logs)
        await check_end(client, how, *children)


@ends("input", "SIGTERM", "together")
async def test_children_that_do_not_listen_are_killed_in_time(tmp_path: Path, how: str) -> None:
    files = [tmp_path / "one.pid", tmp_path / "two.pid"]
    servers = {file.stem: other("raw_server.py", "stubborn", f"pid={file}") for file in files}
    async with handshaken(write_config(tmp_path, servers)) as client:
        code = "return (await Promise.all([MCP.one.echo({}), MCP.two.echo({})])).length"
        answer = await client.call("exec", {"code": code})
        assert answer["result"]["structuredContent"]["value"] == 2
        await client.send_call(99, "exec", {"code": "return await MCP.one.hang({})"})
        await check_end(client, how, *map(process_id, files))


@ends("input", "SIGTERM")
async def test_an_endless_loop_does_not_keep_the_server_from_ending(tmp_path: Path, how: str) -> None:
    async with handshaken(write_config(tmp_path, {}, codeMode={"timeoutMs": 40_000})) as client:
        await client.call("exec", {"code": "return 1"})
        await client.send_call(99, "exec", {"code": "for (;;);"})
        await client.send_call(100, "exec", {"code": "return 2"})  # answered while the loop runs, so that it has begun
        assert (await client.answer_to(100))["result"]["structuredContent"]["value"] == 2
        await check_end(client, how)
        assert b'"timeout"' not in client.received, "the loop was not waited for"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_a_signal_suspends_what_is_open_where_a_store_keeps_it_and_lets_calls_go(tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "config.json"
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    config.write_text(json.dumps({"mcpServers": {"one": counting(log)}, "store": store}), "utf-8")
    async with handshaken(config) as client:
        code = "const call = MCP.one.hold({ name: 'x' }); await yield_control(); return unwrap(await call)"
        suspended = (await client.call("exec", {"code": code}))["result"]["structuredContent"]
        code = "await MCP.one.count({ name: 'y' }); await MCP.one.peek({ name: 'z' })"
        await client.send_call(99, "exec", {"code": code})
        await until(lambda: {"call x", "call z"} <= {*events(log)})
        with anyio.fail_after(ENDS_WITHIN):
            client.process.terminate()
            opened = (await client.answer_to(99))["result"]["structuredContent"]
            assert opened["status"] == "waiting"
            assert await client.exit_code() == 0
            await until(lambda: not any(map(is_running, pids(log))))
    async with handshaken(config) as client:
        ended = (await client.call("wait", {"runId": suspended["runId"]}))["result"]["structuredContent"]
        assert ended["code"] == "nested_tool_failed", "it is unknown whether it was done"
        assert events(log).count("call x") == 1
        await client.send_call(99, "wait", {"runId": opened["runId"]})
        await until(lambda: events(log).count("call z") == 2)
        assert events(log).count("call y") == 1
        assert await client.end() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_calls_in_flight_in_pass_through_end(tmp_path: Path) -> None:
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    servers = {"stubborn": other("raw_server.py", "stubborn", f"pid={pid_file}"), "one": counting(log)}
    async with handshaken(write_config(tmp_path, servers, codeMode=False)) as client:
        assert "result" in await client.call("stubborn__echo", {})
        await client.send_call(99, "stubborn__hang", {})
        await client.send_call(100, "one__hold", {"name": "x"})
        await until(lambda: "call x" in events(log))
        await check_end(client, "input", process_id(pid_file), *pids(log))


async def test_it_ends_while_a_change_of_the_configuration_is_being_read(tmp_path: Path) -> None:
    log, started = tmp_path / "log", tmp_path / "started"
    code = f"import os, time; print(os.getpid(), file=open({str(started)!r}, 'w'), flush=True); time.sleep(600)"
    slow = counting(log, env={"SECRET": {"command": [sys.executable, "-c", code]}})
    async with handshaken(write_config(tmp_path, {"one": counting(log)})) as client:
        await client.call("exec", {"code": "return unwrap(await MCP.one.count({ name: 'x' }))"})
        write_config(tmp_path, {"one": slow})
        await until(lambda: started.exists() and started.read_text("utf-8").endswith("\n"))
        await check_end(client, "input", process_id(started), *pids(log))


async def test_input_that_ends_immediately_ends_the_server(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    async with raw(config) as client:
        assert await client.end() == 0
    assert client.received == b""
    assert pids(tmp_path / "one") == []


async def test_the_log_goes_to_a_file_on_request(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    async with handshaken(config, "--log-file", str(log), "--log-level", "debug") as client:
        await client.call("exec", {"code": 'return unwrap(await MCP.one.count({ name: "x" }))'})
        assert await client.end() == 0
        assert client.stderr == ""
    assert "mcp:one:count" in log.read_text("utf-8")
