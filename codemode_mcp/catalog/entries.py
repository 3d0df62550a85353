"""Tools, apps and operations before policy, and the entries of a catalog that policy permits. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

from msgspec import Struct, structs

from codemode_mcp.rules.policy.policy import TOOL_MARK
from declarations.operations import OPERATIONS, Operation
from upstream_clients.tools import Annotations, Tool, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.rules.policy.rule_patterns import Effects


Source = Literal["core", "plugin", "mcp", "client", "program"]
"""The origin of a tool: this product, a plugin, an upstream server, the connected client or the saved programs."""


class OfferedTool(Struct, frozen=True):
    """A tool of this product, a plugin or the client, before policy.

    Attributes:
        label: a name for people; None for the tool's title.
        optional: True if the tool is offered only if a policy rule names it.
    """

    source: Source
    source_name: str
    tool: Tool
    label: str | None = None
    optional: bool = False

    @property
    def id(self) -> str:
        return f"{self.source}:{self.source_name}:{self.tool.name}"


class OfferedNamespace(Struct, frozen=True):
    """A namespace of a plugin, before policy.

    Attributes:
        global_name: the namespace's global variable in programs, and its name in `namespaces`.
        required_tools: names of tools of the same plugin. The namespace is visible only if all of them are visible.
        prompt: text for the description of `exec`; may be empty.
    """

    id: str
    plugin: str
    global_name: str
    description: str
    required_tools: tuple[str, ...]
    prompt: str = ""


class Entry(Struct, frozen=True):
    """A tool, or an operation on resources or prompts, that programs can call.

    Attributes:
        id: `<source>:<source_name>:<tool>`, e.g. `mcp:github:create_issue`.
        source_name: the configured name of an upstream, the name of a plugin, `session` for the client, or
            `saved` for saved programs.
        path: the expression in a program, e.g. `MCP.github.createIssue`.
        identifier: the last part of `path`, or the name of a tool without such a part.
        tool: the tool as programs see it.
        operation: the operation on resources or prompts; None for a tool.
        listed: the tool as its server lists it, if an override changes it. The id has its name.
        effect_words: what a call does, in words for a model; see `words_of`.
    """

    id: str
    source: Source
    source_name: str
    path: str
    identifier: str
    tool: Tool
    effects: Effects
    operation: Operation | None = None
    listed: Tool | None = None
    effect_words: str = ""

    @property
    def original(self) -> Tool:
        """The tool as its source lists it. Calls are sent by its name, with arguments for its schema."""
        return self.tool if self.listed is None else self.listed

    @property
    def method(self) -> str:
        return "tools/call" if self.operation is None else self.operation.method

    @property
    def repeatable(self) -> bool:
        return self.effects.read_only or self.effects.idempotent


_OPERATION_IDS: Final = frozenset(operation.id for group in OPERATIONS.values() for operation in group)


def mcp_id(server: str, tool: str) -> str:
    """Return the id of an MCP tool. It is unique among the tools and operations of the server.

    A mark precedes the name of the tool if the name begins with this mark or is the name of an operation.
    """
    mark = TOOL_MARK if tool in _OPERATION_IDS or tool.startswith(TOOL_MARK) else ""
    return f"mcp:{server}:{mark}{tool}"


def operation_id(server: str, operation: Operation) -> str:
    return f"mcp:{server}:{operation.id}"


def operation_entry(
    server: str, server_name: str, group: str, operation: Operation, effects: Effects, words: str
) -> Entry:
    """Return the entry of an operation on resources or prompts of a server. `server` is the server's identifier."""
    return Entry(
        id=operation_id(server_name, operation),
        source="mcp",
        source_name=server_name,
        path=f"MCP.{server}.{group}.{operation.name}",
        identifier=operation.name,
        tool=Tool(name=operation.method, description=operation.description, input_schema=operation.input_schema),
        effects=effects,
        operation=operation,
        effect_words=words,
    )


def words_of(effects: Effects, declared: Annotations | None, *, asks: bool) -> str:
    """Return what a call does, in words for a model, such as `destructive, idempotent, asks the user first`.

    Args:
        declared: the annotations from which the effects follow; None if they are not trusted. Without annotations, a
            tool is `not annotated`, although it counts as destructive.
        asks: True if a person has to approve each call.
    """
    if effects.read_only:
        words = ["read-only"]
    elif declared is None or (declared.read_only is None and declared.destructive is None):
        words = ["not annotated"]
    else:
        words = ["destructive" if effects.destructive else "writes"]
    if effects.idempotent and not effects.read_only:
        words.append("idempotent")
    return ", ".join([*words, "asks the user first"] if asks else words)


