"""A trial start of a stdio server: it gets `initialize`, and is ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from upstream_clients.stderr import StderrTail
from upstream_clients.stdio import open_process

if TYPE_CHECKING:
    from upstream_clients.line_messages import Incoming
    from upstream_clients.spec import UpstreamSpec

PROTOCOL: Final = "2025-06-18"


@dataclass(frozen=True, slots=True)
class Handshake:
    """The result of a start.

    Attributes:
        server: name and version of the server; empty if it did not answer.
        problem: reason why the server did not start or answer; empty if it did.
    """

    server: str = ""
    problem: str = ""


async def shake_hands(spec: UpstreamSpec, seconds: float) -> Handshake:
    """Start a stdio server, send `initialize` only, and end the server with its children.

    Wait `seconds` for the answer.
    """
    tail = StderrTail(spec.name, spec.redact)
    answer: Handshake | None = None
    try:
        with tail:
            async with open_process(spec, tail) as (transport, _):
                params = {
                    "protocolVersion": PROTOCOL,
                    "capabilities": {},
                    "clientInfo": {"name": "codemode-mcp-doctor", "version": "0"},
                }
                await transport.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
                with anyio.move_on_after(seconds):
                    try:
                        while answer is None:
                            answer = _answer(await transport.receive())
                    except anyio.EndOfStream:
                        answer = Handshake(problem="it exited before it answered")
    except (OSError, ValueError) as error:
        return Handshake(problem=f"it cannot be started: {getattr(error, 'strerror', None) or error}")
    answer = answer or Handshake(problem=f"it did not answer within {seconds:.0f} s")
    if not answer.problem:
        return answer
    code = "" if tail.exit_code is None else f" with code {tail.exit_code}" if tail.exit_code >= 0 else ""
    said = tail.telling_line or tail.stray_line
    exited = answer.problem.replace("it exited", f"it exited{code}")
    return Handshake(problem=exited + (f"; it said: {said}" if said else ""))


def _answer(message: Incoming) -> Handshake | None:
    if isinstance(message, Exception):
        return None
    match message:
        case {"id": 1, "result": result}:
            about = result.get("serverInfo")
            about = about if isinstance(about, dict) else {}
            return Handshake(server=" ".join(str(about[key]) for key in ("name", "version") if key in about) or "?")
        case {"id": 1, "error": error}:
            return Handshake(problem=f"it refused initialize: {error['message']}")
    return None
