"""Tells clients that what `tools/list` answers has become another: both protocol eras, every live session.

A session of the older revisions is told by a notification of its own; in the newer one a client listens on a
subscription. Changes come in storms, when servers connect or a file is saved: few announcements follow from them.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions

log = logging.getLogger("codemode_mcp.server")

AFTER_SECONDS: Final = 0.3
"""From a change to its announcement: what changes together is announced together."""
REST_SECONDS: Final = 2.0
"""From one announcement to the next."""
SEND_SECONDS: Final = 5.0
"""For a session that does not take its notification."""


class Announcer:
    """What clients have been shown, and who is to be told when it is no longer so.

    Its task lives in the lifespan of its server, which is entered once, whatever carries the server.

    Args:
        shown: what clients would be shown now, comparable.
        change: an event for the next time that this may have become another.
    """

    def __init__(self, shown: Callable[[], Hashable], change: Callable[[], anyio.Event]) -> None:
        self._shown = shown
        self._change = change
        self._seen: set[Hashable] = set()
        """What clients have got since the last announcement, and what that one was about."""
        self._sessions: set[Connection] = set()
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)

    def __repr__(self) -> str:
        return f"<Announcer: {len(self._sessions)} sessions>"

    def listed(self) -> None:
        """A client gets what is shown now. Nobody is told of changes before the first time."""
        self._seen.add(self._shown())

    def described_anew(self, before: Hashable, now: Hashable) -> None:
        """What clients have got is the same, and `shown` says `now` of it from now on."""
        if before in self._seen:
            self._seen = self._seen - {before} | {now}

    async def initialized(self, context: ServerRequestContext[Any], params: types.NotificationParams | None) -> None:
        """A session of the older revisions has begun; it is known until it ends."""
        connection = context.session._connection
        if connection not in self._sessions:
            self._sessions.add(connection)
            connection.exit_stack.callback(self._sessions.discard, connection)

    async def run(self) -> None:
        """Announce changes until cancelled."""
        while True:
            change = self._change()
            now = self._shown()
            if self._seen - {now}:
                self._seen = {now}
                await self._announce()
                await anyio.sleep(REST_SECONDS)
            else:
                await change.wait()
                await anyio.sleep(AFTER_SECONDS)

    async def _announce(self) -> None:
        log.info("the tool list has changed; %d sessions are told", len(self._sessions))
        await self.bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions):
                group.start_soon(_tell, connection)

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            yield {}
            self.listen.close()
            group.cancel_scope.cancel()


class AnnouncingServer(Server[Any]):
    """A server that says that it announces changes of its tools, and does.

    A `lifespan` given here has to enter that of the announcer.
    """

    def __init__(self, name: str, *, announcer: Announcer, **others: Any) -> None:
        others = {"lifespan": announcer.lifespan, **others}
        super().__init__(name, on_subscriptions_listen=announcer.listen, **others)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, announcer.initialized)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *others: Any, **more: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *others, **more)


async def _tell(connection: Connection) -> None:
    with anyio.move_on_after(SEND_SECONDS):
        try:
            await connection.send_tool_list_changed()
        except Exception as error:  # one session that is about to end must not keep the others from being told
            log.debug("a session could not be told: %r", error)
