"""`codemode-mcp servers` against serving processes with real servers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.integration.attached import attached, instance
from tests.integration.harness import counting, events, is_running, pids, serve, until, write_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no such folder for sockets on Windows"),
]


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """Yield an environment whose folder for sockets belongs to one test."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


async def command(runtime: dict[str, str], *arguments: str, code: int = 0) -> Result:
    """Run a command in this process."""

    def run() -> Result:
        return CliRunner().invoke(app, ["servers", *arguments], prog_name="codemode-mcp", env=runtime)

    done = await anyio.to_thread.run_sync(run)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.stderr
    return done


async def reported(runtime: dict[str, str], config: Path) -> list[dict[str, Any]]:
    """Return the servers of the only process that serves a configuration."""
    (process,) = json.loads((await command(runtime, "status", "--json", "--config", str(config))).stdout)["processes"]
    found: list[dict[str, Any]] = process["servers"]
    return found


async def test_a_server_is_listed_restarted_and_its_calls_end(tmp_path: Path, runtime: dict[str, str]) -> None:
    trajectory, log = tmp_path / "trajectory.jsonl", tmp_path / "log"
    config = write_config(tmp_path, {"a": counting(log), "off": {"command": "x", "disabled": True}})
    config.write_text(json.dumps({**json.loads(config.read_text()), "audit": {"trajectory": str(trajectory)}}))
    async with serve(config, env=runtime) as session:
        suspended = await session.exec('const held = MCP.a.hold({ name: "x" }); await yield_control(); return held')
        await until(lambda: "call x" in events(log))
        server, off = await reported(runtime, config)
        (first,) = pids(log)
        assert (server["name"], server["state"], server["calls"], server["pids"]) == ("a", "ready", 1, [first])
        assert (server["era"], server["protocolVersion"], server["tools"]) == ("legacy", "2025-06-18", 9)
        assert server["error"] is server["lastError"] is None
        assert server["uptimeSeconds"] >= 0
        assert (off["name"], off["state"]) == ("off", "disabled")
        table = (await command(runtime)).stdout.splitlines()
        assert table[0].split() == ["SERVER", "STATE", "TOOLS", "CALLS", "UP", "PROTOCOL", "PROCESS"]
        assert table[1].split()[:4] == ["a", "ready", "9", "1"]
        assert table[2].split()[:2] == ["off", "disabled"]
        assert "connection: stdio" in (await command(runtime, "status", "a")).stdout
        assert "did you mean 'off'?" in (await command(runtime, "restart", "of", code=2)).stderr
        for verb in ("restart", "logs"):
            assert "'off' is disabled" in (await command(runtime, verb, "off", code=1)).stderr
        another = str(tmp_path / "another.json")
        assert "no codemode-mcp serve" in (await command(runtime, "logs", "a", "--config", another, code=1)).stderr

        done = await command(runtime, "restart", "a")
        assert "server 'a' is ready: 9 tools" in done.stderr
        await until(lambda: not is_running(first))
        assert len(pids(log)) == 2
        ended = await session.wait(suspended.run_id)
        assert "was restarted by a person at a terminal" in ended.read
        lines = (await command(runtime, "logs", "a")).stdout
        assert "connection server 'a' was restarted by a person at a terminal" in lines
        await until(lambda: '"kind":"server_restarted"' in trajectory.read_text())
    (event,) = [json.loads(line) for line in trajectory.read_text().splitlines() if "server_restarted" in line]
    assert (event["id"], event["by"]) == ("a", "a person at a terminal")


async def test_a_server_that_is_down_says_why_and_is_connected_by_a_restart(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    script = tmp_path / "later"
    config = write_config(tmp_path, {"a": {"command": str(script)}})
    async with serve(config, env=runtime) as session:
        await session.exec("return 1")
        with anyio.fail_after(20):
            while (server := (await reported(runtime, config))[0])["state"] != "down":  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.05)
        assert str(script) in server["error"]
        assert server["lastError"]["text"] == server["error"]
        assert f"a: {server['error'][:30]}" in (await command(runtime)).stdout
        assert "is down" in (await command(runtime, "restart", "a", code=1)).stderr
        entry = counting(tmp_path / "log")
        script.write_text(f"#!/bin/sh\nexec {entry['command']} {' '.join(entry['args'])}\n")
        script.chmod(0o700)
        assert "is ready" in (await command(runtime, "restart", "a")).stderr
        assert "last error" in (await command(runtime)).stdout


async def test_a_log_shows_no_secret_and_no_control_character(tmp_path: Path, runtime: dict[str, str]) -> None:
    text = "token hunter2222 \x1b[2J ghp_" + "a1B2" * 9
    entry = counting(tmp_path / "log", f"stderr={text}", env={"SECRET": "hunter2222"})
    async with serve(write_config(tmp_path, {"a": entry}), env=runtime) as session:
        await session.exec('return MCP.a.count({ name: "x" })')
        await until(lambda: "call x" in events(tmp_path / "log"))
        with anyio.fail_after(20):
            while "stderr" not in (lines := (await command(runtime, "logs", "a")).stdout):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert "hunter" not in lines
        assert "ghp_" not in lines
        assert "\x1b" not in lines
        assert "\\x1b[2J" in lines
        assert len((await command(runtime, "logs", "a", "-n", "1")).stdout.splitlines()) == 1


async def test_without_a_serving_process_a_person_is_told_what_starts_one(runtime: dict[str, str]) -> None:
    done = await command(runtime)
    assert done.stdout == ""
    assert "a client starts it" in " ".join(done.stderr.split())


async def test_a_program_of_a_server_restarts_nothing(tmp_path: Path, runtime: dict[str, str]) -> None:
    async with serve(write_config(tmp_path, {"a": counting(tmp_path / "log")}), env=runtime) as session:
        await session.exec('return MCP.a.count({ name: "x" })')
        done = await command({**runtime, "CODEMODE_MCP_DEPTH": "1"}, "restart", "a", code=1)
        assert "not for programs started by a server" in " ".join(done.stderr.split())
        assert len(pids(tmp_path / "log")) == 1


async def test_clients_of_a_shared_instance_see_one_server_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(tmp_path, {"a": counting(log)})
    async with instance(config), attached(config) as first, attached(config, environ={"OTHER": "1"}) as second:
        for client in (first, second):
            await client.greet()
            await client.exec('return MCP.a.count({ name: "x" })')
        done = await command({}, "status", "--json", "--config", str(config))
        (process,) = json.loads(done.stdout)["processes"]
        assert len(process["servers"]) == len(pids(log))
        count = len(pids(log))
        await command({}, "restart", "a", "--config", str(config))
        assert len(pids(log)) == 2 * count
