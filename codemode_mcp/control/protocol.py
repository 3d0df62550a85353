"""The messages between a terminal and a serving process. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.policy.approval import Remember

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Version of the messages. Both sides must have the same version."""

MAX_REQUEST = 256 * 1024
"""Maximum bytes of a line to the server."""

MAX_ANSWER = 16 * 1024 * 1024
"""Maximum bytes of a line to the client."""

MAX_DECIDED = 2000
"""Maximum number of calls in one request."""

MAX_SERVER_NAME = 1000
"""Maximum characters of the name of a server in a request."""

Operation = Literal[
    "list", "show", "decide", "cancel", "export", "clients", "servers", "logs", "restart", "ui", "instance", "stop"
]
"""`export` is about one run, `logs` and `restart` are about one server. `ui` opens the page. `instance` and `stop` are
for the shared instance."""


class BadMessage(Exception):
    """Error for a message that is not valid. The text of the error is the reason."""


class Request(Struct, frozen=True):
    """A request of a terminal.

    Attributes:
        run: the full id of a run; "" for a listing of runs, clients or servers.
        calls: the decided calls: the number of each, and the digest of the arguments that were shown to the person.
        server: the name of a server.
        after: number of the latest line of the server's log that is known already; with `export`, the number of bytes.
    """

    operation: Operation
    run: str = ""
    calls: Annotated[tuple[tuple[int, str], ...], Meta(max_length=MAX_DECIDED)] = ()
    approved: bool = False
    remember: Remember = "no"
    server: Annotated[str, Meta(max_length=MAX_SERVER_NAME)] = ""
    after: Annotated[int, Meta(ge=0)] = 0


_REQUIRED = ("operation", "run", "calls", "approved", "remember")
"""Fields of every request. A terminal of an earlier version does not send the others."""


def encode_request(request: Request) -> bytes:
    """Return the line of a request."""
    return encode({"version": VERSION, **msgspec.structs.asdict(request)})


def decode_request(line: bytes) -> Request:
    """Return the request of a line. Raise `BadMessage`."""
    message = decode(line)
    if message.get("version") != VERSION:
        raise BadMessage(
            f"this server speaks version {VERSION} of the control protocol; use the codemode-mcp of the same version"
        )
    missing = [name for name in _REQUIRED if name not in message]
    if missing:
        raise BadMessage(f"not a request: {missing[0]!r} is missing")
    try:
        return msgspec.convert(message, Request)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadMessage(f"not a request: {str(error)[:200]}") from None


def attach_request(line: bytes) -> dict[str, Any] | None:
    """Return the message of a relay that attaches a client; None for any other line. Raise `BadMessage`."""
    message = decode(line)
    return message if message.get("operation") == "attach" else None


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of ASCII without control characters, even if its texts contain some."""
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of a line. Raise `BadMessage`."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise BadMessage("not JSON") from None
    if not isinstance(message, dict):
        raise BadMessage("not a JSON object")
    return message


def text_of(arguments: Any) -> str:
    """Return arguments as one line of JSON. A person sees this text, and `digest_of` is applied to it."""
    return json.dumps(arguments, ensure_ascii=True)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
