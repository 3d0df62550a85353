"""A catalog as JSON text, and back. Pure.

The text has nothing that can be derived: no paths, no ids of tools, and no schemas of the operations on resources and
prompts, which `declarations.operations` lists. Observed types are not stored.
"""

from __future__ import annotations

import hashlib
import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import asdict

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import Language
from codemode_mcp.base.strict_json import Form, convert_versioned, form_from, rejecting_damage
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import Entry, OfferedNamespace, Source, app_uri, mcp_id, operation_entry, operation_id
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram, name_problem
from codemode_mcp.catalog.servers import Server, ServerIndex
from codemode_mcp.catalog.toolset import ProgramSet, Toolset, entry_of
from codemode_mcp.rules.policy.rule_patterns import Effects
from declarations.operations import OPERATIONS
from upstream_clients.list_repair import with_relaxed_schemas
from upstream_clients.tools import Annotations, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.catalog.search.finder import Meaning

FORMAT: Final = 1

_OPERATIONS: Final = {
    (group, operation.id): operation for group, operations in OPERATIONS.items() for operation in operations
}
_flags: Final = attrgetter("read_only", "destructive", "idempotent", "open_world")
_Flags = tuple[bool, bool, bool, bool]

# Most fields of a form have the name of an attribute of the stored object, so `form_from` can fill them.


class _Tool(Form, rename={"input_schema": "input", "output_schema": "output"}):
    name: str
    description: str
    title: str | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: tuple[bool | None, bool | None, bool | None, bool | None]
    ui: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """`_meta.ui` with the URI of the app, if the tool has one."""


class _McpTool(Form, array_like=True):
    identifier: str
    tool: _Tool
    effects: _Flags
    effect_words: str = ""


class _Operation(Form, array_like=True):
    id: str
    operation: str
    effects: _Flags
    effect_words: str = ""


class _Server(Form, rename={"login_required": "login"}):
    identifier: str
    alias: str | None
    name: str
    status: Literal["ready", "connecting", "down"]
    error: str | None
    description: str
    login_required: bool
    tools: list[_McpTool]
    groups: list[tuple[str, list[_Operation]]]
    listed: dict[str, _Tool] | msgspec.UnsetType = msgspec.UNSET
    """The tools that overrides change, as the server lists them, by identifier."""
    withheld: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The reasons why tools are held; see `Server.withheld`."""
    held: int | msgspec.UnsetType = msgspec.UNSET


class _OtherTool(Form, array_like=True):
    """A tool of a toolset. `is_function` is True if it is a function of `tools`."""

    source: Source
    source_name: str
    tool: _Tool
    effects: _Flags
    label: str | None
    is_function: bool
    effect_words: str = ""


class _Namespace(Form, rename={"global_name": "global", "required_tools": "required"}):
    id: str
    plugin: str
    global_name: str
    description: str
    required_tools: tuple[str, ...]
    prompt: str


class _Program(Form, rename={"input_schema": "input", "output_schema": "output", "takes_input": "takes"}):
    """A saved program. Its text is stored, because the run keeps it whatever happens to the file."""

    name: str
    language: Language
    text: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    takes_input: bool


class _Toolset(Form):
    entries: list[_OtherTool]
    namespaces: list[_Namespace]
    programs: list[_Program] | msgspec.UnsetType = msgspec.UNSET


class _Catalog(Form):
    servers: list[_Server]
    tools: _Toolset


class _Digests:
    """The digests of catalogs that share an index of servers. Such catalogs differ only in their toolsets."""

    def __init__(self, servers: ServerIndex) -> None:
        self._servers = hashlib.sha256(_servers_text(servers).encode())
        self._whole: WeakKeyDictionary[Toolset, str] = WeakKeyDictionary()

    def of(self, toolset: Toolset) -> str:
        known = self._whole.get(toolset)
        if known is None:
            digest = self._servers.copy()
            digest.update(_toolset_text(toolset).encode())
            known = self._whole[toolset] = digest.hexdigest()
        return known


_digests: WeakKeyDictionary[ServerIndex, _Digests] = WeakKeyDictionary()


def catalog_hash(catalog: Catalog) -> str:
    """Return the SHA-256 of `catalog_text`. Raise the same errors.

    The digest is cached as long as the index of servers lives: for ten thousand tools, it takes a while.
    """
    digests = _digests.get(catalog.index)
    if digests is None:
        digests = _digests[catalog.index] = _Digests(catalog.index)
    return digests.of(catalog.toolset)


def catalog_text(catalog: Catalog) -> str:
    """Return the text of a catalog. Equal catalogs have the same text.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, a schema is nested too deep.
    """
    return _servers_text(catalog.index) + _toolset_text(catalog.toolset)


def read_catalog(text: str, meaning: Meaning | None = None) -> Catalog:
    """Return the catalog of a text.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with rejecting_damage(_not_readable):
        form = convert_versioned(json.loads(text), _Catalog, FORMAT, _not_readable)
        servers = [_server(each) for each in form.servers]
        _check_unique([each.identifier for each in servers])
        toolset = _toolset(form.tools, meaning)
        index = ServerIndex(tuple(servers), meaning)
        is_empty = not (toolset.entries or toolset.namespaces or toolset.programs)
        return Catalog(index) if is_empty else Catalog(index, toolset)


