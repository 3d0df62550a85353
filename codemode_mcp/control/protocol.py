"""The messages between a terminal and a serving process: what may be asked, and how each side shows who it is. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from codemode_mcp.policy.approval import Remember

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1

MAX_REQUEST = 256 * 1024
"""Bytes of a line to the server."""

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes of a line to the client."""

MAX_DECIDED = 2000
"""Calls in one request."""

Operation = Literal["list", "show", "decide", "cancel", "clients"]


class BadMessage(Exception):
    """The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a terminal.

    Attributes:
        run: the whole id of a run; "" for a listing of runs or clients.
        calls: number and digest of the arguments of each call that a person has seen.
    """

    operation: Operation
    run: str = ""
    calls: tuple[tuple[int, str], ...] = ()
    approved: bool = False
    remember: Remember = "no"


def encode_request(request: Request) -> bytes:
    message = {
        "version": VERSION,
        "operation": request.operation,
        "run": request.run,
        "calls": request.calls,
        "approved": request.approved,
        "remember": request.remember,
    }
    return encode(message)


def decode_request(line: bytes) -> Request:
    """Raises `BadMessage`."""
    message = decode(line)
    if message.get("version") != VERSION:
        raise BadMessage(f"this server speaks version {VERSION} of the control protocol; use the same codemode-mcp")
    match message:
        case {
            "operation": str() as operation,
            "run": str() as run,
            "calls": list() as calls,
            "approved": bool() as approved,
            "remember": str() as remember,
        } if operation in get_args(Operation) and remember in get_args(Remember) and len(calls) <= MAX_DECIDED:
            numbered = []
            for call in calls:
                match call:
                    case [int() as number, str() as digest] if not isinstance(number, bool):
                        numbered.append((number, digest))
                    case _:
                        raise BadMessage("not a request: a call is a number and a digest")
            return Request(operation, run, tuple(numbered), approved, remember)  # type: ignore[arg-type]
    raise BadMessage("not a request")


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a line. Whatever is in the message, it is ASCII without control characters."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Raises `BadMessage`."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise BadMessage("not JSON") from None
    if not isinstance(message, dict):
        raise BadMessage("not a JSON object")
    return message


def text_of(arguments: Any) -> str:
    """Arguments as what is shown and what a digest is of: one line of JSON."""
    return json.dumps(arguments, ensure_ascii=True)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def proof(token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> str:
    """Return a proof that one side knows the token, without a disclosure to the other end of a port.

    Args:
        nonces: the server's, the client's.
    """
    return hmac.new(token.encode(), "\n".join((side, *nonces)).encode(), "sha256").hexdigest()


def proves(given: object, token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), proof(token, side, nonces).encode())
