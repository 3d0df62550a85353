"""The transports: a process, one of two over HTTP, or an API in place of a server. HTTP is imported when needed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from upstream_clients.stdio import open_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from upstream_clients.direct import RequestsInFlight
    from upstream_clients.dispatcher import Transport
    from upstream_clients.error_mapping import HttpWatch
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail

Kind = Literal["stdio", "http", "sse", "openapi"]


class OpenTransport(NamedTuple):
    """An open connection that is not read yet.

    Attributes:
        direct: requests that are sent past the transport; None if the transport has none.
        set_cancel_sender: sets the function that tells the server that a direct request was given up.
        pid: the process of a stdio server; None for other servers.
        use_list: called in the step of the event loop in which the tools of the latest `tools/list` come into use.
            Returns problems of this list that its answer does not have.
    """

    transport: Transport
    direct: RequestsInFlight | None = None
    set_cancel_sender: Callable[[Callable[[RequestId], None]], None] = lambda _: None
    pid: int | None = None
    use_list: Callable[[], tuple[str, ...]] = tuple


@asynccontextmanager
async def open_transport(
    kind: Kind, spec: UpstreamSpec, watch: HttpWatch, stderr: StderrTail, process: Any = None
) -> AsyncIterator[OpenTransport]:
    """Connect to a server for the duration of the context.

    Args:
        process: the process of a stdio server that was started before; `stderr` is open then.

    Raises:
        Exception: any exception of the transport, alone or in a group; `error_mapping.start_failure` reads it.
    """
    if kind == "stdio":
        with stderr:
            async with open_process(spec, stderr, process) as (transport, direct):
                yield OpenTransport(transport, direct, pid=transport.pid)
        return
    if kind == "openapi":
        from upstream_clients.openapi.credentials import credentials_of
        from upstream_clients.openapi.server import open_api

        async with open_api(spec, watch, credentials_of(spec)) as (server, calls):
            yield OpenTransport(server, calls, use_list=server.use_list)
        return
    from upstream_clients.bearer import Bearer
    from upstream_clients.http import McpHttpClient

    assert spec.url is not None
    bearer = Bearer(spec) if spec.may_log_in else None
    async with McpHttpClient(spec, watch, bearer, is_session=kind == "sse") as client:
        if kind == "sse":
            from upstream_clients.sse import open_events

            async with open_events(spec.url, client) as events:
                yield OpenTransport(events)
            return
        from upstream_clients.line_messages import MAX_MESSAGE_BYTES
        from upstream_clients.streamable import open_streamable

        async with open_streamable(spec.url, client, MAX_MESSAGE_BYTES) as (link, posts):

            def set_cancel_sender(tell_cancelled: Callable[[RequestId], None]) -> None:
                posts.tell_cancelled = tell_cancelled

            yield OpenTransport(link, posts, set_cancel_sender)
