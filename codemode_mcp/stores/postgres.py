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
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.installation import install_command
from codemode_mcp.stores.postgres_server import CONNECT_TIMEOUT, Notifications, Retry, Server
from codemode_mcp.stores.schema import BadAddress, Lease, address, lease_clock, migrate, numbered, plain_value
from codemode_mcp.stores.work import Alive, Notify, Now, Query
from upstream_clients.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from codemode_mcp.stores.work import Request, Work

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
        """Take a connection from the pool for the duration of the context. Raises `StoreUnavailable`."""
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
