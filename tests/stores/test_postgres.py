"""`open_postgres` with a real server: what happens between processes, and when either end goes away."""

from __future__ import annotations

import logging
import re
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.stores.postgres import PostgresDatabase, open_postgres
from codemode_mcp.stores.schema import Lease
from codemode_mcp.stores.work import Alive, Notify, Now, Query, Work
from tests.stores.postgres_server import PostgresServer
from tests.stores.relay import relay

SHORT = Lease(valid=1.5, every=0.25, margin=0.3)


@asynccontextmanager
async def counters(url: str, **options: Any) -> AsyncIterator[PostgresDatabase]:
    """Yield the database, with a table to count in."""
    async with open_postgres(url, **options) as database:
        await database.execute(
            lambda: one("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, n BIGINT NOT NULL)")
        )
        yield database


def one(sql: str, *values: Any, locks: bool = False) -> Work[list[Any]]:
    return (yield Query(sql, values, locks))


def put(name: str, n: int) -> Callable[[], Work[list[Any]]]:
    return lambda: one(
        "INSERT INTO counters (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = excluded.n", name, n
    )


def add(name: str, how_much: int = 1) -> Work[int]:
    rows = yield Query("SELECT n FROM counters WHERE name = ?", (name,), locks=True)
    yield Query("UPDATE counters SET n = ? WHERE name = ?", (rows[0][0] + how_much, name))
    return int(rows[0][0]) + how_much


async def value(database: PostgresDatabase, name: str) -> Any:
    rows = await database.execute(lambda: one("SELECT n FROM counters WHERE name = ?", name))
    return rows[0][0] if rows else None


async def alive(database: PostgresDatabase, process: str) -> bool:
    def work() -> Work[bool]:
        return process in (yield Alive(frozenset({process, "nobody"})))

    return await database.execute(work)


async def dead(database: PostgresDatabase, process: str) -> bool:
    return not await alive(database, process)


async def until(what: Callable[[], Any]) -> None:
    with anyio.fail_after(20):
        while not await what():  # noqa: ASYNC110 - it is true of the server
            await anyio.sleep(0.02)


# work


async def test_work_that_fails_has_changed_nothing(postgres_url: str) -> None:
    async with counters(postgres_url) as database:

        def work() -> Work[None]:
            yield from put("a", 1)()
            raise CodeModeError("invalid_input", "no")

        with pytest.raises(CodeModeError, match="no"):
            await database.execute(work)
        assert await value(database, "a") is None


async def test_a_statement_that_the_database_refuses_undoes_all_and_says_no_sql(postgres_url: str) -> None:
    async with counters(postgres_url) as database:

        def work() -> Work[None]:
            yield from put("a", 1)()
            yield Query("SELECT nowhere FROM counters WHERE name = ?", ("hush",))

        with pytest.raises(StoreUnavailable) as refused:
            await database.execute(work)
        assert "42703" in refused.value.message
        assert not {"nowhere", "hush", "SELECT"} & set(refused.value.message.split())
        with pytest.raises(StoreUnavailable, match="rejects a value"):
            await database.execute(put("a", "no number"))  # type: ignore[arg-type]
        with pytest.raises(StoreUnavailable, match="rejects a value"):
            await database.execute(put("a\0", 1))
        assert await value(database, "a") is None


async def test_cancelled_work_has_changed_nothing_and_the_next_is_done(postgres_url: str) -> None:
    async with counters(postgres_url, connections=1) as database:

        def work() -> Work[None]:
            yield from put("a", 1)()
            yield Query("SELECT pg_sleep(60)")

        with anyio.move_on_after(0.1) as scope:
            await database.execute(work)
        assert scope.cancelled_caught
        assert await value(database, "a") is None


async def test_rows_that_are_locked_are_changed_by_one_at_a_time(postgres_url: str) -> None:
    async with counters(postgres_url) as first, counters(postgres_url) as second:
        await first.execute(put("a", 0))
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(first.execute, lambda: add("a"))
                group.start_soon(second.execute, lambda: add("a"))
        assert await value(first, "a") == 40


async def test_work_that_got_in_the_way_of_other_work_is_done_again(postgres_url: str) -> None:
    async with counters(postgres_url) as database:
        await database.execute(put("a", 0))
        await database.execute(put("b", 0))
        begun = 0

        def crossed(here: str, there: str) -> Callable[[], Work[None]]:
            def work() -> Work[None]:
                nonlocal begun
                begun += 1
                yield from add(here)
                yield Query("SELECT pg_sleep(0.1)")
                yield from add(there)

            return work

        async with anyio.create_task_group() as group:
            group.start_soon(database.execute, crossed("a", "b"))
            group.start_soon(database.execute, crossed("b", "a"))
        assert (await value(database, "a"), await value(database, "b")) == (2, 2)
        assert begun == 3


