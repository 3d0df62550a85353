"""Open the way to a server: its process or one of two HTTP transports, each the SDK's with our guards on it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from upstream_clients.http import MAX_MESSAGE_BYTES, HttpWatch, McpHttpClient
from upstream_clients.link import WatchedDispatcher
from upstream_clients.wire import MendedStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail

Kind = Literal["stdio", "http", "sse"]


@asynccontextmanager
async def open_dispatcher(
    kind: Kind, spec: UpstreamSpec, watch: HttpWatch, stderr: StderrTail
) -> AsyncIterator[WatchedDispatcher]:
    """A dispatcher over an open transport, not yet running.

    Raises what the transport raises, alone or in groups; `faults.start_failure` reads it.
    """
    match kind:
        case "stdio":
            assert spec.command is not None
            parameters = StdioServerParameters(
                command=spec.command,
                args=list(spec.args),
                env=dict(spec.env),
                cwd=spec.cwd,
                encoding_error_handler="replace",  # one bad byte costs one message, not the connection
            )
            with stderr:
                async with stdio_client(parameters, errlog=stderr.file) as (read, write):
                    yield WatchedDispatcher(MendedStream(read), write)
        case "http":
            assert spec.url is not None
            async with (
                McpHttpClient(spec, watch) as client,
                streamable_http_client(spec.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
                    read,
                    write,
                ),
            ):
                yield WatchedDispatcher(MendedStream(read), write)
        case "sse":
            assert spec.url is not None

            def client_of_sse(
                headers: dict[str, str] | None = None,
                timeout: httpx2.Timeout | None = None,
                auth: httpx2.Auth | None = None,
            ) -> httpx2.AsyncClient:
                # What the SDK passes is its defaults, of which a silent stream's read timeout is unwanted.
                return McpHttpClient(spec, watch, answers_in_body=False)

            async with sse_client(spec.url, httpx_client_factory=client_of_sse) as (read, write):
                yield WatchedDispatcher(MendedStream(read), write)
