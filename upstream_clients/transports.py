"""Open the way to a server: its process, or one of two HTTP transports, each the SDK's with our guards on it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from upstream_clients.stdio import open_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from upstream_clients.bearer import Bearer
    from upstream_clients.direct import RequestsInFlight
    from upstream_clients.dispatcher import Transport
    from upstream_clients.http_failures import HttpWatch
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail

Kind = Literal["stdio", "http", "sse"]


class OpenTransport(NamedTuple):
    """A connection that is open, and not yet read from.

    Attributes:
        direct: requests that do not come by way of the transport, where there are such.
        bind: takes what tells the server that a request past it was given up.
    """

    transport: Transport
    direct: RequestsInFlight | None = None
    bind: Callable[[Callable[[RequestId], None]], None] = lambda _: None


@asynccontextmanager
async def open_transport(
    kind: Kind, spec: UpstreamSpec, watch: HttpWatch, stderr: StderrTail, process: Any = None
) -> AsyncIterator[OpenTransport]:
    """Open the way to a server, for the time inside.

    Args:
        process: a stdio server that was started before, whose stderr is in `stderr`.

    Raises what the transport raises, alone or in groups; `faults.start_failure` reads it.
    """
    match kind:
        case "stdio":
            with stderr:
                async with open_process(spec, stderr, process) as (transport, direct):
                    yield OpenTransport(transport, direct)
        case "http":
            from upstream_clients.http import McpHttpClient
            from upstream_clients.line_messages import MAX_MESSAGE_BYTES
            from upstream_clients.sdk_streams import SdkTransport
            from upstream_clients.streamable import open_streamable

            assert spec.url is not None
            async with (
                McpHttpClient(spec, watch, _bearer(spec)) as client,
                open_streamable(spec.url, client, MAX_MESSAGE_BYTES) as (heard, written, posts),
            ):

                def bind(tell_cancelled: Callable[[RequestId], None]) -> None:
                    posts.tell_cancelled = tell_cancelled

                yield OpenTransport(SdkTransport(heard, written), posts, bind)
        case "sse":
            from upstream_clients.http import McpHttpClient
            from upstream_clients.sdk_streams import SdkTransport
            from upstream_clients.sse import open_events

            assert spec.url is not None
            client = McpHttpClient(spec, watch, _bearer(spec), answers_in_body=False)
            async with client, open_events(spec.url, client) as (events, outgoing):
                yield OpenTransport(SdkTransport(events, outgoing))


def _bearer(spec: UpstreamSpec) -> Bearer | None:
    if not spec.may_log_in:
        return None
    from upstream_clients.bearer import Bearer

    return Bearer(spec)
