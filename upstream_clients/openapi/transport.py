"""The connection to an HTTP API: an MCP server of the modern era in this process.

The connection behind `transports` is the usual one, so that an API is listed, called and watched as any other server.
Its messages are dicts that no one encodes. Its calls are those of `calls`, and its list is that of `served`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from upstream_clients import jsonrpc
from upstream_clients.connection import OpenTransport
from upstream_clients.direct import Answer, Refusal
from upstream_clients.errors import LoginError
from upstream_clients.openapi.calls import DirectCalls, internal_error
from upstream_clients.openapi.client import ApiClient, Credentials, credentials_of
from upstream_clients.openapi.served import ServedApi, read_api, unreadable
from upstream_clients.questions import CURRENT
from upstream_clients.token_store import LoginStore

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from anyio.abc import TaskGroup

    from upstream_clients.error_mapping import HttpWatch
    from upstream_clients.line_messages import Incoming
    from upstream_clients.spec import UpstreamSpec

logger = logging.getLogger(__name__)

_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}}


class ApiTransport:
    """The MCP server as a `dispatcher.Transport`: discovery, the list of tools, and calls that are not direct."""

    def __init__(self, served: ServedApi, tasks: TaskGroup) -> None:
        self._served = served
        self._tasks = tasks
        self._scopes: dict[jsonrpc.RequestId, anyio.CancelScope] = {}
        self._answers: asyncio.Queue[jsonrpc.Message] = asyncio.Queue()

    @property
    def last_context(self) -> contextvars.Context | None:
        return None

    async def receive(self) -> Incoming:
        return await self._answers.get()

    async def send(self, message: jsonrpc.Message, headers: Mapping[str, str] | None = None) -> None:
        params = message.get("params") or {}
        match message:
            case {"method": "tools/call", "id": request_id}:
                # The calls now, and not when the task begins: the call was admitted by the list that is in use now.
                arguments = params.get("arguments") or {}
                self._begin(request_id, partial(self._served.calls.call, params.get("name"), arguments, CURRENT.get()))
            case {"method": "tools/list", "id": request_id}:
                result = self._served.begin_list()
                if result is None:
                    self._begin(request_id, self._read_list)
                else:
                    self._answer(request_id, Answer(result, None))
            case {"method": str() as method, "id": request_id}:
                self._answer(request_id, self._result(method, params))
            case {"method": "notifications/cancelled"}:
                scope = self._scopes.get(jsonrpc.key_of(params.get("requestId", "")))
                if scope is not None:
                    scope.cancel()

    def _begin(self, request_id: jsonrpc.RequestId, work: Callable[[], Awaitable[Answer | Refusal]]) -> None:
        scope = self._scopes[jsonrpc.key_of(request_id)] = anyio.CancelScope()
        self._tasks.start_soon(self._run, request_id, scope, work)

    async def _run(
        self, request_id: jsonrpc.RequestId, scope: anyio.CancelScope, work: Callable[[], Awaitable[Answer | Refusal]]
    ) -> None:
        try:
            with scope:
                self._answer(request_id, await work())
        except Exception:
            logger.exception("a request to an API failed")
            self._answer(request_id, internal_error())
        finally:
            self._scopes.pop(jsonrpc.key_of(request_id), None)

    def _result(self, method: str, params: Mapping[str, Any]) -> Answer | Refusal:
        calls = self._served.calls
        api = calls.api
        if method == "server/discover":
            info = (params.get("_meta") or {}).get(jsonrpc.CLIENT_INFO) or {}
            calls.client.set_user_agent(f"{info.get('name')}/{info.get('version')}")
            found = {
                "resultType": "complete",
                "supportedVersions": list(jsonrpc.MODERN_VERSIONS),
                "capabilities": _CAPABILITIES,
                "_meta": {jsonrpc.SERVER_INFO: {"name": api.title, "version": api.version}},
            }
            return Answer({**found, "instructions": api.description} if api.description else found, None)
        return Refusal(jsonrpc.METHOD_NOT_FOUND, "Method not found", method)

    async def _read_list(self) -> Answer:
        return Answer(await self._served.read_list(), None)

    def use_list(self) -> tuple[str, ...]:
        """Have calls made by the latest list from now on; see `OpenTransport`."""
        return self._served.use_list()

    def _answer(self, request_id: jsonrpc.RequestId, answer: Answer | Refusal) -> None:
        if isinstance(answer, Answer):
            message: jsonrpc.Message = {"jsonrpc": "2.0", "id": request_id, "result": answer.result}
        else:
            error = {"code": answer.code, "message": answer.message, "data": answer.data}
            message = {"jsonrpc": "2.0", "id": request_id, "error": error}
        self._answers.put_nowait(message)


@asynccontextmanager
async def open_api(
    spec: UpstreamSpec,
    watch: HttpWatch,
    credentials: Credentials | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[tuple[ApiTransport, DirectCalls]]:
    """Read the document of an API, and serve its operations for the duration of the context.

    Args:
        clock: monotonic seconds.

    Raises:
        UpstreamCallError: the document cannot be used.
    """
    try:
        read = await read_api(spec, credentials)
    except LoginError as error:
        if spec.oauth is not None:  # a person has to log in, before the document can be read
            watch.logged_out, watch.login = True, LoginStore(spec).stamp()
        raise unreadable(spec, error) from None
    client = ApiClient(read.base, headers=spec.headers, credentials=credentials)
    async with client, anyio.create_task_group() as tasks:
        served = ServedApi(spec, credentials, read, client, clock=clock)
        try:
            yield ApiTransport(served, tasks), DirectCalls(lambda: served.calls, tasks)
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_transport(spec: UpstreamSpec, watch: HttpWatch) -> AsyncIterator[OpenTransport]:
    """Connect to the API, as `connection` does with the servers of other kinds."""
    async with open_api(spec, watch, credentials_of(spec)) as (server, calls):
        yield OpenTransport(server, calls, use_list=server.use_list)