async def test_a_row_that_two_want_to_be_the_first_to_insert_is_seen_by_the_second(postgres_url: str) -> None:
    async with counters(postgres_url) as database:

        def work() -> Work[None]:
            if (yield Query("SELECT n FROM counters WHERE name = 'a'")):
                yield from add("a")
            else:
                yield Query("SELECT pg_sleep(0.05)")
                yield Query("INSERT INTO counters (name, n) VALUES ('a', 1)")

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(database.execute, work)
        assert await value(database, "a") == 3


async def test_no_more_connections_are_open_than_were_allowed(postgres: PostgresServer, postgres_url: str) -> None:
    name = postgres_url + "&application_name=counted"
    async with counters(name, connections=2) as database:
        await database.execute(put("a", 0))
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(database.execute, lambda: add("a"))
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
        assert (await database.execute(lambda: one(count)))[0][0] <= 3
    await until(lambda: anyio.to_thread.run_sync(lambda: postgres.sql(count) == "0"))


async def test_schemas_of_one_database_share_nothing(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url) as first, counters(postgres_url + "_b") as second:
        await first.execute(put("a", 1))
        assert await value(second, "a") is None
        assert not await alive(second, first.process)


async def test_many_that_begin_together_make_the_tables_once(postgres_url: str) -> None:
    found: list[Any] = []

    async def begin() -> None:
        async with open_postgres(postgres_url) as database:
            found.append(await database.execute(lambda: one("SELECT count(*) FROM schema_version")))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(begin)
    assert found == [[(1,)]] * 5


async def test_the_time_is_the_databases(postgres_url: str) -> None:
    def work() -> Work[tuple[float, float]]:
        now = yield Now()
        return now, (yield Query("SELECT extract(epoch FROM now())::float8"))[0][0]

    async with open_postgres(postgres_url) as database:
        now, began = await database.execute(work)
    assert began <= now < began + 5


# between processes


async def test_processes_hear_of_each_others_runs_and_not_of_their_own(postgres_url: str) -> None:
    async with counters(postgres_url) as first, counters(postgres_url) as second:

        def tell(run: str, fails: bool = False) -> Callable[[], Work[None]]:
            def work() -> Work[None]:
                yield Notify(run)
                if fails:
                    raise CodeModeError("invalid_input", "no")

            return work

        await first.execute(tell("mine"))
        with pytest.raises(CodeModeError):
            await second.execute(tell("undone", fails=True))
        await second.execute(tell("theirs"))
        with anyio.fail_after(20):
            assert await first.next_notification() == "theirs"
            assert await second.next_notification() == "mine"


