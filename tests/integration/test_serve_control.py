"""`codemode-mcp runs` against serving processes: what is waiting is seen, decided and cancelled from a terminal."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.integration.harness import COMMAND, ENDS_WITHIN, Session, counting, events, raw, serve, until, write_config
from tests.integration.terminal import terminal

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals on Windows"),
]


TWO_CALLS = "return await Promise.allSettled([MCP.up.count({ name: 'one' }), MCP.up.count({ name: 'two' })])"


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """Yield an environment whose folder for sockets belongs to one test."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


def sockets(runtime: dict[str, str]) -> list[Path]:
    return sorted((Path(runtime["XDG_RUNTIME_DIR"]) / "codemode-mcp").glob("*.sock"))


async def listening(runtime: dict[str, str], count: int = 1) -> None:
    await until(lambda: len(sockets(runtime)) == count)


async def runs(runtime: dict[str, str], *arguments: str) -> str:
    """Return the output of `codemode-mcp runs`, run in this process."""

    def run() -> Result:
        return CliRunner().invoke(app, ["runs", *arguments], prog_name="codemode-mcp", env=runtime)

    done = await anyio.to_thread.run_sync(run)
    assert done.exit_code == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "fault of ours" not in done.stderr
    return done.stdout


@dataclass(frozen=True)
class Asking:
    """A server whose one upstream is asked about, and its environment."""

    session: Session
    runtime: dict[str, str]
    config: Path
    log: Path

    async def server(self) -> dict[str, Any]:
        """Return the listed entry of the server."""
        server: dict[str, Any]
        (server,) = json.loads(await runs(self.runtime, "list", "--json", "--config", str(self.config)))["servers"]
        return server

    async def listed(self, run: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = [each for each in (await self.server())["runs"] if each["id"] == run]
        return found


@pytest.fixture(scope="module")
async def asking(folder: Path) -> AsyncIterator[Asking]:
    log = folder / "log"
    settings = {"timeoutMs": 500}
    config = write_config(folder, {"up": counting(log)}, ask=["mcp:up:count"], codeMode=settings)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        runtime = {"XDG_RUNTIME_DIR": place}
        async with serve(config, env=runtime) as session:
            yield Asking(session, runtime, config, log)


async def test_what_waits_is_listed_shown_and_approved(asking: Asking) -> None:
    session, runtime, before = asking.session, asking.runtime, len(events(asking.log))
    suspended = await session.exec(TWO_CALLS)
    run = suspended.run_id
    server = await asking.server()
    assert (server["transport"], server["mode"]) == ("stdio", "code")
    (place,) = sockets(runtime)
    assert str(server["pid"]) in place.name
    listed = await asking.listed(run)
    assert (listed["state"], listed["approvals"]) == ("waiting", 2)
    shown = json.loads(await runs(runtime, "show", run, "--json"))
    assert [json.loads(call["arguments"]) for call in shown["waiting"]] == [{"name": "one"}, {"name": "two"}]
    assert [call["status"] for call in shown["calls"]] == ["needs_approval", "needs_approval"]
    read = await runs(runtime, "show", run[:12])
    assert '"name": "two"' in read
    assert "destructive" in read
    async with terminal("runs", "approve", run, env=runtime) as person:
        await person.confirm()
        assert await person.end() == 0
        assert "approved: calls 1, 2" in person.text
    ended = await session.finish(suspended)
    assert [each["status"] for each in ended.value] == ["fulfilled", "fulfilled"]
    assert sorted(events(asking.log)[before:]) == ["call one", "call two"]
    # It is over, and still there to look at, without its arguments.
    read = await runs(runtime, "show", run)
    assert "completed" in read
    assert '"one"' not in read
    assert "string 3" in read


async def test_without_the_right_words_at_a_terminal_nothing_is_decided(asking: Asking) -> None:
    session, runtime, before = asking.session, asking.runtime, len(events(asking.log))
    suspended = await session.exec(TWO_CALLS)
    run = suspended.run_id
    for verb, typed in (("approve", "yes\nyes"), ("approve", "approve 00000"), ("deny", ""), ("cancel", "cancel")):
        async with terminal("runs", verb, run, env=runtime) as person:
            await person.see("> $")
            person.type(f"{typed}\n")
            assert await person.end() == 1
            assert "nothing was decided" in person.text
    done = await anyio.run_process(
        [*COMMAND, "runs", "approve", run], check=False, env={**os.environ, **runtime}, input=b""
    )
    assert done.returncode == 1
    assert b"needs a terminal" in done.stderr
    # What our own upstream servers start may hold a terminal, too.
    async with terminal("runs", "approve", run, env={**runtime, "CODEMODE_MCP_DEPTH": "1"}) as person:
        assert await person.end() == 1
    assert (await asking.listed(run))["approvals"] == 2
    assert events(asking.log)[before:] == []
    # What was typed before the question is no answer to it, neither a wrong nor a right one.
    async with terminal("runs", "deny", run, env=runtime) as person:
        person.type("".join(f"deny {number:04}\n" for number in range(100)))
        await person.confirm()
        assert await person.end() == 0


async def test_what_a_killed_process_has_left_in_its_store_is_listed_adopted_and_approved(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    log, config = tmp_path / "log", tmp_path / "config.json"
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    tools = {"ask": ["mcp:up:count"], "codeMode": {"timeoutMs": 500}}
    config.write_text(json.dumps({"mcpServers": {"up": counting(log)}, "tools": tools, "store": store}), "utf-8")
    found = ("--config", str(config))
    async with raw(config, env=runtime) as client:
        await client.initialize("2025-11-25")
        suspended = []
        for code in (TWO_CALLS, "return await MCP.up.hold({ name: 'x' })"):
            answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
            suspended.append(answer["result"]["structuredContent"]["runId"])
        await listening(runtime)
        client.process.kill()
        await client.process.wait()
    run, other = suspended
    listing = await runs(runtime, "list", *found)
    assert re.search(rf"{run}  waiting .* none ", listing)
    assert re.search(r"^2 suspended, the oldest for \d+ m?s, [\d.]+ k?B in all$", listing, re.MULTILINE)
    assert "no codemode-mcp serve of this user resumes it" in await runs(runtime, "show", run, *found)
    async with serve(config, env=runtime) as session:
        await session.client.list_tools()
        await listening(runtime)
        (server,) = json.loads(await runs(runtime, "list", "--json", *found))["servers"]
        assert {each["id"]: each["where"] for each in server["runs"]} == {run: "stored", other: "stored"}, server
        async with terminal("runs", "approve", run, *found, env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
            assert "approved: calls 1, 2" in person.text
        async with terminal("runs", "cancel", other, *found, env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
        ended = await session.finish(await session.wait(run))
        assert [each["status"] for each in ended.value] == ["fulfilled", "fulfilled"]
        assert (await session.wait(other)).code == "aborted"
    assert sorted(events(log)) == ["call one", "call two", "call x"], "nothing was sent twice"


async def test_a_process_ends_in_time_and_leaves_no_socket_while_clients_hold_on_to_it(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with raw(write_config(tmp_path, {}), env=runtime) as client:
        await client.initialize("2025-11-25")
        await client.request("tools/list")
        await listening(runtime)
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
            for each in (silent, half):
                each.connect(os.fspath(sockets(runtime)[0]))
            half.send(b'{"version": 1, ')
            with anyio.fail_after(ENDS_WITHIN / 2):  # connections have 10 s
                assert await client.end() == 0
    folder = Path(runtime["XDG_RUNTIME_DIR"]) / "codemode-mcp"
    assert list(folder.iterdir()) == []
