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
import os
import re
import stat
import time
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread
import httpx2
from msgspec import Struct, field, structs

from upstream_clients.backoff import Backoff
from upstream_clients.errors import LoginError, UpstreamCallError
from upstream_clients.fetch import may_be_public
from upstream_clients.line_messages import MAX_MESSAGE_BYTES
from upstream_clients.openapi.api import Api, ApiResponse, DocumentError, Skipped
from upstream_clients.openapi.calls import ApiCalls, Place
from upstream_clients.openapi.client import Base, advice_after_refusal, credentials_of, with_credentials
from upstream_clients.openapi.connections import ACCEPTED_ENCODINGS, UnreadableBody
from upstream_clients.openapi.exchanges import USER_AGENT, Address, Http, Outgoing
from upstream_clients.openapi.next_request import MAX_REDIRECTS, following, origin_of
from upstream_clients.spec import ApiKey, UpstreamSpec, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from upstream_clients.openapi.client import ApiClient, Credentials


# The bytes of an OpenAPI document, from a file or a URL, within limits of size and time.
#
# A document that was read before is requested again only if it has changed, as far as its server can tell (RFC 9110,
# 13).
#
# A document at a URL is requested without credentials first. Only if the server refuses that, the request is repeated
# with the credentials and headers of the entry, and only to the origin that also gets them for calls. So a public page
# with the document never sees them.


_ACCEPT: Final = "application/json, application/yaml, application/vnd.oai.openapi, */*;q=0.5"
_MAX_REASON: Final = 300
"""Characters of the reason of a failure, which may quote any number of bytes of an answer."""

_REFUSED: Final = (401, 403, 404)
"""Statuses with which servers hide a document from requests without credentials."""
_VALIDATORS: Final = {"if-none-match": "etag", "if-modified-since": "last-modified"}
"""Headers of requests by which a server can tell whether a document has changed, and the headers of answers with their
values."""
_VALIDATOR: Final = re.compile(r"[!-~][ -~]{0,500}")
"""A value that is sent back."""


class Loaded(Struct, frozen=True):
    """A document, as its server has sent it.

    Attributes:
        data: the document; None if it is the one that was read before.
        url: the address after redirects; empty for a file.
        validators: the headers of a request for the document if it has changed.
        is_public: True if it was sent without credentials.
    """

    data: bytes | None
    url: str = ""
    validators: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = True


async def load_document(spec: UpstreamSpec, credentials: Credentials | None, known: Loaded | None = None) -> Loaded:
    """Return the document of an entry.

    Args:
        known: the document that was read before.

    Raises:
        UpstreamCallError: the document cannot be read.
        LoginError: the document needs credentials, and there are none now.
    """
    assert spec.document is not None
    if not is_url(spec.document):
        try:
            return Loaded(await anyio.to_thread.run_sync(_read_file, spec.document))
        except OSError as error:
            raise _failure(spec, f"it cannot be read ({error.strerror or type(error).__name__})") from None
        except ValueError as error:
            raise _failure(spec, str(error)) from None
    headers = {"accept": _ACCEPT, "accept-encoding": ACCEPTED_ENCODINGS, "user-agent": USER_AGENT}
    http = Http(guarded=False)
    try:
        with anyio.fail_after(spec.connect_timeout):
            response, url = await _fetch(spec, http, headers, None, known)
            is_public = True
            has_any = credentials is not None or bool(spec.headers)
            if response.status in _REFUSED and has_any and _may_get_credentials(spec):
                headers |= {name.lower(): value for name, value in spec.headers.items()}
                response, url = await _fetch(spec, http, headers, credentials, known)
                is_public = False
    except TimeoutError:
        raise _failure(spec, f"its server has not answered completely within {spec.connect_timeout:g} s") from None
    finally:
        with anyio.CancelScope(shield=True):
            await http.close()
    if response.status == HTTPStatus.NOT_MODIFIED and known is not None and _validators(known, url):
        return Loaded(None, url, known.validators, is_public)
    if not 200 <= response.status < 300:
        raise _failure(spec, f"its server answered HTTP {response.status} {response.reason}".rstrip())
    found = {name: response.headers.get(answered, "") for name, answered in _VALIDATORS.items()}
    validators = {name: value for name, value in found.items() if _VALIDATOR.fullmatch(value)}
    return Loaded(response.body, url, validators, is_public)


