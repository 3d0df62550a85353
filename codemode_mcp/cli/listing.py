"""The lists, declarations and search results of `codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.display import columns, counted, cut, plain
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.catalog import EVERYTHING, Catalog
from codemode_mcp.catalog.search.finder import EXACT
from codemode_mcp.cli.loading import configured, server_suggestion, unknown_server, with_servers
from codemode_mcp.cli.messages import suggestion
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.cli.command_service import ToolsRequest
    from codemode_mcp.config import Config
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.rules.trust.service import Trust
    from codemode_mcp.server.services import App
    from upstream_clients.tools import UpstreamView


WEAK = 0.3
"""Part of the best score that a hit needs. A larger part loses answers to our labelled test queries."""

MAX_DESCRIPTION = 200
"""Characters of a description in a list."""


class ToolList(Struct, frozen=True):
    """The tools of a list or a search.

    Attributes:
        headings: the line above the tools of each server and plugin.
        notes: remarks for stderr.
    """

    entries: Sequence[Mapping[str, Any]]
    headings: Mapping[str, str]
    notes: Sequence[str]


def list_tools(
    catalog: Catalog,
    views: Sequence[UpstreamView],
    query: str | None,
    server: str | None,
    limit: int,
    trust: Trust | None = None,
) -> ToolList:
    """List a catalog, or search it. Held tools are in a list, with the accepted texts.

    Args:
        views: the servers with all their tools.
        server: the only server or plugin to list, by its identifier or its name.
        limit: the number of search results.

    Raises:
        ProgramError: there is no such server or plugin.
    """
    notes = [*server_errors(catalog), *_hidden(views, catalog)]
    only = None if server is None else _sources_named(catalog, server)
    if query is not None:
        entries = _search(catalog, query, limit, only)
        return ToolList(entries, {}, [*_no_match_notes(catalog, query, entries), *notes])
    entries = [_listed(catalog, entry) for entry in _entries(catalog) if only is None or _source(entry) in only]
    if trust is not None:
        entries += [each for each in _held(catalog, views, trust) if only is None or each["server"] in only]
    headings = {name: text for name, text in _headings(catalog) if only is None or name in only}
    return ToolList(entries, headings, notes)


def server_errors(catalog: Catalog) -> list[str]:
    return [server.error for server in catalog.servers if server.error]


def printed(tools: ToolList, request: ToolsRequest) -> Iterator[str]:
    if request.as_json:
        yield json.dumps(tools.entries, ensure_ascii=True, indent=2)
    else:
        yield from lines(tools, request.width, grouped=request.query is None, long=request.long)


def lines(tools: ToolList, width: int, *, grouped: bool, long: bool) -> Iterator[str]:
    """Yield one line for each tool: its call and the beginning of its description.

    Args:
        width: the columns of the terminal, or `command_requests.UNCUT`.
        grouped: group the tools by server.
        long: show whole signatures and descriptions, on several lines.
    """
    return _grouped(tools, width, long=long) if grouped else _hits(tools.entries, width, long=long)


def _entries(catalog: Catalog) -> Iterator[Entry]:
    for server in catalog.servers:
        yield from server.tools
    yield from catalog.toolset.entries


def _source(entry: Entry) -> str:
    if entry.source == "mcp":
        return entry.path.split(".")[1]
    return f"{entry.source} {entry.source_name}"


def _listed(catalog: Catalog, entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "server": _source(entry),
        "call": entry.path,
        "signature": catalog.signature(entry),
        "description": " ".join(entry.tool.description.split())[:MAX_DESCRIPTION],
    }


def _held(catalog: Catalog, views: Sequence[UpstreamView], trust: Trust) -> Iterator[dict[str, Any]]:
    """Yield the held tools that policy would not hide, in the form of `_listed`, with a status."""
    from codemode_mcp.catalog.entries import mcp_id
    from codemode_mcp.rules.trust.items import reference

    servers = {server.name: server for server in catalog.servers if server.held}
    for view in views:
        server = servers.get(view.name)
        if server is None:
            continue
        reasons = {*server.withheld.values()}  # without those for tools that policy hides
        for name, why in trust.trusted(view).withheld.items():
            if why in reasons:
                accepted, named = trust.accepted_tool(view.name, name), reference(view.name, "tool", escape_line(name))
                yield {
                    "id": mcp_id(view.name, name),
                    "server": server.identifier,
                    "call": named,
                    "signature": "",
                    "description": "" if accepted is None else " ".join(accepted.description.split())[:MAX_DESCRIPTION],
                    "status": "held",
                    "see": f"codemode-mcp trust diff {shlex.quote(named)}{trust.option}",
                }


def _sources_named(catalog: Catalog, wanted: str) -> tuple[str, ...]:
    """Return the servers and plugins that a name stands for. Raise `ProgramError` if there are none."""
    known = {server.identifier: (server.identifier, server.name) for server in catalog.servers}
    known |= {_source(entry): (_source(entry), entry.source_name) for entry in catalog.toolset.entries}
    found = tuple(source for source, names in known.items() if wanted in names)
    if found:
        return found
    advice = suggestion(wanted, [each for names in known.values() for each in names], known)
    raise ProgramError("invalid_input", f"--server: there is no server or plugin {wanted!r}; {advice}")


def _search(catalog: Catalog, query: str, limit: int, only: tuple[str, ...] | None) -> list[dict[str, Any]]:
    if only is None:
        hits = _strong(catalog.search(query, limit, None, EVERYTHING))
    else:
        servers = {server.identifier for server in catalog.servers}
        hits = [hit for name in only if name in servers for hit in _strong(catalog.search(query, limit, name))]
        found = _strong(catalog.toolset.search(query, limit))
        hits += [hit for hit in found if _source(catalog.resolve(hit["id"])) in only]
    return [hit if "call" in hit else {"call": catalog.resolve(hit["id"]).path, **hit} for hit in hits]


def _strong(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop hits that score far below the best one, for a person who reads the list from its top.

    Programs get all hits: otherwise a tool that is written to score high would hide the tools of other servers.
    """
    best = max((_base_score(hit) for hit in hits), default=0.0)
    return [hit for hit in hits if hit["score"] <= 1 or hit["score"] > EXACT or _base_score(hit) >= WEAK * best]