# MCP Apps: user interfaces that servers offer for the results of their tools.
#
# An app is a resource with a `ui://` URI. A tool names its app in `_meta.ui.resourceUri`. With `_meta.ui.visibility`,
# it says who may call it: the model, the app or both. Source: the extension `io.modelcontextprotocol/ui`, 2026-01-26.


SCHEME: Final = "ui://"

MAX_URI: Final = 2_000
"""Maximum length of the URI of an app in characters."""

LEGACY_KEY: Final = "ui/resourceUri"
"""Key of the URI in `_meta` before the key `ui` was introduced."""

_URI: Final = re.compile(r"ui://[!-~]+")


def is_app_uri(value: object) -> TypeGuard[str]:
    """Return True for the URI of an app: printable ASCII that begins with `ui://`."""
    return isinstance(value, str) and len(value) <= MAX_URI and _URI.fullmatch(value) is not None


def app_uri(tool: Tool) -> str | None:
    """Return the URI of a tool's app, as its server names it; None if it has none, or an invalid one."""
    meta = tool.meta or {}
    uri = _ui(tool).get("resourceUri", meta.get(LEGACY_KEY))
    return uri if is_app_uri(uri) else None


def is_for_apps_only(tool: Tool) -> bool:
    visibility = _visibility(tool)
    return visibility is not None and "model" not in visibility


def is_for_apps(tool: Tool) -> bool:
    visibility = _visibility(tool)
    return visibility is None or "app" in visibility


def without_app_tools(view: UpstreamView) -> UpstreamView:
    """Return a view without the tools that only apps may call; the same object if there are none."""
    if not any(map(is_for_apps_only, view.tools)):
        return view
    return structs.replace(view, tools=tuple(tool for tool in view.tools if not is_for_apps_only(tool)))


def app_tools_alone(view: UpstreamView) -> UpstreamView:
    tools = tuple(filter(is_for_apps_only, view.tools))
    return structs.replace(view, tools=tools, withheld={}, resources=False, prompts=False)


def _ui(tool: Tool) -> Mapping[str, Any]:
    ui = (tool.meta or {}).get("ui")
    return ui if isinstance(ui, dict) else {}


def _visibility(tool: Tool) -> list[Any] | None:
    found = _ui(tool).get("visibility")
    return found if isinstance(found, list) else None


# Operations on resources and prompts of a server, as MCP requests.
#
# All pages of a list are fetched, within bounds, because programs would take the first page for the whole list.


RESOURCE_LIST: Final = next(each for each in OPERATIONS["resources"] if each.id == "resources/list")

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000


def params(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if operation.method != "completion/complete":
        return dict(arguments)
    rest = {name: value for name, value in arguments.items() if name not in ("name", "uri")}
    if operation.id.startswith("prompts/"):
        return {"ref": {"type": "ref/prompt", "name": arguments["name"]}, **rest}
    return {"ref": {"type": "ref/resource", "uri": arguments["uri"]}, **rest}


async def perform(
    operation: Operation,
    arguments: Mapping[str, Any],
    request: Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]],
    has_room: Callable[[Mapping[str, Any]], bool],
) -> Mapping[str, Any]:
    """Return the result of an operation.

    A list has all pages, unless the arguments have a `cursor`. A very long list is cut, and has the cursor of the next
    page.

    Args:
        request: sends one MCP request.
        has_room: returns True if a page can be added to the pages before. It is called for each page, except for a list
            that has one page only.
    """
    sent = params(operation, arguments)
    first = await request(operation.method, sent)
    items = operation.items
    if items is None or "cursor" in arguments or not _has_more(first, items):
        return first
    others = {name: value for name, value in first.items() if name != "nextCursor"}
    found = list(first[items])
    cursors = set()
    cursor = first["nextCursor"]
    # A faulty server can send pages without end: it repeats a cursor, or sends empty pages.
    has_room(first)
    for _ in range(MAX_PAGES - 1):
        if cursor in cursors or len(found) >= MAX_ITEMS:
            break
        page = await request(operation.method, {**sent, "cursor": cursor})
        if not isinstance(page.get(items), list) or not has_room(page):
            break
        cursors.add(cursor)
        found.extend(page[items])
        if not _has_more(page, items):
            return {**others, items: found}
        cursor = page["nextCursor"]
    rest = {} if cursor in cursors else {"nextCursor": cursor}
    return {**others, items: found, **rest}


def _has_more(page: Mapping[str, Any], items: str) -> bool:
    cursor = page.get("nextCursor")
    return isinstance(page.get(items), list) and isinstance(cursor, str) and cursor != ""
