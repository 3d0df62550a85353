"""PostgreSQL as a `Database`, through asyncpg, which the extra `postgres` installs.

Work runs at READ COMMITTED on the connections of asyncpg's pool. One more connection renews the lease of this process
and receives notifications. If it is lost, this process tries to connect again until it succeeds. Meanwhile the lease
may run out.

Three details of the pool are handled in `_connection`, `_run_transaction` and `Server.create_pool`:

- A connection is returned in a shielded scope: after COMMIT, a cancelled caller must still get its result.
- A connection whose state is unknown (cancelled while it was answering, in a transaction, older than the last failure)
  is terminated before it is returned. Otherwise the pool would wait for the server's answer.
- Once a connection is lost, the pool takes it back, and then its proxy answers nothing, not even `is_closed`. So the
  process id of its backend is read when the work begins.

The hard case is a COMMIT without an answer. The server may have made the change or not, and only the server knows. So
the transaction reads its own id before COMMIT, if it has changed anything. If the answer is lost, another connection
asks for the status of this id (`_find_end`). If the server does not answer in time, the error says `unsure`.

The module is long because transactions, the pool and the lease all depend on what is known after a lost connection.
"""

from __future__ import annotations

import logging
import socket
import ssl
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import anyio

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.installation import install_command
from codemode_mcp.stores.schema import Address, BadAddress, Lease, address, lease_clock, migrate, numbered, plain_value
from codemode_mcp.stores.work import Alive, Notify, Now, Query, Request, Work
from upstream_clients.backoff import Backoff

log = logging.getLogger("codemode_mcp.stores")

Result = TypeVar("Result")

TIMEOUT = 5.0
"""Seconds that a piece of work may take, including the wait for a connection."""
PREPARE_TIMEOUT = 30.0
"""Seconds to create the tables, or to wait until another process has created them."""
GRACE = 2.0
"""Additional seconds to find out how a transaction has ended whose COMMIT was not answered."""
CONNECTIONS = 8
"""Maximum number of pooled connections. Transactions that commit at the same time share one flush of the disk."""
IDLE_SECONDS = 30.0
"""Seconds after which an unused connection is closed, because some networks drop silent connections."""
FORGOTTEN_SECONDS = 3600.0
"""Seconds after which the row of a dead process is deleted."""

_MAX_ATTEMPTS = 10
"""Maximum number of attempts of a piece of work that conflicts with others."""

