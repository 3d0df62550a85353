"""Servers that hang, leave processes behind, or send far too much. Each is a real process."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from started_pools import python_server

from upstream_clients import UpstreamCallError, UpstreamPool, UpstreamSpec, line_messages, listing, live_connection
from upstream_clients.fair_limiter import Call
from upstream_clients.line_messages import LineBuffer, TooLong, error_for_long_line, read_message
from upstream_clients.live_connection import LivenessMonitor
from upstream_clients.upstream import Upstream

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name == "nt", reason="signals and process groups are POSIX")]


def text(outcome: Any) -> str:
    return str(outcome.result["content"][0]["text"])


def pid_of(pool: UpstreamPool) -> int:
    return int(pool.views()[0].server_version or 0)


def running(pid: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids: int) -> None:
    """Return when all these processes have ended, which takes a moment after a signal."""
    with anyio.fail_after(20):
        while any(map(running, pids)):  # noqa: ASYNC110 - other people's processes
            await anyio.sleep(0.01)


@pytest.fixture
def nasty() -> Callable[..., UpstreamSpec]:
    return lambda *flags, **more: python_server("nasty_server.py", *flags, **more)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_connection, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(live_connection, "PROBE_TIMEOUT", 0.5)


# Hung servers.


@pytest.mark.usefixtures("impatient")
async def test_a_stopped_process_is_replaced_after_a_call_has_timed_out(nasty: Any, pool_of: Any) -> None:
    async with pool_of(nasty()) as pool:
        source, first = pool.source("srv"), pid_of(pool)
        with pytest.raises(UpstreamCallError, match=r"tool 'stop' timed out after 0\.3 s"):
            await source.call_tool("stop", {}, timeout=0.3)
        # The server cannot be busy with a call that came later.
        with pytest.raises(UpstreamCallError, match="has sent nothing") as caught:
            await source.call_tool("echo", {}, timeout=30)
        assert caught.value.dispatched
        assert text(await source.call_tool("echo", {"text": "again"}, timeout=30)) == "again"
        assert pid_of(pool) != first
        await gone(first)


@pytest.mark.usefixtures("impatient")
async def test_calls_to_a_hung_server_end_with_what_is_known(
    nasty: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_connection, "QUIET", 0.3)
    monkeypatch.setattr(live_connection, "PATIENCE_SECONDS", 1.0)
    async with pool_of(nasty()) as pool:
        with anyio.fail_after(20), pytest.raises(UpstreamCallError) as caught:
            await pool.source("srv").call_tool("stop", {})
        assert caught.value.dispatched
        assert "has sent nothing for" in caught.value.message
        assert caught.value.message.endswith("it is unknown whether the server acted on tool 'stop'")


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_is_busy_with_a_call_that_may_be_long_is_left_alone(
    nasty: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_connection, "QUIET", 0.3)
    async with pool_of(nasty()) as pool:
        source, first = pool.source("srv"), pid_of(pool)
        async with anyio.create_task_group() as tasks:

            async def impatient_call() -> None:
                with pytest.raises(UpstreamCallError, match="timed out"):
                    await source.call_tool("echo", {}, timeout=0.3)

            tasks.start_soon(impatient_call)
            assert text(await source.call_tool("freeze", {"seconds": 2, "text": "late"})) == "late"
        assert pid_of(pool) == first


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_answers_pings_may_take_for_ever(
    nasty: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_connection, "QUIET", 0.1)
    monkeypatch.setattr(live_connection, "PATIENCE_SECONDS", 0.1)
    async with pool_of(nasty()) as pool:
        source, first = pool.source("srv"), pid_of(pool)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.call_tool, "hang", {})
            with anyio.fail_after(20):
                while int(text(await source.call_tool("pings", {}))) < 3:  # noqa: ASYNC110 - the server counts
                    await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()
        assert pid_of(pool) == first


class SilentLink:
    """A silent server that counts its probes."""

    message_count = 0
    probes = 0

    async def probe(self) -> None:
        self.probes += 1
        await anyio.sleep_forever()


class Clock:
    """A clock that only `sleep` advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await anyio.lowlevel.checkpoint()