def _base_score(hit: Mapping[str, Any]) -> float:
    """Return the score of a hit without the bonuses for an exact name and for matching words."""
    score: float = hit["score"] - 1
    return score - EXACT if score >= EXACT else score


def _no_match_notes(catalog: Catalog, query: str, hits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from codemode_mcp.base.did_you_mean import nearest

    # A server whose tools are unknown is a hit of every search.
    found = [hit for hit in hits if hit.get("status") != "down" or hit["signature"]]
    if any(hit["score"] >= 1 or hit["score"] == 0 for hit in found):
        return
    if found:
        yield f"no tool has the words of {query!r}: these tools may be similar in meaning"
        return
    names = {entry.identifier: entry.path for entry in _entries(catalog)}
    near = [names[name] for word in [query, *query.split()] for name in nearest(word, names)]
    advice = f"the nearest names: {', '.join([*dict.fromkeys(near)][:3])}" if near else "try other words"
    yield f"nothing matches {query!r}; {advice}; without words, all {len(names)} tools are listed"


def _grouped(tools: ToolList, width: int, *, long: bool) -> Iterator[str]:
    by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in tools.headings}
    for entry in tools.entries:
        by_name.setdefault(entry["server"], []).append(entry)
    for number, (name, entries) in enumerate(by_name.items()):
        if number:
            yield ""
        yield _fit(f"{name}: {tools.headings.get(name) or counted(len(entries), 'tool')}", width)
        yield from _hits(entries, width, long=long, indent="  ")


def _hits(entries: Iterable[Mapping[str, Any]], width: int, *, long: bool, indent: str = "") -> Iterator[str]:
    for entry in entries:
        text = (entry["signature"] if long else "") or entry["call"]
        if entry.get("status") == "held":
            text = f"{text}  (held; to see it: {entry['see']})"
        elif entry.get("status") == "down":
            text = f"{text}  (down)"
        elif not long and entry["description"]:
            text = f"{text}  {' '.join(entry['description'].split())}"
        yield from _fold(text, width, indent) if long else [indent + _fit(text, width - len(indent))]
        if long and entry["description"]:
            yield from _fold(entry["description"], width, f"{indent}    ")


