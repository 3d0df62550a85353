"""The terminal's side of the control socket: serving processes of this user, and requests to them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, SocketAttribute, SocketStream
from msgspec import Struct

from codemode_mcp.server.control import endpoints, protocol
from codemode_mcp.server.control.endpoints import Endpoint, peer_user, proof, proves
from codemode_mcp.server.control.protocol import BadMessage

ANSWER_SECONDS = 15.0
"""Timeout for the answer of one server."""

MAX_CONCURRENT = 16
"""Maximum number of servers that are asked at the same time."""


class NoAnswer(Exception):
    """Error for a server that sent no valid answer, or rejected the request. The message has the reason."""


class NotListening(NoAnswer):
    """Error for an endpoint whose process has ended."""


class TooSlow(NoAnswer):
    """Error for a server that accepts a connection, but does not answer. It may be stopped."""


class Answers(Struct, frozen=True):
    """Answers of all servers.

    Attributes:
        answers: pairs of an endpoint and its answer.
        problems: a sentence for each server without an answer.
    """

    answers: tuple[tuple[Endpoint, dict[str, Any]], ...]
    problems: tuple[str, ...]


async def ask(endpoint: Endpoint, request: protocol.Request, seconds: float | None = None) -> dict[str, Any]:
    """Return the answer of one server.

    Args:
        seconds: the timeout; None for `ANSWER_SECONDS`.

    Raises:
        TooSlow: the server does not answer within the timeout.
        NoAnswer: the answer is an error.
    """
    seconds = ANSWER_SECONDS if seconds is None else seconds
    answer: dict[str, Any] | None = None
    try:
        with anyio.move_on_after(seconds):
            answer = await _ask(endpoint, protocol.encode_request(request))
    except protocol.BadMessage as error:
        raise NoAnswer(f"process {endpoint.pid} gave no valid answer: {error}") from None
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        if isinstance(error.__cause__ or error, ConnectionRefusedError | FileNotFoundError):
            endpoints.remove_stale(endpoint)
            raise NotListening(f"process {endpoint.pid} no longer serves") from None
        reason = str(error) or "it closed the connection"
        raise NoAnswer(f"no answer from process {endpoint.pid}: {reason}") from None
    if answer is None:
        raise TooSlow(f"process {endpoint.pid} has not answered within {seconds:g} s")
    if answer.get("ok") is not True:
        raise NoAnswer(str(answer.get("error", "it gave no reason"))[:2000])
    return answer


async def ask_all(request: protocol.Request, folders: Sequence[Path] | None = None) -> Answers:
    """Return the answers of all serving processes of this user."""
    problems: list[str] = []
    answers: list[tuple[Endpoint, dict[str, Any]]] = []
    limiter = anyio.CapacityLimiter(MAX_CONCURRENT)

    async def ask_one(endpoint: Endpoint) -> None:
        async with limiter:
            try:
                answers.append((endpoint, await ask(endpoint, request)))
            except NotListening:
                pass  # the process was killed, and has nothing to report
            except NoAnswer as error:
                problems.append(str(error))

    found: list[Endpoint] = []
    for folder in endpoints.folders() if folders is None else folders:
        try:
            found += await anyio.to_thread.run_sync(endpoints.endpoints_in, folder)
        except endpoints.NotPrivate as error:
            problems.append(f"a folder was not searched for servers: {error}")
    async with anyio.create_task_group() as group:
        for endpoint in found:
            group.start_soon(ask_one, endpoint)
    answers.sort(key=lambda each: each[0].pid)
    return Answers(tuple(answers), tuple(problems))


async def _ask(endpoint: Endpoint, request: bytes) -> dict[str, Any]:
    token = None
    stream: SocketStream
    if endpoint.kind == "sock":
        stream = await anyio.connect_unix(endpoint.path)
    else:
        try:
            port, token = await anyio.to_thread.run_sync(endpoints.read_token, endpoint.path)
        except ValueError:
            raise protocol.BadMessage("the file with its port and token is damaged") from None
        stream = await anyio.connect_tcp("127.0.0.1", port)
    async with stream:
        if token is None and peer_user(stream.extra(SocketAttribute.raw_socket)) != os.geteuid():
            raise protocol.BadMessage("the process belongs to another user")
        lines = LineReader(stream, protocol.MAX_ANSWER)
        if token is not None:
            await _authenticate(stream, lines, token)
        await stream.send(request)
        return protocol.decode(await lines.next())


async def _authenticate(stream: SocketStream, lines: LineReader, token: str) -> None:
    """Prove that this side knows the token, and check the proof of the server.

    Nothing else is sent before that. Another program may have the port of a server that has ended, and must learn
    neither the token nor the request.
    """
    theirs = protocol.decode(await lines.next()).get("nonce")
    if not isinstance(theirs, str):
        raise protocol.BadMessage("its first message has no nonce")
    ours = secrets.token_hex(16)
    await stream.send(
        protocol.encode({"nonce": ours, "proof": proof(token, "client", (theirs, ours))}),
    )
    if not proves(protocol.decode(await lines.next()).get("proof"), token, "server", (theirs, ours)):
        raise protocol.BadMessage("it does not know its own token")


class LineReader:
    """The reader of lines of at most `limit` bytes from a stream."""

    def __init__(self, stream: ByteReceiveStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    async def next(self) -> bytes:
        """Return the next line, without its line feed.

        Raises:
            BadMessage: the line is too long, or the stream ended before the line.
        """
        while True:
            if self._chunks and b"\n" in self._chunks[-1]:
                line, _, rest = b"".join(self._chunks).partition(b"\n")
                self._chunks, self._size = [rest] if rest else [], len(rest)
                return line
            if self._size > self._limit:
                raise BadMessage(f"more than {self._limit} bytes in one line")
            try:
                chunk = await self._stream.receive(65536)
            except anyio.EndOfStream:
                raise BadMessage("the other side closed the connection in the middle of a line") from None
            self._chunks.append(chunk)
            self._size += len(chunk)
