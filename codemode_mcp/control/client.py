"""The side of a terminal: finds the serving processes of this user, and asks them."""

from __future__ import annotations

import json
import os
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute

from codemode_mcp.control import places, protocol
from codemode_mcp.control.lines import Lines, peer_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anyio.abc import SocketStream

ANSWER_SECONDS = 15.0
"""Seconds for the answer of one server."""

CONCURRENT = 16
MAX_TOKEN_FILE = 4096


class NoAnswer(Exception):
    """A server could not be asked, or did not do what was asked. The message says why."""


class NobodyThere(NoAnswer):
    """No process listens there any more."""


@dataclass(frozen=True, slots=True)
class Found:
    """Answers of all servers.

    Attributes:
        answers: of each that has answered, where it is and what it said.
        problems: of those that have not, in words.
    """

    answers: tuple[tuple[places.Place, dict[str, Any]], ...]
    problems: tuple[str, ...]


async def ask(place: places.Place, request: protocol.Request) -> dict[str, Any]:
    """Return the answer of one server.

    Raises:
        NoAnswer: see there.
    """
    answer: dict[str, Any] | None = None
    try:
        with anyio.move_on_after(ANSWER_SECONDS):
            answer = await _ask(place, protocol.encode_request(request))
    except protocol.BadMessage as error:
        raise NoAnswer(f"process {place.pid} did not answer as it should: {error}") from None
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        if isinstance(error.__cause__ or error, ConnectionRefusedError | FileNotFoundError):
            places.forget(place)
            raise NobodyThere(f"process {place.pid} does not serve any more") from None
        raise NoAnswer(f"process {place.pid} could not be asked: {error or 'it has gone'}") from None
    if answer is None:
        raise NoAnswer(f"process {place.pid} has not answered within {ANSWER_SECONDS:g} s")
    if answer.get("ok") is not True:
        raise NoAnswer(str(answer.get("error", "it did not say why"))[:2000])
    return answer


async def ask_all(request: protocol.Request, folders: Sequence[Path] | None = None) -> Found:
    """Return the answers of all serving processes of this user."""
    problems: list[str] = []
    answers: list[tuple[places.Place, dict[str, Any]]] = []
    limiter = anyio.CapacityLimiter(CONCURRENT)

    async def one(place: places.Place) -> None:
        async with limiter:
            try:
                answers.append((place, await ask(place, request)))
            except NobodyThere:
                pass  # killed, some time
            except NoAnswer as error:
                problems.append(str(error))

    found: list[places.Place] = []
    for folder in places.folders() if folders is None else folders:
        try:
            found += await anyio.to_thread.run_sync(places.places, folder)
        except places.NotPrivate as error:
            problems.append(f"not looked at: {error}")
    async with anyio.create_task_group() as group:
        for place in found:
            group.start_soon(one, place)
    answers.sort(key=lambda each: each[0].pid)
    return Found(tuple(answers), tuple(problems))


async def _ask(place: places.Place, request: bytes) -> dict[str, Any]:
    token = None
    stream: SocketStream
    if place.kind == "sock":
        stream = await anyio.connect_unix(place.path)
    else:
        port, token = await anyio.to_thread.run_sync(_read_token, place)
        stream = await anyio.connect_tcp("127.0.0.1", port)
    async with stream:
        if token is None and peer_of(stream.extra(SocketAttribute.raw_socket)) != os.geteuid():
            raise protocol.BadMessage("it is a process of another user")
        lines = Lines(stream, protocol.MAX_ANSWER)
        if token is not None:
            await _show_each_other(stream, lines, token)
        await stream.send(request)
        return protocol.decode(await lines.next())


async def _show_each_other(stream: SocketStream, lines: Lines, token: str) -> None:
    """Neither side says anything else before the other has shown that it knows the token."""
    theirs = protocol.decode(await lines.next()).get("nonce")
    if not isinstance(theirs, str):
        raise protocol.BadMessage("it does not begin as a server does")
    ours = secrets.token_hex(16)
    await stream.send(
        protocol.encode({"nonce": ours, "proof": protocol.proof(token, "client", (theirs, ours))}),
    )
    if not protocol.proves(protocol.decode(await lines.next()).get("proof"), token, "server", (theirs, ours)):
        raise protocol.BadMessage("it does not know its own token")


def _read_token(place: places.Place) -> tuple[int, str]:
    flags = os.O_RDONLY | (0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(os.open(place.path, flags), "rb") as file:
        text = file.read(MAX_TOKEN_FILE)
    with suppress(ValueError):
        match json.loads(text):
            case {"port": int() as port, "token": str() as token} if 0 < port < 65536 and len(token) >= 32:
                return port, token
    raise protocol.BadMessage("the file with its token is damaged")