def _headings(catalog: Catalog) -> Iterator[tuple[str, str]]:
    for server in catalog.servers:
        text = "down" if server.status == "down" else counted(len(server.tools), "tool")
        if server.held:
            text += f", {server.held} held"
        groups = [group for group, _ in server.groups]
        if groups:
            text += f", {' and '.join(groups)}"
        yield server.identifier, text + (f" · {server.description}" if server.description else "")


def _fit(text: str, width: int) -> str:
    room = width
    while columns(shown := cut(text, room)) > width:
        room -= max(1, (columns(shown) - width) // 2)
    return shown


def _fold(text: str, width: int, indent: str) -> Iterator[str]:
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


def _hidden(views: Sequence[UpstreamView], catalog: Catalog) -> Iterator[str]:
    """Yield notes on the tools that the user at the terminal does not see: those that policy denies, and held ones."""
    offered = {view.name: len(view.tools) for view in views}
    # A held tool that policy denies as well counts as denied.
    held = {server.name: server.held for server in catalog.servers if server.held and server.name in offered}
    shown = {server.name: len(server.tools) + held.get(server.name, 0) for server in catalog.servers}
    hidden = {name: count - shown.get(name, 0) for name, count in offered.items() if count > shown.get(name, 0)}
    if hidden:
        count, tools = sum(hidden.values()), counted(sum(offered.values()), "tool")
        yield f"policy hides {count} of {tools}: {_by_server(hidden)}; see tools.allow and tools.deny"
    if held:
        waiting = counted(sum(held.values()), "tool")
        yield f"{waiting} held until accepted: {_by_server(held)}; codemode-mcp trust status shows the changes"


def _by_server(counts: Mapping[str, int]) -> str:
    """Return the counts of at most three servers, the highest first."""
    most = sorted(counts, key=lambda name: -counts[name])
    return ", ".join(f"{counts[name]} of {name}" for name in most[:3]) + (", ..." if len(most) > 3 else "")


# The tools and the declaration files of an application, for `codemode-mcp tools` and `codemode-mcp types`.


CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting servers."""


def of_server(config: Config, server: str | None) -> Config:
    """Return the configuration for the tools of one server or plugin; None for all."""
    if server is None:
        return config
    return with_servers(config, [server] if server in configured(config) else [], called=False)


async def tools_of(opened: App, caller: Caller, query: str | None, server: str | None) -> ToolList | None:
    """List or search the tools. Return None if there is no such server or plugin.

    The tools of a single server may come from its kept list, so that it need not start.
    """
    pool = await opened.pool()
    names = {spec.name for spec in of_server(opened.config, server).upstreams}
    if server is None or any(view.state != "idle" for view in pool.views() if view.name in names):
        await pool.connect(names, CONNECT_SECONDS)
    catalog = await opened.catalog_for(caller, None)
    if server is not None:
        catalog = catalog.with_servers(names)
    views = [view for view in pool.views() if view.name in names]
    try:
        limit = opened.settings().code_mode.search_default_limit
        return list_tools(catalog, views, query, server, limit, opened.trust)
    except ProgramError:
        return None


def unknown_source(server: str, config: Config) -> str:
    if server in config.disabled:
        return f"--server: {unknown_server(server, config)}"
    return f"--server: there is no server or plugin {server!r}; {server_suggestion(server, config)}"


async def types_of(opened: App, caller: Caller) -> tuple[dict[str, str], list[str]]:
    """Return the declaration files by their paths, and the errors of servers that are down."""
    from importlib import resources

    await opened.connect(CONNECT_SECONDS)
    catalog = await opened.catalog_for(caller, None)
    files = {path: catalog.files.text(path) for path in catalog.files.paths if not path.startswith("programs/")}
    if catalog.programs:
        files["programs.d.ts"] = catalog.toolset.programs.declarations()
    if catalog.toolset:
        files["tools.d.ts"] = catalog.toolset.declarations()
    package = resources.files("declarations")
    files["guest.d.ts"] = (package / "guest.d.ts").read_text("utf-8")
    files["codemode-mcp.schema.json"] = (package / "configuration.schema.json").read_text("utf-8")
    return files, server_errors(catalog)


def emptiness(config: Config) -> list[str]:
    if config.upstreams or config.plugins:
        return []
    return ["no server is enabled: see codemode-mcp import and add, or name a configuration with --config"]
