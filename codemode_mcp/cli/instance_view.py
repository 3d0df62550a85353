"""The report on the shared instance as text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import counted, cut, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_CLIENTS: Final = 50
"""Clients that the report lists."""


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report. `facts`: see `instance.host.Host`."""
    size = _size(facts.get("memoryBytes"))
    ending = f" It is ending: {facts['leaving']}." if facts["leaving"] else ""
    yield f"The shared instance runs: process {facts['pid']}, version {facts['version']}{size}.{ending}"
    served = plain(facts["config"] or "no configuration file")
    yield f"It has served {served} for {_duration(facts['uptimeSeconds'])}."
    if facts["http"]:
        yield f"It serves MCP at {plain(facts['http'])} too."
    clients, servers, saved = facts["clients"], facts["servers"], facts["saved"]
    yield f"{counted(len(clients), 'client')}{':' if clients else ''}"
    for client in clients[:MAX_CLIENTS]:
        yield _client_line(client)
    if len(clients) > MAX_CLIENTS:
        yield f"  and {len(clients) - MAX_CLIENTS} more; --json lists all"
    yield f"{counted(len(servers), 'server')}{':' if servers else ''}"
    for server in servers:
        pids = ", ".join(map(str, server["pids"]))
        process = f", process {pids}" if pids else ""
        yield f"  {cut(plain(server['name']), 60)}: {server['state']}{process}{_size(server['memoryBytes'])}"
    if saved is not None:
        yield saved_text(saved)


def saved_text(saved: Mapping[str, Any]) -> str:
    """Return what the instance saves, as a sentence."""
    count = saved["processes"]
    memory = "" if saved["bytes"] is None else f" and {saved['bytes'] / 1e6:,.0f} MB"
    processes = f"{count} process{'' if count == 1 else 'es'}"
    return f"Estimate: a private server for each client would take {processes}{memory} more."


def _client_line(client: Mapping[str, Any]) -> str:
    name = cut(plain(client["name"] or "(no name yet)"), 60)
    version = f" {cut(plain(client['clientVersion']), 30)}" if client["clientVersion"] else ""
    limits = ["read-only"] if client["readOnly"] else []
    limits += ["locked"] if client.get("locked") else []
    limits += [f"context {client['context']}"] if client["context"] else []
    suffix = f" ({cut(plain(', '.join(limits)), 80)})" if limits else ""
    role = "relay" if client["command"] is None else "process"
    return f"  {name}{version}, {role} {client['pid']}, in {cut(plain(client['folder']), 200)}{suffix}"


def _size(size: int | None) -> str:
    return "" if size is None else f", {size / 1e6:.0f} MB"


def _duration(seconds: int) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
