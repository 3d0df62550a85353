"""The connection to an HTTP API, as the connection to a server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from upstream_clients.connection import OpenTransport
from upstream_clients.openapi.client import credentials_of
from upstream_clients.openapi.server import open_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from upstream_clients.error_mapping import HttpWatch
    from upstream_clients.spec import UpstreamSpec


@asynccontextmanager
async def open_transport(spec: UpstreamSpec, watch: HttpWatch) -> AsyncIterator[OpenTransport]:
    async with open_api(spec, watch, credentials_of(spec)) as (server, calls):
        yield OpenTransport(server, calls, use_list=server.use_list)
