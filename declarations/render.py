"""Declaration files: one for each server, the index of all servers, and `tools.d.ts`.

Every file declares the global interfaces that it uses. So it compiles alone, with all other files, and with
`guest.d.ts`: TypeScript merges interfaces with the same name. `McpToolResult` inherits its index signature, because
TypeScript refuses an index signature in two declarations of one interface.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from declarations.expressions import (
    GUEST_TYPE_NAMES,
    INTEGER_NAME,
    NamedTypes,
    Renderable,
    TypeWriter,
    indented,
)
from declarations.functions import FunctionText, WrittenFunction, comment_block, common_parameters
from declarations.jsdoc import comment_line, comment_lines
from declarations.operations import OPERATIONS
from declarations.schema import compile_schema
from declarations.signatures import argument_type, result_text
from declarations.typetree import string_literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

LARGE_FILE: Final = 8 * 1024
"""Size in bytes above which a file begins with a list of its members."""

MANY_NAMES: Final = 3
"""Minimum number of names with the same first word that are listed together: `create{Issue,Label,Milestone}`."""


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """One line of `mcp/index.d.ts`.

    Attributes:
        identifier: the name after `MCP.`.
        name: the configured name.
        status: a word such as `ready` or `down`.
    """

    identifier: str
    name: str
    tool_count: int
    status: str = "ready"
    description: str = ""


RESULT_TYPE: Final = (
    "interface McpToolResult<T = unknown> extends Record<string, unknown> "
    "{ content?: unknown[]; structuredContent?: T; isError?: boolean }"
)
HEADER_TYPE: Final = (
    'interface McpApiHeader { kind: "mcp_api"; scope: "root" | "server" | "tool"; header: string; '
    "servers?: { identifier: string; serverName: string; toolCount: number; status: string }[]; "
    'tools?: { method: string; mcpTool: string; operation: "tool" | "resource" | "prompt"; description: string }[]; '
    "schemas?: Record<string, unknown> }"
)
_HEADER_TYPE_IN_SERVER: Final = 'interface McpApiHeader { kind: "mcp_api"; header: string } // more: mcp/index.d.ts'

OPTIONS_TYPE: Final = "interface McpCall { timeoutMs?: number }"
"""The type of the options of a call. Its name is short, because it is in every function."""


class ServerDetails(TypedDict, total=False):
    """Details about a server in its declaration file.

    Attributes:
        server_name: the configured name of the server, if it differs from its identifier.
        description: the server's own description or the operator's.
        notes: lines for the head of the file, such as that the server is down.
        resources, prompts: names of the operations that the server has.
    """

    server_name: str | None
    description: str
    notes: Sequence[str]
    resources: Collection[str]
    prompts: Collection[str]


def render_server(
    identifier: str,
    tools: Sequence[tuple[str, Renderable]],
    *,
    observed: Mapping[str, Mapping[str, Any]] | None = None,
    **details: Unpack[ServerDetails],
) -> str:
    """Return the text of `mcp/<identifier>.d.ts`. The arguments are those of `ServerFile` and `ServerFile.whole`."""
    return ServerFile(identifier, tools, **details).whole(observed)


class ServerFile:
    """The declaration file of one server.

    The texts of functions are cached. After a new observed type, only one function is written again.

    Args:
        identifier: the server's name after `MCP.`.
        tools: identifiers and tools in the order of the file.
    """

    def __init__(
        self, identifier: str, tools: Sequence[tuple[str, Renderable]], **details: Unpack[ServerDetails]
    ) -> None:
        self._identifier = identifier
        name = details.get("server_name")
        self._shown_name = comment_line(identifier if name is None else name)
        self._description = comment_lines(details.get("description", ""))
        self._notes = [line for note in details.get("notes", ()) for line in comment_lines(note)]
        self._tools = dict(tools)
        self._groups = {
            "resources": frozenset(details.get("resources", ())),
            "prompts": frozenset(details.get("prompts", ())),
        }
        self._common: dict[str, str] = {}
        self._written: list[WrittenFunction] | None = None
        self._whole: tuple[list[Mapping[str, Any] | None], str] | None = None

    @property
    def path(self) -> str:
        return f"mcp/{self._identifier}.d.ts"

    def whole(self, observed: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """Return the whole file.

        Args:
            observed: schemas of earlier results, by tool name. Schemas are compared by identity, so a changed schema
                must be a new object.
        """
        if self._written is None:
            # Only the texts are cached, because the types take much more memory.
            made = [FunctionText(name, tool) for name, tool in self._tools.items()]
            self._common = common_parameters(made)
            types = NamedTypes(integer=INTEGER_NAME)
            self._written = [function.write(types, self._common) for function in made]
        seen = [(observed or {}).get(written.tool) for written in self._written]
        if self._whole is not None and all(map(operator.is_, self._whole[0], seen)):
            return self._whole[1]
        functions = [written.text(schema) for written, schema in zip(self._written, seen, strict=True)]
        body = "".join(
            (
                f"{RESULT_TYPE}\n{OPTIONS_TYPE}\n{_HEADER_TYPE_IN_SERVER}\n",
                f"declare namespace MCP.{self._identifier} {{\n",
                _integer_type(functions),
                "  /** Return this API header. */\n",
                "  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n",
                *functions,
                *[_group(group, operations) for group, operations in self._groups.items()],
                "}\n",
            )
        )
        text = self._head(len(body.encode())) + body
        self._whole = seen, text
        return text

    def excerpt(self, names: Iterable[str], observed: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """Return a complete file with some of the members only.

        Args:
            names: identifiers of tools, `resources`, `prompts`, or one operation such as `resources.read`.

        Raises:
            KeyError: there is no such member.
        """
        types = NamedTypes(integer=INTEGER_NAME)
        functions: list[str] = []
        groups: dict[str, set[str]] = {}
        for name in dict.fromkeys(names):
            if name in self._tools:
                written = FunctionText(name, self._tools[name], alone=True).write(types, {})
                functions.append(written.text((observed or {}).get(written.tool)))
                continue
            group, _, operation = name.partition(".")
            available = self._groups[group]
            if not available or (operation and operation not in available):
                raise KeyError(name)
            groups.setdefault(group, set()).update([operation] if operation else available)
        return "".join(
            (
                comment_block([f'Part of {self.path}, of MCP server "{self._shown_name}".', *self._notes]),
                f"{RESULT_TYPE}\n" if functions else "",
                f"{OPTIONS_TYPE}\n",
                f"declare namespace MCP.{self._identifier} {{\n",
                _integer_type(functions),
                *functions,
                *[_group(group, operations) for group, operations in groups.items()],
                "}\n",
            )
        )

    def _head(self, size: int) -> str:
        """Return the comment at the head of the file. `size`: size in bytes of the rest of the file."""
        count = f"{len(self._tools)} tool{'' if len(self._tools) == 1 else 's'}"
        usage = f"await MCP.{self._identifier}.<tool>({{ ... }}); unwrap(result) is its value."
        first = f'{count} of MCP server "{self._shown_name}". {usage}'
        rest = [*self._description, *self._notes]
        common = []
        if self._common:
            common.append("Parameters with these names, unless a function describes them otherwise:")
            common.extend([f"@param {name} {doc}" for name, doc in self._common.items()])
        head = comment_block([first, *rest, *common])
        size += len(head.encode())
        if size <= LARGE_FILE or len(self._tools) < 2:
            return head
        names = [*self._tools, *(group for group, operations in self._groups.items() if operations)]
        reading = (
            f'API.read("{self.path}#<tool>") gives one tool, "#<tool>,<tool>" several, without the cuts marked … here'
        )
        contents = f"{round(size / 1024)} KB; {reading}. Tools: {_listed(names)}"
        return comment_block([first, *rest, contents, *common])


def _integer_type(functions: Iterable[str]) -> str:
    """Return the declaration of the type for integers, if functions use it."""
    return INTEGER_TYPE if any(map(_INTEGER_NAME.search, functions)) else ""


# In a namespace, since a type with the same name in two global declarations would be an error.
INTEGER_TYPE: Final = f"  type {INTEGER_NAME} = number | bigint; // an integer beyond 2^53 is a bigint\n"
_INTEGER_NAME: Final = re.compile(rf"\b{INTEGER_NAME}\b")
_FIRST_WORD: Final = re.compile("[a-z]+(?=[A-Z0-9_])")


def _listed(names: Sequence[str]) -> str:
    """Return names in a line, grouped by their first word: `addLabel, create{Issue,Label,Milestone}`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _FIRST_WORD.match(name)
        # The blank separates `create` from `createIssue`.
        groups.setdefault(match[0] if match else name + " ", []).append(name)
    listed = []
    for word, members in groups.items():
        if len(members) < MANY_NAMES:
            listed.extend(members)
        else:
            listed.append(f"{word}{{{','.join([member[len(word) :] for member in members])}}}")
    return ", ".join(listed)


