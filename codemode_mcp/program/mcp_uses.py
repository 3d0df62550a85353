"""Uses of `MCP`, and the check of the members that they name. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest, normalize_name
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.text import listed
from codemode_mcp.program import syntax
from codemode_mcp.program.inspection import CELL_FILES, MemberCall, Preflight

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language


_TESTING_OPERATORS = frozenset(("&&", "||", "??", "==", "===", "!=", "!==", "instanceof"))
_CONDITIONAL_STATEMENTS = syntax.words("if_statement while_statement do_statement")
_PASSES_MEMBERS = syntax.words("arguments spread_element for_in_statement")
_NON_NULL = frozenset(("non_null_expression",))


class _Use(Struct, frozen=True):
    """One use of `MCP`.

    Attributes:
        at: its offset.
        server: the server; None if it is unknown which.
        checked: whether the program relies on the existence of server, member and operation.
        named: the member that is read, such as `createIssue` or `resources.read`; None if it is unknown which.
    """

    at: int
    server: str | None
    member: str | None = None
    operation: str | None = None
    checked: bool = False
    named: str | None = None


class McpUses:
    """The uses of `MCP` in one program. A use that a declaration of the program shadows is left out of the results."""

    def __init__(self, units: str, is_shadowed: Callable[[int], bool]) -> None:
        self._units = units
        self._is_shadowed = is_shadowed
        self._uses: list[_Use] = []
        self._probed: set[tuple[str, str | None]] = set()  # servers, or members of them, that the program tests for
        self._inspected: set[str] = set()  # servers whose members the program lists

    def servers(self) -> frozenset[str] | None:
        """Return the servers that the program uses; None if they are unknown."""
        names = {use.server for use in self._own()}
        return None if None in names else frozenset(name for name in names if name is not None)

    def members(self) -> frozenset[tuple[str, str | None]] | None:
        """Return the servers and their members that the program reads.

        A member is None if it is unknown which one is read. The result is None if the servers are unknown.
        """
        found = set()
        for use in self._own():
            if use.server is None:
                return None
            found.add((use.server, use.named))
        return frozenset(found)

    def calls(self, position: Callable[[int], tuple[int, int]]) -> tuple[MemberCall, ...]:
        """Return the uses that rely on the existence of a server, a member or an operation."""
        found = []
        for use in self._own():
            server, member = use.server, use.member
            if server is None or not use.checked or (server, None) in self._probed or (server, member) in self._probed:
                continue
            if use.operation is not None and (server, f"{member}.{use.operation}") in self._probed:
                continue
            line, column = position(use.at)
            inspected = server in self._inspected
            found.append(MemberCall(server, None if inspected else member, line, column, use.operation))
        return tuple(found)

    def _own(self) -> Iterator[_Use]:
        return (use for use in self._uses if not self._is_shadowed(use.at))

    def add(self, at: int, server: str | None) -> None:
        """Add a use of a server, or of an unknown one, that does not rely on its existence."""
        self._uses.append(_Use(at, server))

    def add_reference(self, path: list[Node], scope: syntax.Scope) -> None:
        at, parent = syntax.span_of(path[-1]).start, path[-2]
        if parent.type in syntax.MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            server = syntax.member_of(self._units, parent)
            if server is None or server == "$api" or server in OBJECT_PROTOTYPE:
                self.add(at, None)
            else:
                self._add_server(path, scope, at, server)
        elif parent.type == "variable_declarator":
            self._add_destructured(parent, at, scope)
        elif syntax.operator_of(parent) == "in":
            server = syntax.literal_of(self._units, parent.children[0])
            self.add(at, server)
            if server is not None:
                self._probed.add((server, None))
        elif syntax.operator_of(parent) != "typeof":
            self.add(at, None)

    def _add_server(self, path: list[Node], scope: syntax.Scope, at: int, server: str) -> None:
        index = syntax.outermost(path, len(path) - 2, _NON_NULL)
        optional = _is_optional(path[-2])
        user = path[index - 1]
        named = member = None
        if user.type in syntax.MEMBER_ACCESS and user.start_byte == path[index].start_byte:
            optional = optional or _is_optional(user)
            named = member = syntax.member_of(self._units, user)
            index = syntax.outermost(path, index - 1, _NON_NULL)
            if member in GROUPS and self._add_operation(path, scope, at, (server, member), index, optional):
                return
            if syntax.is_callee(path[index], path[index - 1]):
                guarded = optional or _is_optional(path[index - 1])
            else:
                guarded = optional or self._is_guarded(path, index)
                if guarded and member is not None:
                    self._probed.add((server, member))
                member = None
        else:
            guarded = optional or self._is_guarded(path, index)
            if syntax.operator_of(user) == "in":
                guarded = True
                tested = syntax.literal_of(self._units, user.children[0])
                if tested is None:
                    self._inspected.add(server)
                else:
                    self._probed.add((server, tested))
            elif guarded:
                self._probed.add((server, None))
            elif user.type in _PASSES_MEMBERS:
                self._inspected.add(server)
        if optional:
            self._probed.add((server, None))
        self._uses.append(_Use(at, server, member, checked=not (guarded or scope.caught), named=named))

    def _add_operation(
        self, path: list[Node], scope: syntax.Scope, at: int, group: tuple[str, str], index: int, optional: bool
    ) -> bool:
        """Add a read of `MCP.<server>.resources` or `.prompts`, if one of its members is called or tested for.

        Returns:
            False if the group itself is used.
        """
        user = path[index - 1]
        server, member = group
        if syntax.operator_of(user) == "in" and user.start_byte != path[index].start_byte:
            tested = syntax.literal_of(self._units, user.children[0])
            self._probed.add((server, member if tested is None else f"{member}.{tested}"))
            self._probed.add((server, member))
            self.add(at, server)
            return True
        if user.type not in syntax.MEMBER_ACCESS or user.start_byte != path[index].start_byte:
            return False
        guarded = optional or _is_optional(user)
        if guarded:
            self._probed.add(group)
        if optional:
            self._probed.add((server, None))
        operation = syntax.member_of(self._units, user)
        named = None if operation is None else f"{member}.{operation}"
        index = syntax.outermost(path, index - 1, _NON_NULL)
        if syntax.is_callee(path[index], path[index - 1]):
            guarded = guarded or _is_optional(path[index - 1])
        elif self._is_guarded(path, index):
            guarded = True
            if operation is not None:
                self._probed.add((server, f"{member}.{operation}"))
        else:
            operation = None
        self._uses.append(_Use(at, server, member, operation, not (guarded or scope.caught), named))
        return True

    def _add_destructured(self, declarator: Node, at: int, scope: syntax.Scope) -> None:
        """Add `const { github } = MCP`."""
        pattern = declarator.child_by_field_name("name")
        if pattern is None or pattern.type != "object_pattern":
            self.add(at, None)
            return
        for part in pattern.named_children:
            name: str | None = None
            has_default = False
            match part.type:
                case "shorthand_property_identifier_pattern":
                    name = syntax.text_of(self._units, part)
                case "object_assignment_pattern":
                    name, has_default = syntax.text_of(self._units, part.children[0]), True
                case "pair_pattern":
                    key, value = part.children[0], part.child_by_field_name("value")
                    is_name = key.type == "property_identifier"
                    name = syntax.text_of(self._units, key) if is_name else syntax.literal_of(self._units, key)
                    has_default = value is not None and value.type == "assignment_pattern"
                case "comment":
                    continue
            if name == "$api":
                name = None
            self._uses.append(_Use(at, name, checked=not (has_default or scope.caught)))

    def _is_guarded(self, path: list[Node], index: int) -> bool:
        """Return True if the expression at `path[index]` is only tested, or assigned to."""
        if syntax.is_target(path, index):
            return True
        index = syntax.outermost(path, index, syntax.TRANSPARENT)
        node, user = path[index], path[index - 1]
        match user.type:
            case "unary_expression":
                return syntax.operator_of(user) in {"!", "typeof", "delete"}
            case "binary_expression":
                return syntax.operator_of(user) in _TESTING_OPERATORS
            case "ternary_expression":
                return user.start_byte == node.start_byte
        return user.type in _CONDITIONAL_STATEMENTS


def _is_optional(node: Node) -> bool:
    return any(child.type in {"optional_chain", "?."} for child in node.children)


# Checks of the members of `MCP` that a program uses, with the nearest names for missing ones.


_MAX_REPORTED = 5


_MAX_NEAREST = 3


_MAX_LISTED = 12


def check_members(
    found: Preflight,
    members: Mapping[str, Collection[str] | None],
    language: Language,
    withheld: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Refuse a program that uses servers or members that do not exist or are held, before it has side effects.

    Args:
        found: the result of `inspect`.
        members: the member names of every known server, by identifier and by alias; None for unknown ones. They
            include `resources` and names such as `resources.read`.
        language: the language, for the file name in positions.
        withheld: the reasons why tools are held, by server and name. They follow the name in a sentence.

    Raises:
        ProgramError: `invalid_input` with a line for each distinct mistake (at most five) and the nearest names.
    """
    mistakes: dict[tuple[str, ...], str] = {}
    key: tuple[str, ...]
    for call in found.member_calls:
        if call.server not in members:
            key, problem = (call.server,), _unknown_server
        elif call.member is None:
            continue
        elif _is_unknown(call.member, members[call.server]):
            key, problem = (call.server, call.member), _unknown_member
        elif call.operation is not None and _is_unknown(f"{call.member}.{call.operation}", members[call.server]):
            key, problem = (call.server, call.member, call.operation), _unknown_operation
        else:
            continue
        if key not in mistakes:
            if len(mistakes) == _MAX_REPORTED:
                break
            position = f"{CELL_FILES[language]}:{call.line}:{call.column}"
            why = (withheld or {}).get(call.server, {}).get(call.member or "") if len(key) == 2 else None
            mistakes[key] = (
                problem(call, members, position) if why is None else f"{_expression(*key)} {why} ({position})."
            )
    if mistakes:
        raise ProgramError("invalid_input", "\n".join(mistakes.values()))


