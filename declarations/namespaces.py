"""`namespaces.d.ts`: the globals that plugins add, as types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from declarations.expressions import GUEST_TYPE_NAMES, NamedTypes, Renderable, indented, property_name
from declarations.functions import FunctionText, comment_block
from declarations.jsdoc import MAX_TOOL_TEXT, comment_line, comment_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class ScopeFunction:
    """A function in the scope of a namespace.

    Attributes:
        tool: name of the tool that the function calls.
        mapped: True if the plugin maps the arguments, so that the function's parameters are unknown.
    """

    tool: str
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class ScopeObject:
    """An object in the scope of a namespace, or the scope itself.

    Attributes:
        members: members by name. A string is the type of a member that is data.
        more: True if the object has further members, whose names are unknown.
    """

    members: Mapping[str, ScopeObject | ScopeFunction | str]
    more: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceSummary:
    """One global of `namespaces.d.ts`.

    Attributes:
        global_name: an identifier.
        tools: the tools that the namespace calls, by id; None for a tool without a declaration.
        scope: the members of the namespace in one program; None if unknown.
    """

    global_name: str
    description: str
    tools: Mapping[str, Renderable | None]
    prompt: str = ""
    scope: ScopeObject | None = None


_ANY_MEMBERS: Final = "{ readonly [name: string]: any }"


def render_namespaces(namespaces: Sequence[NamespaceSummary]) -> str:
    """Return the content of `namespaces.d.ts`."""
    types = NamedTypes(GUEST_TYPE_NAMES | {each.global_name for each in namespaces})
    declared: list[str] = []
    text = ""
    for each in namespaces:
        tools = comment_line(", ".join(each.tools), MAX_TOOL_TEXT)
        lines = [
            *comment_lines(each.description),
            *comment_lines(each.prompt),
            f"The same as namespaces.{each.global_name}. Calls {tools}; see tools.describe(id).",
        ]
        by_name = {tool.name: tool for tool in each.tools.values() if tool is not None}
        scope = _ANY_MEMBERS
        if each.scope is not None:
            scope = _Scope(by_name, types, declared, each.global_name).text(each.scope)
        text += f"{comment_block(lines)}declare const {each.global_name}: {scope};\n"
    head = [
        "Namespaces of plugins: data, and functions that call tools, made for each program.",
        "Each is a global and a member of `namespaces`; print one to see its members.",
    ]
    return comment_block(head) + "".join(declared) + text


class _Scope:
    """A writer of the scope of one namespace as a type.

    Args:
        tools: tools by name.
        declared: takes the declarations of named types.
    """

    def __init__(
        self, tools: Mapping[str, Renderable], types: NamedTypes, declared: list[str], global_name: str
    ) -> None:
        self._tools = tools
        self._types = types
        self._declared = declared
        self._global_name = global_name

    def text(self, scope: ScopeObject, indent: str = "") -> str:
        """Return the type of an object. `indent`: indentation of the closing brace."""
        inner = indent + "  "
        members = [self._member(name, each, inner) for name, each in scope.members.items()]
        if scope.more:
            members.append(f"{inner}readonly [name: string]: any;\n")
        return f"{{\n{''.join(members)}{indent}}}" if members else "Record<string, never>"

    def _member(self, name: str, value: ScopeObject | ScopeFunction | str, indent: str) -> str:
        written = property_name(name)
        match value:
            case str():
                return f"{indent}readonly {written}: {value};\n"
            case ScopeObject():
                return f"{indent}readonly {written}: {self.text(value, indent)};\n"
        tool = self._tools.get(value.tool)
        if tool is None:
            return f"{indent}{written}(...args: any[]): Promise<any>;\n"
        function = FunctionText(f"{self._global_name}{value.tool.title().replace('-', '')}", tool).write(
            self._types, {}
        )
        self._declared.extend(line.removeprefix("  ") for line in function.types.splitlines(keepends=True))
        output = "any" if function.output in (None, "unknown") else indented(str(function.output), indent)
        if value.mapped:
            comment = comment_block(comment_lines(tool.description), indent)
            return f"{comment}{indent}{written}(...args: any[]): Promise<{output}>;\n"
        comment = comment_block(function.doc, indent)
        # A function of a namespace takes only the tool's input.
        taken = indented(function.call.partition("(")[2].removesuffix(", o?: McpCall)"), indent[:-2])
        return f"{comment}{indent}{written}({taken}): Promise<{output}>;\n"