def _read_file(path: str) -> bytes:
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"it is larger than {MAX_MESSAGE_BYTES} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file, also a pipe without a writer, for which other readers wait. No thread could be freed from that."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _may_get_credentials(spec: UpstreamSpec) -> bool:
    """Return True if the server of the document is the one of the API, as far as the configuration says."""
    return spec.url is None or origin_of(spec.url) == origin_of(spec.document or "")


def _validators(known: Loaded | None, url: str) -> Mapping[str, str]:
    return known.validators if known is not None and known.url == url else {}


async def _fetch(
    spec: UpstreamSpec, http: Http, headers: dict[str, str], credentials: Credentials | None, known: Loaded | None
) -> tuple[ApiResponse, str]:
    """Return the answer for the document after redirects within its origin, and the address of the answer."""
    url = (spec.document or "").partition("#")[0]
    try:
        for _ in range(MAX_REDIRECTS + 1):
            request = Outgoing("GET", Address.read(url), {**headers, **_validators(known, url)})
            if credentials is not None:
                request = await with_credentials(credentials, request)
            response = await http.exchange(request)
            next_one = following("GET", url, response.status, response.headers.get("location"))
            if next_one is None:
                return response, url
            if origin_of(next_one.url) != origin_of(url):
                raise _failure(spec, f"it has moved to {next_one.url[:300]!r}; write that address")
            url = next_one.url
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise _failure(spec, f"its server cannot be reached ({str(error) or type(error).__name__})") from None
    except UnreadableBody as error:
        raise _failure(spec, str(error)) from None
    raise _failure(spec, "its server redirects without end")


def _failure(spec: UpstreamSpec, why: str) -> UpstreamCallError:
    key = f'"openapi" of mcpServers.{spec.name}'
    shown, why = spec.redact(spec.document or ""), spec.cut(why, _MAX_REASON)
    return UpstreamCallError(
        spec.name,
        f"server {spec.name!r}: the OpenAPI document {shown!r} is not usable: {spec.redact(why)}; check {key}",
        dispatched=False,
    )


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
    data, loaded = loaded.data, structs.replace(loaded, data=None)
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
    return structs.replace(
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
    return _unusable(spec, f"the OpenAPI document {spec.document!r} cannot be read: {error}")


class ApiReport(Struct, frozen=True):
    """The document of one API.

    Attributes:
        operations: number of the operations that are tools.
        skipped: the operations that are no tools, with the reasons.
        logins: sentences about the logins that the document names.
        address: the base address of the API.
        own_servers: the addresses of the servers that only single operations have.
        is_address_written: True if the entry names the address, and not the document.
        gets_credentials: True if the credentials and headers of the entry are sent there.
        is_reachable: False if no request is sent there, because only the document names it and it is not public.
    """

    operations: int
    skipped: tuple[Skipped, ...]
    logins: tuple[str, ...]
    address: str
    own_servers: tuple[str, ...]
    is_address_written: bool
    gets_credentials: bool
    is_reachable: bool


async def report_of(spec: UpstreamSpec) -> ApiReport:
    """Read the document of an API.

    Raises:
        UpstreamCallError: the document cannot be used.
        LoginError: the document needs credentials, and there are none now.
    """
    read = await read_api(spec, credentials_of(spec))
    api, base = read.api, read.base
    return ApiReport(
        operations=len(api.tools),
        skipped=api.skipped,
        logins=api.security,
        address=base.shown,
        own_servers=api.own_servers,
        is_address_written=not api.base_from_document,
        gets_credentials=base.gets_credentials,
        is_reachable=base.is_configured or may_be_public(base.address.endpoint.host),
    )
