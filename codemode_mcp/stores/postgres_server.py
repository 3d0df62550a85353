"""Connections to a PostgreSQL server, and the driver's errors as `StoreUnavailable`."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.base.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.stores.schema import Address


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