def contested_names(found: Preflight, contested: Mapping[str, str]) -> list[str]:
    """Return the sentences about the names in a program that several servers or tools would have, at most three.

    Args:
        contested: the sentences, by names such as `github` and `github.createIssue`.
    """
    if not contested:
        return []
    calls = {f"{call.server}.{call.member}" for call in found.member_calls}
    used = {*(found.servers or ()), *(call.server for call in found.member_calls), *calls}
    return [sentence for name, sentence in contested.items() if name in used][:_MAX_CONTESTED]


_MAX_CONTESTED = 3


OBJECT_PROTOTYPE = syntax.words(
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __proto__ "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__"
)


_BUILT_IN = OBJECT_PROTOTYPE | {"$api"}
"""Members of every server that are not tools."""


GROUPS = frozenset(("resources", "prompts"))
"""Members of servers that have members of their own."""


_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


def _is_unknown(member: str, names: Collection[str] | None) -> bool:
    return names is not None and member.rpartition(".")[2] not in _BUILT_IN and member not in names


def _unknown_server(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    text = f"{_expression(call.server)} does not exist ({position})."
    if not members:
        return f"{text} No MCP server is configured."
    meant = _tools_named(call.server, members)
    if meant and call.server in _CALLERS:
        text += f" Tools are functions: write MCP.<server>.<tool>({{...}}), such as {meant[0]}."
    elif meant:
        return f"{text} Write {' or '.join(meant)}."
    return f'{text} {_suggest(call.server, members, "Servers")} Read API.read("mcp/index.d.ts").'


def _unknown_member(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    member = call.member or ""
    names = members[call.server] or ()
    text = f"{_expression(call.server, member)} does not exist ({position})."
    if member in GROUPS:
        return f"{text} This server has no {member}."
    tools = _tools(names)
    if member in _CALLERS and tools:
        text += f" Tools are functions: call them by name, such as {_expression(call.server, tools[0])}({{...}})."
    known = [name for name in names if name not in GROUPS]
    return f"{text} {_suggest(member, known, f'{_expression(call.server)} has')} {_read_advice(call.server)}"


_CALLERS = syntax.words("call callTool call_tool execute invoke request run tool")
"""Names of functions by which other systems call any tool."""


def _tools(names: Collection[str]) -> list[str]:
    return [name for name in _distinct_names(names) if name not in GROUPS and "." not in name]


def _tools_named(name: str, members: Mapping[str, Collection[str] | None]) -> list[str]:
    """Return calls of tools for a name that is a tool, or a function that calls any tool, and not a server."""
    servers = [(server, _tools(members[server] or ())) for server in _distinct_names(members)]
    if name in _CALLERS:
        return [f"{_expression(server, tools[0])}({{...}})" for server, tools in servers if tools][:1]
    found = [
        (server, tool) for server, tools in servers for tool in tools if normalize_name(tool) == normalize_name(name)
    ]
    return [f"{_expression(*each)}({{...}})" for each in found[:_MAX_NEAREST]]


def _distinct_names(names: Collection[str]) -> list[str]:
    """Return sorted names. Of names that differ only in case and punctuation, only the identifier is kept."""
    by_spelling: dict[str, str] = {}
    for name in _ordered(names):
        by_spelling.setdefault(normalize_name(name), name)
    return sorted(by_spelling.values())


def _ordered(names: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (_IDENTIFIER.fullmatch(name) is None, "_" in name, name))


def _unknown_operation(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    group, operation = call.member or "", call.operation or ""
    existing = [name.removeprefix(f"{group}.") for name in members[call.server] or () if name.startswith(f"{group}.")]
    text = f"{_expression(call.server, group, operation)} does not exist ({position})."
    return (
        f"{text} {_suggest(operation, existing, f'{_expression(call.server, group)} has')} {_read_advice(call.server)}"
    )


def _read_advice(server: str) -> str:
    # Aliases are not file names; the index leads to the right file.
    file = server if re.fullmatch(r"[a-z][A-Za-z0-9]*", server) else "index"
    return f'Read API.read("mcp/{file}.d.ts").'


def _expression(*names: str) -> str:
    return "MCP" + "".join(f".{_cut(name)}" if _IDENTIFIER.fullmatch(name) else f'["{_cut(name)}"]' for name in names)


def _cut(name: str) -> str:
    printable = "".join(c if c.isprintable() else "?" for c in name[:80])
    return printable if len(name) <= 80 else printable + "..."


def _suggest(wanted: str, names: Collection[str], heading: str) -> str:
    near = _nearest(wanted, names)
    if near:
        return f"Nearest: {', '.join(near)}."
    if not names:
        return f"{heading}: none."
    return f"{heading}: {listed([*map(_cut, _distinct_names(names))], _MAX_LISTED)}."


def _nearest(wanted: str, names: Collection[str]) -> list[str]:
    """Return the nearest names, best first. Of a name and its alias, only the identifier is returned."""
    return [_cut(name) for name in nearest(wanted, _ordered(names), count=_MAX_NEAREST)]
