"""The MCP servers that a program sees, with declarations and a search index that catalogs share."""

from __future__ import annotations

import json
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field, structs

from codemode_mcp.base.did_you_mean import hint, nearest, normalize_name
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.text import quoted
from codemode_mcp.catalog.entries import Entry, app_uri
from codemode_mcp.rules.trust.items import tool_item
from declarations.functions import signature
from declarations.names import Kind, aliases, identifiers, is_displaced, is_of_another
from declarations.operations import OPERATIONS
from declarations.render import ServerFile, ServerSummary, render_index
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from codemode_mcp.catalog.search.finder import Finder, Meaning
    from upstream_clients.tools import JsonObject, Tool


class Server(Struct, frozen=True):
    """One visible upstream with its tools and groups of operations.

    Attributes:
        withheld: reasons why tools are held, by the names that a program would use. They follow the name in a sentence.
        held: the number of held tools. A tool may have several names, and several tools the same reason.
    """

    identifier: str
    alias: str | None
    name: str
    status: str
    error: str | None
    description: str
    tools: tuple[Entry, ...]
    groups: tuple[tuple[str, tuple[Entry, ...]], ...]
    login_required: bool = False
    withheld: Mapping[str, str] = field(default_factory=dict)
    held: int = 0

    @property
    def trouble(self) -> str | None:
        """The reason why the server does not answer, as words that follow "this server"; None if it answers."""
        if self.login_required:
            return login_advice(self.name)
        return None if self.error is None else f"is {self.status}: {self.error}"

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.tools + tuple(entry for _, group in self.groups for entry in group)

    @property
    def aliases(self) -> Mapping[str, str]:
        """The identifiers of tools whose original names work in brackets, by original name."""
        names = {entry.tool.name: entry.identifier for entry in self.tools}
        return aliases(names, names)

    @property
    def path(self) -> str:
        return f"mcp/{self.identifier}.d.ts"

    def member(self, name: str) -> Entry | str | None:
        """Return the function, or the name of the group of functions, with this name after `MCP.<server>.`, if any.

        The original name of a tool is accepted too, unless it was the identifier of another one.
        """
        for entry in self.entries:
            if name == method(entry):
                return entry
        if any(name == group for group, _ in self.groups):
            return name
        named = (entry for entry in self.tools if name == entry.tool.name)
        return next((entry for entry in named if not is_of_another(name, entry.identifier)), None)

    def no_member(self, name: str) -> ProgramError:
        """Return the error for an unknown function, with the nearest names, or for a held one."""
        if name in self.withheld:
            return lookup_error(f"MCP.{self.identifier}.{escape_line(name)} {self.withheld[name]}")
        group = name.partition(".")[0]
        if group in OPERATIONS and self.status == "ready" and not any(group == each for each, _ in self.groups):
            return lookup_error(f"MCP.{self.identifier} has no {group}")
        near = nearest(name, [method(entry) for entry in self.entries])
        return lookup_error(f"MCP.{self.identifier} has no tool {quoted(name)}.{hint(near)}")