# servers


def _servers_text(index: ServerIndex) -> str:
    servers = [
        form_from(
            _Server,
            server,
            tools=[
                _McpTool(each.identifier, _tool_form(each.tool), _flags(each.effects), each.effect_words)
                for each in server.tools
            ],
            groups=[(group, [*map(_operation_form, entries)]) for group, entries in server.groups],
            listed={each.identifier: _tool_form(each.listed) for each in server.tools if each.listed is not None}
            or msgspec.UNSET,
            withheld=dict(server.withheld) or msgspec.UNSET,
            held=server.held or msgspec.UNSET,
        )
        for server in index.servers
    ]
    return f'{{"format":{FORMAT},"servers":{_json(servers)},"tools":'


def _server(form: _Server) -> Server:
    forms = {} if form.listed is msgspec.UNSET else form.listed
    listed = {name: with_relaxed_schemas(_tool(each)) for name, each in forms.items()}
    fields = {name: value for name, value in asdict(form).items() if name != "listed" and value is not msgspec.UNSET}
    fields["tools"] = tuple(_mcp_entry(form, each, listed.pop(each.identifier, None)) for each in form.tools)
    fields["groups"] = tuple(
        (group, tuple(_operation_entry(form, group, each) for each in entries)) for group, entries in form.groups
    )
    if listed:
        raise ValueError
    server = Server(**fields)
    _check_unique([each.identifier for each in server.tools])
    _check_unique([each.id for each in server.entries])
    return server


def _mcp_entry(server: _Server, form: _McpTool, listed: Tool | None) -> Entry:
    return Entry(
        id=mcp_id(server.name, form.tool.name if listed is None else listed.name),
        source="mcp",
        source_name=server.name,
        path=f"MCP.{server.identifier}.{form.identifier}",
        identifier=form.identifier,
        tool=with_relaxed_schemas(_tool(form.tool)),
        effects=Effects(*form.effects),
        listed=listed,
        effect_words=form.effect_words,
    )


def _operation_form(entry: Entry) -> _Operation:
    assert entry.operation is not None
    return _Operation(entry.id, entry.operation.id, _flags(entry.effects), entry.effect_words)


def _operation_entry(server: _Server, group: str, form: _Operation) -> Entry:
    operation = _OPERATIONS[group, form.operation]
    if form.id != operation_id(server.name, operation):
        raise ValueError
    return operation_entry(server.identifier, server.name, group, operation, Effects(*form.effects), form.effect_words)


# other tools


def _toolset_text(toolset: Toolset) -> str:
    entries = [
        form_from(
            _OtherTool,
            each,
            tool=_tool_form(each.tool),
            effects=_flags(each.effects),
            label=toolset.label(each),
            is_function=toolset.names.get(each.tool.name) == each.id,
        )
        for each in toolset.entries
    ]
    namespaces = [form_from(_Namespace, each) for each in toolset.namespaces]
    programs = [form_from(_Program, each) for each in toolset.programs.programs]
    return _json(_Toolset(entries, namespaces, programs or msgspec.UNSET)) + "}"


def _toolset(form: _Toolset, meaning: Meaning | None) -> Toolset:
    entries: list[tuple[Entry, str | None]] = []
    names: list[tuple[str, str]] = []
    for each in form.entries:
        effects = Effects(*each.effects)
        entry = entry_of(
            each.source, each.source_name, _tool(each.tool), effects, each.effect_words, is_function=each.is_function
        )
        entries.append((entry, each.label))
        if each.is_function:
            names.append((entry.tool.name, entry.id))
    _check_unique([name for name, _ in names])
    _check_unique([entry.id for entry, _ in entries])
    programs = [] if form.programs is msgspec.UNSET else [SavedProgram(**asdict(each)) for each in form.programs]
    _check_unique([each.name for each in programs])
    if any(name_problem(each.name) is not None for each in programs):
        raise ValueError
    namespaces = [OfferedNamespace(**asdict(each)) for each in form.namespaces]
    return Toolset(entries, names, namespaces, meaning, ProgramSet(programs, meaning))


# parts


def _tool_form(tool: Tool) -> _Tool:
    uri = app_uri(tool)
    ui = msgspec.UNSET if uri is None else {"resourceUri": uri}
    return form_from(_Tool, tool.as_sent, annotations=_flags(tool.annotations), ui=ui)


def _tool(form: _Tool) -> Tool:
    fields = {name: value for name, value in asdict(form).items() if name != "ui"}
    meta = None if form.ui is msgspec.UNSET else {"ui": form.ui}
    return Tool(**fields | {"annotations": Annotations(*form.annotations), "meta": meta})


def _check_unique(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError


def _json(value: Any) -> str:
    # Not by `ascii_json`, which refuses the NaN and Infinity that a plugin's schema may have.
    try:
        return json.dumps(value, separators=(",", ":"), default=msgspec.to_builtins)
    except RecursionError:
        raise ProgramError(
            "snapshot_limit_exceeded", "the schema of a tool is nested too deep to suspend a program that sees it"
        ) from None


def _not_readable(why: str) -> ProgramError:
    return ProgramError(
        "snapshot_restore_failed",
        f"the suspended program cannot be restored: the stored list of its tools cannot be read: {why}",
    )
