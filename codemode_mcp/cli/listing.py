"""Lists and search results of `codemode-mcp tools`, in lines that fit a terminal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.control.display import columns, counted, cut, plain
from codemode_mcp.errors import ProgramError
from codemode_mcp.search.finder import EXACT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from upstream_clients.tools import UpstreamView

UNCUT = 10_000
"""Columns of a pipe."""

WEAK = 0.3
"""Share of the best score that a hit needs. More loses answers of the labelled requests."""

MAX_DESCRIPTION = 200
"""Characters of a description in a listing."""


@dataclass(frozen=True, slots=True)
class Found:
    """Tools of a list.

    Attributes:
        heads: what is said of each server and plugin above its tools.
        notes: for stderr.
    """

    entries: Sequence[Mapping[str, Any]]
    heads: Mapping[str, str]
    notes: Sequence[str]


def find(catalog: Catalog, views: Iterable[UpstreamView], query: str | None, server: str | None, limit: int) -> Found:
    """List a catalog, or search it.

    Args:
        views: the servers with all their tools.
        server: of which alone; as a program or the configuration has it.

    Raises:
        ProgramError: there is no such server.
    """
    notes = [*problems(catalog), *_hidden(views, catalog)]
    only = None if server is None else _source(catalog, server)
    if query is not None:
        entries = _search(catalog, query, limit, only)
        return Found(entries, {}, [*_why_nothing(catalog, query, entries), *notes])
    entries = [_listed(catalog, entry) for entry in _entries(catalog) if only is None or _name(entry) in only]
    heads = {name: said for name, said in _heads(catalog) if only is None or name in only}
    return Found(entries, heads, notes)


def lines(found: Found, width: int, *, grouped: bool, long: bool) -> Iterator[str]:
    """Write one line a tool: its call and the beginning of its description.

    Args:
        width: columns of the terminal; `UNCUT` for a pipe.
        grouped: by server.
        long: write whole signatures and descriptions.
    """
    return _grouped(found, width, long=long) if grouped else _hits(found.entries, width, long=long)


def _entries(catalog: Catalog) -> Iterator[Entry]:
    for server in catalog.servers:
        yield from server.tools
    yield from catalog.toolset.entries


def _name(entry: Entry) -> str:
    """Return the server's name as a program writes it, or the other source of a tool."""
    if entry.source == "mcp":
        return entry.path.split(".")[1]
    return f"{entry.source} {entry.source_name}"


def _listed(catalog: Catalog, entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "server": _name(entry),
        "call": entry.path,
        "signature": catalog.signature(entry),
        "description": " ".join(entry.tool.description.split())[:MAX_DESCRIPTION],
    }


def _source(catalog: Catalog, wanted: str) -> tuple[str, ...]:
    """Return the source that a name means. Raises `ProgramError` where there is none."""
    from codemode_mcp.did_you_mean import nearest

    known = {server.identifier: (server.identifier, server.name) for server in catalog.servers}
    for entry in catalog.toolset.entries:
        known[_name(entry)] = (_name(entry), entry.source_name)
    found = tuple(name for name, names in known.items() if wanted in names)
    if found:
        return found
    near = nearest(wanted, [each for names in known.values() for each in names])
    advice = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise ProgramError("invalid_input", f"--server: there is no server or plugin {wanted!r}; {advice}")


# searching


def _search(catalog: Catalog, query: str, limit: int, only: tuple[str, ...] | None) -> list[dict[str, Any]]:
    """Scores compare within one kind: the MCP tools first, as `API.search` has them."""
    servers = {server.identifier for server in catalog.servers}
    among: list[str | None] = [None] if only is None else [name for name in only if name in servers]
    hits = [hit for name in among for hit in _strong(catalog.search(query, limit, name))]
    for hit in _strong(catalog.toolset.search(query, limit)):
        entry = catalog.resolve(hit["id"])
        if only is None or _name(entry) in only:
            hits.append({"call": entry.path, **hit})
    return hits


