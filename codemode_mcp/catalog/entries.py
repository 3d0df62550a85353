"""Tools before policy, and the entries of a catalog: tools and operations that policy does not deny. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.policy.policy import TOOL_MARK
from declarations.operations import OPERATIONS
from upstream_clients.tools import Tool

if TYPE_CHECKING:
    from codemode_mcp.policy.effects import Effects
    from declarations.operations import Operation
    from upstream_clients.tools import Annotations

Source = Literal["core", "plugin", "mcp", "client", "program"]
"""The origin of a tool: this product, a plugin, an upstream server, the connected client or the saved programs."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
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


@dataclass(frozen=True, slots=True)
class OfferedNamespace:
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


@dataclass(frozen=True, slots=True)
class Entry:
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
        """The method of the MCP request."""
        return "tools/call" if self.operation is None else self.operation.method

    @property
    def repeatable(self) -> bool:
        """True if a call may be sent twice without harm."""
        return self.effects.read_only or self.effects.idempotent


_OPERATION_IDS: Final = frozenset(operation.id for group in OPERATIONS.values() for operation in group)


def mcp_id(server: str, tool: str) -> str:
    """Return the id of an MCP tool. It is unique among the tools and operations of the server.

    A mark precedes the name of the tool if the name begins with this mark or is the name of an operation.
    """
    mark = TOOL_MARK if tool in _OPERATION_IDS or tool.startswith(TOOL_MARK) else ""
    return f"mcp:{server}:{mark}{tool}"


def operation_id(server: str, operation: Operation) -> str:
    """Return the id of an operation on resources or prompts of a server."""
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


def one_line(text: str, limit: int = 200) -> str:
    """Return the beginning of a text on one line. `…` marks a cut."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
