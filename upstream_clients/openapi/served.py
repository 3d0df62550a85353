"""The API that is served, and its document, which is read again when it may have changed.

A document at a URL is read again by the first `tools/list` after `spec.refresh_seconds`. The answer tells the
client when to ask again. A document that is a file belongs to the watched files of the configuration. If it changes,
the list is requested again (`ReportedState.note_document`), and each `tools/list` reads it.

Calls are made by the document whose list the client uses, and not by the newest one. The client decides about each call
by its list, and what a rule or a pin admits by the old definition must not be sent by the new one. So `tools/list` only
prepares a changed document. `use_list` puts it in use, in the step of the event loop in which the client begins to use
the list. A list that was given up is never used. Calls in flight end by the document by which they were sent.

If the document cannot be read, or is not usable, the one before stays in use. The client gets its list with a problem.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread
import httpx2

from upstream_clients.backoff import Backoff
from upstream_clients.credential_settings import ApiKey
from upstream_clients.errors import LoginError, UpstreamCallError
from upstream_clients.openapi.api import Api, DocumentError
from upstream_clients.openapi.calls import ApiCalls, Place
from upstream_clients.openapi.client import Base
from upstream_clients.openapi.credentials import advice_after_refusal
from upstream_clients.openapi.exchanges import Address
from upstream_clients.openapi.redirects import origin_of
from upstream_clients.openapi.source import Loaded, load_document
from upstream_clients.spec import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from upstream_clients.openapi.client import ApiClient, Credentials
    from upstream_clients.spec import UpstreamSpec

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 60.0
"""Seconds after a failure until the document is read again. They double up to `spec.refresh_seconds`."""

_SHARE_OF_TIMEOUT: Final = 0.8
"""Part of the time for a list in which the document must be read. Later, the client would not get the old list."""

_TURNS: Final[dict[str, Lock]] = {}
"""Locks by the paths and URLs of documents. A thread that reads a document holds its lock.