async def test_a_process_is_alive_until_it_has_closed(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as first:
        async with open_postgres(postgres_url) as second:
            assert first.process != second.process
            assert second.is_alive()
            assert await alive(first, second.process)
            assert await alive(first, first.process)
        assert not second.is_alive()
        assert not await alive(first, second.process)


_CHILD = """
import sys, anyio
from codemode_mcp.stores.schema import Lease
from codemode_mcp.stores.postgres import open_postgres

async def main():
    async with open_postgres(sys.argv[1], lease=Lease(valid=1.0, every=0.25, margin=0.2)) as database:
        print(database.process, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_a_process_that_is_killed_is_dead_when_its_lease_has_run_out(postgres_url: str) -> None:
    async with await anyio.open_process([sys.executable, "-c", _CHILD, postgres_url], stdin=DEVNULL) as child:
        assert child.stdout is not None
        process = (await child.stdout.receive()).decode().strip()
        async with open_postgres(postgres_url) as database:
            assert await alive(database, process)
            child.kill()

            await until(lambda: dead(database, process))


async def test_a_process_that_is_cut_off_holds_nothing_before_others_take_it_for_dead(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is back changes nothing by its conditional writes."""

    def take(database: PostgresDatabase) -> Callable[[], Work[bool]]:
        def work() -> Work[bool]:
            (holder,) = (yield Query("SELECT holder FROM held WHERE id = 1", locks=True))[0]
            if holder is not None and (yield Alive(frozenset({holder}))):
                return False
            yield Query("UPDATE held SET holder = ?, token = token + 1 WHERE id = 1", (database.process,))
            return True

        return work

    async with relay(postgres.port) as wire, counters(postgres_url) as second:
        await second.execute(lambda: one("CREATE TABLE held (id BIGINT, holder TEXT, token BIGINT)"))
        await second.execute(lambda: one("INSERT INTO held VALUES (1, NULL, 0)"))
        through = postgres_url.replace(str(postgres.port), str(wire.port))
        async with open_postgres(through, lease=SHORT) as first:
            assert await first.execute(take(first))
            assert not await second.execute(take(second))
            assert first.is_alive()
            wire.silent = True
            # Not before: opening takes longer than this on a machine that is busy.
            monkeypatch.setattr("codemode_mcp.stores.postgres.CONNECT_TIMEOUT", 0.3)
            monkeypatch.setattr(first, "_timeout", 0.5)

            async def taken() -> bool:
                if await second.execute(take(second)):
                    assert not first.is_alive()
                    return True
                return False

            await until(taken)
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await first.execute(lambda: one("SELECT 1"))
            monkeypatch.undo()
            wire.silent = False
            with anyio.fail_after(10):
                assert await first.next_notification() is None
            assert first.is_alive()
            write = "UPDATE held SET token = 100 WHERE holder = ? AND token = ? RETURNING id"
            assert await first.execute(lambda: one(write, first.process, 1)) == []
            assert await second.execute(lambda: one(write, second.process, 2)) == [(1,)]


async def test_a_process_that_slept_past_its_lease_holds_nothing_until_it_has_renewed_it(postgres_url: str) -> None:
    now = 0.0
    async with open_postgres(postgres_url, lease=SHORT, clock=lambda: now) as database:
        assert database.is_alive()
        now += SHORT.valid - SHORT.margin
        assert not database.is_alive()
        with anyio.fail_after(10):
            assert await database.next_notification() is None
            await until(lambda: _held(database))


async def _held(database: PostgresDatabase) -> bool:
    return database.is_alive()


# a server that goes away


async def test_a_server_that_stops_is_missed_and_found_again(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url, lease=SHORT) as database:
        await database.execute(put("a", 1))
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            with anyio.fail_after(3), pytest.raises(StoreUnavailable, match="nothing listens there"):
                await value(database, "a")
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        assert await value(database, "a") == 1
        with anyio.fail_after(10):
            assert await database.next_notification() is None
        assert database.is_alive()


async def test_a_server_that_crashes_in_work_has_done_nothing(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url, lease=SHORT) as database:

        def work() -> Work[None]:
            yield from put("a", 1)()
            postgres.kill()
            yield Query("SELECT 1")

        try:
            with pytest.raises(StoreUnavailable):
                await database.execute(work)
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        assert await value(database, "a") is None


async def test_connections_that_an_operator_ends_are_made_again(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url, connections=2) as database:
        await database.execute(put("a", 1))
        assert await anyio.to_thread.run_sync(postgres.cut_off) >= 2
        assert await value(database, "a") == 1
        with anyio.fail_after(10):
            assert await database.next_notification() is None
        assert await alive(database, database.process)


async def test_a_server_that_hangs_delays_no_other(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url, timeout=0.4) as database:
        await database.execute(put("a", 1))
        with postgres.frozen():
            began = anyio.current_time()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=r"does not answer within 0\.4 s"):
                    await value(database, "a")
            assert anyio.current_time() - began < 3
        assert await value(database, "a") == 1


async def refused(url: str) -> StoreUnavailable:
    """Return why no database is opened."""
    with pytest.raises(StoreUnavailable) as raised:
        async with open_postgres(url):
            pass
    return raised.value


async def test_a_socket_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_mcp.stores.postgres.CONNECT_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute, anyio.fail_after(20):
        why = await refused(f"postgresql://ann:x@127.0.0.1:{mute.getsockname()[1]}/runs")
    assert "does not answer within 0.3 s" in why.message


