"""Tests of the state and the log of a server as a person sees them, and of its restart."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from counted_processes import Processes

from upstream_clients import UpstreamCallError, UpstreamPool, UpstreamSpec
from upstream_clients.pool import SharedServers
from upstream_clients.server_log import MAX_LINES, MAX_LOG_LINE, ServerLog

pytestmark = pytest.mark.anyio


def lines(pool: UpstreamPool, source: str | None = None) -> list[str]:
    return [line.text for line in pool.status("srv").log.after(0) if source in (None, line.source)]


async def test_a_restarted_server_is_another_process_and_its_calls_end(
    processes: Processes, pool_of: Any, changes: Any, tmp_path: Path
) -> None:
    async with pool_of(processes.spec(), on_change=changes) as pool:
        source = pool.source("srv")
        before = pool.status("srv")
        assert (before.view.state, before.calls, before.pids) == ("ready", 0, tuple(processes.pids))
        assert before.ready_seconds is not None
        ended: list[UpstreamCallError] = []

        async def call() -> None:
            with pytest.raises(UpstreamCallError) as failed:
                await source.call_tool("wait", {"path": str(tmp_path / "never")})
            ended.append(failed.value)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                while not any(call.sent for call in _calls(pool)):  # noqa: ASYNC110 - no event tells it
                    await anyio.sleep(0.01)
                assert pool.status("srv").calls == 1
                pool.restart("srv", "server 'srv' was restarted by a person")
                assert source.view().state == "connecting"
        assert ended[0].dispatched
        assert "restarted by a person; it is unknown whether the server acted on tool 'wait'" in str(ended[0])
        await changes.until(source, lambda view: view.state == "ready")
        first, second = processes.pids
        assert pool.status("srv").pids == (second,)
        assert first != second
        assert pool.status("srv").log.last_error is None, "a restart is no error"
        assert "server 'srv' was restarted by a person" in lines(pool, "connection")


def _calls(pool: UpstreamPool) -> list[Any]:
    return list(pool._sources["srv"].use.server.main.upstream.calls)


async def test_a_call_during_a_restart_waits_for_the_new_process(processes: Processes, pool_of: Any) -> None:
    async with pool_of(processes.spec()) as pool:
        pool.restart("srv", "restarted")
        outcome = await pool.source("srv").call_tool("pid", {})
        assert outcome.result["content"][0]["text"] == str(processes.pids[1])


async def test_restarts_in_quick_succession_leave_one_process(processes: Processes, pool_of: Any, changes: Any) -> None:
    async with pool_of(processes.spec(), on_change=changes) as pool:
        for _ in range(5):
            pool.restart("srv", "restarted")
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")
        await anyio.sleep(0.3)
        assert len(processes.pids) == 2
        assert len(processes.alive) == 1


async def test_a_server_that_is_down_is_connected_immediately(
    processes: Processes, pool_of: Any, changes: Any, tmp_path: Path
) -> None:
    spec = UpstreamSpec("srv", command=str(tmp_path / "later"))
    async with pool_of(spec, on_change=changes) as pool:
        assert pool.source("srv").view().state == "down"
        error = pool.status("srv").log.last_error
        assert error is not None
        assert error.text == pool.source("srv").view().error
        made = processes.spec()
        (tmp_path / "later").write_text(f"#!/bin/sh\nexec {made.command} {' '.join(made.args)}\n")
        (tmp_path / "later").chmod(0o700)
        # A missing command delays the next attempt by 2 s at least.
        pool.restart("srv", "restarted")
        assert pool.source("srv").view().state == "connecting"
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")


async def test_an_idle_server_is_started(processes: Processes, pool_of: Any, changes: Any) -> None:
    async with pool_of(processes.spec(idle_seconds=0.2), on_change=changes) as pool:
        await changes.until(pool.source("srv"), lambda view: view.state == "idle")
        assert "it was not used" in lines(pool, "connection")[-1]
        pool.restart("srv", "restarted")
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")
        assert len(processes.pids) == 2


async def test_a_server_over_http_is_connected_again(http_server: Any, pool_of: Any, changes: Any) -> None:
    async with http_server("--legacy") as server, pool_of(server.spec(), on_change=changes) as pool:
        pool.restart("srv", "restarted")
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")
        assert sum("connected with MCP" in line for line in lines(pool)) == 2


async def test_pools_that_share_a_server_see_the_same_number_and_the_same_restart(processes: Processes) -> None:
    async with (
        SharedServers() as shared,
        UpstreamPool([processes.spec()], shared=shared) as one,
        UpstreamPool([processes.spec()], shared=shared) as other,
    ):
        await one.wait_settled(None, 20)
        assert one.status("srv").number == other.status("srv").number
        one.restart("srv", "restarted")
        await other.source("srv").call_tool("pid", {})
        assert len(processes.pids) == 2
        assert lines(one) == lines(other)


async def test_an_unknown_server_has_no_state(processes: Processes, pool_of: Any) -> None:
    async with pool_of(processes.spec()) as pool:
        for function in (pool.status, lambda name: pool.restart(name, "")):
            with pytest.raises(KeyError):
                function("other")


async def test_the_log_has_what_the_server_writes_without_its_secrets(processes: Processes, pool_of: Any) -> None:
    spec = processes.spec(env={"TOKEN": "hunter2222"})
    async with pool_of(spec) as pool:
        await pool.source("srv").call_tool("log", {"text": "key hunter2222\nand more"})
        with anyio.fail_after(10):
            while len(lines(pool, "stderr")) < 2:  # noqa: ASYNC110 - a thread reads it
                await anyio.sleep(0.01)
        assert lines(pool, "stderr") == [f"key {spec.redact('hunter2222')}", "and more"]
        assert lines(pool, "message") == [f"warning: l: key {spec.redact('hunter2222')} and more"]
        assert "hunter" not in str(lines(pool))


async def test_the_lines_before_a_restart_stay(processes: Processes, pool_of: Any) -> None:
    async with pool_of(processes.spec()) as pool:
        for text in ("one", "two"):
            await pool.source("srv").call_tool("log", {"text": text})
            pool.restart("srv", "restarted")
        assert lines(pool, "message") == ["warning: l: one", "warning: l: two"]


def test_a_log_is_bounded_and_numbers_its_lines() -> None:
    log = ServerLog(str, clock=lambda: 7.0)
    for number in range(MAX_LINES + 10):
        log.add("stderr", f"{number}" + "x" * 2 * MAX_LOG_LINE)
    found = log.after(0)
    assert (len(found), found[0].number, found[-1].number) == (MAX_LINES, 11, MAX_LINES + 10)
    assert {len(line.text) for line in found} == {MAX_LOG_LINE}
    assert log.after(MAX_LINES + 9) == found[-1:]
    assert log.after(10**9) == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"level": "info", "data": {"a": [1, "x"]}}, 'info: {"a": [1, "x"]}'),
        ({"data": "two\nlines"}, "two lines"),
        ({"level": 7, "logger": [], "data": None}, "null"),
        ({}, "null"),
        ({"level": "info", "data": "x" * 10**6}, ("info: " + "x" * MAX_LOG_LINE)[:MAX_LOG_LINE]),
    ],
)
def test_a_log_message_of_any_form_becomes_one_line(params: dict[str, Any], text: str) -> None:
    log = ServerLog(str)
    log.add_message(params)
    assert [(line.source, line.text) for line in log.after(0)] == [("message", text)]


def test_a_log_message_that_is_nested_too_deeply_does_no_harm() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    log = ServerLog(str)
    log.add_message({"data": value})
    assert "cannot be written" in log.after(0)[0].text
