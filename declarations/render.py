"""Declaration files: one for each server, the index of all servers, and `tools.d.ts`.

Every file declares the global interfaces that it uses. So it compiles alone, with all other files, and with
`guest.d.ts`: TypeScript merges interfaces with the same name. `McpToolResult` inherits its index signature, because
TypeScript refuses an index signature in two declarations of one interface.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypedDict, Unpack

from msgspec import Struct

from declarations import expressions
from declarations.functions import (
    FunctionText,
    WrittenFunction,
    argument_type,
    comment_block,
    common_parameters,
    result_text,
    signature,
    value_text,
)
from declarations.jsdoc import MAX_PROPERTY_TEXT, comment_line, comment_lines
from declarations.operations import OPERATIONS
from declarations.schema import compile_schema
from declarations.typetree import string_literal

MAX_SHOWN: Final = 6 * 1024
"""Size in bytes above which a model reads an overview of a file instead of the file."""

MAX_OVERVIEW: Final = 16 * 1024
"""Size in bytes above which an overview has only names."""

MAX_OVERVIEW_TEXT: Final = 80
"""Maximum length in characters of the description of a tool in an overview."""

Observed = Mapping[str, Mapping[str, Any]] | None

MANY_NAMES: Final = 3
"""Minimum number of names with the same first word that are listed together: `create{Issue,Label,Milestone}`."""


class ServerSummary(Struct, frozen=True):
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
    'tools?: { method: string; mcpTool: string; operation: "tool" | "resource" | "prompt"; effects: string; '
    "description: string }[]; "
    "schemas?: Record<string, unknown> }"
)
_API_FUNCTION: Final = (
    "  /** Return the signature of a tool, or all tools, as data; `schema: true` adds the JSON Schemas. */\n"
    "  function $api(tool?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n"
)

OPTIONS_TYPE: Final = "interface McpCall { timeoutMs?: number }"
"""The type of the options of a call. Its name is short, because it is in every function."""


class ServerDetails(TypedDict, total=False):
    """Details about a server in its declaration file.

    Attributes:
        server_name: the configured name of the server, if it differs from its identifier.
        description: the server's own description or the operator's.
        notes: lines for the head of the file, such as that the server is down.
        effects: words about what calls of tools do, by identifier.
        resources, prompts: names of the operations that the server has.
    """

    server_name: str | None
    description: str
    notes: Sequence[str]
    effects: Mapping[str, str]
    resources: Collection[str]
    prompts: Collection[str]


def render_server(
    identifier: str,
    tools: Sequence[tuple[str, expressions.Renderable]],
    *,
    observed: Observed = None,
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
        self, identifier: str, tools: Sequence[tuple[str, expressions.Renderable]], **details: Unpack[ServerDetails]
    ) -> None:
        self._identifier = identifier
        name = details.get("server_name")
        self._shown_name = comment_line(identifier if name is None else name)
        self._description = comment_lines(details.get("description", ""))
        self._notes = [line for note in details.get("notes", ()) for line in comment_lines(note)]
        self._tools = dict(tools)
        self._effects = details.get("effects", {})
        self._groups = {
            "resources": frozenset(details.get("resources", ())),
            "prompts": frozenset(details.get("prompts", ())),
        }
        self._common: dict[str, str] = {}
        self._types: list[str] = []
        self._written: list[WrittenFunction] | None = None
        self._whole: tuple[list[Mapping[str, Any] | None], str] | None = None
        self._lines: dict[str, tuple[Mapping[str, Any] | None, str]] = {}

    @property
    def path(self) -> str:
        return f"mcp/{self._identifier}.d.ts"

    def whole(self, observed: Observed = None) -> str:
        """Return the whole file, for an editor and a compiler.

        Args:
            observed: schemas of earlier results, by tool name. Schemas are compared by identity, so a changed schema
                must be a new object.
        """
        seen = [(observed or {}).get(written.tool) for written in self._functions()]
        if self._whole is not None and all(map(operator.is_, self._whole[0], seen)):
            return self._whole[1]
        functions = [written.text(schema) for written, schema in zip(self._functions(), seen, strict=True)]
        groups = [_group(group, operations) for group, operations in self._groups.items()]
        shared = f"{RESULT_TYPE}\n{OPTIONS_TYPE}\n{HEADER_TYPE}\n"
        text = self._head() + shared + self._namespace([_API_FUNCTION, *self._types, *functions, *groups])
        self._whole = seen, text
        return text

    def shown(self, observed: Observed = None) -> str:
        """Return the whole file for a model: without the types of `index.d.ts`, and groups in one line each."""
        functions = [written.text((observed or {}).get(written.tool), brief=True) for written in self._functions()]
        return self._head() + self._namespace([*self._types, *functions, *self._group_lines("  ")])

    def overview(self, observed: Observed = None, room: int = MAX_SHOWN) -> str:
        """Return one line for each tool, ordered by effects, for a file that is too long to be read as a whole.

        Args:
            room: maximum size in bytes of an overview with descriptions. An overview without them may be longer.
        """
        line_form = f"MCP.{self._identifier}.<tool>(argument): type of unwrap(result)"
        about = f"{self._count()}, each as {line_form}."
        head = comment_block([about, *self._description, *self._notes])
        groups = self._group_lines("")

        def line(name: str) -> str:
            return self._line(name, (observed or {}).get(self._tools[name].name))

        def described(name: str) -> str:
            signed = line(name)
            # A tool without a type of its result often describes it.
            limit = MAX_PROPERTY_TEXT if signed.endswith(": unknown") else MAX_OVERVIEW_TEXT
            return f"{signed} // {comment_line(self._tools[name].description, limit)}".rstrip(" /")

        for form, limit in ((described, room), (line, room * MAX_OVERVIEW // MAX_SHOWN)):
            lines = self._by_effects(form, limit - len(head.encode()) - sum(map(len, groups)))
            if lines is not None:
                return "".join([head, *lines, *groups])
        named = [f"{_effects_line(effects)}{_listed(names)}\n" for effects, names in self._names_by_effects().items()]
        return "".join([head, *named, *groups])

    def _line(self, name: str, observed: Mapping[str, Any] | None) -> str:
        cached = self._lines.get(name)
        if cached is None or cached[0] is not observed:
            cached = self._lines[name] = observed, signature(name, self._tools[name], observed, returned=value_text)
        return cached[1]

    def _names_by_effects(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name in self._tools:
            groups.setdefault(self._effects.get(name, ""), []).append(name)
        return groups

    def _by_effects(self, form: Callable[[str], str], room: int) -> list[str] | None:
        """Return a line about each tool, below words about their effects; None if they take more than `room` bytes."""
        lines: list[str] = []
        for effects, names in self._names_by_effects().items():
            for text in chain([_effects_line(effects)], (f"{form(name)}\n" for name in names)):
                room -= len(text.encode())
                # The lines of thousands of tools are not written for nothing.
                if room < 0:
                    return None
                lines.append(text)
        return lines

    def excerpt(self, names: Iterable[str], observed: Observed = None) -> str:
        """Return some of the members in the form of `shown`. A single tool has its long texts.

        Args:
            names: identifiers of tools, `resources`, `prompts`, or one operation such as `resources.read`.

        Raises:
            KeyError: there is no such member.
        """
        made: list[FunctionText] = []
        groups: dict[str, set[str]] = {}
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name in self._tools:
                effects = self._effects.get(name, "")
                made.append(FunctionText(name, self._tools[name], alone=len(wanted) == 1, effects=effects))
                continue
            group, _, operation = name.partition(".")
            available = self._groups[group]
            if not available or (operation and operation not in available):
                raise KeyError(name)
            groups.setdefault(group, set()).update([operation] if operation else available)
        types = expressions.NamedTypes(integer=expressions.INTEGER_NAME)
        shared = _shared_types(types, made)
        written = [function.write(types, {}) for function in made]
        functions = [each.text((observed or {}).get(each.tool), brief=True) for each in written]
        blocks = [_group(group, operations, "") for group, operations in groups.items()]
        return comment_block(self._notes) + self._namespace([*shared, *functions, *blocks])

    def _functions(self) -> list[WrittenFunction]:
        if self._written is None:
            # Only the texts are cached, because the types take much more memory.
            made = [FunctionText(name, tool, effects=self._effects.get(name, "")) for name, tool in self._tools.items()]
            self._common = common_parameters(made)
            types = expressions.NamedTypes(integer=expressions.INTEGER_NAME)
            self._types = _shared_types(types, made)
            self._written = [function.write(types, self._common) for function in made]
        return self._written

    def _count(self) -> str:
        return f'{len(self._tools)} tool{"" if len(self._tools) == 1 else "s"} of MCP server "{self._shown_name}"'

    def _head(self) -> str:
        common = []
        if self._common:
            common.append("Parameters with these names, unless a function describes them otherwise:")
            common.extend([f"@param {name} {doc}" for name, doc in self._common.items()])
        usage = f"{self._count()}. await MCP.{self._identifier}.<tool>({{ ... }}); unwrap(result) is its value."
        return comment_block([usage, *self._description, *self._notes, *common])

    def _namespace(self, parts: Sequence[str]) -> str:
        body = "".join([*([INTEGER_TYPE] if any(map(_INTEGER_NAME.search, parts)) else []), *parts])
        return f"declare namespace MCP.{self._identifier} {{\n{body}}}\n"

    def _group_lines(self, indent: str) -> list[str]:
        return [
            f"{indent}// {group}: {', '.join(each.name for each in OPERATIONS[group] if each.name in operations)}; "
            f'types: "{self.path}#{group}"\n'
            for group, operations in self._groups.items()
            if operations
        ]


def _effects_line(effects: str) -> str:
    return f"// {effects}:\n" if effects else ""


def _shared_types(types: expressions.NamedTypes, functions: Iterable[FunctionText]) -> list[str]:
    return [
        f"  {expressions.indented(text)}\n"
        for text in types.share(each for function in functions for each in function.types)
    ]


# In a namespace, since a type with the same name in two global declarations would be an error.
INTEGER_TYPE: Final = f"  type {expressions.INTEGER_NAME} = number | bigint; // bigint beyond 2^53\n"
_INTEGER_NAME: Final = re.compile(rf"\b{expressions.INTEGER_NAME}\b")
_FIRST_WORD: Final = re.compile("[a-z]+(?=[A-Z0-9_])")


def _by_first_word(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return names by their first word, which is empty for words of few names."""
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _FIRST_WORD.match(name)
        # The blank separates `create` from `createIssue`.
        groups.setdefault(match[0] if match else name + " ", []).append(name)
    return [(word if len(members) >= MANY_NAMES else "", members) for word, members in groups.items()]