class ServerIndex:
    """The servers with look-ups, a search index and declarations. Catalogs of the same servers share it.

    Attributes:
        servers: visible upstreams, in the order of the configuration.
        tools: MCP tools of all servers, without operations on resources and prompts.
        by_id: MCP tools and operations.
    """

    def __init__(
        self, servers: tuple[Server, ...], meaning: Meaning | None = None, previous: ServerIndex | None = None
    ) -> None:
        self.servers = servers
        self.tools = tuple(entry for server in servers for entry in server.tools)
        self.by_identifier = {server.identifier: server for server in servers}
        self.by_id = {entry.id: entry for server in servers for entry in server.entries}
        self._meaning = meaning
        self._files: dict[str, ServerFile] = {}
        self._signatures: dict[tuple[str, bool], tuple[JsonObject | None, str]] = {}
        self._definition_digests: dict[str, str] = {}
        if previous is not None:
            self._reuse(previous)

    def only(self, names: Collection[str]) -> ServerIndex:
        """Return an index of some of the servers, by their configured names."""
        return ServerIndex(tuple(server for server in self.servers if server.name in names), self._meaning)

    def _reuse(self, previous: ServerIndex) -> None:
        # All three are costly to make, and a change of one server leaves those of the others as they were.
        for server in self.servers:
            before = previous.by_identifier.get(server.identifier)
            file = previous._files.get(server.path)
            if file is not None and before == server:
                self._files[server.path] = file
        for key, made in previous._signatures.items():
            if self.by_id.get(key[0]) == previous.by_id[key[0]]:
                self._signatures[key] = made
        finder: Finder | None = previous.__dict__.get("finder")  # None if it was never used
        if finder is not None and self.tools == previous.tools:
            self.__dict__["finder"] = finder

    @cached_property
    def members(self) -> dict[str, frozenset[str] | None]:
        """The names after `MCP.<server>.`, such as `createIssue`, `resources` and `resources.read`, by server.

        The keys are all names after `MCP.`. The value is None if the tools of a server are unknown.
        """
        found: dict[str, frozenset[str] | None] = {}
        for server in self.servers:
            names: frozenset[str] | None = None
            if server.tools or server.status == "ready":
                taken = [entry.identifier for entry in server.tools]
                grouped = [name for group, each in server.groups for name in (group, *map(method, each))]
                names = frozenset((*taken, *server.aliases, *grouped))
            found[server.identifier] = names
            if server.alias is not None:
                found[server.alias] = names
        return found

    @cached_property
    def withheld(self) -> dict[str, Mapping[str, str]]:
        """The reasons why tools are held, by server and by the names that a program would use."""
        found = {}
        for server in self.servers:
            if server.withheld:
                found[server.identifier] = server.withheld
                if server.alias is not None:
                    found[server.alias] = server.withheld
        return found

    @cached_property
    def contested(self) -> Mapping[str, str]:
        """Sentences about names of which another server or tool had to take a longer one.

        The keys are the names after `MCP.`, such as `fooBar` and `fooBar.getItem`.
        """
        found: dict[str, str] = {}
        servers = {server.identifier: server.name for server in self.servers}
        found |= _contested("", servers, "server")
        for server in self.servers:
            tools = {entry.identifier: entry.tool.name for entry in server.tools}
            found |= _contested(f"{server.identifier}.", tools, "tool")
        return found

    @cached_property
    def by_spelling(self) -> dict[str, list[Entry]]:
        """MCP tools by their names, with and without the server, in the form of `normalize_name`."""
        found: dict[str, list[Entry]] = {}
        for server in self.servers:
            for entry in server.tools:
                name = entry.tool.name
                for spelling in {
                    normalize_name(name),
                    normalize_name(entry.identifier),
                    normalize_name(f"{server.name}.{name}"),
                } | {normalize_name(f"{server.identifier}.{entry.identifier}")}:
                    found.setdefault(spelling, []).append(entry)
        return found

    @cached_property
    def manifest_text(self) -> str:
        return _manifest_text(self.servers)

    @cached_property
    def finder(self) -> Finder:
        # Imported when it is first needed, usually by `warmup`: the import takes 5 ms.
        from codemode_mcp.catalog.search.finder import Finder

        return Finder([(entry.source_name, entry.tool) for entry in self.tools], self._meaning)

    @cached_property
    def index_file(self) -> str:
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

    def file(self, server: Server) -> ServerFile:
        file = self._files.get(server.path)
        if file is None:
            groups = {group: [entry.identifier for entry in entries] for group, entries in server.groups}
            file = self._files[server.path] = ServerFile(
                server.identifier,
                [(entry.identifier, _declared(entry)) for entry in server.tools],
                server_name=server.name,
                description=server.description,
                notes=_notes(server),
                effects={entry.identifier: entry.effect_words for entry in server.tools},
                resources=groups.get("resources", ()),
                prompts=groups.get("prompts", ()),
            )
        return file

    def signature(self, entry: Entry, observed: JsonObject | None, *, unfolds: bool = False) -> str:
        key = entry.id, unfolds
        made = self._signatures.get(key)
        if made is not None and made[0] is observed:
            return made[1]
        text = signature(entry.path, entry.tool, observed, unfolds=unfolds)
        if entry.operation is not None:
            text = text.replace("Promise<McpToolResult>", f"Promise<{entry.operation.result}>")
        self._signatures[key] = observed, text
        return text

    def definition_digest(self, entry_id: str) -> str | None:
        """Return the digest of the accepted definition of an MCP tool, without overrides; None for other ids."""
        digest = self._definition_digests.get(entry_id)
        if digest is None:
            entry = self.by_id.get(entry_id)
            if entry is None or entry.operation is not None:
                return None
            digest = self._definition_digests[entry_id] = tool_item(entry.original).digest
        return digest


