"""One immutable view of all tools that policy lets a program see, and what is looked up in it.

A run keeps the catalog it started with. Building one names the tools for the guest and writes the manifest its warm
image is made from; declaration files, validators and search indexes are made when they are first asked for.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from codemode_mcp.catalog.entries import Entry, Offered, OfferedNamespace, Source, mcp_id, one_line, operation_id
from codemode_mcp.catalog.toolset import NO_TOOLS, Toolset, select
from codemode_mcp.did_you_mean import nearest, plain
from codemode_mcp.errors import ProgramError
from codemode_mcp.policy.policy import Deny, Effects
from declarations.expressions import signature
from declarations.names import aliases, identifiers
from declarations.namespaces import NamespaceSummary, ScopeObject, render_namespaces
from declarations.operations import OPERATIONS
from declarations.render import ServerFile, ServerSummary, render_index
from upstream_clients.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.search.finder import Finder, Meaning
    from upstream_clients.tools import JsonObject, UpstreamView

__all__ = ["INDEX", "Catalog", "Entry", "Offered", "OfferedNamespace", "Server", "Source", "build", "login_advice"]

INDEX = "mcp/index.d.ts"
"""Of all servers."""

NAMESPACES = "namespaces.d.ts"
"""Of the namespaces of plugins; only where there are some."""

_GROUP_WORDS = {"resource": "resources", "template": "resources", "prompt": "prompts"}

_GUEST_STATUS = {"idle": "ready", "connecting": "connecting", "ready": "ready", "down": "down", "stopped": "down"}


@dataclass(frozen=True, slots=True)
class Server:
    """One visible upstream."""

    identifier: str
    alias: str | None
    name: str
    status: str
    error: str | None
    description: str
    tools: tuple[Entry, ...]
    groups: tuple[tuple[str, tuple[Entry, ...]], ...]
    login_required: bool = False

    @property
    def trouble(self) -> str | None:
        """Why it does not answer, after "this server", for a model."""
        if self.login_required:
            return login_advice(self.name)
        return None if self.error is None else f"is {self.status}: {self.error}"

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.tools + tuple(entry for _, group in self.groups for entry in group)

    @property
    def path(self) -> str:
        """Of its declaration file."""
        return f"mcp/{self.identifier}.d.ts"


class Catalog:
    """See the module. Use `build`.

    Attributes:
        servers: visible upstreams, in the order of the configuration.
        toolset: the tools that are no MCP tools.
    """

    def __init__(
        self, servers: tuple[Server, ...], meaning: Meaning | None = None, previous: Catalog | None = None
    ) -> None:
        self.servers = servers
        self.toolset = NO_TOOLS
        self._meaning = meaning
        self._by_identifier = {server.identifier: server for server in servers}
        self._by_id = {entry.id: entry for server in servers for entry in server.entries}
        self._files: dict[str, ServerFile] = {}
        self._signatures: dict[str, tuple[JsonObject | None, str]] = {}
        self._observed: Mapping[str, JsonObject] = {}
        self._scopes: Mapping[str, ScopeObject] = {}
        if previous is not None:
            self._take_over(previous)

    def __len__(self) -> int:
        return len(self._by_id) + len(self.toolset)

    def __repr__(self) -> str:
        return f"<Catalog {self.version}: {len(self)} tools, of {len(self.servers)} servers and others>"

    @cached_property
    def manifest(self) -> str:
        """JSON text the warm image is made from."""
        return f'{{"servers":{self._listed_servers},{self.toolset.manifest}}}'

    @cached_property
    def version(self) -> str:
        """Digest of the manifest."""
        return hashlib.sha256(self.manifest.encode()).hexdigest()[:16]

    @property
    def namespaces(self) -> tuple[OfferedNamespace, ...]:
        """Those of plugins whose tools are all visible."""
        return self.toolset.namespaces

    @cached_property
    def sources(self) -> Mapping[str, int]:
        """How many tools there are of each source."""
        counts = Counter(entry.source for entry in self.toolset.entries)
        return {"mcp": len(self._by_id), **{source: counts[source] for source in sorted(counts)}}

    def _take_over(self, previous: Catalog) -> None:
        """What was made for the catalog before this one and is the same in both."""
        for server in self.servers:
            before = previous._by_identifier.get(server.identifier)
            file = previous._files.get(server.path)
            if file is not None and before == server:
                self._files[server.path] = file
        for entry_id, kept in previous._signatures.items():
            if self._by_id.get(entry_id) == previous._by_id[entry_id]:
                self._signatures[entry_id] = kept
        finder: Finder | None = previous.__dict__.get("_finder")  # where it has been made
        if finder is not None and self._found_tools == previous._found_tools:
            self.__dict__["_finder"] = finder

    def observed(self, schemas: Mapping[str, JsonObject]) -> Catalog:
        """This catalog with the schemas of results seen earlier, by tool id, for tools that declare none.

        Everything else is shared with it, what is rendered later included.
        """
        return _Derived(self, self.toolset, schemas) if schemas else self

    @property
    def of_servers(self) -> Catalog:
        """The one that all those which share its MCP tools were made from."""
        return self

    def with_tools(self, toolset: Toolset) -> Catalog:
        """This catalog with other tools beside its MCP tools, which it shares."""
        return _Derived(self, toolset, self._observed)

    def with_scopes(self, scopes: Mapping[str, ScopeObject]) -> Catalog:
        """Return this catalog for one program, whose scopes are known, by the ids of namespaces."""
        if not scopes:
            return self
        derived = _Derived(self, self.toolset, self._observed)
        derived._scopes = scopes
        return derived

    # names

    @cached_property
    def members(self) -> dict[str, frozenset[str] | None]:
        """By every name of a server that works after `MCP.`, the names that work after that, such as `createIssue`,
        `resources` and `resources.read`; None while unknown."""
        found: dict[str, frozenset[str] | None] = {}
        for server in self.servers:
            names: frozenset[str] | None = None
            if server.tools or server.status == "ready":
                taken = {entry.identifier: entry.tool.name for entry in server.tools}
                grouped = [name for group, each in server.groups for name in (group, *map(_method, each))]
                by_alias = aliases(taken.values(), {v: k for k, v in taken.items()})
                names = frozenset((*taken, *by_alias, *grouped))
            found[server.identifier] = names
            if server.alias is not None:
                found[server.alias] = names
        return found

    def get(self, entry_id: str) -> Entry | None:
        return self._by_id.get(entry_id) or self.toolset.get(entry_id)

    def resolve(self, entry_id: str) -> Entry:
        """The entry a call names.

        Raises:
            ProgramError: there is none, with the nearest ids.
        """
        entry = self.get(entry_id)
        if entry is None:
            for server in self.servers:
                if server.status != "ready" and entry_id.startswith(f"mcp:{server.name}:"):
                    why = server.trouble or "was still connecting when this program started; run the program again"
                    raise ProgramError("nested_tool_failed", f"MCP.{server.identifier} {why}")
            near = _nearest_ids(entry_id, [*self._by_id, *self.toolset.ids])
            raise ProgramError("nested_tool_failed", f"there is no tool {_shown(entry_id)}.{_did_you_mean(near)}")
        return entry

    def resolve_by_id(self, entry_id: str, *, near: bool = True) -> Entry:
        """The entry that `tools.call` or `tools.describe` names, which is no MCP tool.

        Args:
            near: whether to name the nearest, which takes a tenth of a second among ten thousand.

        Raises:
            ProgramError: it is an MCP tool, with the expression to use; or there is none that can be seen, with the
                nearest that can.
        """
        entry = self.toolset.get(entry_id)
        if entry is not None:
            return entry
        mcp = self._by_id.get(entry_id)
        if mcp is not None:
            raise ProgramError(
                "nested_tool_failed",
                f"{_shown(entry_id)} is an MCP tool: call {mcp.path}({{...}}); its declaration is in {_header(mcp)}",
            )
        for server in self.servers:
            if server.status != "ready" and entry_id.startswith(f"mcp:{server.name}:"):
                call = f"MCP.{server.identifier}.<tool>({{...}})"
                raise ProgramError(
                    "nested_tool_failed", f"{_shown(entry_id)} names a tool of an MCP server: call it as {call}"
                )
        meant = self.meant_by(entry_id) if near and not entry_id.startswith("mcp:") else []
        if meant:
            calls = " or ".join(f"{each.path}({{...}})" for each in meant)
            raise ProgramError("nested_tool_failed", f"there is no tool {_shown(entry_id)}; call {calls}")
        named = next((each for each in self.servers if entry_id in (each.name, each.identifier)), None)
        if named is not None:
            example = f", such as {named.tools[0].path}({{...}})" if named.tools else ""
            raise ProgramError(
                "nested_tool_failed",
                f"{_shown(entry_id)} is a server: its tools are functions of MCP.{named.identifier}{example}",
            )
        found: list[str] = []
        if near and entry_id.startswith("mcp:"):
            found = [f"{self._by_id[each].path}({{...}})" for each in nearest(entry_id, self._by_id)]
        elif near:
            found = _nearest_ids(entry_id, self.toolset.ids)
        raise ProgramError(
            "nested_tool_failed",
            f"there is no tool {_shown(entry_id)}.{_did_you_mean(found)} "
            "See ALL_TOOLS and tools.search(); MCP tools are found by API.search().",
        )

    def meant_by(self, written: str) -> list[Entry]:
        """Return the MCP tools that another spelling stands for: `mcp__time__get_current_time`, `getCurrentTime`.

        Only whole names count, up to three of one name.
        """
        return self._by_spelling.get(plain(_PREFIX.sub("", written)), [])[:3]

    def expression_for(self, name: str) -> str:
        """Return the expression for a name that a program took for a tool or a server; empty where there is none."""
        meant = self.meant_by(name)
        if meant:
            return " or ".join(f"{each.path}({{...}})" for each in meant)
        for server in self.servers:
            if name in (server.identifier, server.name) or plain(name) == plain(server.name):
                return f"MCP.{server.identifier}"
        return ""

    @cached_property
    def _by_spelling(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for server in self.servers:
            for entry in server.tools:
                name = entry.tool.name
                for spelling in {plain(name), plain(entry.identifier), plain(f"{server.name}.{name}")} | {
                    plain(f"{server.identifier}.{entry.identifier}")
                }:
                    found.setdefault(spelling, []).append(entry)
        return found

    # files

    def files(self, prefix: str) -> list[dict[str, Any]]:
        """`API.list`: path, description and size of each declaration file."""
        shown = []
        for path in self.paths:
            if path.startswith(prefix):
                size = _bytes(self.file(path))
                shown.append({"path": path, "description": self._about(path), "bytes": size})
        return shown

    def read(self, path: str) -> dict[str, Any]:
        """`API.read`: a whole file, or after a `#` some of its functions.

        Raises:
            ProgramError: the path is malformed or names no file, or the file has no such function.
        """
        if path.startswith("MCP."):
            server, _, member = path.removeprefix("MCP.").partition(".")
            near = f"mcp/{server}.d.ts" + (f"#{member}" if member else "")
            raise ProgramError("nested_tool_failed", f"{_shown(path)} is not a path; write API.read({_shown(near)})")
        path, mark, part = path.partition("#")
        parts = path.split("/")
        if mark and not part:
            raise ProgramError(
                "nested_tool_failed", f"name a tool after the #, such as {_shown(path + '#createIssue')}"
            )
        if not path or "" in parts or "." in parts or ".." in parts or "\\" in path:
            raise ProgramError("nested_tool_failed", f"{_shown(path)} is not a valid path; see API.list()")
        text = self._some(path, part) if mark else self.file(path)
        return {"path": path + mark + part, "description": self._about(path), "content": text, "bytes": _bytes(text)}

    def file(self, path: str) -> str:
        """The text of one declaration file. Raises as `read`."""
        if path == INDEX:
            return self._index_file
        if path == NAMESPACES and self.namespaces:
            return self._namespaces_file
        server = self._server_at(path)
        return self._file(server).whole(self._observed_of(server))

    def _some(self, path: str, part: str) -> str:
        """Some functions of a file. Original names of tools may hold commas, so that the whole may be one name."""
        if path == INDEX or (path == NAMESPACES and self.namespaces):
            raise ProgramError("nested_tool_failed", f"{path} holds no tools; name the file of a server")
        server = self._server_at(path)
        names = [part] if self._member(server, part) is not None else [name.strip() for name in part.split(",")]
        members = []
        for name in names:
            found = self._member(server, name)
            if found is None:
                raise self._no_member(server, name)
            members.append(found if isinstance(found, str) else _method(found))
        return self._file(server).some(members, self._observed_of(server))

    @property
    def paths(self) -> list[str]:
        return [INDEX, *(server.path for server in self.servers), *([NAMESPACES] if self.namespaces else [])]

    @cached_property
    def _index_file(self) -> str:
        return render_index(
            [
                ServerSummary(
                    identifier=server.identifier,
                    name=server.name,
                    tool_count=len(server.tools),
                    status=server.status if server.trouble is None else server.trouble.removeprefix("is "),
                    description=server.description,
                )
                for server in self.servers
            ]
        )

    @cached_property
    def _namespaces_file(self) -> str:
        return render_namespaces(
            [
                NamespaceSummary(each.global_name, each.description, tools, each.prompt, self._scopes.get(each.id))
                for each in self.namespaces
                for tools in [
                    {
                        tool_id: None if entry is None else entry.tool
                        for tool_id in (f"plugin:{each.plugin}:{name}" for name in each.required_tools)
                        for entry in [self.toolset.get(tool_id)]
                    }
                ]
            ]
        )

    def _server_at(self, path: str) -> Server:
        for server in self.servers:
            if path == server.path:
                return server
        near = nearest(path, self.paths)
        raise ProgramError(
            "nested_tool_failed", f"there is no file {_shown(path)}.{_did_you_mean(near)} See API.list()."
        )

    def _file(self, server: Server) -> ServerFile:
        file = self._files.get(server.path)
        if file is None:
            groups = {group: [entry.identifier for entry in entries] for group, entries in server.groups}
            file = self._files[server.path] = ServerFile(
                server.identifier,
                [(entry.identifier, entry.tool) for entry in server.tools],
                server_name=server.name,
                description=server.description,
                notes=[] if server.trouble is None else [f"This server {server.trouble}"],
                resources=groups.get("resources", ()),
                prompts=groups.get("prompts", ()),
            )
        return file

    def _observed_of(self, server: Server) -> dict[str, JsonObject]:
        if not self._observed:
            return {}
        found = ((entry.tool.name, self._observed.get(entry.id)) for entry in server.tools)
        return {name: schema for name, schema in found if schema is not None}

    def _member(self, server: Server, name: str) -> Entry | str | None:
        """What a name stands for after `MCP.<server>.`: a function, or a group of them; also a tool's original name."""
        for entry in server.entries:
            if name == _method(entry):
                return entry
        if any(name == group for group, _ in server.groups):
            return name
        return next((entry for entry in server.tools if name == entry.tool.name), None)

    def _no_member(self, server: Server, name: str) -> ProgramError:
        near = nearest(name, [_method(entry) for entry in server.entries])
        return ProgramError(
            "nested_tool_failed", f"MCP.{server.identifier} has no tool {_shown(name)}.{_did_you_mean(near)}"
        )

    def _about(self, path: str) -> str:
        for server in self.servers:
            if path == server.path:
                count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
                state = "" if server.status == "ready" else f", {server.status}"
                if server.login_required:
                    state = ", needs a login"
                return f"MCP.{server.identifier}: {count}{state}" + (
                    f". {server.description}" if server.description else ""
                )
        if path == NAMESPACES:
            return one_line("; ".join(f"{each.global_name}: {each.description}" for each in self.namespaces))
        return "All servers, and the types their files share"

    # look-ups

    def header(self, server: str | None, tool: str | None, *, schema: bool) -> dict[str, Any]:
        """`MCP.$api()` and `MCP.<server>.$api(tool, { schema })`: an `McpApiHeader`.

        Raises:
            ProgramError: there is no such tool.
        """
        if server is None:
            return {
                "kind": "mcp_api",
                "scope": "root",
                "header": self.file(INDEX),
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
        found = self._by_identifier.get(server)
        if found is None:
            raise ProgramError("nested_tool_failed", f"there is no server {_shown(server)}")
        if tool is None:
            header, shown = self.file(found.path), found.entries
        else:
            entry = self._member(found, tool)
            if not isinstance(entry, Entry):
                raise self._no_member(found, tool)
            header, shown = self.signature(entry), (entry,)
        answer: dict[str, Any] = {
            "kind": "mcp_api",
            "scope": "server" if tool is None else "tool",
            "header": header,
            "tools": [
                {
                    "method": _method(each),
                    "mcpTool": each.tool.name,
                    "operation": _kind(each),
                    "description": each.tool.description,
                }
                for each in shown
            ],
        }
        if schema:
            answer["schemas"] = {
                _method(each): {
                    "input": each.tool.input_schema,
                    **({} if each.tool.output_schema is None else {"output": each.tool.output_schema}),
                }
                for each in shown
            }
        return answer

    def signature(self, entry: Entry) -> str:
        """One line, for hits and errors."""
        if entry.source != "mcp":
            return self.toolset.signature(entry)
        observed = self._observed.get(entry.id)
        kept = self._signatures.get(entry.id)
        if kept is not None and kept[0] is observed:
            return kept[1]
        text = signature(entry.path, entry.tool, observed)
        if entry.operation is not None:
            text = text.replace("Promise<McpToolResult>", f"Promise<{entry.operation.result}>")
        self._signatures[entry.id] = observed, text
        return text

    def search(self, query: str, limit: int, server: str | None) -> list[dict[str, Any]]:
        """`API.search`: the best hits, then the servers that are down and may have had others."""
        wanted = None
        if server is not None:
            wanted = next((each for each in self.servers if server in (each.identifier, each.name)), None)
            if wanted is None:
                near = nearest(server, [each.identifier for each in self.servers])
                raise ProgramError("nested_tool_failed", f"there is no server {_shown(server)}.{_did_you_mean(near)}")
        hits = []
        among = None
        if wanted is not None:
            among = [number for number, entry in enumerate(self._found_tools) if entry.source_name == wanted.name]
        for hit in self._finder.find(query, limit, among):
            entry = self._found_tools[hit.number]
            found = self._server_of(entry)
            hits.append(
                {
                    "server": found.identifier,
                    "path": f"{found.path}#{entry.identifier}",
                    "call": entry.path,
                    "signature": self.signature(entry),
                    "description": one_line(entry.tool.description or entry.tool.title or ""),
                    "score": hit.score,
                    **({"status": "down"} if found.status == "down" else {}),
                }
            )
        hits.extend(self._group_hits(query, wanted)[: max(0, limit - len(hits)) or 1])
        hits.extend(
            {
                "server": each.identifier,
                "path": each.path,
                "call": f"MCP.{each.identifier}",
                "signature": "",
                "description": one_line(
                    f"MCP.{each.identifier} {each.trouble} (its tools are not known before)"
                    if each.login_required
                    else f"This server is down, its tools are not known: {each.error}"
                ),
                "score": 0,
                "status": "down",
            }
            for each in self.servers
            if each.status == "down" and not each.tools and (wanted is None or each is wanted)
        )
        return hits

    def _group_hits(self, query: str, wanted: Server | None) -> list[dict[str, Any]]:
        """What servers have besides tools, where that is asked for by name: the same functions everywhere, that would
        otherwise crowd out the tools."""
        asked = {group for word, group in _GROUP_WORDS.items() if word in query.casefold()}
        return [
            {
                "server": each.identifier,
                "path": f"{each.path}#{group}",
                "call": f"MCP.{each.identifier}.{group}",
                "signature": "; ".join(self.signature(entry) for entry in entries),
                "description": f"The {group} of this server: {', '.join(entry.identifier for entry in entries)}.",
                "score": 0,
                **({"status": "down"} if each.status == "down" else {}),
            }
            for each in self.servers
            for group, entries in each.groups
            if group in asked and (wanted is None or each is wanted)
        ]

    def prepare_search(self) -> None:
        """Make what the first search would otherwise wait for. May run in another thread."""
        self._finder.prepare()

    def _server_of(self, entry: Entry) -> Server:
        return self._by_identifier[entry.path.split(".")[1]]

    @cached_property
    def _found_tools(self) -> tuple[Entry, ...]:
        return tuple(entry for server in self.servers for entry in server.tools)

    @cached_property
    def _listed_servers(self) -> str:
        return _listed(self.servers)

    @cached_property
    def _finder(self) -> Finder:
        # Imported for the first search, which `warmup` is ready for: 5 ms that the first program would wait.
        from codemode_mcp.search.finder import Finder

        return Finder([(entry.source_name, entry.tool) for entry in self._found_tools], self._meaning)


class _Derived(Catalog):
    """A catalog that shares its MCP tools, and all that is made for them, with another; see `with_tools` and
    `observed`."""

    def __init__(self, base: Catalog, toolset: Toolset, observed: Mapping[str, JsonObject]) -> None:
        shared = {name: value for name, value in vars(base).items() if name not in _OF_ITS_OWN}
        self.__dict__.update(shared)
        self._base = base
        self.toolset = toolset
        self._observed = observed

    @property
    def of_servers(self) -> Catalog:
        return self._base.of_servers

    @cached_property
    def manifest(self) -> str:
        return self._base.manifest if self.toolset is self._base.toolset else super().manifest

    @cached_property
    def _listed_servers(self) -> str:
        return self._base._listed_servers

    @cached_property
    def members(self) -> dict[str, frozenset[str] | None]:
        return self._base.members

    @cached_property
    def _index_file(self) -> str:
        return self._base._index_file

    @cached_property
    def _found_tools(self) -> tuple[Entry, ...]:
        return self._base._found_tools

    @cached_property
    def _finder(self) -> Finder:
        return self._base._finder


_OF_ITS_OWN = frozenset(("manifest", "version", "sources", "_namespaces_file"))


def build(
    views: Iterable[UpstreamView],
    policy: Policy,
    meaning: Meaning | None = None,
    previous: Catalog | None = None,
    offered: Sequence[Offered] = (),
    namespaces: Sequence[OfferedNamespace] = (),
) -> Catalog:
    """The catalog of what these upstreams and others offer and policy does not deny.

    Args:
        meaning: a sentence model to search with, where there is one.
        previous: the catalog before this one, whose declarations and index serve on where nothing has changed.
    """
    # Others must not show, not even by a number behind a name that they would have had, too.
    shown = [view for view in views if policy.may_admit(f"mcp:{view.name}:")]
    server_names = identifiers([view.name for view in shown], kind="server")
    server_aliases = aliases([view.name for view in shown], server_names)
    servers = []
    for view in shown:
        identifier = server_names[view.name]
        tools = tuple(_tool_entries(view, identifier, policy))
        groups = tuple(_groups(view, identifier, policy))
        if not tools and not groups and (view.tools or view.resources or view.prompts):
            continue  # all that it has is denied
        servers.append(
            Server(
                identifier=identifier,
                alias=view.name if view.name in server_aliases else None,
                name=view.name,
                status=_GUEST_STATUS[view.state],
                error=_without_paths(view.error or "") if _GUEST_STATUS[view.state] == "down" else None,
                description=one_line(view.description or ""),
                tools=tools,
                groups=groups,
                login_required=view.login_required and _GUEST_STATUS[view.state] == "down",
            )
        )
    catalog = Catalog(tuple(servers), meaning, previous)
    return catalog.with_tools(select(offered, namespaces, policy, meaning)) if offered else catalog


def _tool_entries(view: UpstreamView, identifier: str, policy: Policy) -> Iterable[Entry]:
    allowed = []
    for tool in view.tools:
        entry_id = mcp_id(view.name, tool.name)
        declared = policy.effects(view.name, tool.annotations)
        if not isinstance(policy.decide(entry_id, declared), Deny):
            allowed.append((entry_id, tool, declared))
    names = identifiers([tool.name for _, tool, _ in allowed])
    for entry_id, tool, declared in allowed:
        name = names[tool.name]
        yield Entry(
            id=entry_id,
            source="mcp",
            source_name=view.name,
            path=f"MCP.{identifier}.{name}",
            identifier=name,
            tool=tool,
            effects=declared,
        )


_READ_ONLY = Effects(read_only=True, destructive=False, idempotent=True, open_world=True)


def _groups(view: UpstreamView, identifier: str, policy: Policy) -> Iterable[tuple[str, tuple[Entry, ...]]]:
    for group, operations in OPERATIONS.items():
        if not (view.resources if group == "resources" else view.prompts):
            continue
        # Reading resources and prompts is read-only by the protocol's definition, whatever the server says.
        declared = _READ_ONLY if policy.trusts(view.name) else Effects.of(None)
        entries = []
        for operation in operations:
            if operation.method == "completion/complete" and not view.completions:
                continue
            entry_id = operation_id(view.name, operation)
            if isinstance(policy.decide(entry_id, declared), Deny):
                continue
            entries.append(
                Entry(
                    id=entry_id,
                    source="mcp",
                    source_name=view.name,
                    path=f"MCP.{identifier}.{group}.{operation.name}",
                    identifier=operation.name,
                    tool=Tool(
                        name=operation.method, description=operation.description, input_schema=operation.input_schema
                    ),
                    effects=declared,
                    operation=operation,
                )
            )
        if entries:
            yield group, tuple(entries)


def _kind(entry: Entry) -> str:
    """As `$api` calls it."""
    if entry.operation is None:
        return "tool"
    return "resource" if _method(entry).startswith("resources.") else "prompt"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _method(entry: Entry) -> str:
    """`createIssue`, `resources.read`: what stands after the server's name."""
    return entry.path.split(".", 2)[2]


def _listed(servers: Sequence[Server]) -> str:
    shown = []
    for server in servers:
        names = {entry.tool.name: entry.identifier for entry in server.tools}
        by_alias = aliases(names, names)
        shown.append(
            {
                "identifier": server.identifier,
                "alias": server.alias,
                "name": server.name,
                "down": server.status != "ready",
                "tools": [
                    [entry.identifier, entry.tool.name if entry.tool.name in by_alias else None, entry.id]
                    for entry in server.tools
                ],
                "groups": [
                    [group, [[entry.identifier, entry.id] for entry in entries]] for group, entries in server.groups
                ],
            }
        )
    return json.dumps(shown, separators=(",", ":"))


def _header(entry: Entry) -> str:
    server, _, method = entry.path.removeprefix("MCP.").partition(".")
    return f'MCP.{server}.$api("{method}")'


def login_advice(server: str) -> str:
    """What a model can do about a server, by its name in the configuration, that nobody has logged in to."""
    return f"needs a login; ask the user to run: codemode-mcp login {shlex.quote(server)}"


def _nearest_ids(wanted: str, ids: Collection[str]) -> list[str]:
    """Return the nearest ids, else those whose last part is near to what was written, or is a word of it."""
    found = nearest(wanted, ids)
    if found:
        return found
    by_name: dict[str, list[str]] = {}
    for each in ids:
        by_name.setdefault(each.rpartition(":")[2], []).append(each)
    last = wanted.rpartition(":")[2]
    parts = {plain(part) for part in _WORD.findall(last)}
    names = nearest(last, by_name) or [name for name in by_name if plain(name) in parts]
    return [each for name in names for each in by_name[name]][:3]


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_PREFIX = re.compile(r"\A(?:mcp__|mcp[.:]|MCP\.|tools\.|functions\.)")


def _did_you_mean(near: Sequence[str]) -> str:
    return f" Nearest: {', '.join(near)}." if near else ""


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 100 else text[:100] + "…", ensure_ascii=False)


_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:[/\\][^\s'\"/\\:;,]+)+[/\\]([^\s'\"/\\:;,]+)")


def _without_paths(text: str) -> str:
    """Paths of this machine are the operator's (`doctor` shows them): a program gets the last part."""
    return _PATH.sub(r"…/\1", text)
