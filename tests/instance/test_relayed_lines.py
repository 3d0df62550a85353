"""The lines of a relay, as the instance receives them: in turn with those of other relays, and not for ever unread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel

from codemode_mcp.process.instance.clients import MAX_UNSENT, RelayedLines
from codemode_mcp.server.control.server import Accepted

SECONDS = 10.0


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[RelayedLines, socket.socket]]:
    """Yield the lines of a relay, and the relay's end of the connection."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Accepted(10**6, lambda _: None), sock=ours)
        try:
            yield RelayedLines(connection, lambda *_: None), theirs
        finally:
            connection.abort()


async def test_a_client_that_sends_many_lines_gets_a_turn_in_each_round_of_the_loop() -> None:
    async with relayed() as (lines, relay):
        relay.sendall(b"".join(b'{"n": %d}\n' % number for number in range(50)))
        rounds = 0
        over = False

        async def count_rounds() -> None:
            nonlocal rounds
            while not over:
                await anyio.lowlevel.checkpoint()
                rounds += 1

        async with anyio.create_task_group() as group:
            assert await lines.receive() == '{"n": 0}'
            group.start_soon(count_rounds)
            for number in range(1, 50):
                assert await lines.receive() == f'{{"n": {number}}}'
            over = True
        assert rounds >= 48


async def test_no_line_of_a_client_is_received_while_it_does_not_read() -> None:
    async with relayed() as (lines, relay):
        with anyio.move_on_after(0.1):
            await lines.send(b"x" * 4 * MAX_UNSENT)
        relay.sendall(b"{}\n")
        received = None
        with anyio.move_on_after(0.2):
            received = await lines.receive()
        assert received is None
        async with anyio.create_task_group() as group:
            group.start_soon(_read_all, relay, 4 * MAX_UNSENT)
            with anyio.fail_after(SECONDS):
                assert await lines.receive() == "{}"


async def test_few_bytes_are_read_before_they_are_received() -> None:
    async with relayed() as (lines, relay):
        line = b'"' + b"x" * 900_000 + b'"\n'
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(20):
                await asyncio.get_running_loop().sock_sendall(relay, line)
                sent += 1

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.sleep(0.3)
            assert sent <= 3  # two that are read, and a part of one that the system has
            for _ in range(20):
                assert await lines.receive() == line[:-1].decode()
        assert sent == 20


async def test_a_relay_that_goes_without_reading_ends_the_lines() -> None:
    async with relayed() as (lines, relay):
        with anyio.move_on_after(0.1):
            await lines.send(b"x" * 4 * MAX_UNSENT)
        relay.close()
        with anyio.fail_after(SECONDS):
            assert await lines.receive() is None


async def _read_all(relay: socket.socket, size: int) -> None:
    while size > 0:
        with suppress(BlockingIOError):
            size -= len(relay.recv(1 << 16))
        await anyio.lowlevel.checkpoint()
