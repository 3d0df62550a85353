"""Open the way to a server: its process or one of two HTTP transports, each the SDK's with our guards on it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from upstream_clients.bearer import Bearer
from upstream_clients.http import HttpWatch, McpHttpClient
from upstream_clients.link import WatchedDispatcher
from upstream_clients.sse import open_events
from upstream_clients.stdio import open_process
from upstream_clients.streamable import open_streamable
from upstream_clients.wire import MAX_MESSAGE_BYTES, MendedStream, ReadStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.stderr import StderrTail

Kind = Literal["stdio", "http", "sse"]


def _bearer(spec: UpstreamSpec) -> Bearer | None:
    return Bearer(spec) if spec.may_log_in else None


def _dispatcher(read: ReadStream, write: Any) -> WatchedDispatcher:
    mended = MendedStream(read)
    dispatcher = WatchedDispatcher(mended, write)
    dispatcher.stream = mended
    return dispatcher


@asynccontextmanager
async def open_dispatcher(
    kind: Kind, spec: UpstreamSpec, watch: HttpWatch, stderr: StderrTail, process: Any = None
) -> AsyncIterator[WatchedDispatcher]:
    """A dispatcher over an open transport, not yet running.

    `process` is that of a stdio server which was started before, whose stderr is in `stderr`.

    Raises what the transport raises, alone or in groups; `faults.start_failure` reads it.
    """
    match kind:
        case "stdio":
            with stderr:
                async with open_process(spec, stderr, process) as (heard, written, direct):
                    dispatcher = _dispatcher(heard, written)
                    dispatcher.direct = direct
                    yield dispatcher
        case "http":
            assert spec.url is not None
            async with (
                McpHttpClient(spec, watch, _bearer(spec)) as client,
                open_streamable(spec.url, client, MAX_MESSAGE_BYTES) as (heard, written, direct),
            ):
                dispatcher = _dispatcher(heard, written)
                dispatcher.direct = direct
                direct.tell_cancelled = dispatcher.tell_cancelled
                yield dispatcher
        case "sse":
            assert spec.url is not None
            client = McpHttpClient(spec, watch, _bearer(spec), answers_in_body=False)
            async with client, open_events(spec.url, client) as (heard, written):
                yield _dispatcher(heard, written)
