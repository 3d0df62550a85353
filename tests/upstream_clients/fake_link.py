"""A connection without a server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from upstream_clients import UpstreamView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from upstream_clients import JsonObject, Tool
    from upstream_clients.upstream import Upstream


class FakeLink:
    """A connection that gives calls their turn when `turn_has_come` is set."""

    alive = True
    modern = False
    has_task_calls = False

    def __init__(self) -> None:
        self.turn_has_come = anyio.Event()
        self.waits = anyio.Event()
        self.sent: list[str] = []

    @asynccontextmanager
    async def turn(self, call: Any) -> AsyncIterator[None]:
        self.waits.set()
        await self.turn_has_come.wait()
        yield

    async def send(self, method: str, params: Any, on_progress: Any, call: Any) -> JsonObject:
        self.sent.append(params["name"])
        return {"content": []}


def connect(upstream: Upstream, link: FakeLink, *tools: Tool) -> None:
    upstream.report_ready(link, UpstreamView("srv", "ready", era="legacy", protocol_version="2025-11-25", tools=tools))