Otherwise, a large document would have as many threads, each with a copy, as there were readings that took too long.
Calls of an API that has never been read begin one reading after the other.
"""

_TURN_POLL: Final = 0.05
"""Seconds between two looks whether an earlier reading has ended."""

_MAX_LOGGED_SKIPPED: Final = 20


class ReadApi(NamedTuple):
    """The API that a document describes.

    Attributes:
        own: the servers of single operations, by their addresses.
        loaded: how the document came, without its bytes.
        digest: a digest of the bytes.
    """

    api: Api
    base: Base
    own: Mapping[str, Base]
    loaded: Loaded
    digest: bytes


async def read_api(spec: UpstreamSpec, credentials: Credentials | None, known: ReadApi | None = None) -> ReadApi:
    """Read the document of an API, after the thread of an earlier reading has ended.

    Args:
        known: the API as the document was read before. If the document has not changed, the answer has the same `api`.

    Raises:
        UpstreamCallError: the document cannot be used.
        LoginError: the document needs credentials, and there are none now.
    """
    turn = _TURNS.setdefault(spec.document or "", Lock())
    while turn.locked():  # noqa: ASYNC110 - the thread of a reading that was given up sets no event
        await anyio.sleep(_TURN_POLL)
    loaded = await load_document(spec, credentials, None if known is None else known.loaded)
    data, loaded = loaded.data, replace(loaded, data=None)
    if data is None:
        assert known is not None
        return known._replace(loaded=loaded)

    def read(data: bytes) -> tuple[Api, bytes]:
        digest = hashlib.sha256(data).digest()
        if known is not None and digest == known.digest:
            return known.api, digest
        with turn:
            return api_from(data, spec), digest

    try:
        api, digest = await anyio.to_thread.run_sync(read, data, abandon_on_cancel=True)
    except DocumentError as error:
        raise _unusable(spec, f"the OpenAPI document {spec.document!r} is not usable: {error}") from None
    base = base_of(spec, api)
    own = {server: _own_server(spec, base, server) for server in api.own_servers}
    return ReadApi(api, base, own, loaded, digest)


def api_from(data: bytes, spec: UpstreamSpec) -> Api:
    """Return the API of a document, without arguments for what the entry sets.

    Raises:
        DocumentError: the document cannot be used.
    """
    given: list[tuple[str, str]] = [("header", name) for name in spec.headers]
    if isinstance(spec.credentials, ApiKey):
        given.append((spec.credentials.place, spec.credentials.name))
    return Api.read(data, base_url=spec.url, source=spec.document or "", given=given, other_origins=spec.other_origins)


def base_of(spec: UpstreamSpec, api: Api) -> Base:
    """Return the base address of the API, and what may be sent there.

    Raises:
        UpstreamCallError: there is no usable address.
    """
    where = f'write "baseUrl" in mcpServers.{spec.name}'
    url = api.base_url
    if url is None:
        raise _unusable(spec, f"its document names no address of the API; {where}")
    origin = origin_of(url)
    try:
        read = None if origin is None else Address.read(url.rstrip("/"))
    except httpx2.InvalidURL:
        read = None
    if read is None:
        raise _unusable(spec, f"{url[:300]!r} is not the address of an API; {where}")
    is_pinned_file = spec.is_pinned and not is_url(spec.document or "")
    configured = {origin_of(each) for each in (spec.url, spec.document, *spec.other_origins) if each is not None}
    is_configured = not api.base_from_document or origin in configured
    address = spec.address if spec.url is not None else url
    return Base(
        read._replace(target=read.target.rstrip("/")),
        address,
        address,
        spec.name,
        is_configured,
        gets_credentials=is_configured or is_pinned_file,
    )


def _own_server(spec: UpstreamSpec, base: Base, server: str) -> Base:
    """Return the server of single operations, and what may be sent there.

    What holds for the base address holds for its whole origin. An origin that the configuration names is trusted.

    Raises:
        UpstreamCallError: it is not a usable address.
    """
    try:
        read = Address.read(server)
    except httpx2.InvalidURL:
        where = f'check "otherOrigins" in mcpServers.{spec.name}'
        raise _unusable(spec, f"{server[:300]!r} is not the address of a server; {where}") from None
    is_named = read.endpoint in map(origin_of, spec.other_origins)
    is_same = read.endpoint == base.address.endpoint
    return replace(
        base,
        address=read._replace(target=read.target.rstrip("/")),
        shown=server,
        is_configured=is_named or (is_same and base.is_configured),
        gets_credentials=is_named or (is_same and base.gets_credentials),
    )


def _unusable(spec: UpstreamSpec, why: str) -> UpstreamCallError:
    return UpstreamCallError(spec.name, f"server {spec.name!r}: {spec.redact(why)}", dispatched=False)


class _Version(NamedTuple):
    """One reading of the document, as the client gets it.

    Attributes:
        due: the time at which the document is read again, in seconds on the clock. A file is always due.
        problems: sentences about the latest attempt to read the document.
    """

    read: ReadApi
    calls: ApiCalls
    due: float
    problems: tuple[str, ...] = ()


class ServedApi:
    """The API of one connection.

    Args:
        read: the document as it was read for the connection.
        client: a client for the base address of the document.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        credentials: Credentials | None,
        read: ReadApi,
        client: ApiClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._credentials = credentials
        self._clock = clock
        self._is_file = not is_url(spec.document or "")
        # The mutable state.
        self._used = _Version(read, self._calls_of(read, client), self._next_due())
        self._listed = self._used
        """The version of the latest `tools/list`."""
        self._lists = 0
        self._backoff = Backoff(base=2 * FIRST_RETRY_SECONDS, cap=spec.refresh_seconds)
        """Its delays are between half of these and all of them."""
        self._failure = ""

    @property
    def calls(self) -> ApiCalls:
        """The calls of operations as the list that is in use has them."""
        return self._used.calls

    def begin_list(self) -> dict[str, Any] | None:
        """Return the result of `tools/list`; None if the document has to be read for it."""
        self._lists += 1
        self._listed = self._used
        return None if self._clock() >= self._used.due else self._result(self._used)

    async def read_list(self) -> dict[str, Any]:
        """Read the document again, and return the result of `tools/list`. `begin_list` was called before."""
        number = self._lists
        version = await self._read_again()
        if number == self._lists:  # otherwise the client has given this list up
            self._listed = version
        return self._result(version)

    def _result(self, version: _Version) -> dict[str, Any]:
        result: dict[str, Any] = {
            "resultType": "complete",
            "tools": [dict(tool) for tool in version.read.api.tools],
            "cacheScope": "public" if version.read.loaded.is_public else "private",
        }
        if not self._is_file:
            # Rounded up, so that the document is due when the client asks again.
            result["ttlMs"] = max(1, math.ceil(1000 * (version.due - self._clock())))
        return result

    def use_list(self) -> tuple[str, ...]:
        """Make calls by the latest list from now on, and return the problems of its document."""
        self._used = self._listed
        return self._used.problems

    async def _read_again(self) -> _Version:
        """Return the version for the next list."""
        used, spec = self._used, self._spec
        seconds = _SHARE_OF_TIMEOUT * spec.connect_timeout
        try:
            with anyio.fail_after(seconds):
                read = await read_api(spec, self._credentials, used.read)
        except UpstreamCallError as error:
            return self._unread(str(error))
        except LoginError as error:
            return self._unread(str(unreadable(spec, error)))
        except TimeoutError:
            why = f"the OpenAPI document {spec.document!r} was not read within {seconds:g} s"
            return self._unread(str(_unusable(spec, why)))
        self._backoff.reset()
        self._failure = ""
        if read.api is used.read.api:
            return used._replace(read=read, due=self._next_due(), problems=())
        client = used.calls.client
        if read.base != used.read.base:
            client = client.at(read.base)
        logger.info("server %r: the OpenAPI document has changed: %d operations", spec.name, len(read.api.tools))
        return _Version(read, self._calls_of(read, client), self._next_due())

    def _unread(self, why: str) -> _Version:
        """Return the version in use, after a failure to read the document."""
        delay = self._backoff.after_failure()
        problem = f"{why}; the document that was read before stays in use"
        level = logging.INFO if why == self._failure else logging.WARNING
        self._failure = why
        if self._is_file:
            logger.log(level, "%s; it is read again when it changes", problem)
            return self._used._replace(problems=(problem,))
        logger.log(level, "%s; it is read again after %.0f s, when the server is used", problem, delay)
        return self._used._replace(due=self._clock() + delay, problems=(problem,))

    def _calls_of(self, read: ReadApi, client: ApiClient) -> ApiCalls:
        spec = self._spec
        for skipped in read.api.skipped[:_MAX_LOGGED_SKIPPED]:
            logger.debug("server %r: operation %s is skipped: %s", spec.name, skipped.operation, skipped.reason)

        def place(base: Base, client: ApiClient) -> Place:
            return Place(client, advice_after_refusal(spec, base.base_url, are_sent=base.gets_credentials))

        own = {server: place(base, client.at(base)) for server, base in read.own.items()}
        return ApiCalls(spec, read.api, place(read.base, client), own)

    def _next_due(self) -> float:
        return self._clock() + self._spec.refresh_seconds if not self._is_file else -math.inf


def unreadable(spec: UpstreamSpec, error: LoginError) -> UpstreamCallError:
    """Return the error for a document that needs a login."""
    return _unusable(spec, f"the OpenAPI document {spec.document!r} cannot be read: {error}")
