"""An API as an MCP server of the modern era in this process.

The connection behind `transports` is the usual one, so that an API is listed, called and watched as any other server.
Its messages are dicts that no one encodes. Its calls are those of `calls`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import httpx2

from upstream_clients.credential_settings import ApiKey
from upstream_clients.direct import Answer, Refusal
from upstream_clients.errors import LoginError, UpstreamCallError
from upstream_clients.jsonrpc import (
    CLIENT_INFO,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    SERVER_INFO,
    key_of,
)
from upstream_clients.openapi.api import Api, DocumentError
from upstream_clients.openapi.calls import ApiCalls, DirectCalls, internal_error
from upstream_clients.openapi.client import ApiClient, Base
from upstream_clients.openapi.credentials import advice_after_refusal
from upstream_clients.openapi.exchanges import Address
from upstream_clients.openapi.redirects import origin_of
from upstream_clients.openapi.source import load_document
from upstream_clients.questions import CURRENT
from upstream_clients.spec import is_url
from upstream_clients.token_store import LoginStore

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterator, Mapping

    from anyio.abc import TaskGroup

    from upstream_clients.error_mapping import HttpWatch
    from upstream_clients.jsonrpc import Message, RequestId
    from upstream_clients.line_messages import Incoming
    from upstream_clients.openapi.client import Credentials
    from upstream_clients.spec import UpstreamSpec

logger = logging.getLogger(__name__)

_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}}
_MAX_PROBLEMS = 20

REREAD_SECONDS = 3600.0
"""Seconds after which the document of an API that is used is read again."""

_QUIET_POLL_INTERVAL = 0.05
"""Seconds between two checks for calls in flight, before a changed document is used."""


class ApiTransport:
    """The MCP server as a `dispatcher.Transport`: discovery, the list of tools, and calls that are not direct."""

    def __init__(self, calls: ApiCalls, tasks: TaskGroup) -> None:
        self.calls = calls
        self._tasks = tasks
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._answers: asyncio.Queue[Message] = asyncio.Queue()

    def __len__(self) -> int:
        """Return the number of calls in flight that are not direct."""
        return len(self._scopes)

    @property
    def last_context(self) -> contextvars.Context | None:
        return None

    async def receive(self) -> Incoming:
        return await self._answers.get()

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        params = message.get("params") or {}
        match message:
            case {"method": "tools/call", "id": request_id}:
                scope = self._scopes[key_of(request_id)] = anyio.CancelScope()
                self._tasks.start_soon(self._call, request_id, scope, params)
            case {"method": str() as method, "id": request_id}:
                self._answer(request_id, self._result(method, params))
            case {"method": "notifications/cancelled"}:
                scope = self._scopes.get(key_of(params.get("requestId", "")))  # type: ignore[assignment]
                if scope is not None:
                    scope.cancel()

    async def _call(self, request_id: RequestId, scope: anyio.CancelScope, params: Mapping[str, Any]) -> None:
        try:
            with scope:
                prepared = self.calls.prepare(params.get("name"), params.get("arguments") or {}, CURRENT.get())
                if isinstance(prepared, Refusal):
                    self._answer(request_id, prepared)
                else:
                    self._answer(request_id, await self.calls.finish(prepared))
        except Exception:
            logger.exception("a call of an API failed")
            self._answer(request_id, internal_error())
        finally:
            self._scopes.pop(key_of(request_id), None)

    def _result(self, method: str, params: Mapping[str, Any]) -> Answer | Refusal:
        api = self.calls.api
        if method == "server/discover":
            info = (params.get("_meta") or {}).get(CLIENT_INFO) or {}
            self.calls.client.set_user_agent(f"{info.get('name')}/{info.get('version')}")
            found = {
                "resultType": "complete",
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": _CAPABILITIES,
                "_meta": {SERVER_INFO: {"name": api.title, "version": api.version}},
            }
            return Answer({**found, "instructions": api.description} if api.description else found, None)
        if method == "tools/list":
            return Answer({"resultType": "complete", "tools": [dict(tool) for tool in api.tools]}, None)
        return Refusal(METHOD_NOT_FOUND, "Method not found", method)

    def _answer(self, request_id: RequestId, answer: Answer | Refusal) -> None:
        if isinstance(answer, Answer):
            message: Message = {"jsonrpc": "2.0", "id": request_id, "result": answer.result}
        else:
            error = {"code": answer.code, "message": answer.message, "data": answer.data}
            message = {"jsonrpc": "2.0", "id": request_id, "error": error}
        self._answers.put_nowait(message)


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
    configured = {origin_of(each) for each in (spec.url, spec.document) if each is not None}
    is_configured = not api.base_from_document or origin in configured
    address = spec.address if spec.url is not None else url
    return Base(
        read._replace(target=read.target.rstrip("/")),
        address,
        spec.name,
        is_configured,
        gets_credentials=is_configured or is_pinned_file,
    )


def _unusable(spec: UpstreamSpec, why: str) -> UpstreamCallError:
    return UpstreamCallError(spec.name, f"server {spec.name!r}: {spec.redact(why)}", dispatched=False)


@asynccontextmanager
async def open_api(
    spec: UpstreamSpec, watch: HttpWatch, credentials: Credentials | None = None
) -> AsyncIterator[tuple[ApiTransport, DirectCalls]]:
    """Read the document of an API, and serve its operations for the duration of the context.

    Raises:
        UpstreamCallError: the document cannot be used.
    """
    try:
        api = await _read_api(spec, credentials)
    except LoginError as error:
        if spec.oauth is not None:  # a person has to log in, before the document can be read
            watch.logged_out, watch.login = True, LoginStore(spec).stamp()
        raise _unusable(spec, f"the OpenAPI document {spec.document!r} cannot be read: {error}") from None
    for skipped in api.skipped[:_MAX_PROBLEMS]:
        logger.debug("server %r: operation %s is skipped: %s", spec.name, skipped.operation, skipped.reason)
    base = base_of(spec, api)
    advice = advice_after_refusal(spec, base.shown, are_sent=base.gets_credentials)
    client = ApiClient(base, headers=spec.headers, credentials=credentials)
    async with client, anyio.create_task_group() as tasks:
        calls = ApiCalls(spec, api, client, advice)
        transport, direct = ApiTransport(calls, tasks), DirectCalls(calls, tasks)
        tasks.start_soon(_end_when_changed, spec, credentials, api, transport, direct, watch)
        try:
            yield transport, direct
        finally:
            tasks.cancel_scope.cancel()


async def _read_api(spec: UpstreamSpec, credentials: Credentials | None) -> Api:
    """Read the document of an API. Raises `UpstreamCallError` or `LoginError`."""
    data = await load_document(spec, credentials)
    try:
        return await anyio.to_thread.run_sync(api_from, data, spec)
    except DocumentError as error:
        raise _unusable(spec, f"the OpenAPI document {spec.document!r} is not usable: {error}") from None


async def _end_when_changed(
    spec: UpstreamSpec,
    credentials: Credentials | None,
    api: Api,
    transport: ApiTransport,
    direct: DirectCalls,
    watch: HttpWatch,
) -> None:
    """End the connection once the document has changed and no call is in flight. The next one has the new document.

    So a changed document takes the same way as a server that was restarted: it is listed, and compared with the pins,
    before any call is sent.
    """
    while True:
        calls_before = transport.calls.count
        await anyio.sleep(REREAD_SECONDS)
        if transport.calls.count == calls_before:
            continue
        try:
            current = await _read_api(spec, credentials)
        except (UpstreamCallError, LoginError) as error:
            logger.info("server %r keeps its OpenAPI document, since it cannot be read again: %s", spec.name, error)
            continue
        if current.tools == api.tools and current.base_url == api.base_url:
            continue
        while direct or transport:  # noqa: ASYNC110 - rarely, and for the time of one call
            await anyio.sleep(_QUIET_POLL_INTERVAL)
        logger.info("server %r: its OpenAPI document has changed", spec.name)
        watch.on_lost()
        return


def api_from(data: bytes, spec: UpstreamSpec) -> Api:
    """Return the API of a document, without arguments for what the entry sets.

    Raises:
        DocumentError: the document cannot be used.
    """
    given: list[tuple[str, str]] = [("header", name) for name in spec.headers]
    if isinstance(spec.credentials, ApiKey):
        given.append((spec.credentials.place, spec.credentials.name))
    return Api.read(data, base_url=spec.url, source=spec.document or "", given=given)