_TIME = "extract(epoch FROM clock_timestamp())::float8"
_PROCESSES = "CREATE TABLE processes (process TEXT PRIMARY KEY, expires DOUBLE PRECISION NOT NULL)"
_RENEW = (
    f"INSERT INTO processes (process, expires) VALUES ($1, {_TIME} + $2) "
    "ON CONFLICT (process) DO UPDATE SET expires = excluded.expires"
)
_ALIVE = f"SELECT process FROM processes WHERE process = ANY($1::text[]) AND expires > {_TIME}"
# Our transaction has an id. A process of the server without one serves another session by now.
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_xid IS NOT NULL"
_DELETE_DEAD = f"DELETE FROM processes WHERE expires < {_TIME} - $1"


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    connections: int = CONNECTIONS,
    timeout: float = TIMEOUT,
    lease: Lease | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[PostgresDatabase]:
    """Open the database for the duration of the context. During it, other processes consider this one alive.

    Args:
        url: a URL of libpq, with one more option `schema`: the schema of our tables, created when missing.
        timeout: seconds that a piece of work may take.
        clock: monotonic seconds, for the lease.

    Raises:
        StoreUnavailable: the driver is not installed, the URL is not valid, or the database does not answer or cannot
            be used.
    """
    try:
        parsed = address(url)
    except BadAddress as bad:
        raise StoreUnavailable(f"store.url cannot be used: {bad}") from None
    server = Server(_driver(), parsed, timeout)
    pool = await server.create_pool(connections, IDLE_SECONDS)
    database = PostgresDatabase(server, pool, timeout, lease or Lease(), clock or lease_clock())
    try:
        await database.prepare()
        listening = await database.connect_lease()
        async with anyio.create_task_group() as group:
            group.start_soon(database.renew_lease, listening)
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

    def __init__(self, server: Server, pool: Any, timeout: float, lease: Lease, clock: Callable[[], float]) -> None:
        self.process = uuid.uuid4().hex
        self.name = server.name
        self._server = server
        self._pool = pool
        self._failures = 0
        """Number of times that all connections of the pool were given up."""
        self._timeout = timeout
        self._lease = lease
        self._clock = clock
        self._notifications = Notifications()

    def __repr__(self) -> str:
        return f"<PostgresDatabase {self.name}>"

    async def execute(self, work: Callable[[], Work[Result]]) -> Result:
        """Implement `Database`. If cancelled, either raise without a change, or return the result."""
        return await self._execute(work, self._timeout)

    async def _execute(self, work: Callable[[], Work[Result]], seconds: float) -> Result:
        deadline = anyio.current_time() + seconds
        backoff = Backoff(base=0.005, cap=0.2)
        attempts = losses = 0
        while True:
            try:
                with anyio.fail_after(deadline - anyio.current_time()):
                    async with self._connection() as connection:
                        return await self._run_transaction(connection, work, deadline)
            except Retry as retry:
                attempts += 1
                if retry.lost:
                    # Most likely the server was restarted or the network failed, so the other connections are lost,
                    # too. One more attempt is made, with a new connection.
                    losses += 1
                    await self._expire_connections()
                if losses > 1 or attempts == _MAX_ATTEMPTS:
                    raise retry.error from None
            except TimeoutError:
                await self._expire_connections()
                raise self._server.unavailable(f"the server does not answer within {seconds:g} s") from None
            await anyio.sleep(0 if losses else backoff.after_failure())

    def is_alive(self) -> bool:
        return self._lease.held(self._clock())

    async def next_notification(self) -> str | None:
        return await self._notifications.next()

    async def prepare(self) -> None:
        """Create the schema and the tables that are missing. Raises `StoreUnavailable`."""

        def work() -> Work[None]:
            yield Query("SELECT set_config(name, ?, true) FROM pg_settings WHERE name IN (?, ?)", limits)
            # The lock lets only one process create the tables if several start at the same time.
            yield Query("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"codemode-mcp {schema}",))
            # CREATE ... IF NOT EXISTS needs the permission to create even if the object exists.
            if not (yield Query("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,))):
                yield Query(f'CREATE SCHEMA "{schema}"')
            if (yield Query("SELECT to_regclass('processes') IS NULL"))[0][0]:
                yield Query(_PROCESSES)
            yield from migrate(self.name, self.blob)

        schema = self._server.schema
        limits = (f"{PREPARE_TIMEOUT:g}s", "statement_timeout", "lock_timeout")
        await self._execute(work, PREPARE_TIMEOUT)

    async def connect_lease(self) -> Any:
        """Return a new connection that listens for notifications, after renewing the lease with it.

        Raises:
            StoreUnavailable: the server does not answer.
        """
        connection = await self._server.listen(self._on_notification)
        try:
            await self._renew(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def renew_lease(self, connection: Any) -> None:
        """Renew the lease until cancelled, on this connection. If it is lost, replace it."""
        backoff = Backoff(base=0.1, cap=2.0)
        while True:
            since = anyio.current_time()
            try:
                await self._renew_until_lost(connection)
            finally:
                connection.terminate()
            log.warning("lost the connection to the store at %s; trying again", self.name)
            await self._expire_connections()
            delay = backoff.after_loss(anyio.current_time() - since)
            while True:
                await anyio.sleep(delay)
                try:
                    connection = await self.connect_lease()
                    break
                except StoreUnavailable as error:
                    log.debug("%s", error.detail)
                    delay = backoff.after_failure()
            log.info("the store at %s is available again", self.name)
            # The server sends a notification once, to the connections that listen then.
            self._notifications.mark_lost()

    async def close(self) -> None:
        """End the lease, so that others need not wait until it runs out, and close all connections."""
        # First here, then in the database: this process must stop before others may take over.
        had_lease, self._lease = self._lease.sent is not None, self._lease.ended()

        def leave() -> Work[None]:
            yield Query("DELETE FROM processes WHERE process = ?", (self.process,))

        try:
            if had_lease:
                with suppress(StoreUnavailable):
                    await self.execute(leave)
        finally:
            await self._pool.close()

    # one piece of work

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool.is_closing():
            raise self._server.unavailable("this process is closing its connections")
        connection = await self._pool.acquire()
        failures, cancelled = self._failures, True
        try:
            yield connection
            cancelled = False
        except Exception:
            cancelled = False
            raise
        finally:
            # See the top of the module. A connection that is older than the last failure may be dead, too.
            if not _is_closed(connection) and (
                cancelled or failures != self._failures or connection.is_in_transaction()
            ):
                connection.terminate()
            with anyio.CancelScope(shield=True):
                await self._pool.release(connection)

    async def _expire_connections(self) -> None:
        """Let the pool replace all connections that it has now."""
        self._failures += 1
        await self._pool.expire_connections()

    async def _run_transaction(self, connection: Any, work: Callable[[], Work[Result]], deadline: float) -> Result:
        backend = connection.get_server_pid()
        running = work()
        answer: Any = None
        changes = False
        try:
            with self._server.mapping_errors():
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            while True:
                try:
                    request = running.send(answer)
                except StopIteration as end:
                    result: Result = end.value
                    break
                changes = changes or (isinstance(request, Query) and not _only_reads(request.sql))
                with self._server.mapping_errors():
                    answer = await self._answer(connection, request)
            transaction = None
            if changes:
                # To ask how it ended, if COMMIT is not answered. A transaction that only reads has no id.
                with self._server.mapping_errors():
                    transaction = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
        except Exception:
            # If the ROLLBACK fails too, `_connection` terminates the connection, which ends the transaction.
            with suppress(StoreUnavailable, Retry), self._server.mapping_errors():
                await connection.execute("ROLLBACK")
            raise
        finally:
            running.close()
        # A cancelled caller must still learn whether its change was made, so COMMIT is not cancelled.
        with anyio.CancelScope(shield=True):
            await self._commit(connection, backend, transaction, deadline)
        return result

    async def _answer(self, connection: Any, request: Request) -> Any:
        match request:
            case Query(sql, values, locks):
                rows = await connection.fetch(numbered(sql, locks), *values)
                return [tuple(map(plain_value, row)) for row in rows]
            case Alive(processes):
                others = list(processes - {self.process})
                found = await connection.fetch(_ALIVE, others) if others else ()
                return {row[0] for row in found} | (processes & {self.process})
            case Notify(run):
                await connection.execute("SELECT pg_notify($1, $2)", self._server.schema, f"{self.process} {run}")
                return None
            case Now():
                return await connection.fetchval(f"SELECT {_TIME}")

    async def _commit(self, connection: Any, backend: int, transaction: str | None, deadline: float) -> None:
        try:
            with self._server.mapping_errors(), anyio.fail_after(max(deadline - anyio.current_time(), 1.0)):
                await connection.execute("COMMIT")
        except (Retry, StoreUnavailable, TimeoutError) as error:
            answered = not isinstance(error, TimeoutError) and not _is_closed(connection)
            # With an answer, or without a change, it is certain that nothing was changed.
            if transaction is None or (answered and not (isinstance(error, Retry) and error.lost)):
                raise
            if not _is_closed(connection):
                connection.terminate()
            if await self._find_end(transaction, backend) != "committed":
                raise self._server.unavailable("the connection was lost") from None

    async def _find_end(self, transaction: str, backend: int) -> str:
        """Return how a transaction has ended: "committed" or "aborted".

        Args:
            backend: the process id of the server's process that runs the transaction, or has run it.

        Raises:
            StoreUnavailable: the server does not answer within `GRACE` seconds. The error is `unsure`.
        """
        backoff = Backoff(base=0.02, cap=0.2)
        with anyio.move_on_after(GRACE):
            while True:
                with suppress(StoreUnavailable, Retry):
                    status = await self._status(transaction, backend)
                    if status in ("committed", "aborted"):
                        return status
                await anyio.sleep(backoff.after_failure())  # the server is away, or is still ending the transaction
        raise self._server.unavailable(
            "the connection was lost, and it is not known whether the last change was made", unsure=True
        )

    async def _status(self, transaction: str, backend: int) -> str:
        connection = await self._server.connect()
        try:
            with self._server.mapping_errors():
                status = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction)
                if status == "in progress":
                    # The server has not noticed yet that the connection is lost, and waits for the next statement.
                    # Ending its process rolls the transaction back.
                    await connection.execute(_TERMINATE, backend)
                return str(status)
        finally:
            connection.terminate()

    # the lease

    async def _renew_until_lost(self, connection: Any) -> None:
        lost = anyio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        cleaned = anyio.current_time()
        while True:
            with anyio.move_on_after(self._lease.every):
                await lost.wait()
            if lost.is_set() or connection.is_closed():
                return
            try:
                await self._renew(connection)
                if anyio.current_time() > cleaned + FORGOTTEN_SECONDS / 60:
                    cleaned = anyio.current_time()
                    with self._server.within(CONNECT_TIMEOUT):
                        await connection.execute(_DELETE_DEAD, FORGOTTEN_SECONDS)
            except StoreUnavailable:
                return

    async def _renew(self, connection: Any) -> None:
        # Taken before the statement: see `Lease`.
        sent = self._clock()
        with self._server.within(self._lease.every):
            await connection.execute(_RENEW, self.process, self._lease.valid)
        if self._lease.sent is not None and not self._lease.held(sent):
            # The lease had run out, so others may have taken over runs of this process without a notification.
            self._notifications.mark_lost()
        self._lease = self._lease.renewed(sent)

    def _on_notification(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        sender, _, run = payload.partition(" ")
        if run and sender != self.process:
            self._notifications.add(run)


def _is_closed(connection: Any) -> bool:
    """Return True if a connection of the pool was lost or terminated. Its proxy may have no connection then."""
    try:
        return bool(connection.is_closed())
    except Exception:
        return True


def _only_reads(sql: str) -> bool:
    return sql.lstrip()[:6].upper() == "SELECT"


# Connections to a PostgreSQL server, and the driver's errors as `StoreUnavailable`.


CONNECT_TIMEOUT = 3.0
"""Seconds to connect to one host, or for one statement outside a transaction."""

MIN_VERSION = 13
"""Oldest supported major version. Older versions lack `pg_xact_status`, which tells how a transaction has ended."""

_CONFLICTS = frozenset(("40001", "40P01", "23505"))
"""SQLSTATEs of conflicts between transactions: a serialization failure, a deadlock, a row inserted twice."""

_LOST = frozenset(("57P01", "57P02", "57P05", "25P03"))
"""SQLSTATEs of a connection that was ended by an operator, a crash, or a timeout of the server."""

_REASONS = {
    "28P01": "the server refuses the user name or the password of store.url",
    "28000": "the server rejects this user; check store.url and the server's pg_hba.conf",
    "3D000": "the server has no database with the name in store.url; create it first",
    "42501": "the user of store.url lacks a permission; let it create a schema in this database, or own the schema",
    "3F000": "the user of store.url may not use the existing schema; let it own the schema",
    "42P01": "the tables were removed; restore them, or start codemode-mcp again, which creates new ones",
    "53100": "the disk of the server is full",
    "53300": "the server has no free connection; raise its max_connections, or run fewer replicas",
    "57P03": "the server is starting up or shutting down",
    "25006": "the server is read-only; store.url must name the primary (target_session_attrs=read-write)",
    "55P03": "another session has locked the rows for too long",
    "57014": "a statement took too long",
    "22": "the server rejects a value of a statement",
}
"""Messages by SQLSTATE, or by class of SQLSTATE (its first two characters)."""


class Retry(Exception):
    """A failure after which the work can be tried again from its beginning.

    Attributes:
        error: the error to raise if no attempt is left.
        lost: True if the connection was lost.
    """

    def __init__(self, error: StoreUnavailable, *, lost: bool) -> None:
        super().__init__(error.message)
        self.error = error
        self.lost = lost


class Server:
    """The hosts of one URL, with connections to them. The driver's errors are mapped to `StoreUnavailable`."""

    def __init__(self, driver: Any, address: Address, timeout: float) -> None:
        self.name = address.name
        self.schema = address.schema
        self._driver = driver
        self._urls = list(address.urls())
        milliseconds = max(1, int(timeout * 1000))
        self._setup = (
            f'SET search_path TO "{address.schema}"; SET statement_timeout = {milliseconds}; '
            f"SET lock_timeout = {milliseconds}; SET idle_in_transaction_session_timeout = {milliseconds}; "
            "SET client_encoding = 'UTF8'; SET jit = off"
        )

    def __repr__(self) -> str:
        return f"<Server {self.name}>"

    def create_pool(self, connections: int, idle_seconds: float) -> Any:
        """Return a pool of the driver, which must be awaited. It connects when a connection is first needed.

        Its `acquire` raises the errors of `connect`.
        """

        async def connect(*_: Any, **__: Any) -> Any:
            return await self.connect()

        async def reset(_: Any) -> None:
            # The default, RESET ALL, costs a round trip and undoes the settings of the connection.
            return None

        return self._driver.create_pool(
            connect=connect,
            reset=reset,
            min_size=0,
            max_size=connections,
            max_inactive_connection_lifetime=idle_seconds,
        )

    async def connect(self) -> Any:
        """Connect to the host that answered last, or else to the first other one that answers.

        Raises:
            StoreUnavailable: no host answers. The reason is that of the last host.
        """
        for url in tuple(self._urls):
            try:
                return await self._connect(url)
            except StoreUnavailable as error:
                last = error
                # A silent host uses up the time of a piece of work, so the next one begins with another host.
                self._urls.append(self._urls.pop(self._urls.index(url)))
        raise last

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
        if connection.get_server_version()[0] < MIN_VERSION:
            connection.terminate()
            raise self.unavailable(f"the server is older than PostgreSQL {MIN_VERSION}")
        return connection

    async def listen(self, on_notification: Callable[[Any, int, str, str], None]) -> Any:
        """Return a new connection that listens on the channel of the schema. Raises `StoreUnavailable`."""
        connection = await self.connect()
        try:
            with self.within(CONNECT_TIMEOUT):
                await connection.add_listener(self.schema, on_notification)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def unavailable(self, reason: str, *, unsure: bool = False) -> StoreUnavailable:
        """Return the error for a server that cannot be used.

        Args:
            unsure: True if the last change may have been made.
        """
        message = f"the store{{at}} cannot be used now: {reason}"
        return StoreUnavailable(message, at=f", PostgreSQL at {self.name},", unsure=unsure)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the time of a statement outside a transaction. Map all its errors to `StoreUnavailable`."""
        try:
            with self.mapping_errors(), anyio.fail_after(seconds):
                yield
        except TimeoutError:
            raise self.unavailable(f"the server does not answer within {seconds:g} s") from None
        except Retry as retry:
            raise retry.error from None

    @contextmanager
    def mapping_errors(self) -> Iterator[None]:
        """Replace errors of the driver, because their texts contain statements and values.

        Raises:
            StoreUnavailable: another attempt will not help.
            Retry: another attempt, from the beginning of the work, may help.
            TimeoutError: unchanged.
        """
        try:
            yield
        except (TimeoutError, StoreUnavailable):
            raise
        except Exception as error:
            raise self._mapped(error) from None

    def _mapped(self, error: Exception) -> Exception:
        driver = self._driver
        reason = f"the connection was lost ({type(error).__name__})"
        match error:
            case ssl.SSLError():
                return self.unavailable("a TLS connection with the options of store.url (sslmode, ...) failed")
            case driver.InvalidCachedStatementError():
                reason = "the tables were changed"
            case driver.PostgresError():
                state = str(getattr(error, "sqlstate", None) or "")
                if state in _CONFLICTS:
                    conflict = self.unavailable("too many transactions change the same rows at the same time")
                    return Retry(conflict, lost=False)
                if state[:2] != "08" and state not in _LOST:
                    known = _REASONS.get(state) or _REASONS.get(state[:2])
                    return self.unavailable(known or f"the server reports error {state}; its log has the details")
                reason = "the connection was lost"
            case driver.ClientConfigurationError():
                return self.unavailable("an option of store.url, or a file that it names, is not valid")
            case ValueError():
                return self.unavailable(_REASONS["22"])
            case driver.InterfaceError():
                reason = "the connection was lost"
            case driver.TargetServerAttributeNotMatched():
                return self.unavailable("no host of store.url has the role that target_session_attrs requires")
            case ConnectionRefusedError():
                return self.unavailable("nothing listens there; start PostgreSQL, or correct store.url")
            case FileNotFoundError():
                return self.unavailable("a file that store.url names, or the server's socket, does not exist")
            case socket.gaierror():
                reason = "the host name in store.url is unknown; correct it, or check name resolution"
            case OSError():
                if type(error) is ConnectionError:  # raised by the driver itself
                    return self.unavailable("the server has no TLS, but store.url requires it (sslmode)")
                reason = f"the server cannot be reached ({type(error).__name__})"
        return Retry(self.unavailable(reason), lost=True)


MAX_QUEUED = 10_000
"""Maximum number of ids in the queue. Beyond it, the reader checks all runs instead."""


class Notifications:
    """Queue of the ids of runs that other processes have changed."""

    def __init__(self) -> None:
        self._runs: deque[str] = deque()
        self._lost = False
        self._changed = anyio.Event()

    def add(self, run: str) -> None:
        if len(self._runs) >= MAX_QUEUED:
            self.mark_lost()
        elif not self._lost:
            self._runs.append(run)
        self._changed.set()

    def mark_lost(self) -> None:
        """Record that notifications may have been lost. The reader then has to check all runs."""
        self._lost = True
        self._runs.clear()
        self._changed.set()

    async def next(self) -> str | None:
        """Wait for the next id, or None if some may have been lost."""
        while not (self._lost or self._runs):
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._lost:
            self._lost = False
            return None
        return self._runs.popleft()
