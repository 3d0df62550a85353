"""PostgreSQL as a `Database`, by asyncpg, which the extra `postgres` brings.

Work is carried out at READ COMMITTED on a few connections of a pool. One more connection renews this process's lease
and listens for news; while it is lost the lease runs out, and it is sought again and again.
"""

from __future__ import annotations

import logging
import socket
import ssl
import uuid
from contextlib import asynccontextmanager, contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.installation import install_command
from codemode_mcp.stores.dialect import Address, BadAddress, address, numbered
from codemode_mcp.stores.lease import Lease, lease_clock
from codemode_mcp.stores.postgres_news import News
from codemode_mcp.stores.schema import migrate
from codemode_mcp.stores.work import Alive, Now, Query, Tell
from upstream_clients.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from codemode_mcp.stores.work import Asked, Work

log = logging.getLogger("codemode_mcp.stores")

Result = TypeVar("Result")

TIMEOUT = 5.0
"""Seconds that a piece of work may take, waiting for a connection included."""
CONNECT_TIMEOUT = 3.0
PREPARE_TIMEOUT = 30.0
"""Seconds to make the tables, or wait while another process does."""
GRACE = 2.0
"""Seconds more, to find out what has become of a transaction whose end was not answered."""
CONNECTIONS = 8
"""Most connections, besides the one that listens: commits that wait for the disk at the same time wait once."""
IDLE = 30.0
"""Seconds after which an unused connection is closed: some networks drop those that are silent."""
FORGOTTEN = 3600.0
"""Seconds after which the row of a dead process is deleted."""
OLDEST = 13
"""The major version that we need: earlier ones cannot say what became of a transaction."""

_AGAIN = frozenset(("40001", "40P01", "23505"))
"""Two transactions got in each other's way: a serialization failure, a deadlock, a row inserted twice."""
_LOST = frozenset(("57P01", "57P02", "57P05", "25P03"))
"""SQLSTATEs of a connection that was ended by an operator, a crash, or one of two timeouts."""
_ATTEMPTS = 10

_TIME = "extract(epoch FROM clock_timestamp())::float8"
_PROCESSES = "CREATE TABLE processes (process TEXT PRIMARY KEY, expires DOUBLE PRECISION NOT NULL)"
_RENEW = (
    f"INSERT INTO processes (process, expires) VALUES ($1, {_TIME} + $2) "
    "ON CONFLICT (process) DO UPDATE SET expires = excluded.expires"
)
_ALIVE = f"SELECT process FROM processes WHERE process = ANY($1::text[]) AND expires > {_TIME}"
_GIVE_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_xid IS NOT NULL"
_FORGET = f"DELETE FROM processes WHERE expires < {_TIME} - $1"

_REASONS = {
    "28P01": "it refuses the user name or the password of store.url",
    "28000": "it does not let this user in; look at store.url and at the server's pg_hba.conf",
    "3D000": "it has no database of the name in store.url; create it first",
    "42501": "the user of store.url may not do that; let it create a schema in this database, or own the schema",
    "3F000": "the user of store.url may not use the schema that is there; let it own the schema",
    "42P01": "the tables are not there any more; restore them, or start codemode-mcp again, which makes new ones",
    "53100": "its disk is full",
    "53300": "it has no connection left; raise its max_connections, or run fewer replicas",
    "57P03": "it is starting up or shutting down",
    "25006": "it is read-only; store.url must lead to the primary (target_session_attrs=read-write)",
    "55P03": "rows are locked by another session for too long",
    "57014": "a statement took too long",
    "22": "it does not take a value that it was given",
}
"""Messages by SQLSTATE, or its class."""


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    connections: int = CONNECTIONS,
    timeout: float = TIMEOUT,
    lease: Lease | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[PostgresDatabase]:
    """Yield the database, for the time inside; this process is alive to the others until then.

    Args:
        url: as libpq takes it; besides its options `schema`, of our tables, made when it is not there.
        timeout: seconds that a piece of work may take.
        clock: monotonic seconds, for the lease.

    Raises:
        StoreUnavailable: the driver is not installed, the URL is none, or the database does not answer or is not ours.
    """
    try:
        where = address(url)
    except BadAddress as bad:
        raise StoreUnavailable(f"store.url cannot be used: {bad}") from None
    server = _Server(_driver(), where, timeout)
    database = PostgresDatabase(server, connections, timeout, lease or Lease(), clock or lease_clock())
    try:
        await database.prepare()
        listening = await database.enlist()
        async with anyio.create_task_group() as group:
            group.start_soon(database.stay_enlisted, listening)
            try:
                yield database
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(GRACE, shield=True):
            await database.close()


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError:
        raise StoreUnavailable(
            f"the store postgres needs a package that is not installed; install it with: {install_command('postgres')}"
        ) from None
    return asyncpg


