"""A connection without a server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from upstream_clients import Tool, UpstreamView
from upstream_clients.direct import Answer
from upstream_clients.fair_limiter import FairLimiter, Slot
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

    async def enter(self, call: Any) -> None:
        self.waits.set()
        await self.turn_has_come.wait()

    def leave(self, call: Any) -> None:
        pass

    async def exchange(self, method: str, params: Any, on_progress: Any, call: Any) -> Answer:
        self.sent.append(params["name"])
        return Answer({"content": []}, None)


def connect(upstream: Upstream, link: FakeLink, *tools: Tool) -> None:
    upstream.report_ready(link, UpstreamView("srv", "ready", era="legacy", protocol_version="2025-11-25", tools=tools))


@asynccontextmanager
async def admitted(limiter: FairLimiter, caller: str, run: str) -> AsyncIterator[Slot]:
    """Wait for a place, and hold it for the duration of the context."""
    slot = await limiter.admit(caller, run)
    try:
        yield slot
    finally:
        slot.end()
