"""The immutable view of all tools that policy lets a program see, with look-ups.

A run keeps the catalog that it started with. The tools are named and the manifest is written once; the warm image is
made from the manifest. Declaration files, validators and search indexes are made on demand.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from codemode_mcp.base.did_you_mean import hint, nearest, normalize_name
from codemode_mcp.base.text import one_line, quoted
from codemode_mcp.catalog.entries import Entry, OfferedNamespace, Source
from codemode_mcp.catalog.files import INDEX, DeclarationFiles
from codemode_mcp.catalog.search import Found
from codemode_mcp.catalog.servers import Server, ServerIndex, lookup_error, method
from codemode_mcp.catalog.toolset import NO_TOOLS, SAVED, Toolset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from declarations.functions import ScopeObject
    from upstream_clients.tools import JsonObject, Tool

_GROUP_WORDS = {"resource": "resources", "template": "resources", "prompt": "prompts"}
"""Words of a query that ask for a group of operations."""

WITH_PROGRAMS: frozenset[Source] = frozenset({"program"})
"""The sources of hits of `API.search`, beside MCP servers."""

UNFOLDED_HITS = 2
UNFOLDED_ROOM = 1_000
"""Number of hits of a search whose arguments may be unfolded, and of characters that this may add to them."""

EVERYTHING: frozenset[Source] = frozenset(get_args(Source)) - {"mcp"}

_NONE: Mapping[str, Any] = {}


class Catalog:
    """The view of an index of servers and of a toolset. `build.build` makes one.

    Args:
        index: MCP tools. All catalogs that see the same MCP tools share the index.
        toolset: the tools that are not MCP tools.
        observed: observed result types, by tool id, for tools without an output schema.
        scopes: contents of the scopes of namespaces in one program, by the ids of namespaces.
        base: a catalog with the same index and toolset, whose manifest is used.
    """

    def __init__(
        self,
        index: ServerIndex,
        toolset: Toolset = NO_TOOLS,
        observed: Mapping[str, JsonObject] = _NONE,
        scopes: Mapping[str, ScopeObject] = _NONE,
        base: Catalog | None = None,
    ) -> None:
        self.index = index
        self.servers = index.servers
        self.toolset = toolset
        self.files = DeclarationFiles(index, toolset, observed, scopes)
        self._observed = observed
        self._base = base

    def __len__(self) -> int:
        return len(self.index.by_id) + len(self.toolset) + len(self.toolset.programs)

    def __repr__(self) -> str:
        return f"<Catalog {self.version}: {len(self)} tools, of {len(self.servers)} servers and others>"

    @cached_property
    def manifest(self) -> str:
        """The JSON text from which the warm image is made."""
        if self._base is not None:
            return self._base.manifest
        return f'{{"servers":{self.index.manifest_text},{self.toolset.manifest}}}'

    @cached_property
    def version(self) -> str:
        return hashlib.sha256(self.manifest.encode()).hexdigest()[:16]

    @property
    def namespaces(self) -> tuple[OfferedNamespace, ...]:
        """The namespaces of plugins whose tools are all visible."""
        return self.toolset.namespaces

    @property
    def members(self) -> dict[str, frozenset[str] | None]:
        """The names after `MCP.<server>.`; see `ServerIndex.members`."""
        return self.index.members

    @property
    def programs(self) -> frozenset[str]:
        return self.toolset.programs.names

    @property
    def broken_programs(self) -> frozenset[str]:
        """The names of saved programs whose files have problems. They are no members of `programs`."""
        return self.toolset.programs.broken

    @property
    def contested(self) -> Mapping[str, str]:
        """Sentences about names that several servers or tools would have; see `ServerIndex.contested`."""
        return self.index.contested

    @property
    def withheld(self) -> Mapping[str, Mapping[str, str]]:
        """The reasons why tools are held; see `ServerIndex.withheld`."""
        return self.index.withheld

    @cached_property
    def sources(self) -> Mapping[str, int]:
        counts = Counter(entry.source for entry in (*self.toolset.entries, *self.toolset.programs.entries))
        return {"mcp": len(self.index.by_id), **{source: counts[source] for source in sorted(counts)}}

    def with_observed(self, schemas: Mapping[str, JsonObject]) -> Catalog:
        """Return this catalog with observed result types, by tool id, for tools without an output schema."""
        return Catalog(self.index, self.toolset, schemas, base=self._base or self) if schemas else self

    def without_observed(self) -> Catalog:
        if not self._observed:
            return self
        return Catalog(self.index, self.toolset, scopes=self.files.scopes, base=self._base or self)

    def with_tools(self, toolset: Toolset) -> Catalog:
        return Catalog(self.index, toolset, self._observed)

    def with_servers(self, names: Collection[str]) -> Catalog:
        """Return this catalog with the MCP tools of some servers only, by their configured names."""
        return Catalog(self.index.only(names), self.toolset, self._observed)

    def with_scopes(self, scopes: Mapping[str, ScopeObject]) -> Catalog:
        return Catalog(self.index, self.toolset, self._observed, scopes, self._base or self) if scopes else self

    # Names

    def get(self, entry_id: str) -> Entry | None:
        return self.index.by_id.get(entry_id) or self.toolset.get(entry_id) or self.toolset.programs.get(entry_id)

    def entry_at(self, path: str) -> Entry | None:
        """Return the MCP tool or operation at a path such as `MCP.github.createIssue`, if there is one."""
        prefix, _, rest = path.partition(".")
        identifier, _, name = rest.partition(".")
        server = self.index.by_identifier.get(identifier) if prefix == "MCP" else None
        found = None if server is None else server.member(name)
        return found if isinstance(found, Entry) else None

    def definition_at(self, path: str) -> tuple[str, Tool] | None:
        """Return the server of the MCP tool at a path, and the tool as the server lists it; None if there is none."""
        entry = self.entry_at(path)
        return None if entry is None or entry.operation is not None else (entry.source_name, entry.original)

    def resolve(self, entry_id: str) -> Entry:
        """Return the entry with an id.

        Raises:
            ProgramError: there is no such entry. The message has the nearest ids.
        """
        entry = self.get(entry_id)
        if entry is None:
            self._refuse_held(entry_id)
            server = self._unavailable_server(entry_id)
            if server is not None:
                why = server.trouble or "was still connecting when this program started; run the program again"
                raise lookup_error(f"MCP.{server.identifier} {why}")
            near = _nearest_ids(entry_id, [*self.index.by_id, *self.toolset.ids])
            raise lookup_error(f"there is no tool {quoted(entry_id)}.{hint(near)}")
        return entry

    def resolve_by_id(self, entry_id: str, *, near: bool = True) -> Entry:
        """Return the entry for `tools.call` or `tools.describe`, which take ids of tools that are not MCP tools.

        Args:
            near: True to name the nearest ids in the message. The search takes 0.1 s among 10,000 ids.

        Raises:
            ProgramError: the id is that of an MCP tool, and the message has the call to use, or the reason why the tool
                is held. Or no visible tool has this id, and the message has the nearest ids.
        """
        entry = self.toolset.get(entry_id)
        if entry is not None:
            return entry
        mcp = self.index.by_id.get(entry_id)
        if mcp is not None:
            identifier, _, member = mcp.path.removeprefix("MCP.").partition(".")
            raise lookup_error(
                f"{quoted(entry_id)} is an MCP tool: call {_calls([mcp])}; "
                f'its declaration is in MCP.{identifier}.$api("{member}")'
            )
        program = self.toolset.programs.get(entry_id)
        if program is not None:
            raise lookup_error(f"{quoted(entry_id)} is a saved program: call it as {_calls([program])}")
        self._refuse_held(entry_id)
        server = self._unavailable_server(entry_id)
        if server is not None:
            call = f"MCP.{server.identifier}.<tool>({{...}})"
            raise lookup_error(f"{quoted(entry_id)} names a tool of an MCP server: call it as {call}")
        is_mcp = entry_id.startswith("mcp:")
        meant = self.meant_by(entry_id) if near and not is_mcp else []
        if meant:
            raise lookup_error(f"there is no tool {quoted(entry_id)}; call {_calls(meant)}")
        named = next((each for each in self.servers if entry_id in (each.name, each.identifier)), None)
        if named is not None:
            example = f", such as {_calls(named.tools[:1])}" if named.tools else ""
            raise lookup_error(
                f"{quoted(entry_id)} is a server: its tools are functions of MCP.{named.identifier}{example}"
            )
        found: list[str] = []
        if near and is_mcp:
            found = [_calls([self.index.by_id[each]]) for each in nearest(entry_id, self.index.by_id)]
        elif near:
            found = _nearest_ids(entry_id, self.toolset.ids)
        raise lookup_error(
            f"there is no tool {quoted(entry_id)}.{hint(found)} "
            "See ALL_TOOLS and tools.search(); for MCP tools, use API.search()."
        )

    def _refuse_held(self, entry_id: str) -> None:
        for server in self.servers:
            name = entry_id.removeprefix(f"mcp:{server.name}:")
            if name in server.withheld and name != entry_id:
                raise server.no_member(name)

    def _unavailable_server(self, entry_id: str) -> Server | None:
        return next((s for s in self.servers if s.status != "ready" and entry_id.startswith(f"mcp:{s.name}:")), None)

    def meant_by(self, written: str) -> list[Entry]:
        """Return up to three MCP tools by another spelling: `mcp__time__get_current_time`, `getCurrentTime`."""
        return self.index.by_spelling.get(normalize_name(_PREFIX.sub("", written)), [])[:3]

    def expression_for(self, name: str) -> str:
        """Return the expression for a misspelt name of a tool or a server; an empty text if it is unknown."""
        meant = self.meant_by(name)
        if meant:
            return _calls(meant)
        for server in self.servers:
            if name in (server.identifier, server.name) or normalize_name(name) == normalize_name(server.name):
                return f"MCP.{server.identifier}"
        return ""

    # Look-ups

    def header(self, server: str | None, tool: str | None, *, schema: bool) -> dict[str, Any]:
        """Return an `McpApiHeader`, for `MCP.$api()` and `MCP.<server>.$api(tool, { schema })`.

        Raises:
            ProgramError: there is no such tool.
        """
        if server is None:
            return {
                "kind": "mcp_api",
                "scope": "root",
                "header": self.files.text(INDEX),
                "servers": [
                    {
                        "identifier": each.identifier,
                        "serverName": each.name,
                        "toolCount": len(each.tools),
                        "status": each.status,
                    }
                    for each in self.servers
                ],
            }
        found = self.index.by_identifier.get(server)
        if found is None:
            raise lookup_error(f"there is no server {quoted(server)}")
        if tool is None:
            header, shown = self.files.read(found.path)["content"], found.entries
        else:
            entry = found.member(tool)
            if not isinstance(entry, Entry):
                raise found.no_member(tool)
            header, shown = self.signature(entry), (entry,)
        answer: dict[str, Any] = {
            "kind": "mcp_api",
            "scope": "server" if tool is None else "tool",
            "header": header,
            "tools": [
                {
                    "method": method(each),
                    "mcpTool": each.tool.name,
                    "operation": _kind(each),
                    "effects": each.effect_words,
                    "description": each.tool.description,
                }
                for each in shown
            ],
        }
        if schema:
            answer["schemas"] = {
                method(each): {
                    "input": each.tool.input_schema,
                    **({} if each.tool.output_schema is None else {"output": each.tool.output_schema}),
                }
                for each in shown
            }
        return answer

    def definition_digest(self, entry_id: str) -> str | None:
        """Return the digest of the definition of an MCP tool, or of the text of a saved program; None for others."""
        program = self.toolset.programs.program(entry_id)
        return self.index.definition_digest(entry_id) if program is None else program.digest

    def signature(self, entry: Entry) -> str:
        if entry.source == "program":
            return self.toolset.programs.signature(entry)
        if entry.source != "mcp":
            return self.toolset.signature(entry)
        return self.index.signature(entry, self._observed.get(entry.id))

    def search(
        self, query: str, limit: int, server: str | None, sources: frozenset[Source] = WITH_PROGRAMS
    ) -> Found[dict[str, Any]]:
        """Return the best hits, then servers that are down and may have better tools, for `API.search`.

        Saved programs are among the hits, if there are any. `server` may be `programs`, for these alone. An empty query
        finds all tools, in their own order.

        Args:
            sources: the sources of the tools that are found beside those of MCP servers.
        """
        wanted = None
        programs = self.toolset.programs
        if server == SAVED and programs:
            return programs.search(query, limit)
        if server is not None:
            wanted = next((each for each in self.servers if server in (each.identifier, each.name)), None)
            if wanted is None:
                near = nearest(server, [each.identifier for each in self.servers])
                raise lookup_error(f"there is no server {quoted(server)}.{hint(near)}")
        further: Sequence[Entry] = ()
        finder, among = self.index.finder, None
        if wanted is not None:
            among = [number for number, entry in enumerate(self.index.tools) if entry.source_name == wanted.name]
        else:
            further, finder = self.toolset.finder_after(finder, sources)
        first = len(self.index.tools)
        if query.strip():
            found = finder.find(query, limit, among)
            total = found.total
            entries = [
                self.index.tools[hit.number] if hit.number < first else further[hit.number - first] for hit in found
            ]
            hits = [self._hit(entry, hit.score) for entry, hit in zip(entries, found, strict=True)]
            self._unfold(entries, hits)
        else:
            every = (*self.index.tools, *further)
            numbers = range(len(every)) if among is None else among
            total = len(numbers)
            hits = [self._hit(every[number], 0) for number in numbers[:limit]]
        groups = self._group_hits(query, wanted)
        hits.extend(groups[: max(0, limit - len(hits)) or 1])
        left_out = total + len(groups) - len(hits)
        hits.extend(
            {
                "server": each.identifier,
                "path": each.path,
                "call": f"MCP.{each.identifier}",
                "signature": "",
                "effects": "",
                "description": one_line(
                    f"MCP.{each.identifier} {each.trouble}. Its tools are unknown before the login"
                    if each.login_required
                    else f"This server is down, so its tools are unknown: {each.error}"
                ),
                "score": 0,
                "status": "down",
            }
            for each in self.servers
            if each.status == "down" and not each.tools and (wanted is None or each is wanted)
        )
        return Found(hits, len(hits) + left_out)

    def _unfold(self, entries: Sequence[Entry], hits: Sequence[dict[str, Any]]) -> None:
        """Write the inner objects of arguments in the signatures of the first hits, as far as there is room."""
        room = UNFOLDED_ROOM
        for entry, hit in zip(entries[:UNFOLDED_HITS], hits, strict=False):
            if entry.source == "mcp":
                whole = self.index.signature(entry, self._observed.get(entry.id), unfolds=True)
                more = len(whole) - len(hit["signature"])
                if more <= room:
                    hit["signature"] = whole
                    room -= more

    def _hit(self, entry: Entry, score: float) -> dict[str, Any]:
        if entry.source == "program":
            return self.toolset.programs.hit(entry, score)
        if entry.source != "mcp":
            return self.toolset.hit(entry, score)
        found = self.index.by_identifier[entry.path.split(".")[1]]
        return {
            "server": found.identifier,
            "path": f"{found.path}#{entry.identifier}",
            "call": entry.path,
            "signature": self.signature(entry),
            "effects": entry.effect_words,
            "description": one_line(entry.tool.description or entry.tool.title or ""),
            "score": score,
            **({"status": "down"} if found.status == "down" else {}),
        }

    def _group_hits(self, query: str, wanted: Server | None) -> list[dict[str, Any]]:
        """Return the operations on resources and prompts, but only if the query names them.

        Every server has the same operations. As hits of every query, they would replace better hits.
        """
        asked = {group for word, group in _GROUP_WORDS.items() if word in query.casefold()}
        return [
            {
                "server": each.identifier,
                "path": f"{each.path}#{group}",
                "call": f"MCP.{each.identifier}.{group}",
                "signature": "; ".join(self.signature(entry) for entry in entries),
                "effects": entries[0].effect_words,
                "description": f"The {group} of this server: {', '.join(entry.identifier for entry in entries)}.",
                "score": 0,
                **({"status": "down"} if each.status == "down" else {}),
            }
            for each in self.servers
            for group, entries in each.groups
            if group in asked and (wanted is None or each is wanted)
        ]

    def prepare_search(self) -> None:
        """Make the search index of MCP tools. This may run in another thread."""
        self.index.finder.prepare()


def _kind(entry: Entry) -> str:
    if entry.operation is None:
        return "tool"
    return "resource" if method(entry).startswith("resources.") else "prompt"


def _calls(entries: Sequence[Entry]) -> str:
    """Return the calls of tools as text: `MCP.a.b({...}) or MCP.c.b({...})`."""
    return " or ".join(f"{each.path}({{...}})" for each in entries)


def _nearest_ids(wanted: str, ids: Collection[str]) -> list[str]:
    """Return the nearest ids.

    If there are none, return up to three ids whose last part is near to the last part of `wanted`, or is a word of it.
    """
    found = nearest(wanted, ids)
    if found:
        return found
    by_name: dict[str, list[str]] = {}
    for each in ids:
        by_name.setdefault(each.rpartition(":")[2], []).append(each)
    last = wanted.rpartition(":")[2]
    parts = {normalize_name(part) for part in _WORD.findall(last)}
    names = nearest(last, by_name) or [name for name in by_name if normalize_name(name) in parts]
    return [each for name in names for each in by_name[name]][:3]


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_PREFIX = re.compile(r"\A(?:mcp__|mcp[.:]|MCP\.|tools\.|functions\.)")