class PostgresDatabase:
    """A `Database` in PostgreSQL."""

    blob = "BYTEA"

    def __init__(
        self, server: _Server, connections: int, timeout: float, lease: Lease, clock: Callable[[], float]
    ) -> None:
        self.process = uuid.uuid4().hex
        self.name = server.name
        self._server = server
        self._pool = _Pool(server, connections)
        self._timeout = timeout
        self._lease = lease
        self._clock = clock
        self._news = News()

    def __repr__(self) -> str:
        return f"<PostgresDatabase {self.name}>"

    async def do(self, work: Callable[[], Work[Result]]) -> Result:
        """Implement `Database`. Cancelled, it either raises and nothing was changed, or returns the result."""
        return await self._do(work, self._timeout)

    async def _do(self, work: Callable[[], Work[Result]], seconds: float) -> Result:
        deadline = anyio.current_time() + seconds
        backoff = Backoff(base=0.005, cap=0.2)
        attempts = losses = 0
        while True:
            try:
                with anyio.fail_after(deadline - anyio.current_time()):
                    async with self._pool.connection() as connection:
                        return await self._carry_out(connection, work, deadline)
            except _Again as again:
                attempts += 1
                if again.lost:
                    # It led to a server that has gone, most likely, and so do the others; the next one is new.
                    losses += 1
                    self._pool.drain()
                if losses > 1 or attempts == _ATTEMPTS:
                    raise again.why from None
            except TimeoutError:
                self._pool.drain()
                raise self._server.unavailable(f"it does not answer within {seconds:g} s") from None
            await anyio.sleep(0 if losses else backoff.after_failure())

    def holds(self) -> bool:
        return self._lease.held(self._clock())

    async def news(self) -> str | None:
        return await self._news.next()

    async def prepare(self) -> None:
        """Make what is not there yet. Raises `StoreUnavailable`."""

        def work() -> Work[None]:
            # Two processes that begin at the same time would make the same things.
            yield Query("SELECT set_config(name, ?, true) FROM pg_settings WHERE name IN (?, ?)", limits)
            yield Query("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"codemode-mcp {schema}",))
            # IF NOT EXISTS asks for the right to create something even where that is there.
            if not (yield Query("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,))):
                yield Query(f'CREATE SCHEMA "{schema}"')
            if (yield Query("SELECT to_regclass('processes') IS NULL"))[0][0]:
                yield Query(_PROCESSES)
            yield from migrate(self.name, self.blob)

        schema = self._server.schema
        limits = (f"{PREPARE_TIMEOUT:g}s", "statement_timeout", "lock_timeout")
        await self._do(work, PREPARE_TIMEOUT)

    async def enlist(self) -> Any:
        """Return a connection that listens, and a lease. Raises `StoreUnavailable`."""
        connection = await self._server.connect()
        try:
            with self._server.within(CONNECT_TIMEOUT):
                await connection.add_listener(self._server.schema, self._heard)
            await self._renew(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def stay_enlisted(self, connection: Any) -> None:
        """Renew the lease for ever, on this connection and those that take its place."""
        backoff = Backoff(base=0.1, cap=2.0)
        while True:
            since = anyio.current_time()
            try:
                await self._renew_until_lost(connection)
            finally:
                connection.terminate()
            log.warning("lost the connection to the store at %s; trying again", self.name)
            self._pool.drain()
            delay = backoff.after_loss(anyio.current_time() - since)
            while True:
                await anyio.sleep(delay)
                try:
                    connection = await self.enlist()
                    break
                except StoreUnavailable as error:
                    log.debug("%s", error.detail)
                    delay = backoff.after_failure()
            log.info("the store at %s is there again", self.name)
            self._news.missed()

    async def close(self) -> None:
        """Others need not wait until the lease has run out."""
        self._lease = self._lease.ended()

        def leave() -> Work[None]:
            yield Query("DELETE FROM processes WHERE process = ?", (self.process,))

        try:
            if self._pool.used:
                with suppress(StoreUnavailable):
                    await self.do(leave)
        finally:
            await self._pool.close()

    # one piece of work

    async def _carry_out(self, connection: Any, work: Callable[[], Work[Result]], deadline: float) -> Result:
        going = work()
        answer: Any = None
        changes = False
        try:
            with self._server.reading_errors():
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            while True:
                try:
                    asked = going.send(answer)
                except StopIteration as done:
                    result: Result = done.value
                    break
                changes = changes or (isinstance(asked, Query) and not _only_reads(asked.sql))
                with self._server.reading_errors():
                    answer = await self._answer(connection, asked)
            transaction = None
            if changes:
                with self._server.reading_errors():
                    transaction = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
        except Exception:
            # What cannot be undone goes with its connection.
            with suppress(StoreUnavailable, _Again), self._server.reading_errors():
                await connection.execute("ROLLBACK")
            raise
        finally:
            going.close()
        # It must not be released now before its result is known.
        with anyio.CancelScope(shield=True):
            await self._commit(connection, transaction, deadline)
        return result

    async def _answer(self, connection: Any, asked: Asked) -> Any:
        match asked:
            case Query(sql, values, locks):
                rows = await connection.fetch(numbered(sql, locks), *values)
                return [tuple(_plain(found) if type(found) is Decimal else found for found in row) for row in rows]
            case Alive(processes):
                others = list(processes - {self.process})
                found = await connection.fetch(_ALIVE, others) if others else ()
                return {row[0] for row in found} | (processes & {self.process})
            case Tell(run):
                await connection.execute("SELECT pg_notify($1, $2)", self._server.schema, f"{self.process} {run}")
                return None
            case Now():
                return await connection.fetchval(f"SELECT {_TIME}")

    async def _commit(self, connection: Any, transaction: str | None, deadline: float) -> None:
        try:
            with self._server.reading_errors(), anyio.fail_after(max(deadline - anyio.current_time(), 1.0)):
                await connection.execute("COMMIT")
        except (_Again, StoreUnavailable, TimeoutError) as error:
            answered = not connection.is_closed() and not isinstance(error, TimeoutError)
            if transaction is None or (answered and not (isinstance(error, _Again) and error.lost)):
                raise
            backend = connection.get_server_pid()
            connection.terminate()
            if await self._became(transaction, backend) != "committed":
                raise self._server.unavailable("the connection was lost") from None

    async def _became(self, transaction: str, backend: int) -> str:
        """Return what a transaction has come to. Raises `StoreUnavailable` where that cannot be known.

        Args:
            backend: the server's process that has it, or had.
        """
        backoff = Backoff(base=0.02, cap=0.2)
        with anyio.move_on_after(GRACE):
            while True:
                with suppress(StoreUnavailable, _Again):
                    status = await self._status(transaction, backend)
                    if status in ("committed", "aborted"):
                        return status
                await anyio.sleep(backoff.after_failure())  # until the server is back, or has given it up
        raise self._server.unavailable(
            "the connection was lost, and it is not known whether what was last asked for was done", unsure=True
        )

    async def _status(self, transaction: str, backend: int) -> str:
        connection = await self._server.connect()
        try:
            with self._server.reading_errors():
                status = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction)
                if status == "in progress":
                    # It does not know yet that the connection is gone, and would wait for more.
                    await connection.execute(_GIVE_UP, backend)
                return str(status)
        finally:
            connection.terminate()

    # the lease

    async def _renew_until_lost(self, connection: Any) -> None:
        lost = anyio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        tidied = anyio.current_time()
        while True:
            with anyio.move_on_after(self._lease.every):
                await lost.wait()
            if lost.is_set() or connection.is_closed():
                return
            try:
                await self._renew(connection)
                if anyio.current_time() > tidied + FORGOTTEN / 60:
                    tidied = anyio.current_time()
                    with self._server.within(CONNECT_TIMEOUT):
                        await connection.execute(_FORGET, FORGOTTEN)
            except StoreUnavailable:
                return
            self._pool.close_idle()

    async def _renew(self, connection: Any) -> None:
        sent = self._clock()
        with self._server.within(self._lease.every):
            await connection.execute(_RENEW, self.process, self._lease.valid)
        if self._lease.sent is not None and not self._lease.held(sent):
            self._news.missed()  # others may have taken over what was this process's
        self._lease = self._lease.renewed(sent)

    def _heard(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        teller, _, run = payload.partition(" ")
        if run and teller != self.process:
            self._news.told(run)


def _plain(number: Decimal) -> int | float:
    """Return a sum, as SQLite gives it."""
    return int(number) if number == number.to_integral_value() else float(number)


def _only_reads(sql: str) -> bool:
    return sql.lstrip()[:6].upper() == "SELECT"


class _Again(Exception):
    """The work can be tried from its beginning.

    Attributes:
        why: what to raise where it has been tried often enough.
        lost: because the connection is gone.
    """

    def __init__(self, why: StoreUnavailable, lost: bool) -> None:
        super().__init__(why.message)
        self.why = why
        self.lost = lost


class _Server:
    """Makes connections, and reads what goes wrong with them."""

    def __init__(self, driver: Any, where: Address, timeout: float) -> None:
        self.name = where.name
        self.schema = where.schema
        self._driver = driver
        self._urls = list(where.urls())
        milliseconds = max(1, int(timeout * 1000))
        self._setup = (
            f'SET search_path TO "{where.schema}"; SET statement_timeout = {milliseconds}; '
            f"SET lock_timeout = {milliseconds}; SET idle_in_transaction_session_timeout = {milliseconds}; "
            "SET client_encoding = 'UTF8'; SET jit = off"
        )

    def __repr__(self) -> str:
        return f"<_Server {self.name}>"

    async def connect(self) -> Any:
        """Connect to the host that answered last, or the next one that does. Raises `StoreUnavailable`."""
        for url in tuple(self._urls):
            try:
                return await self._connect(url)
            except StoreUnavailable as error:
                why = error
                # A host that does not answer takes all the time that a piece of work has: it is not the first again.
                self._urls.append(self._urls.pop(self._urls.index(url)))
        raise why

    async def _connect(self, url: str) -> Any:
        connection = None
        try:
            with self.within(CONNECT_TIMEOUT):
                connection = await self._driver.connect(url, timeout=CONNECT_TIMEOUT + 1)
                await connection.execute(self._setup)
        except BaseException:
            if connection is not None:
                connection.terminate()
            raise
        if connection.get_server_version()[0] < OLDEST:
            connection.terminate()
            raise self.unavailable(f"it is older than PostgreSQL {OLDEST}")
        return connection

    def unavailable(self, reason: str, *, unsure: bool = False) -> StoreUnavailable:
        message = f"the store{{at}} cannot be used now: {reason}"
        return StoreUnavailable(message, at=f", PostgreSQL at {self.name},", unsure=unsure)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Yield the same, once and for so long. Raises `StoreUnavailable`."""
        try:
            with self.reading_errors(), anyio.fail_after(seconds):
                yield
        except TimeoutError:
            raise self.unavailable(f"it does not answer within {seconds:g} s") from None
        except _Again as again:
            raise again.why from None

    @contextmanager
    def reading_errors(self) -> Iterator[None]:
        """Yield what the driver raises, as what is said of it: its own words hold statements, values and more.

        Raises:
            StoreUnavailable: it will not do.
            _Again: it may, from the beginning.
            TimeoutError: as it is.
        """
        driver = self._driver
        try:
            yield
        except (TimeoutError, StoreUnavailable):
            raise
        except ssl.SSLError:
            raise self.unavailable("no TLS connection to it can be made as store.url says (sslmode, ...)") from None
        except driver.InvalidCachedStatementError:
            raise _Again(self.unavailable("its tables have been changed"), lost=True) from None
        except driver.PostgresError as error:
            state = str(getattr(error, "sqlstate", None) or "")
            if state in _AGAIN:
                raise _Again(self.unavailable("there are too many transactions at the same time"), lost=False) from None
            if state[:2] == "08" or state in _LOST:
                raise _Again(self.unavailable("the connection was lost"), lost=True) from None
            reason = _REASONS.get(state) or _REASONS.get(state[:2])
            raise self.unavailable(reason or f"it answers with the error {state}; its log says more") from None
        except driver.ClientConfigurationError:
            raise self.unavailable("an option of store.url, or a file that it names, is not as it has to be") from None
        except (driver.InterfaceError, ValueError) as error:
            if isinstance(error, ValueError):
                raise self.unavailable("it does not take a value that it was given") from None
            raise _Again(self.unavailable("the connection was lost"), lost=True) from None
        except driver.TargetServerAttributeNotMatched:
            raise self.unavailable("no host of store.url is as its target_session_attrs says") from None
        except ConnectionRefusedError:
            raise self.unavailable("nothing listens there; start PostgreSQL, or correct store.url") from None
        except FileNotFoundError:
            raise self.unavailable("a file that store.url names, or its socket, is not there") from None
        except socket.gaierror:
            why = "no machine of that name is known; correct store.url, or see to name resolution"
            raise _Again(self.unavailable(why), lost=True) from None
        except OSError as error:
            if type(error) is ConnectionError:  # the driver's own
                raise self.unavailable("it takes no TLS connections, and store.url (sslmode) wants one") from None
            raise _Again(self.unavailable(f"it cannot be reached ({type(error).__name__})"), lost=True) from None
        except Exception as error:
            raise _Again(self.unavailable(f"the connection was lost ({type(error).__name__})"), lost=True) from None


class _Pool:
    """A few connections, made when they are needed, the one used last first."""

    def __init__(self, server: _Server, size: int) -> None:
        self.used = False
        self._server = server
        self._free = anyio.Semaphore(size, fast_acquire=True)
        self._idle: list[tuple[Any, float]] = []
        self._epoch = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Raises `StoreUnavailable`."""
        async with self._free:
            epoch = self._epoch
            connection = self._take() or await self._server.connect()
            self.used = True
            try:
                yield connection
            except Exception:
                raise
            except BaseException:
                connection.terminate()  # cancelled while it was answering
                raise
            finally:
                # A busy connection is closed, and its transaction ends with it.
                if connection.is_closed() or connection.is_in_transaction() or epoch != self._epoch:
                    connection.terminate()
                else:
                    self._idle.append((connection, anyio.current_time()))

    def drain(self) -> None:
        """Use none of those there are again."""
        self._epoch += 1
        while self._idle:
            self._idle.pop()[0].terminate()

    def close_idle(self) -> None:
        before = anyio.current_time() - IDLE
        while self._idle and self._idle[0][1] < before:
            self._idle.pop(0)[0].terminate()

    async def close(self) -> None:
        try:
            while self._idle:
                connection, _ = self._idle.pop()
                with suppress(Exception):
                    await connection.close(timeout=1)
        finally:
            self.drain()

    def _take(self) -> Any:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            connection.terminate()
        return None
