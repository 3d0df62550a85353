"""Logs of clients: each gets the records of its own tasks, at its own level, whatever happens to the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from codemode_mcp.audit import logging_to, set_level
from codemode_mcp.audit.client_logs import ClientLogs, for_no_client
from codemode_mcp.base.settings import LogLevel, LogSettings

pytestmark = pytest.mark.anyio

log = logging.getLogger("codemode_mcp.runs")


class Lines(list[str]):
    """A sink that keeps the texts of records without their times."""

    def __init__(self, *, reads: bool = True) -> None:
        super().__init__()
        self.reads = reads
        self.threads: set[int] = set()

    def __call__(self, line: str) -> bool:
        self.threads.add(threading.get_ident())
        if self.reads:
            self.append(line.partition(": ")[2])
        return self.reads


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Log the process, at level info, to the yielded file."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with logging_to(LogSettings(level="info", file=str(tmp_path / "log")), str):
        yield tmp_path / "log"


def logged(file: Path) -> list[str]:
    return [line.partition(": ")[2] for line in file.read_text("utf-8").splitlines()]


async def test_a_client_gets_the_records_of_its_own_tasks_and_the_process_all(process: Path) -> None:
    logs, sinks = ClientLogs(), {name: Lines() for name in "ab"}

    async def serve(name: str) -> None:
        with logs.of_client(None, sinks[name], str):
            log.info("session %s", name)
            async with anyio.create_task_group() as group:
                group.start_soon(run, name)
                await anyio.to_thread.run_sync(log.info, "thread %s", name)

    async def run(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        log.info("task %s", name)

    async with anyio.create_task_group() as group:
        for name in sinks:
            group.start_soon(serve, name)
        log.info("of no client")
    for name, lines in sinks.items():
        assert sorted(lines) == [f"session {name}", f"task {name}", f"thread {name}"]
        assert lines.threads == {threading.get_ident()}
    assert sorted(logged(process)) == sorted([*sinks["a"], *sinks["b"], "of no client"])
    log.info("later")
    assert "later" not in sinks["a"]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_each_log_has_its_own_level(process: Path, level: LogLevel) -> None:
    lines, names = Lines(), ["debug", "info", "warning", "error"]
    with ClientLogs().of_client(level, lines, str):
        for name in names:
            log.log(getattr(logging, name.upper()), name)
            logging.getLogger("a_library").log(getattr(logging, name.upper()), "library %s", name)
        logging.getLogger("mcp").error("of the SDK")
    own = names[names.index(level) :]
    expected = {*own, *(f"library {name}" for name in own if name in ("warning", "error"))}
    assert {line for line in lines if "line" not in line} == expected
    assert len([line for line in lines if "line" in line]) == (level == "debug")
    assert logged(process) == [
        *("info", "warning", "library warning", "error", "library error"),
    ]


async def test_a_reload_changes_the_level_of_the_process_and_of_those_that_follow_it(process: Path) -> None:
    own, following = Lines(), Lines()
    with ClientLogs().of_client("warning", own, str):
        with ClientLogs().of_client(None, following, str):
            set_level("debug")
            log.debug("one")
            set_level("error")
            log.warning("two")
        log.warning("three")
    assert (own, following, logged(process)) == (["three"], ["one"], ["one"])


async def test_levels_are_as_before_when_all_logs_are_closed_in_any_order() -> None:
    loggers = [logging.getLogger(name) for name in (None, "codemode_mcp", "upstream_clients", "mcp", "client")]
    before = [logger.level for logger in loggers]
    handlers = list(logging.getLogger().handlers)
    first, second = ExitStack(), ExitStack()
    first.enter_context(logging_to(LogSettings(level="error"), str))
    second.enter_context(logging_to(LogSettings(level="debug"), str))
    assert logging.getLogger("codemode_mcp").level == logging.DEBUG
    second.close()
    assert logging.getLogger("codemode_mcp").level == logging.ERROR
    first.close()
    assert [logger.level for logger in loggers] == before
    assert logging.getLogger().handlers == handlers


async def test_records_of_an_application_go_to_all_of_its_clients_and_to_no_other(process: Path) -> None:
    mine, others, sinks = ClientLogs(), ClientLogs(), [Lines(), Lines(), Lines()]
    told = anyio.Event()

    async def application() -> None:
        with mine.of_all():
            log.warning("too early")
            await told.wait()
            log.warning("a server does not start")

    async with anyio.create_task_group() as group:
        group.start_soon(application)
        await anyio.wait_all_tasks_blocked()
        with ExitStack() as stack:
            for logs, sink in zip((mine, mine, others), sinks, strict=True):
                stack.enter_context(logs.of_client(None, sink, str))
            told.set()
            await anyio.wait_all_tasks_blocked()
    assert sinks == [["a server does not start"], ["a server does not start"], []]
    assert logged(process) == ["too early", "a server does not start"]


async def test_a_task_for_all_clients_that_one_client_starts_is_not_its_own(process: Path) -> None:
    lines = Lines()
    async with anyio.create_task_group() as group:

        async def run() -> None:
            log.info("of the server")

        with ClientLogs().of_client(None, lines, str):
            for_no_client(group.start_soon, run)
            log.info("of the client")
            await anyio.wait_all_tasks_blocked()
    assert lines == ["of the client"]
    assert logged(process) == ["of the client", "of the server"]


async def test_a_client_that_does_not_read_loses_records_and_is_told_how_many(process: Path) -> None:
    lines = Lines(reads=False)
    with ClientLogs().of_client(None, lines, str):
        log.info("one")
        log.info("two")
        lines.reads = True
        log.info("three")
        log.info("four")
    assert lines == ["three\n(2 records before this one were dropped, because the log was read too slowly)", "four"]


async def test_a_sink_that_fails_harms_nothing_and_tasks_of_a_client_that_left_are_logged_by_the_process(
    process: Path,
) -> None:
    def fails(line: str) -> bool:
        raise OSError("No space left on device")

    released = anyio.Event()

    async def run() -> None:
        await released.wait()
        log.info("late")

    lines = Lines()
    async with anyio.create_task_group() as group:
        with ClientLogs().of_client(None, fails, str):
            log.info("one")
        with ClientLogs().of_client(None, lines, str):
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
        released.set()
    assert lines == []
    assert logged(process) == ["one", "late"]


async def test_secrets_of_the_client_are_redacted_and_a_record_is_one_line(process: Path) -> None:
    lines = Lines()
    with ClientLogs().of_client(None, lines, lambda text: text.replace("hunter2", "***")):
        log.info("call of %s", "hunter2\nINFO forged")
    assert lines == ["call of ***\\nINFO forged"]
