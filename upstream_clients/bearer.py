"""The token for each request to one server. It is renewed in time, and shared with other processes.

No person is asked here. Without a valid login, there is no token.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from upstream_clients.errors import LoginError, LoginRefused, StoreError
from upstream_clients.token_store import Login, LoginStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.token_store import Stamp

logger = logging.getLogger(__name__)

RENEW_EARLY = 30.0
"""Seconds before its expiry that a token is renewed."""

RENEW_TIMEOUT = 10.0
CLOSING_TIMEOUT = 2.0
"""Seconds for a renewal in flight after its caller was cancelled: its answer may have the only valid token."""

STORE_TIMEOUT = 20.0
"""Seconds for the keyring, which may wait for a person to unlock it."""

RETRY_AFTER = 5.0
"""Seconds between a failed renewal and the next attempt."""

T = TypeVar("T")


class Bearer:
    """The login of one connection, for all its requests."""

    def __init__(
        self, spec: UpstreamSpec, store: LoginStore | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """`now`: seconds since the epoch."""
        self._spec = spec
        self._store = store or LoginStore(spec)
        self._now = now
        # The mutable state.
        self._lock = anyio.Lock()
        self._login: Login | None = None
        self._stamp: Stamp = None
        self._failure: tuple[float, str] | None = None
        """Time and reason of the last failed renewal."""

    @property
    def stamp(self) -> Stamp:
        """The stamp of the login of the latest request."""
        return self._stamp

    async def token(self) -> str | None:
        """Return the current token; None without a login. Raises `LoginError` if the login cannot be used now."""
        if self._store.stamp() != self._stamp:  # there is a new login, perhaps from another process
            async with self._lock:
                await self._read()
        login = self._login
        if login is None or login.access_token is None:
            return None
        if login.expires_at is None or self._now() < login.expires_at - RENEW_EARLY or login.refresh_token is None:
            return login.access_token
        try:
            return await self.renew_token(login.access_token)
        except LoginError:
            # The renewal began before the expiry, so the old token may still be valid.
            if self._now() < login.expires_at:
                return login.access_token
            raise

    async def renew_token(self, rejected: str) -> str | None:
        """Return a token other than `rejected`; None if a person has to log in.

        Raises:
            LoginError: the renewal failed; a later attempt may succeed.
        """
        async with self._lock:
            if self._failure is not None and self._now() - self._failure[0] < RETRY_AFTER:
                raise LoginError(self._failure[1])
            outcome: list[Login | LoginError | None] = []
            over = anyio.Event()
            # A server that rotates refresh tokens has made the old ones invalid when it answers. If a cancelled caller
            # also cancelled the renewal, the new tokens would be lost, and a person would have to log in again.
            guard = anyio.CancelScope(shield=True)

            async def work() -> None:
                with guard:
                    try:
                        outcome.append(await self._renew(rejected))
                    except LoginError as error:
                        outcome.append(error)
                over.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                try:
                    await over.wait()
                except anyio.get_cancelled_exc_class():
                    guard.deadline = anyio.current_time() + CLOSING_TIMEOUT
                    raise
            match outcome:
                case [LoginError() as error]:
                    self._failure = (self._now(), str(error))
                    raise error
                case [Login(access_token=str() as token)]:
                    return token
                case _:
                    return None

    async def request_scope(self, scope: str) -> None:
        """Store a scope that the server requires and the login does not have. The next login requests it."""
        async with self._lock, self._store.locked():
            await self._read()
            if self._login is not None:
                wanted = " ".join(dict.fromkeys([*(self._login.wanted or "").split(), *scope.split()]))
                if wanted != self._login.wanted:
                    await self._write(replace(self._login, wanted=wanted))

    async def _renew(self, rejected: str) -> Login | None:
        # A refresh token may be used once. So one process renews at a time, and reads the login after it has the lock.
        async with self._store.locked():
            await self._read()
            login = self._login
            if login is None or login.access_token != rejected:
                return login  # another process has renewed it
            if login.refresh_token is None:
                return None
            from upstream_clients import oauth

            try:
                renewed = await oauth.renew(self._spec, login, timeout=RENEW_TIMEOUT)
            except LoginRefused as error:
                logger.warning("the login to server %r has ended: %s", self._spec.name, error)
                await self._write(replace(login, access_token=None, refresh_token=None))
                return None
            await self._write(renewed)
            return renewed

    async def _read(self) -> None:
        # Taken before the login is loaded: if the login changes in between, the next request reads it again.
        stamp = self._store.stamp()
        login = await _in_thread(self._store.load)
        if login is not None:
            self._spec.learn(login.secrets)
        self._login, self._stamp, self._failure = login, stamp, None

    async def _write(self, login: Login) -> None:
        self._spec.learn(login.secrets)
        self._login = login
        await _in_thread(partial(self._store.save, login))
        self._stamp = self._store.stamp()


async def _in_thread(function: Callable[[], T]) -> T:
    # The keyring may wait for a person for any time, so the thread is left alone after the timeout.
    try:
        with anyio.fail_after(STORE_TIMEOUT):
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
    except TimeoutError:
        raise StoreError(f"the keyring did not answer within {STORE_TIMEOUT:g} s; unlock it") from None
