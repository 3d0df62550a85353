"""Servers over stdio that misbehave, each a real process, and limits of unsolicited messages."""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from upstream_clients import (
    UpstreamCallError,
    UpstreamPool,
    UpstreamSpec,
    UpstreamUnavailable,
    connection,
    listing,
    negotiate,
)
from upstream_clients.backoff import Backoff
from upstream_clients.connection import Connection
from upstream_clients.line_messages import MESSAGES_BURST, MESSAGES_PER_SECOND, ReadingAllowance
from upstream_clients.upstream import Upstream

pytestmark = pytest.mark.anyio


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_junk_on_stdout_is_no_obstacle(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("junk")) as pool:
        for _ in range(3):
            outcome = await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=10)
            assert outcome.result["content"] == [{"type": "text", "text": "hi"}]


async def test_malformed_tools_are_dropped_by_name_and_the_rest_is_kept(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("malformed")) as pool:
        (view,) = pool.views()
        assert [tool.name for tool in view.tools] == ["echo", "late"]
        assert len(view.problems) == 5


async def test_pagination_without_end_is_cut(raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_PAGES", 20)
    async with pool_of(raw_server("endless")) as pool:
        (view,) = pool.views()
        assert view.state == "ready"
        assert len(view.tools) == 20
        assert "tools/list has more than 20 pages; the rest is left out" in view.problems


async def test_more_tools_than_any_user_needs_are_cut(
    raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_TOOLS", 7)
    async with pool_of(raw_server("endless")) as pool:
        assert len(pool.views()[0].tools) == 7


async def test_a_repeated_cursor_ends_the_listing(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("same_cursor")) as pool:
        (view,) = pool.views()
        assert view.state == "ready"
        assert "tools/list gave the same cursor twice; stopped there" in view.problems


async def test_a_server_that_never_answers_is_down_after_the_connect_timeout(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("silent", "probe_silent", connect_timeout=0.5)) as pool:
        (view,) = pool.views()
        assert view.state == "down"
        assert view.error is not None
        assert view.error.startswith("server 'srv' did not start: no complete answer from command")
        assert "within 0.5 s" in view.error


async def test_a_legacy_server_that_is_silent_on_the_probe_is_connected(
    raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiate, "PROBE_TIMEOUT", 0.1)
    async with pool_of(raw_server("probe_silent")) as pool:
        assert (pool.views()[0].state, pool.views()[0].era) == ("ready", "legacy")


async def test_a_protocol_version_that_does_not_exist_is_named(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("version=1999-01-01")) as pool:
        error = pool.views()[0].error
        assert error is not None
        assert "1999-01-01" in error
        assert "update the server" in error


async def test_an_immediate_exit_quotes_stderr_without_secrets(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("exit", env={"TOKEN": "hunter22"})) as pool:
        assert pool.views()[0].error == (
            "server 'srv' did not start: it exited with code 3 before it answered; run the command by hand to see why; "
            "its stderr says: cannot start: bad token ***"
        )


async def test_a_command_that_does_not_exist_is_named_with_its_key(pool_of: Any) -> None:
    async with pool_of(UpstreamSpec("github", command="no-such-server")) as pool:
        assert pool.views()[0].error == (
            "server 'github' did not start: command 'no-such-server' was not found on PATH; "
            'check "command" of mcpServers.github'
        )
        with pytest.raises(UpstreamUnavailable, match="was not found on PATH"):
            await pool.source("github").call_tool("any", {})


async def test_a_whole_command_line_in_command_is_told_apart_into_command_and_args(pool_of: Any) -> None:
    async with pool_of(UpstreamSpec("memory", command="npx -y server-memory", args=("--x",))) as pool:
        assert pool.views()[0].error == (
            "server 'memory' did not start: \"command\" of mcpServers.memory must be the program without its "
            "arguments, and there is no program 'npx -y server-memory'; "
            'write "command": "npx", "args": ["-y", "server-memory", "--x"]'
        )


async def test_a_working_directory_that_does_not_exist_is_named(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server(cwd="/no/such/place")) as pool:
        assert "working directory '/no/such/place' does not exist" in str(pool.views()[0].error)


async def test_a_file_that_is_no_program_is_named(pool_of: Any, tmp_path: Path) -> None:
    script = tmp_path / "server.sh"
    script.write_text("echo hello")
    async with pool_of(UpstreamSpec("srv", command=str(script))) as pool:
        assert "may not be executed" in str(pool.views()[0].error)


async def test_an_answer_that_is_no_json_rpc_fails_its_call_alone(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError, match="not valid JSON-RPC"):
            await source.call_tool("invalid", {}, timeout=10)
        assert (await source.call_tool("echo", {"text": "hi"})).result["content"][0]["text"] == "hi"


async def test_a_crash_rejects_the_calls_in_flight_together_and_the_next_one_works(
    raw_server: Any, pool_of: Any, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    async with pool_of(raw_server(f"pid={pids}")) as pool:
        source = pool.source("srv")
        failures = []

        async def hang() -> None:
            with pytest.raises(UpstreamCallError) as caught:
                await source.call_tool("hang", {})
            failures.append(caught.value)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                tasks.start_soon(hang)
                await source.call_tool("echo", {})
                with pytest.raises(UpstreamCallError) as caught:
                    await source.call_tool("die", {})
        assert [failure.dispatched for failure in (*failures, caught.value)] == [True, True, True]
        assert "closed the connection before it answered" in caught.value.message
        outcome = await source.call_tool("echo", {"text": "again"}, timeout=20)
        assert outcome.result["content"][0]["text"] == "again"
    first, second = map(int, pids.read_text().split())
    assert first != second
    assert not alive(first)
    assert not alive(second)


async def test_a_server_that_keeps_dying_is_tried_again_ever_more_slowly(raw_server: Any) -> None:
    upstream = Upstream(raw_server("exit"))
    delays: list[float] = []
    enough = anyio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == connection.NUDGE_INTERVAL:
            await anyio.sleep_forever()
        delays.append(seconds)
        if len(delays) == 5:
            enough.set()
            await anyio.sleep_forever()

    backoff = Backoff(base=2.0, cap=10.0, jitter=lambda: 1.0)
    owner = Connection(upstream, client_name="test", client_version="0", backoff=backoff, sleep=sleep)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner.run)
            await enough.wait()
            owner.stop()
    assert delays == [2.0, 4.0, 8.0, 10.0, 10.0]
    assert upstream.view().state == "stopped"


async def test_calling_a_server_that_is_down_makes_it_try_again_immediately(
    raw_server: Any, changes: Any, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    upstream = Upstream(raw_server(f"missing={disk}"), changes)

    async def sleep(seconds: float) -> None:
        """Sleep forever between attempts, but not for `NUDGE_INTERVAL`."""
        if seconds != connection.NUDGE_INTERVAL:
            await anyio.sleep_forever()

    owner = Connection(upstream, client_name="test", client_version="0", sleep=sleep)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(owner.run)
            await upstream.settled.wait()
            assert upstream.view().state == "down"
            disk.touch()
            with pytest.raises(UpstreamUnavailable, match="the disk is not there yet"):
                await upstream.call_tool("echo", {})
            await changes.until(upstream, lambda view: view.state == "ready")
            assert (await upstream.call_tool("echo", {"text": "hi"})).result["content"][0]["text"] == "hi"
            owner.stop()


async def test_a_server_that_ignores_end_of_input_and_sigterm_is_gone_within_five_seconds(
    raw_server: Any, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    specs = [raw_server("stubborn", f"pid={pids}", name=f"srv{number}") for number in range(3)]
    async with UpstreamPool(specs) as pool:
        await pool.wait_settled(None, timeout=20)
        assert [view.state for view in pool.views()] == ["ready"] * 3
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert [view.state for view in pool.views()] == ["stopped"] * 3
    assert len(pids.read_text().split()) == 3
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


async def test_closing_while_servers_are_still_connecting_leaves_no_process(raw_server: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    with anyio.fail_after(10):
        async with UpstreamPool([raw_server("silent", f"pid={pids}")]):
            pid = int(await anyio.to_thread.run_sync(pids.read_text))
            assert alive(pid)
    assert not alive(pid)


async def test_a_call_in_flight_when_the_pool_closes_is_rejected(raw_server: Any, pool_of: Any) -> None:
    failures = []
    async with anyio.create_task_group() as tasks, pool_of(raw_server()) as pool:
        source = pool.source("srv")

        async def hang() -> None:
            with pytest.raises(UpstreamCallError) as caught:
                await source.call_tool("hang", {})
            failures.append(caught.value)

        tasks.start_soon(hang)
        await source.call_tool("echo", {})
    assert failures[0].dispatched
    with pytest.raises(UpstreamUnavailable, match="is closed"):
        await source.call_tool("echo", {})


async def test_nothing_of_a_child_reaches_our_stdout_or_stderr(
    raw_server: Any, pool_of: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    async with pool_of(raw_server()) as pool:
        with pytest.raises(UpstreamCallError):
            await pool.source("srv").call_tool("die", {})
    assert capfd.readouterr() == ("", "")


async def test_a_child_that_floods_its_stderr_does_not_stall(pool_of: Any) -> None:
    flood = "import sys\nfor _ in range(2000): print('x' * 5000, file=sys.stderr)\nsys.exit('the end')"
    async with pool_of(UpstreamSpec("srv", command=sys.executable, args=("-c", flood))) as pool:
        assert str(pool.views()[0].error).endswith("its stderr says: the end")


async def test_the_chatter_of_npm_is_not_taken_for_a_reason(pool_of: Any) -> None:
    noise = "npm notice\\nnpm notice New minor version of npm!\\nnpm warn old\\nnpm WARN old\\n"
    for said, quoted in [("Error: no key\\n" + noise, "its stderr says: Error: no key"), (noise, "why")]:
        script = f"import sys; sys.exit('{said}')"
        async with pool_of(UpstreamSpec("srv", command=sys.executable, args=("-c", script))) as pool:
            assert str(pool.views()[0].error).endswith(quoted)


NPM = """npm error code E404
npm error 404 Not Found - GET https://registry.example/no-such-server - Not found
npm error 404
npm error 404  'no-such-server@*' is not in this registry.
npm error
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/x.log"""
UV = """  x No solution found when resolving tool dependencies:
  \u2570\u2500\u25b6 Because no-such-server was not found in the package registry, your requirements are unsatisfiable.
hint: Consider another index"""
PYTHON = """Traceback (most recent call last):
  File "server.py", line 1, in <module>
ModuleNotFoundError: No module named 'server'"""
NODE = """Error: Cannot find module '/x/server.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1)
Node.js v22.0.0"""


@pytest.mark.parametrize(
    ("printed", "quoted"),
    [
        pytest.param(NPM, "npm error 404 Not Found - GET https://registry.example/no-such-server", id="npm"),
        pytest.param(UV, "Because no-such-server was not found in the package registry", id="uv"),
        pytest.param(PYTHON, "ModuleNotFoundError: No module named 'server'", id="python"),
        pytest.param(NODE, "Error: Cannot find module '/x/server.js'", id="node"),
    ],
)
async def test_of_what_a_server_printed_the_line_that_matters_is_quoted(
    pool_of: Any, printed: str, quoted: str
) -> None:
    script = f"import sys; sys.stderr.buffer.write({printed.encode()!r}); sys.exit(1)"
    async with pool_of(UpstreamSpec("srv", command=sys.executable, args=("-c", script))) as pool:
        said = str(pool.views()[0].error).partition("its stderr says: ")[2]
    assert quoted in said.splitlines()[0]


async def test_the_first_line_on_stdout_that_is_no_message_is_quoted_without_secrets(pool_of: Any) -> None:
    script = "print('Listening with hunter22'); print('again'); raise SystemExit(1)"
    spec = UpstreamSpec("srv", command=sys.executable, args=("-c", script), secrets=("hunter22",))
    async with pool_of(spec) as pool:
        assert str(pool.views()[0].error).endswith("has this line: Listening with ***")


async def test_a_server_that_does_not_start_is_warned_of_once_for_each_reason(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, "upstream_clients.connection")
    script, attempts = tmp_path / "server.py", 0
    upstream = Upstream(UpstreamSpec("srv", command=sys.executable, args=(str(script),)))
    script.write_text("raise SystemExit('one')", "utf-8")

    async def sleep(seconds: float) -> None:
        nonlocal attempts
        if seconds == connection.NUDGE_INTERVAL:
            await anyio.sleep_forever()
        attempts += 1
        if attempts == 2:
            script.write_text("raise SystemExit('two')", "utf-8")
        if attempts == 4:
            owner.stop()

    owner = Connection(upstream, client_name="test", client_version="0", sleep=sleep)
    with anyio.fail_after(30):
        await owner.run()
    told = [(record.levelname, record.getMessage()) for record in caplog.records if "did not start" in record.message]
    assert [level for level, _ in told] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert "says: one; next attempt in" in told[0][1]
    assert "says: two; next attempt in" in told[2][1]


async def test_a_server_that_gives_another_reason_every_time_is_not_warned_of_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "upstream_clients.connection")
    owner = Connection(Upstream(UpstreamSpec("srv", command="x")), client_name="test", client_version="0")
    for number in range(100):
        owner._log_failed_start(str(number), str(number))
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == connection.MAX_WARNINGS


async def test_a_command_that_is_not_there_is_not_tried_again_in_a_hurry() -> None:
    delays: list[float] = []
    upstream = Upstream(UpstreamSpec("srv", command="no-such-server"))

    async def sleep(seconds: float) -> None:
        if seconds == connection.NUDGE_INTERVAL:
            await anyio.sleep_forever()
        delays.append(seconds)
        if len(delays) == 3:
            owner.stop()

    backoff = Backoff(jitter=lambda: 1.0)
    owner = Connection(upstream, client_name="test", client_version="0", backoff=backoff, sleep=sleep)
    with anyio.fail_after(30):
        await owner.run()
    assert delays == [4.0, 60.0, 60.0]


async def test_a_tool_that_has_changed_since_it_was_listed_is_listed_again(
    raw_server: Any, pool_of: Any, changes: Any
) -> None:
    async with pool_of(raw_server(), on_change=changes) as pool:
        source = pool.source("srv")
        for name in ("replaced_7", "replaced_8"):
            with pytest.raises(UpstreamCallError, match="has changed this tool") as caught:
                await source.call_tool("mismatch", {})
            assert not caught.value.dispatched
            await changes.until(source, lambda view, name=name: view.tools[-1].name == name)


async def test_a_server_that_announces_changes_without_end_is_listed_once_in_a_while(
    raw_server: Any, pool_of: Any
) -> None:
    async with pool_of(raw_server()) as pool:
        source = pool.source("srv")
        for _ in range(200):
            await source.call_tool("grow", {})
        listings = await source.call_tool("listings", {})
        assert int(listings.result["content"][0]["text"]) <= 5


# Limits of unsolicited messages.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def note(text: str = "") -> dict[str, Any]:
    params = {"level": "info", "data": {"lines": [text]}}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


def test_a_server_that_says_little_is_never_held_up() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    for _ in range(5000):
        clock.now += 0.01
        assert allowance.spend(note()) == 0.0


def test_a_flood_is_read_at_the_rate_of_the_allowance() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    count = 3 * int(MESSAGES_BURST)
    for _ in range(count):
        clock.now += allowance.spend(note())
    assert clock.now == pytest.approx((count - MESSAGES_BURST) / MESSAGES_PER_SECOND, rel=0.05)


def test_junk_counts_too() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    for _ in range(int(MESSAGES_BURST + 2 * MESSAGES_PER_SECOND)):
        clock.now += allowance.spend(ValueError("no JSON"))
    assert clock.now > 1


def test_thousands_of_log_messages_before_an_answer_are_read_without_a_pause() -> None:
    allowance = ReadingAllowance(Clock())
    assert sum(allowance.spend(note("a line of a log")) for _ in range(20_000)) == 0.0


def test_a_large_message_counts_for_many_but_holds_its_server_up_for_a_second_at_most() -> None:
    clock = Clock()
    allowance = ReadingAllowance(clock)
    pauses = []
    for _ in range(40):
        pauses.append(allowance.spend(note("x" * 16_000_000)))
        clock.now += pauses[-1]
    assert sum(pauses) > 5
    assert max(pauses) <= 1.01