def _group(group: str, wanted: Collection[str]) -> str:
    """Return the namespace `resources` or `prompts` with some operations; empty if there are none."""
    shown = []
    for each in OPERATIONS[group]:
        if each.name in wanted:
            taken, parameter = argument_type(compile_schema(each.input_schema, "Input"))
            call = f"{each.name}({parameter}{TypeWriter({}).text(taken)}, o?: McpCall)"
            shown.append(f"    /** {each.description} */\n    function {call}: Promise<{each.output}>;\n")
    return f"  namespace {group} {{\n{''.join(shown)}  }}\n" if shown else ""


def render_tools(tools: Sequence[tuple[str, str | None, Renderable]]) -> str:
    """Return the text of `tools.d.ts`, for all tools that are not MCP tools.

    It adds members to the interface `Tools` of `guest.d.ts`.

    Args:
        tools: for each tool its id, the name of its function in `tools` if it has one, and the tool.
    """
    types = NamedTypes(GUEST_TYPE_NAMES | {"ToolCatalogEntry"})
    declared: list[str] = []
    members: list[str] = []
    for number, (tool_id, name, tool) in enumerate(tools):
        function = FunctionText(f"tool{number}", tool)
        written = function.write(types, {})
        declared.append(written.types)
        parameters = written.call.partition("(")[2]
        result = indented(result_text(written.output, plain=True))
        comment = comment_block([*written.doc, *written.last_lines], "  ")
        if name is not None:
            members.append(f"{comment}  {name}({parameters}: {result};\n")
        members.append(f"{comment}  call(id: {string_literal(tool_id)}, {parameters}: {result};\n")
    head = comment_block(["The tools that are not MCP tools: by id, and by name if it is unambiguous."])
    return f"{head}{OPTIONS_TYPE}\n{''.join(declared)}interface Tools {{\n{''.join(members)}}}\n"


def render_index(servers: Sequence[ServerSummary]) -> str:
    """Return the text of `mcp/index.d.ts`: a line for each server, and the types that all servers share."""
    lines = [
        "The MCP servers of this program. Read mcp/<identifier>.d.ts for the functions of one;",
        'API.search("...") finds tools in all of them.',
    ]
    for server in servers:
        named = "" if server.name == server.identifier else f' "{comment_line(server.name, 100)}"'
        about = f": {comment_line(server.description, 200)}" if server.description else ""
        count = f"{server.tool_count} tool{'' if server.tool_count == 1 else 's'}"
        lines.append(f"MCP.{server.identifier}{named} ({count}, {comment_line(server.status, 100)}){about}")
    return (
        f"{comment_block(lines)}{RESULT_TYPE}\n{HEADER_TYPE}\n"
        "declare namespace MCP {\n"
        "  /** Return the header of the whole API. */\n"
        "  function $api(): Promise<McpApiHeader>;\n"
        "}\n"
    )