def _contested(prefix: str, name_of: Mapping[str, str], kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield the names that several servers or tools would have, each with a sentence. `name_of`: by identifier."""
    displaced: dict[str, list[str]] = {}
    for identifier, name in name_of.items():
        if is_displaced(name, identifier, kind):
            displaced.setdefault(identifiers([name], kind=kind)[name], []).append(identifier)
    for identifier, others in displaced.items():
        if identifier in name_of:
            longer = ", ".join(f"{quoted(name_of[each])} is MCP.{prefix}{each}" for each in others[:_MAX_CONTESTED])
            more = f", and {len(others) - _MAX_CONTESTED} more" if len(others) > _MAX_CONTESTED else ""
            expression = f"MCP.{prefix}{identifier}"
            yield prefix + identifier, f"{expression} is the {kind} {quoted(name_of[identifier])}; {longer}{more}."


_MAX_CONTESTED: Final = 3
"""Maximum number of other servers or tools that a sentence about a name lists."""


def method(entry: Entry) -> str:
    """Return the part of a call after the name of the server: `createIssue`, `resources.read`."""
    return entry.path.split(".", 2)[2]


def _declared(entry: Entry) -> Tool:
    """Return a tool as its declaration shows it: the description says that the tool has an app."""
    if app_uri(entry.original) is None:
        return entry.tool
    return structs.replace(entry.tool, description="\n\n".join(filter(None, (entry.tool.description, _HAS_APP))))


_HAS_APP: Final = "Has an app: show(result) shows it to the user."


def _notes(server: Server) -> list[str]:
    notes = [] if server.trouble is None else [f"This server {server.trouble}"]
    if server.held:
        command = f"codemode-mcp trust status {shlex.quote(server.name)}"
        held = "1 tool of this server is" if server.held == 1 else f"{server.held} tools of this server are"
        notes.append(f"{held} held until the user accepts them. To see them, the user can run: {command}")
    return notes


def _manifest_text(servers: Sequence[Server]) -> str:
    shown = []
    for server in servers:
        by_alias = server.aliases
        shown.append(
            {
                "identifier": server.identifier,
                "alias": server.alias,
                "name": server.name,
                "down": server.status != "ready",
                "tools": [
                    [
                        *(entry.identifier, entry.tool.name if entry.tool.name in by_alias else None, entry.id),
                        *([True] if app_uri(entry.original) is not None else ()),
                    ]
                    for entry in server.tools
                ],
                "groups": [
                    [group, [[entry.identifier, entry.id] for entry in entries]] for group, entries in server.groups
                ],
                **({"held": list(server.withheld)} if server.withheld else {}),
            }
        )
    return json.dumps(shown, separators=(",", ":"))


def login_advice(server: str) -> str:
    """Return the advice for a server that needs a login. `server`: its configured name."""
    return f"needs a login; ask the user to run: codemode-mcp login {shlex.quote(server)}"


def lookup_error(message: str) -> ProgramError:
    return ProgramError("nested_tool_failed", message)
