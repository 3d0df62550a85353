"""Overlaps between clients and this server: servers that both start, and clients that have a code mode, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.cli.mcp_clients.dialects import NotImportable
from codemode_mcp.cli.mcp_clients.entries import IsThisServer, convert, is_this_server
from codemode_mcp.cli.mcp_clients.importing import existing_at, identity, servers_of
from codemode_mcp.cli.mcp_clients.locations import OWN_CODE_MODE, TITLES
from codemode_mcp.cli.mcp_clients.reading import read_clients
from codemode_mcp.cli.mcp_clients.secrets import VariableNames, with_variables
from codemode_mcp.config.nodes import quote
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.locations import Machine
    from codemode_mcp.cli.mcp_clients.reading import Source


@dataclass(frozen=True, slots=True)
class Overlap:
    """A server that a client starts both directly and through this server."""

    source: Source
    name: str
    our_name: str


def overlaps(sources: Iterable[Source], ours: Mapping[str, Any], machine: Machine) -> tuple[Overlap, ...]:
    """Return the servers that clients start twice.

    Args:
        ours: the entries in the file of our configuration, with their references unexpanded.
    """
    known = {identity(entry): name for name, entry in ours.items() if isinstance(entry, dict)}
    by_client: dict[str | None, list[Source]] = {}
    for source in sources:
        by_client.setdefault(source.client, []).append(source)
    found: list[Overlap] = []
    for client_sources in by_client.values():
        names = VariableNames()
        direct: list[Overlap] = []
        starts_us = False
        for source in client_sources:
            for name, entry in source.servers.items():
                try:
                    literal = convert(name, entry, source, machine, names).entry
                except IsThisServer:
                    starts_us = starts_us or not (isinstance(entry, dict) and entry.get("disabled") is True)
                    continue
                except NotImportable:
                    continue
                variable, _ = with_variables(literal, name, names)
                our_name = known.get(identity(literal)) or known.get(identity(variable))
                if our_name and "disabled" not in literal:
                    direct.append(Overlap(source, name, our_name))
        if starts_us:
            found += direct
    return tuple(found)


def overlap_warnings(config_path: Path | None, machine: Machine) -> tuple[str, ...]:
    """Return a warning for each file with servers that its client starts both directly and through this server."""
    try:
        ours = {} if config_path is None else servers_of(existing_at(config_path))
    except SourceError:
        return ()
    by_path: dict[Path, list[Overlap]] = {}
    for each in overlaps(read_clients(machine), ours, machine) if ours else ():
        by_path.setdefault(each.source.path, []).append(each)
    return tuple(
        f"{found[0].source.title} starts {', '.join(dict.fromkeys(quote(each.name) for each in found))} itself and "
        f"through codemode-mcp; remove {'it' if len(found) == 1 else 'them'} from {path}"
        for path, found in by_path.items()
    )


def clients_with_code_mode(machine: Machine) -> tuple[str, ...]:
    """Return the titles of clients that start this server and also have a code mode."""
    found = {
        source.client
        for source in read_clients(machine, OWN_CODE_MODE)
        if any(is_this_server(entry, source.client) for entry in source.servers.values())
    }
    return tuple(TITLES[client] for client in OWN_CODE_MODE if client in found)