def sent_call(since: float, limit: float | None) -> Call:
    call = Call(since, limit)
    call.sent = True
    return call


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, live_connection.PATIENCE_SECONDS), (3600.0, 3600.0)],
    ids=["without a limit: the patience", "with one: the limit"],
)
async def test_how_long_a_call_may_keep_its_server_silent(limit: float | None, expected: float) -> None:
    clock, link = Clock(), SilentLink()
    upstream = Upstream(UpstreamSpec("srv", command="x"), clock=clock)
    call = sent_call(clock(), limit)
    upstream.calls.add(call)

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        if limit is not None and clock() >= call.since + limit:
            upstream.calls.discard(call)

    began = clock()
    await LivenessMonitor(upstream.calls, link, sleep=sleep).until_hung(print)
    assert expected <= clock() - began <= expected + live_connection.PROBE_TIMEOUT
    assert link.probes == 1


async def test_calls_that_come_to_a_silent_server_later_do_not_speak_for_it() -> None:
    clock, link = Clock(), SilentLink()
    upstream = Upstream(UpstreamSpec("srv", command="x"), clock=clock)

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        upstream.calls.add(sent_call(clock(), None))

    upstream.calls.suspects = set()
    began = clock()
    await LivenessMonitor(upstream.calls, link, sleep=sleep).until_hung(print)
    assert clock() - began <= live_connection.PROBE_TIMEOUT + live_connection.POLL_INTERVAL


async def test_a_server_without_calls_is_not_probed() -> None:
    clock, link = Clock(), SilentLink()
    upstream = Upstream(UpstreamSpec("srv", command="x"), clock=clock)
    upstream.calls.add(Call(clock(), None))  # waits for its turn
    with anyio.move_on_after(0.3):
        await LivenessMonitor(upstream.calls, link, sleep=clock.sleep).until_hung(print)
    assert clock() - 1000 > live_connection.PATIENCE_SECONDS
    assert link.probes == 0


# Processes that servers leave behind.


async def test_what_a_server_has_started_goes_with_it_even_if_the_server_left_first(
    nasty: Any, pool_of: Any, tmp_path: Path
) -> None:
    async with pool_of(nasty(f"linger={tmp_path / 'child'}")) as pool:
        child = int((tmp_path / "child").read_text())
        assert pool.views()[0].state == "ready"
        assert running(child)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    await gone(child)


async def test_a_server_that_is_killed_leaves_nothing_behind_and_is_replaced(
    nasty: Any, pool_of: Any, tmp_path: Path
) -> None:
    async with pool_of(nasty(f"linger={tmp_path / 'child'}")) as pool:
        source, first = pool.source("srv"), pid_of(pool)
        child = int((tmp_path / "child").read_text())
        async with anyio.create_task_group() as tasks:

            async def hang() -> None:
                # The child keeps the pipes open, so there is no end of file.
                with anyio.fail_after(10), pytest.raises(UpstreamCallError) as caught:
                    await source.call_tool("hang", {})
                assert caught.value.dispatched

            tasks.start_soon(hang)
            await source.call_tool("echo", {})
            (tmp_path / "child").unlink()
            os.kill(first, signal.SIGKILL)
        assert text(await source.call_tool("echo", {"text": "again"}, timeout=30)) == "again"
        await gone(first, child)
        second = int((tmp_path / "child").read_text())
    await gone(second)


async def test_a_server_behind_a_shell_and_the_shell_are_both_ended(nasty: Any, pool_of: Any) -> None:
    inner = nasty()
    command = " ".join([str(inner.command), *inner.args])
    async with pool_of(UpstreamSpec("srv", command="sh", args=("-c", f"{command}; true"))) as pool:
        server = pid_of(pool)
        assert running(server)
    await gone(server)


# Too much of everything.


async def test_a_large_result_arrives_whole(nasty: Any, pool_of: Any) -> None:
    async with pool_of(nasty()) as pool:
        outcome = await pool.source("srv").call_tool("rows", {"rows": 50_000}, timeout=60)
    assert outcome.result["structuredContent"]["rows"][-1]["id"] == 49_999


async def test_while_a_thread_reads_a_large_answer_others_continue() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(200_000)]
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"rows": rows}}).encode()
    turns = 0
    async with anyio.create_task_group() as tasks:

        async def count() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        tasks.start_soon(count)
        item = await anyio.to_thread.run_sync(read_message, line)
        tasks.cancel_scope.cancel()
    assert isinstance(item, dict)
    # With an uninterrupted parser there would be two or three.
    assert turns > 20


