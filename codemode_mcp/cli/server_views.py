"""The text of `codemode-mcp servers` for people. Pure.

Everything that servers have written is escaped, so that none of it can pass for a line of ours.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.run_views import table
from codemode_mcp.control.display import counted, cut, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_ERROR: Final = 400
"""Characters of an error."""

_HEAD: Final = ("SERVER", "STATE", "TOOLS", "CALLS", "UP", "PROTOCOL", "PROCESS")


def status_lines(servers: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield a table of servers, and a line for each that has an error or held items."""
    yield from table(_HEAD, [_row(each) for each in servers], width)
    for server in servers:
        yield from _notes(server)


def process_line(facts: Mapping[str, Any]) -> str:
    """Return a line about a serving process, above its servers."""
    config = cut(facts["config"] or "no configuration file", 200)
    return f"process {facts['pid']} ({facts['transport']}, {facts['mode']}), {config}:"


def detail_lines(server: Mapping[str, Any]) -> Iterator[str]:
    """Yield all facts about one server."""
    yield f"{cut(server['name'], 60)}: {state_text(server)}"
    program = " ".join(filter(None, (server["serverName"], server["serverVersion"])))
    facts = (
        ("program", cut(program, 100)),
        ("connection", server["transport"]),
        ("protocol", server["protocolVersion"] and f"{server['protocolVersion']} ({server['era']})"),
        ("process", ", ".join(map(str, server["pids"]))),
        ("ready for", _up(server)),
        ("tools", _tools(server)),
        ("calls in flight", str(server["calls"])),
        ("login", "stored login in use" if server["loggedIn"] else ""),
    )
    for name, value in facts:
        if value:
            yield f"  {name}: {value}"
    yield from _notes(server)
    for problem in server["problems"]:
        yield f"  {cut(problem, MAX_ERROR)}"


def state_text(server: Mapping[str, Any]) -> str:
    """Return the state of a server in words."""
    return "needs a login" if server["loginRequired"] else str(server["state"])


def log_line(line: Mapping[str, Any]) -> str:
    """Return a line of a server's log, with its local time and its source."""
    moment = datetime.fromtimestamp(line["time"], UTC).astimezone().strftime("%H:%M:%S")
    return f"{moment} {line['source']:10} {plain(line['text'])}"


def outcome_text(server: Mapping[str, Any]) -> str:
    """Return the result of a restart as a sentence."""
    name = f"server {cut(server['name'], 60)!r}"
    if server["state"] == "ready":
        return f"{name} is ready: {counted(server['tools'], 'tool')}"
    if server["state"] == "connecting":
        return f"{name} is still connecting; codemode-mcp servers status has its state"
    return f"{name} is {state_text(server)}: {cut(server['error'] or 'no reason is known', MAX_ERROR)}"


def _row(server: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        server["name"],
        state_text(server),
        _tools(server),
        str(server["calls"]),
        _up(server),
        server["protocolVersion"] or "",
        ", ".join(map(str, server["pids"])) or (server["transport"] or ""),
    )


def _notes(server: Mapping[str, Any]) -> Iterator[str]:
    name = cut(server["name"], 60)
    if server["held"]:
        yield f"{name}: {counted(server['held'], 'tool')} held until accepted: codemode-mcp trust status {name}"
    if server["error"]:
        yield f"{name}: {cut(server['error'], MAX_ERROR)}"
    elif server["lastError"]:
        yield f"{name}: last error {_ago(server['lastError'])}: {cut(server['lastError']['text'], MAX_ERROR)}"


def _tools(server: Mapping[str, Any]) -> str:
    return f"{server['tools']} (+{server['held']} held)" if server["held"] else str(server["tools"])


def _up(server: Mapping[str, Any]) -> str:
    return "" if server["uptimeSeconds"] is None else _duration(server["uptimeSeconds"])


def _ago(error: Mapping[str, Any]) -> str:
    return f"{_duration(error['secondsAgo'])} ago"


def _duration(seconds: int) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