async def test_the_next_host_is_asked_when_one_says_nothing_and_first_from_then_on(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other host has to answer within this time.
    monkeypatch.setattr("codemode_mcp.stores.postgres.CONNECT_TIMEOUT", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        here = f"@127.0.0.1:{postgres.port}"
        async with counters(postgres_url.replace(here, f"@127.0.0.1:{mute.getsockname()[1]},{here[1:]}")) as database:
            await database.execute(put("a", 0))
            asked = _accepted(mute)
            assert asked > 0
            for n in range(5):
                await database._expire_connections()
                await database.execute(put("a", n))
            assert await value(database, "a") == 4
            assert _accepted(mute) == 0, "the other host was asked first"


def _accepted(listener: socket.socket) -> int:
    """Accept the connections that wait, and return their number."""
    listener.setblocking(False)
    number = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            number += 1
    return number


@pytest.mark.parametrize(
    ("accident", "done"),
    [("cut", False), ("swallow", False), ("forward_then_cut", True), ("forward_then_swallow", True)],
)
async def test_a_commit_whose_answer_is_lost_is_looked_up(
    postgres: PostgresServer, postgres_url: str, accident: str, done: bool
) -> None:
    async with relay(postgres.port) as wire:
        through = postgres_url.replace(str(postgres.port), str(wire.port)) + "&sslmode=disable"
        async with counters(through, timeout=1.0) as database:
            await database.execute(put("a", 0))
            begun = 0

            def work() -> Work[int]:
                nonlocal begun
                begun += 1
                yield Query("SET LOCAL idle_in_transaction_session_timeout = 60000")
                return (yield from add("a"))

            wire.accident = accident, b"COMMIT\0"
            if done:
                assert await database.execute(work) == 1
            else:
                with pytest.raises(StoreUnavailable, match=r"connection was lost$"):
                    await database.execute(work)
            assert wire.accident is None
            assert begun == 1
            assert await value(database, "a") == (1 if done else 0)


async def test_a_caller_who_leaves_during_the_commit_is_told(postgres: PostgresServer, postgres_url: str) -> None:
    async with counters(postgres_url) as database:
        with anyio.CancelScope() as scope:

            def work() -> Work[str]:
                yield from put("a", 1)()
                return leave()

            def leave() -> str:
                return "done"

            commit = database._commit

            async def cancelled_then_commit(*arguments: Any) -> None:
                scope.cancel()
                await commit(*arguments)

            database._commit = cancelled_then_commit  # type: ignore[method-assign]
            done = await database.execute(work)
        assert done == "done"
        database._commit = commit  # type: ignore[method-assign]
        assert await value(database, "a") == 1


# what is said


def _said(error: BaseException) -> str:
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda url, password: url.replace(password, "s3cret-word"), "user name or the password"),
        (lambda url, password: url.replace("/postgres?", "/none?"), "no database with the name"),
        (lambda url, password: url.replace("//codemode:", "//ann:"), "user name or the password"),
        (lambda url, password: url + "&sslmode=require", "TLS"),
        (lambda url, password: url + "&sslmode=nonsense", "option of store.url"),
        (lambda url, password: url + "&sslrootcert=/none.pem&sslmode=verify-full", "does not exist"),
        (lambda url, password: url + "&target_session_attrs=standby", "target_session_attrs"),
        (lambda url, password: url + "&connect_timeout=3", "connect_timeout"),
        (lambda url, password: url.replace(password, password + "@"), "ambiguous"),
        (lambda url, password: url.replace("127.0.0.1", "no-such-host.invalid"), "host name in store.url is unknown"),
    ],
    ids=["password", "database", "user", "tls", "mode", "certificate", "standby", "option", "url", "host"],
)
async def test_messages_say_what_is_wrong_and_never_the_password(
    postgres: PostgresServer, postgres_url: str, change: Any, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = change(postgres_url, postgres.password)
    with caplog.at_level(logging.DEBUG):
        why = await refused(url)
    assert expected in why.message
    assert "127.0.0.1" not in why.message
    for secret in (postgres.password, "s3cret"):
        assert secret not in _said(why) + caplog.text


async def test_nothing_of_an_open_database_shows_the_password(
    postgres: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with counters(postgres_url, lease=SHORT) as database:
            assert database.name == f"127.0.0.1:{postgres.port}/postgres"
            shown = [repr(database), repr(database._server), repr(database._pool), database.name]
            await anyio.to_thread.run_sync(postgres.cut_off)
            with anyio.fail_after(10):
                assert await database.next_notification() is None
    assert "lost the connection" in caplog.text
    assert postgres.password not in " ".join(shown) + caplog.text


async def test_a_user_who_may_not_make_a_schema_is_told_so(postgres: PostgresServer, postgres_url: str) -> None:
    postgres.sql("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 'guest-word'")
    url = postgres_url.replace(f"codemode:{postgres.password}", "guest:guest-word")
    assert "let it create a schema" in (await refused(url)).message


async def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert re.search(r"install it with: .* 'asyncpg>=", (await refused("postgresql://ann:x@h/runs")).message)


async def test_work_of_a_process_that_has_closed_its_connections_is_refused(postgres_url: str) -> None:
    async with counters(postgres_url) as database:
        pass
    with pytest.raises(StoreUnavailable, match="is closing its connections"):
        await value(database, "a")
