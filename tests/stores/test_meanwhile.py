"""Tests of what other processes do between two statements of one piece of work, where the database lets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from codemode_mcp.runs.store import News
from codemode_mcp.stores import claiming, suspending
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.suspending import Blobs
from codemode_mcp.stores.work import Query, Work
from tests.stores.direct import Direct

ME = Direct.process


@pytest.fixture
def database() -> Iterator[Direct]:
    direct = Direct()
    yield direct
    direct.connection.close()


def has_run(database: Direct, holder: str | None, *, lives: float = 900) -> None:
    now = database.now
    database.connection.execute(
        "INSERT INTO runs (id, owner, state, version, token, holder, parker, cancel, reason, began, parked, expires, "
        "size, printed) VALUES ('run_a', 'me', 'waiting', 1, 1, ?, ?, 0, 'yield', ?, ?, ?, 0, 0)",
        (holder, ME, now, now, now + lives),
    )


async def with_change(database: Direct, work: Work[Any], sql: str) -> Any:
    """Return what comes of some work, when others do something right before it locks a row."""

    def watched() -> Work[Any]:
        answer: Any = None
        changed = False
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(asked, Query) and asked.locks and not changed:
                changed = True
                yield Query(sql)
            answer = yield asked

    return await database.execute(watched)


def not_driven(run_id: str) -> bool:
    return False


async def test_a_run_that_a_process_claims_in_its_last_moment_does_not_expire(database: Direct) -> None:
    has_run(database, None, lives=-1)
    work = suspending.expire(ME, not_driven, 1000.0, Blobs(Seal()))
    await with_change(database, work, "UPDATE runs SET holder = 'another', token = 2")
    assert database.connection.execute("SELECT state FROM runs").fetchall() == [("waiting",)]


async def test_a_run_that_no_process_claims_meanwhile_expires(database: Direct) -> None:
    has_run(database, None, lives=-1)
    await with_change(database, suspending.expire(ME, not_driven, 1000.0, Blobs(Seal())), "SELECT 1")
    assert database.connection.execute("SELECT state FROM runs").fetchall() == [("expired",)]


async def test_a_process_that_loses_a_run_while_it_looks_takes_no_calls_of_the_dead(database: Direct) -> None:
    has_run(database, ME)
    database.connection.execute(
        "INSERT INTO calls (run, id, tool, status, repeatable, carrier) "
        "VALUES ('run_a', 7, 'mcp:a:b', 'dispatched', 1, 'a dead one')"
    )
    work = claiming.news_of("run_a", ME, claiming.KnownRun(token=1, driving=True), Blobs(Seal()))
    news = await with_change(database, work, "UPDATE runs SET holder = 'another', token = 2")
    assert news == News(fenced=True)
    assert database.connection.execute("SELECT carrier FROM calls").fetchall() == [("a dead one",)]
