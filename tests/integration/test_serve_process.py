"""The process: what it says about a wrong configuration, and how it ends."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from harness import cli, counting, events, handshaken, is_running, other, pids, raw, until, write_config
from typer.testing import CliRunner

from codemode_mcp.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from harness import Raw

pytestmark = pytest.mark.anyio

ENDS_WITHIN = 5.0
"""Seconds, as promised."""

MISTAKES: dict[str, tuple[Any, str]] = {
    "unknown section": ({"mcpServer": {}}, "mcpServer: unknown key"),
    "unknown server key": (
        {"mcpServers": {"a": {"comand": "x"}}},
        'mcpServers.a.comand: unknown key (did you mean "co',
    ),
    "no way to reach it": ({"mcpServers": {"a": {}}}, "mcpServers.a: needs `command`"),
    "both ways": ({"mcpServers": {"a": {"command": "x", "url": "http://h/"}}}, "mcpServers.a: has `command` and `url`"),
    "wrong type": ({"mcpServers": {"a": {"command": ["x"]}}}, "mcpServers.a.command: expected a string"),
    "unset variable": ({"audit": {}, "store": {"kind": "sqlite", "path": "${NO_SUCH_VARIABLE}"}}, "NO_SUCH_VARIABLE"),
    "wrong number": ({"tools": {"codeMode": {"timeoutMs": "5"}}}, "tools.codeMode.timeoutMs: expected an integer"),
    "wrong runtime": ({"tools": {"codeMode": {"runtime": "node"}}}, "tools.codeMode.runtime"),
    "bad URL": ({"mcpServers": {"a": {"url": "ftp://h/"}}}, "mcpServers.a.url: expected a URL"),
    "itself": ({"mcpServers": {"a": {"command": "codemode-mcp", "args": ["serve"]}}}, "mcpServers.a"),
    "no object": ([1], "expected an object"),
    "postgres nowhere": ({"store": {"kind": "postgres"}}, "store: needs `url` too"),
}


def refused(path: Path) -> Result:
    """Return what is said about a configuration, in this process. `run` reads it as `serve` does."""
    done = CliRunner().invoke(
        app, ["run", "-e", "1", "--config", str(path)], prog_name="codemode-mcp", catch_exceptions=False
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_configuration_is_refused_with_its_place(tmp_path: Path, mistake: str) -> None:
    content, words = MISTAKES[mistake]
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content), "utf-8")
    done = refused(path)
    assert "invalid_config" in done.stderr
    assert words in done.stderr


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
    path = write_config(tmp_path, servers, **tools)
    done = cli("serve", "--config", str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    problems = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
    assert len(problems) == len(set(problems)) == 10
    for server in servers:
        assert sum(f"mcpServers.{server}" in problem for problem in problems) == 1


@pytest.mark.parametrize("content", ["", "{", '{"mcpServers": {"a": ', "\0\0\0", "[" * 100_000])
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content, "utf-8")
    assert "broken.json" in refused(path).stderr


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    done = cli("serve", "--config", str(tmp_path / "nowhere.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in " ".join(done.stderr.split())


def test_a_transport_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = cli("serve", "--config", str(write_config(tmp_path, {})), "--transport", "smoke")
    assert (done.returncode, done.stdout) == (2, "")
    assert "smoke" in done.stderr


async def busy(client: Raw, logs: list[Path]) -> None:
    """Start two upstreams, one call in flight in each, and one suspended run."""
    code = 'MCP.one.hold({ name: "parked" }); await yield_control(); return await MCP.two.hold({ name: "never" })'
    answer = await client.call("exec", {"code": code})
    assert answer["result"]["structuredContent"]["status"] == "waiting"
    await client.send_call(99, "exec", {"code": 'return await MCP.two.hold({ name: "open" })'})
    await until(lambda: "call parked" in events(logs[0]) and "call open" in events(logs[1]))


async def check_gone(logs: list[Path]) -> None:
    children = [pid for log in logs for pid in pids(log)]
    assert len(children) == len(logs)
    await until(lambda: not any(map(is_running, children)))


async def test_the_end_of_input_ends_the_server_and_its_children(tmp_path: Path) -> None:
    logs = [tmp_path / "one", tmp_path / "two"]
    config = write_config(tmp_path, {"one": counting(logs[0]), "two": counting(logs[1])})
    async with raw(config) as client:
        await busy(client, logs)
        began = time.monotonic()
        assert await client.end() == 0
        await check_gone(logs)
        assert time.monotonic() - began < ENDS_WITHIN


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
async def test_a_signal_ends_the_server_and_its_children(tmp_path: Path, name: str) -> None:
    logs = [tmp_path / "one", tmp_path / "two"]
    config = write_config(tmp_path, {"one": counting(logs[0]), "two": counting(logs[1])})
    async with handshaken(config) as client:
        await busy(client, logs)
        began = time.monotonic()
        client.process.send_signal(getattr(signal, name))
        assert await client.exit_code() == 0
        await check_gone(logs)
        assert time.monotonic() - began < ENDS_WITHIN


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_children_that_do_not_listen_are_killed_in_time(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    servers = {"stubborn": other("raw_server.py", "stubborn", f"pid={pid_file}")}
    async with handshaken(write_config(tmp_path, servers)) as client:
        code = "return unwrap(await MCP.stubborn.echo({ text: 'up' }))"
        answer = await client.call("exec", {"code": code})
        assert answer["result"]["structuredContent"]["value"] == "up"
        began = time.monotonic()
        client.process.terminate()
        assert await client.exit_code() == 0
        assert time.monotonic() - began < ENDS_WITHIN
        (pid,) = map(int, pid_file.read_text("utf-8").split())
        await until(lambda: not is_running(pid))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_an_endless_loop_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, codeMode={"timeoutMs": 40_000})
    async with handshaken(config) as client:
        await client.call("exec", {"code": "return 1"})
        await client.send_call(99, "exec", {"code": "for (;;);"})
        # Answered while the loop runs, so that it has begun.
        await client.send_call(100, "exec", {"code": "return 2"})
        assert (await client.answer_to(100))["result"]["structuredContent"]["value"] == 2
        began = time.monotonic()
        client.process.terminate()
        assert await client.exit_code() == 0
        assert time.monotonic() - began < ENDS_WITHIN


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
        code = 'return unwrap(await MCP.one.count({ name: "x" }))'
        await client.call("exec", {"code": code})
        assert await client.end() == 0
        assert client.stderr == ""
    assert "mcp:one:count" in log.read_text("utf-8")


async def test_only_read_only_tools_are_admitted_on_request(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    async with handshaken(config, "--read-only") as client:
        code = "return (await MCP.one.$api()).tools.map((t) => t.mcpTool)"
        answer = await client.call("exec", {"code": code})
        assert answer["result"]["structuredContent"]["value"] == ["peek"]
