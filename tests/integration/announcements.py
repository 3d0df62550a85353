"""Hears, as a client of either era, that the list of tools has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types

from tests.integration.harness import SECONDS, Session


class Ear:
    """Notifications that arrived. Given to a client as its `message_handler`, for the older revisions."""

    def __init__(self, mode: str) -> None:
        self.count = 0
        self._legacy = mode == "legacy"  # the SDK hands what comes on a stream to the handler too
        self._more = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if self._legacy and isinstance(message, types.ToolListChangedNotification):
            self.hear()

    def hear(self) -> None:
        self.count += 1
        self._more.set()
        self._more = anyio.Event()

    async def heard(self, count: int = 1) -> None:
        """Return once it was told so often in all."""
        with anyio.fail_after(SECONDS):
            while self.count < count:
                await self._more.wait()


@asynccontextmanager
async def listening(session: Session, mode: str, ear: Ear) -> AsyncIterator[None]:
    """Open the stream for notifications of changes, with a modern client."""
    if mode == "legacy":
        yield
        return

    async def follow(stream: Any) -> None:
        async for _ in stream:
            ear.hear()

    async with session.client.listen(tools_list_changed=True) as stream, anyio.create_task_group() as group:
        group.start_soon(follow, stream)
        yield
        group.cancel_scope.cancel()