def _listed(names: Iterable[str]) -> str:
    """Return names in a line, grouped by their first word: `addLabel, create{Issue,Label,Milestone}`."""
    return ", ".join(
        f"{word}{{{','.join([member[len(word) :] for member in members])}}}" if word else ", ".join(members)
        for word, members in _by_first_word(names)
    )


def short_list(names: Iterable[str], limit: int) -> list[str]:
    """Return names. Of more than `limit`, those with the same first word are counted: `create... (40)`."""
    every = list(names)
    if len(every) <= limit:
        return every
    groups = _by_first_word(every)
    listed = [each for word, members in groups for each in ([f"{word}... ({len(members)})"] if word else members)]
    rest = len(listed) - limit
    return listed if rest <= 0 else [*listed[:limit], f"and {rest} more"]


def _group(group: str, wanted: Collection[str], options: str = ", o?: McpCall") -> str:
    """Return the namespace `resources` or `prompts` with some operations; empty if there are none."""
    shown = []
    for each in OPERATIONS[group]:
        if each.name in wanted:
            taken, parameter = argument_type(compile_schema(each.input_schema, "Input"))
            call = f"{each.name}({parameter}{expressions.TypeWriter({}).text(taken)}{options})"
            shown.append(f"    /** {each.description} */\n    function {call}: Promise<{each.output}>;\n")
    return f"  namespace {group} {{\n{''.join(shown)}  }}\n" if shown else ""


