"""The messages on the control socket, and the choice between reports of several processes. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.rules.policy.approval import Remember  # noqa: TC001 - msgspec reads it

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
    return hashlib.sha256(text.encode()).hexdigest()


# The choice of one report for a run that several processes report.
#
# All processes that share a store report its runs. For a moment, two processes may report the same run as theirs: the
# process that has taken it over, and the process that has not noticed this yet.


Source = TypeVar("Source")


class ReportedRun(Struct, Generic[Source], frozen=True):
    """A run with the report of the process that is closest to it; see `rank`.

    Attributes:
        source: the process that has reported the run.
        disputed: True if another process reports that it has the run too.
    """

    source: Source
    view: Mapping[str, Any]
    disputed: bool = False


def merge_reports(reports: Iterable[tuple[Source, Iterable[Mapping[str, Any]]]]) -> list[ReportedRun[Source]]:
    """Return each run once, in the order of the first reports.

    Args:
        reports: pairs of a source and its views of runs.
    """
    found: dict[str, ReportedRun[Source]] = {}
    for source, views in reports:
        for view in views:
            other = found.get(str(view["id"]))
            if other is None or rank(view) < rank(other.view):
                found[str(view["id"])] = ReportedRun(source, view)
            elif rank(view) == rank(other.view) and is_here(view):
                found[str(view["id"])] = ReportedRun(other.source, other.view, disputed=True)
    return list(found.values())


def is_here(view: Mapping[str, Any]) -> bool:
    """Return True if the reporting process has the run."""
    return where(view) == "here"


def where(view: Mapping[str, Any]) -> str:
    """Return the place of a run from the view of the reporting process: `here`, `elsewhere` or `stored`."""
    return str(view.get("where", "here"))  # a process of an earlier version reports only its own runs


def rank(view: Mapping[str, Any]) -> int:
    """Return a number that is lower, the closer the reporting process is to a run.

    Among processes that have the run, a process with a client that waits for the run comes first.
    """
    if is_here(view):
        return 0 if view["observed"] else 1 if view["endedMs"] is not None else 2
    if where(view) == "elsewhere":
        return 3
    return 4 if view.get("adoptable") else 5


# The servers of an application, as the control socket reports and restarts them, and the choice of one report for a
# server that several applications share.


class Servers(Protocol):
    """The servers of one application. `process.app.server_control` implements it."""

    def reports(self) -> list[dict[str, Any]]:
        """Return facts about all servers, as JSON.

        `number` identifies a server among all servers of this process; it is None for a disabled server.
        """
        ...

    def number_of(self, name: str) -> int | None:
        """Return the number of a server; None for an unknown or disabled server."""
        ...

    def lines_after(self, name: str, number: int) -> list[dict[str, Any]]:
        """Return the latest lines of a server after a number, as JSON. Raise `KeyError` for an unknown server."""
        ...

    def latest_lines(self) -> dict[int, int]: ...

    def restart(self, name: str, by: str) -> None:
        """End the processes and calls of a server, and start it again. Raise `KeyError` for an unknown server.

        Args:
            by: the person who restarts it, in words.
        """
        ...


def merged_servers(reports: Iterable[Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the servers of several applications of one process. A server that they share is listed once."""
    found: dict[tuple[str, int | None], Mapping[str, Any]] = {}
    for servers in reports:
        for server in servers:
            found.setdefault((server["name"], server["number"]), server)
    return [*found.values()]
