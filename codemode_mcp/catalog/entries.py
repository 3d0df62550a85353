"""What a catalog is made of: tools that are offered, and the entries that policy leaves of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.policy.policy import TOOL_MARK
from declarations.names import INVISIBLE
from declarations.operations import OPERATIONS

if TYPE_CHECKING:
    from codemode_mcp.policy.policy import Effects
    from declarations.operations import Operation
    from upstream_clients.tools import Tool

Source = Literal["core", "plugin", "mcp", "client"]
"""What a tool comes from: this product, a plugin, an upstream server, the connected client."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool that is no MCP tool, before policy.

    Attributes:
        label: a name for people; None: the tool's own.
        optional: there only where a rule of the operator's names it.
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
    """A namespace of a plugin, before anybody knows whether its tools are there (SPEC 6).

    Attributes:
        global_name: the global variable of a program that holds it, and its name in `namespaces`.
        required_tools: names of tools of the same plugin; without all of them it is not there.
        prompt: what a model reads of it in the description of `exec`; empty: nothing.
    """

    id: str
    plugin: str
    global_name: str
    description: str
    required_tools: tuple[str, ...]
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One callable thing.

    Attributes:
        id: `<source>:<source_name>:<tool>`, e.g. `mcp:github:create_issue`.
        source_name: of an upstream its configured name, of a plugin its name, of the client `session`.
        path: the expression a program writes, e.g. `MCP.github.createIssue`.
        identifier: the last part of `path`; of a tool without one, its name.
        operation: what it does with resources or prompts; None for a tool.
    """

    id: str
    source: Source
    source_name: str
    path: str
    identifier: str
    tool: Tool
    effects: Effects
    operation: Operation | None = None

    @property
    def method(self) -> str:
        """The MCP request it becomes."""
        return "tools/call" if self.operation is None else self.operation.method

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no harm."""
        return self.effects.read_only or self.effects.idempotent


_OPERATION_IDS: Final = frozenset(operation.id for group in OPERATIONS.values() for operation in group)


def mcp_id(server: str, tool: str) -> str:
    """Return the id of an MCP tool. No two tools of a server have the same, and none has that of an operation.

    A tool that is called like an operation, or whose name begins with the mark itself, gets the mark before its name.
    """
    mark = TOOL_MARK if tool in _OPERATION_IDS or tool.startswith(TOOL_MARK) else ""
    return f"mcp:{server}:{mark}{tool}"


def operation_id(server: str, operation: Operation) -> str:
    """Return the id of an operation on resources or prompts of a server."""
    return f"mcp:{server}:{operation.id}"


_UNSHOWN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{INVISIBLE}]")


def within_line(text: str, limit: int = 200) -> str:
    """The id of a tool, or what a server says, within a text of ours: cut, and with escapes for what would break its
    line, or that nobody would see. It is of its server's making, or of a program's."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut if cut.isascii() and cut.isprintable() else _UNSHOWN.sub(lambda found: ascii(found[0])[1:-1], cut)


def one_line(text: str, limit: int = 200) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
