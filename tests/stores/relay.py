"""A wire between a client and a server on loopback that a test can cut, or on which nothing comes through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class Relay:
    """Carries connections to a port of this machine.

    Attributes:
        port: where it listens.
        silent: what is sent on it gets nowhere, and connections are taken all the same.
        accident: what happens, once, to the connection on which a client sends these bytes: `cut`, or `swallow` them
            and all that comes later; or the same with the answer, after they were forwarded.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.silent = False
        self.accident: tuple[str, bytes] | None = None
        self._target = target

    async def carry(self, client: SocketStream) -> None:
        with suppress(*_GONE):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self._target) as server,
                anyio.create_task_group() as both,
            ):
                happened: list[str] = []
                both.start_soon(self._upward, client, server, happened, both.cancel_scope)
                both.start_soon(self._downward, server, client, happened, both.cancel_scope)

    async def _upward(
        self, client: SocketStream, server: SocketStream, happened: list[str], scope: anyio.CancelScope
    ) -> None:
        with suppress(*_GONE):
            while True:
                data = await client.receive()
                if self.accident is not None and self.accident[1] in data:
                    happened.append(self.accident[0])
                    self.accident = None
                if "cut" in happened:
                    break
                if not self.silent and "swallow" not in happened:
                    await server.send(data)
        if not any("swallow" in what for what in happened):
            scope.cancel()

    async def _downward(
        self, server: SocketStream, client: SocketStream, happened: list[str], scope: anyio.CancelScope
    ) -> None:
        with suppress(*_GONE):
            while True:
                data = await server.receive()
                if "forward_then_cut" in happened:
                    break
                if not self.silent and not happened:
                    await client.send(data)
        scope.cancel()


@asynccontextmanager
async def relay(target: int) -> AsyncIterator[Relay]:
    """Yield one to this port, for the time inside."""
    carried = Relay(target)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        carried.port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, carried.carry)
            try:
                yield carried
            finally:
                group.cancel_scope.cancel()