async def test_a_result_that_is_too_large_costs_its_own_call_alone(
    nasty: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_messages, "MAX_MESSAGE_BYTES", 1_000_000)
    async with pool_of(nasty()) as pool:
        source, first = pool.source("srv"), pid_of(pool)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.call_tool, "hang", {})
            with pytest.raises(UpstreamCallError, match="larger than 1000000 bytes; ask for less at a time") as caught:
                await source.call_tool("large", {"bytes": 5_000_000}, timeout=30)
            assert caught.value.dispatched
            assert text(await source.call_tool("echo", {"text": "fine"})) == "fine"
            tasks.cancel_scope.cancel()
        assert len(text(await source.call_tool("large", {"bytes": 900_000}, timeout=30))) == 900_000
        assert pid_of(pool) == first


async def test_a_line_without_an_end_needs_bounded_memory() -> None:
    buffer = LineBuffer(limit=10_000)
    assert buffer.feed(b'{"id": 7, ' + b"x" * 5_000) == []
    for _ in range(1_000):
        assert buffer.feed(b"y" * 5_000) == []
        assert sum(map(len, buffer._parts)) <= 10_000
    line, after = buffer.feed(b'z"}\nnext\nand')
    assert isinstance(line, TooLong)
    assert line.head.startswith(b'{"id": 7, xxx')
    assert line.tail.endswith(b'yyyz"}')
    assert after == b"next"
    assert buffer.feed(b" more\n") == [b"and more"]


async def test_lines_are_put_together_from_any_pieces() -> None:
    whole = b"one\n\ntwo\r\nthree\n"
    for size in range(1, len(whole)):
        buffer = LineBuffer()
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        lines = [line for piece in pieces for line in buffer.feed(piece)]
        assert lines == [b"one", b"", b"two\r", b"three"]


@pytest.mark.parametrize(
    ("head", "tail", "request_id"),
    [
        (b'{"jsonrpc": "2.0", "id": 7, "result"', b"}}", 7),
        (b'{"jsonrpc": "2.0", "result": {', b'}, "id": "a"}', "a"),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "x"', b"}}", None),
        (b'{"jsonrpc": "2.0", "result": {', b"}}", None),
    ],
)
async def test_an_answer_that_is_too_long_is_an_error_of_its_request(
    head: bytes, tail: bytes, request_id: int | str | None
) -> None:
    item = error_for_long_line(TooLong(head, tail))
    if request_id is None:
        assert isinstance(item, ValueError)
    else:
        assert isinstance(item, dict)
        assert (item["id"], item["error"]["code"]) == (request_id, -32603)


async def test_integers_keep_their_digits_or_are_refused_with_the_reason(nasty: Any, pool_of: Any) -> None:
    async with pool_of(nasty()) as pool:
        for count in (30, 4_300):
            outcome = await pool.source("srv").call_tool("digits", {"count": count}, timeout=10)
            assert outcome.result["structuredContent"] == {"large": 10**count - 1, "nan": None}
        with pytest.raises(UpstreamCallError, match="it has an integer of more than 4,300 digits"):
            await pool.source("srv").call_tool("digits", {"count": 4_301}, timeout=10)


@pytest.mark.parametrize("line", [b'{"jsonrpc": "2.0", "id": 7, "result": {"a": "\\ud83d\\ude00 \\ud83d"}}'])
async def test_whole_characters_stay_and_halves_are_replaced(line: bytes) -> None:
    item = read_message(line)
    assert isinstance(item, dict)
    assert item["result"] == {"a": "\U0001f600 \ufffd"}


@pytest.mark.parametrize("flag", ["slow_pages", "stuck_page"])
async def test_pages_without_end_or_answer_cost_what_comes_after_them(
    flag: str, nasty: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_SECONDS", 0.5)
    async with pool_of(nasty(flag)) as pool:
        (view,) = pool.views()
        assert view.state == "ready"
        assert view.tools[0].name == "tool_0"
        assert view.problems == ("tools/list has more pages after 0.5 s; the rest is left out",)