def _strong(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out hits that are far behind the best one, for a person reads the list from its top.

    Programs get them all: a tool that is written to score high would otherwise hide those of other servers.
    """
    best = max((_worth(hit) for hit in hits), default=0.0)
    return [hit for hit in hits if hit["score"] <= 1 or hit["score"] > EXACT or _worth(hit) >= WEAK * best]


def _worth(hit: Mapping[str, Any]) -> float:
    """Return the score of a hit as it was before what is added for an exact name and for being no near miss."""
    score: float = hit["score"] - 1
    return score - EXACT if score >= EXACT else score


def _why_nothing(catalog: Catalog, query: str, hits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from codemode_mcp.did_you_mean import nearest

    # A server with unknown tools is a hit of every search.
    found = [hit for hit in hits if hit.get("status") != "down" or hit["signature"]]
    if any(hit["score"] >= 1 or hit["score"] == 0 for hit in found):
        return
    if found:
        yield f"no tool has the words of {query!r}: these are nearest in meaning, as far as that can be told"
        return
    names = {entry.identifier: entry.path for entry in _entries(catalog)}
    near = [names[name] for word in [query, *query.split()] for name in nearest(word, names)]
    advice = f"the nearest names: {', '.join([*dict.fromkeys(near)][:3])}" if near else "try other words"
    yield f"nothing matches {query!r}; {advice}; without words, all {len(names)} tools are listed"


# in lines


def _grouped(found: Found, width: int, *, long: bool) -> Iterator[str]:
    by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in found.heads}
    for entry in found.entries:
        by_name.setdefault(entry["server"], []).append(entry)
    first = True
    for name, entries in by_name.items():
        if not first:
            yield ""
        first = False
        yield _fit(f"{name}: {found.heads.get(name) or counted(len(entries), 'tool')}", width)
        yield from _hits(entries, width, long=long, indent="  ")


def _hits(entries: Iterable[Mapping[str, Any]], width: int, *, long: bool, indent: str = "") -> Iterator[str]:
    for entry in entries:
        text = (entry["signature"] if long else "") or entry["call"]
        if entry.get("status") == "down":
            text = f"{text}  (down)"
        elif not long and entry["description"]:
            text = f"{text}  {' '.join(entry['description'].split())}"
        yield from _folded(text, width, indent) if long else [indent + _fit(text, width - len(indent))]
        if long and entry["description"]:
            yield from _folded(entry["description"], width, f"{indent}    ")


def _heads(catalog: Catalog) -> Iterator[tuple[str, str]]:
    for server in catalog.servers:
        said = "down" if server.status == "down" else counted(len(server.tools), "tool")
        groups = [group for group, _ in server.groups]
        if groups:
            said += f", {' and '.join(groups)}"
        yield server.identifier, said + (f" · {server.description}" if server.description else "")


def _fit(text: str, width: int) -> str:
    """Return a text on one line, with a mark where it was longer."""
    room = width
    while columns(shown := cut(text, room)) > width:
        room -= max(1, (columns(shown) - width) // 2)
    return shown


def _folded(text: str, width: int, indent: str) -> Iterator[str]:
    """Yield a text in lines that fit, broken between words where possible; all but the first are indented."""
    line = indent
    for word in plain(text).split():
        rest = f" {word}" if line.strip() else word
        if columns(line) + columns(rest) > width and line.strip():
            yield line
            line, rest = f"{indent}  ", word
        while columns(line) + columns(rest) > width:
            end, used = 0, columns(line)
            while used + columns(rest[end]) <= width:
                used += columns(rest[end])
                end += 1
            end = max(1, end)
            yield line + rest[:end]
            line, rest = f"{indent}  ", rest[end:]
        line += rest
    yield line


# what is not listed


def problems(catalog: Catalog) -> list[str]:
    return [server.error for server in catalog.servers if server.error]


def _hidden(views: Iterable[UpstreamView], catalog: Catalog) -> Iterator[str]:
    """Yield the number of tools that policy denies to the user at the terminal."""
    offered = {view.name: len(view.tools) for view in views}
    shown = {server.name: len(server.tools) for server in catalog.servers}
    hidden = {name: count - shown.get(name, 0) for name, count in offered.items() if count > shown.get(name, 0)}
    if hidden:
        most = sorted(hidden, key=lambda name: -hidden[name])
        named = ", ".join(f"{hidden[name]} of {name}" for name in most[:3]) + (", ..." if len(most) > 3 else "")
        total, of = sum(hidden.values()), counted(sum(offered.values()), "tool")
        yield f"policy hides {total} of {of}: {named}; see tools.allow and tools.deny"