def render_tools(tools: Sequence[tuple[str, str | None, expressions.Renderable]]) -> str:
    """Return the text of `tools.d.ts`, for all tools that are not MCP tools.

    It adds members to the interface `Tools` of `guest.d.ts`.

    Args:
        tools: for each tool its id, the name of its function in `tools` if it has one, and the tool.
    """
    types = expressions.NamedTypes(expressions.GUEST_TYPE_NAMES | {"ToolCatalogEntry"})
    declared: list[str] = []
    members: list[str] = []
    for number, (tool_id, name, tool) in enumerate(tools):
        function = FunctionText(f"tool{number}", tool)
        written = function.write(types, {})
        declared.append(written.types)
        parameters = written.call.partition("(")[2] + ", o?: McpCall)"
        result = expressions.indented(result_text(written.output, plain=True))
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
        'API.search("...") finds tools in all of them. A call takes { timeoutMs } after its argument.',
    ]
    for server in servers:
        named = "" if server.name == server.identifier else f' "{comment_line(server.name, 100)}"'
        about = f": {comment_line(server.description, 200)}" if server.description else ""
        count = f"{server.tool_count} tool{'' if server.tool_count == 1 else 's'}"
        lines.append(f"MCP.{server.identifier}{named} ({count}, {comment_line(server.status, 100)}){about}")
    return (
        f"{comment_block(lines)}{RESULT_TYPE}\n{HEADER_TYPE}\n"
        "declare namespace MCP {\n"
        "  /** Return all servers. MCP.<server>.$api(tool?, { schema: true }) returns tools, with JSON Schemas. */\n"
        "  function $api(): Promise<McpApiHeader>;\n"
        "}\n"
    )
