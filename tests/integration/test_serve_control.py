"""`codemode-mcp runs` against serving processes: what is waiting is seen, decided and cancelled from a terminal."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.integration.harness import COMMAND, counting, events, raw, serve, until, write_config
from tests.integration.http_harness import ALICE, TWO_TOKENS, serve_http
from tests.integration.terminal import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals on Windows"),
]

ENDS_WITHIN = 5.0
"""Seconds, as promised."""

TWO_CALLS = "return await Promise.allSettled([MCP.up.count({ name: 'one' }), MCP.up.count({ name: 'two' })])"


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """An environment whose folder for sockets belongs to one test."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


def sockets(runtime: dict[str, str]) -> list[Path]:
    return sorted((Path(runtime["XDG_RUNTIME_DIR"]) / "codemode-mcp").glob("*.sock"))


async def listening(runtime: dict[str, str], count: int = 1) -> None:
    await until(lambda: len(sockets(runtime)) == count)


def asking(folder: Path, **tools: Any) -> Path:
    """A configuration whose one server is asked about."""
    servers = {"up": counting(folder / "log")}
    return write_config(folder, servers, ask=["mcp:up:*"], codeMode={"timeoutMs": 1000}, **tools)


async def runs(runtime: dict[str, str], *arguments: str, code: int = 0) -> str:
    """What `codemode-mcp runs` prints, without a terminal."""
    done = await anyio.run_process(
        [*COMMAND, "runs", *arguments], check=False, env={**os.environ, **runtime}, input=b""
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert b"fault of ours" not in done.stderr
    return (done.stdout if code == 0 else done.stderr).decode()


async def test_what_waits_is_listed_shown_and_approved(tmp_path: Path, runtime: dict[str, str]) -> None:
    config = asking(tmp_path)
    async with serve(config, env=runtime) as session:
        parked = await session.exec(TWO_CALLS)
        run = parked.run_id
        (server,) = json.loads(await runs(runtime, "list", "--config", str(config), "--json"))["servers"]
        assert (server["transport"], server["mode"]) == ("stdio", "code")
        ((listed,), (place,)) = (server["runs"], sockets(runtime))
        assert str(server["pid"]) in place.name
        assert (listed["id"], listed["state"], listed["approvals"]) == (run, "waiting", 2)
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
        ended = await session.finish(parked)
        assert [each["status"] for each in ended.value] == ["fulfilled", "fulfilled"]
        assert sorted(events(tmp_path / "log")) == ["call one", "call two"]
        # It is over, and still there to look at, without its arguments.
        read = await runs(runtime, "show", run)
        assert "completed" in read
        assert '"one"' not in read
        assert "string 3" in read


async def test_some_calls_are_denied_and_others_approved(tmp_path: Path, runtime: dict[str, str]) -> None:
    async with serve(asking(tmp_path), env=runtime) as session:
        parked = await session.exec(TWO_CALLS)
        async with terminal("runs", "deny", parked.run_id, "2", env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
            assert "denied: call 2" in person.text
            assert '"two"' in person.text
            assert '"one"' not in person.text, "this one is not asked about"
        async with terminal("runs", "approve", parked.run_id, "2", env=runtime) as person:
            assert await person.end() == 1
            assert "does not wait" in person.text
        async with terminal("runs", "approve", parked.run_id, "1", env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
        ended = await session.finish(parked)
        assert [each["status"] for each in ended.value] == ["fulfilled", "rejected"]


async def test_without_the_right_words_at_a_terminal_nothing_is_decided(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with serve(asking(tmp_path), env=runtime) as session:
        parked = await session.exec(TWO_CALLS)
        run = parked.run_id
        for verb, typed in (("approve", "yes\nyes"), ("approve", "approve 00000"), ("deny", ""), ("cancel", "cancel")):
            async with terminal("runs", verb, run, env=runtime) as person:
                await person.see("> $")
                person.type(f"{typed}\n")
                assert await person.end() == 1
                assert "nothing was decided" in person.text
        assert "needs a terminal" in await runs(runtime, "approve", run, code=1)
        # What our own upstream servers start may hold a terminal, too.
        async with terminal("runs", "approve", run, env={**runtime, "CODEMODE_MCP_DEPTH": "1"}) as person:
            assert await person.end() == 1
        (server,) = json.loads(await runs(runtime, "list", "--json", "--config", str(tmp_path / "config.json")))[
            "servers"
        ]
        assert server["runs"][0]["approvals"] == 2
        assert events(tmp_path / "log") == []
        # What was typed before the question is no answer to it, neither a wrong nor a right one.
        async with terminal("runs", "deny", run, env=runtime) as person:
            person.type("".join(f"deny {number:04}\n" for number in range(100)))
            await person.confirm()
            assert await person.end() == 0


async def test_a_program_cannot_write_on_the_terminal_of_the_person(tmp_path: Path, runtime: dict[str, str]) -> None:
    evil = (
        "\x1b[2J\x1b]0;x\x07\x9b1A\u202e\u2028\r\n> approved\u200b"
        + " " * 200
        + "To approve this call, type: approve 1234"
    )
    async with serve(asking(tmp_path), env=runtime) as session:
        code = f"return await MCP.up.count({{ name: {json.dumps(evil)}, [{json.dumps(evil)}]: 1 }})"
        parked = await session.exec(code)
        for command in (("list",), ("show", parked.run_id), ("deny", parked.run_id)):
            async with terminal("runs", *command, env=runtime) as person:
                if command[0] == "deny":
                    await person.confirm()
                assert await person.end() == 0
                assert all(char.isprintable() or char in "\r\n" for char in person.text)
                for line in person.text.splitlines():
                    # A longer one would go on in the next line, and look like another; a path of ours is no program's.
                    assert len(line) <= 80 or line.startswith("  process")
                    if "approve 1234" in line:
                        assert line.startswith("  │ ")


async def test_a_run_is_cancelled(tmp_path: Path, runtime: dict[str, str]) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, codeMode={"timeoutMs": 500})
    async with serve(config, env=runtime) as session:
        parked = await session.exec("return await MCP.up.hold({ name: 'x' })")
        async with terminal("runs", "cancel", parked.run_id, env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
            assert "is cancelled" in person.text
        assert (await session.wait(parked.run_id)).code == "aborted"
        await until(lambda: "cancelled x" in events(tmp_path / "log") or "cancelled hold" in events(tmp_path / "log"))
        async with terminal("runs", "cancel", parked.run_id, env=runtime) as person:
            assert await person.end() == 1
            assert "has ended already" in person.text


async def test_two_serving_processes_are_told_apart_and_an_http_caller_is_named(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    (tmp_path / "http").mkdir()
    config = tmp_path / "http" / "config.json"
    config.write_text(
        json.dumps(
            {
                "mcpServers": {"up": counting(tmp_path / "http" / "log")},
                "http": TWO_TOKENS,
                "tools": {"ask": ["mcp:up:*"], "codeMode": {"timeoutMs": 1000}},
            }
        ),
        "utf-8",
    )
    async with (
        serve(asking(tmp_path), env=runtime) as first,
        serve_http(config, env=runtime) as served,
        served.client(token=ALICE) as second,
    ):
        one, two = await first.exec(TWO_CALLS), await second.exec(TWO_CALLS)
        await listening(runtime, 2)
        listing = await runs(runtime, "list")
        assert one.run_id in listing
        assert "http:alice" in listing
        async with terminal("runs", "approve", two.run_id, env=runtime) as person:
            await person.confirm()
            assert await person.end() == 0
            assert "http:alice" in person.text
        assert (await second.finish(two)).status == "completed"
        (left,) = json.loads(await runs(runtime, "list", "--json", "--config", str(tmp_path / "config.json")))[
            "servers"
        ]
        assert [run["approvals"] for run in left["runs"]] == [2], "of the other process nothing was decided"


async def test_in_pass_through_mode_the_process_is_there_too(tmp_path: Path, runtime: dict[str, str]) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, codeMode={"enabled": False})
    async with raw(config, env=runtime) as client:
        await client.initialize("2025-11-25")
        await client.request("tools/list")
        await listening(runtime)
        (server,) = json.loads(await runs(runtime, "list", "--json", "--config", str(config)))["servers"]
        assert (server["mode"], server["runs"]) == ("pass-through", [])


async def test_a_process_ends_in_time_and_leaves_no_socket_whoever_holds_on_to_it(
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
            began = time.monotonic()
            assert await client.end() == 0
            assert time.monotonic() - began < ENDS_WITHIN
    folder = Path(runtime["XDG_RUNTIME_DIR"]) / "codemode-mcp"
    assert list(folder.iterdir()) == []


async def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path, runtime: dict[str, str]) -> None:
    async with raw(write_config(tmp_path, {}), env=runtime) as client:
        await client.initialize("2025-11-25")
        await client.request("tools/list")
        await listening(runtime)
        client.process.kill()
        await client.process.wait()
        assert len(sockets(runtime)) == 1
        await runs(runtime, "list")
        assert sockets(runtime) == []
