"""Uses of `MCP`, of its servers and of their members in a program's syntax tree. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.program.inspection import MemberCall
from codemode_mcp.program.members import GROUPS, OBJECT_PROTOTYPE
from codemode_mcp.program.node_names import (
    MEMBER_ACCESS,
    is_callee,
    is_target,
    literal_of,
    member_of,
    operator_of,
    outermost,
)
from codemode_mcp.program.syntax import TRANSPARENT, span_of, text_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from codemode_mcp.program.scopes import Scope

_TESTING_OPERATORS = frozenset(("&&", "||", "??", "==", "===", "!=", "!==", "instanceof"))
_CONDITIONAL_STATEMENTS = words("if_statement while_statement do_statement")
_PASSES_MEMBERS = words("arguments spread_element for_in_statement")
_NON_NULL = frozenset(("non_null_expression",))


@dataclass(frozen=True, slots=True)
class _Use:
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

    def add_reference(self, path: list[Node], scope: Scope) -> None:
        """Add a reference to the global `MCP`."""
        at, parent = span_of(path[-1]).start, path[-2]
        if parent.type in MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            server = member_of(self._units, parent)
            if server is None or server == "$api" or server in OBJECT_PROTOTYPE:
                self.add(at, None)
            else:
                self._add_server(path, scope, at, server)
        elif parent.type == "variable_declarator":
            self._add_destructured(parent, at, scope)
        elif operator_of(parent) == "in":
            server = literal_of(self._units, parent.children[0])
            self.add(at, server)
            if server is not None:
                self._probed.add((server, None))
        elif operator_of(parent) != "typeof":
            self.add(at, None)

    def _add_server(self, path: list[Node], scope: Scope, at: int, server: str) -> None:
        """Add a read of `MCP.<server>`, by the expression around it."""
        index = outermost(path, len(path) - 2, _NON_NULL)
        optional = _is_optional(path[-2])
        user = path[index - 1]
        named = member = None
        if user.type in MEMBER_ACCESS and user.start_byte == path[index].start_byte:
            optional = optional or _is_optional(user)
            named = member = member_of(self._units, user)
            index = outermost(path, index - 1, _NON_NULL)
            if member in GROUPS and self._add_operation(path, scope, at, (server, member), index, optional):
                return
            if is_callee(path[index], path[index - 1]):
                guarded = optional or _is_optional(path[index - 1])
            else:
                guarded = optional or self._is_guarded(path, index)
                if guarded and member is not None:
                    self._probed.add((server, member))
                member = None
        else:
            guarded = optional or self._is_guarded(path, index)
            if operator_of(user) == "in":
                guarded = True
                tested = literal_of(self._units, user.children[0])
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
        self, path: list[Node], scope: Scope, at: int, group: tuple[str, str], index: int, optional: bool
    ) -> bool:
        """Add a read of `MCP.<server>.resources` or `.prompts`, if one of its members is called or tested for.

        Returns:
            False if the group itself is used.
        """
        user = path[index - 1]
        server, member = group
        if operator_of(user) == "in" and user.start_byte != path[index].start_byte:
            tested = literal_of(self._units, user.children[0])
            self._probed.add((server, member if tested is None else f"{member}.{tested}"))
            self._probed.add((server, member))
            self.add(at, server)
            return True
        if user.type not in MEMBER_ACCESS or user.start_byte != path[index].start_byte:
            return False
        guarded = optional or _is_optional(user)
        if guarded:
            self._probed.add(group)
        if optional:
            self._probed.add((server, None))
        operation = member_of(self._units, user)
        named = None if operation is None else f"{member}.{operation}"
        index = outermost(path, index - 1, _NON_NULL)
        if is_callee(path[index], path[index - 1]):
            guarded = guarded or _is_optional(path[index - 1])
        elif self._is_guarded(path, index):
            guarded = True
            if operation is not None:
                self._probed.add((server, f"{member}.{operation}"))
        else:
            operation = None
        self._uses.append(_Use(at, server, member, operation, not (guarded or scope.caught), named))
        return True

    def _add_destructured(self, declarator: Node, at: int, scope: Scope) -> None:
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
                    name = text_of(self._units, part)
                case "object_assignment_pattern":
                    name, has_default = text_of(self._units, part.children[0]), True
                case "pair_pattern":
                    key, value = part.children[0], part.child_by_field_name("value")
                    is_name = key.type == "property_identifier"
                    name = text_of(self._units, key) if is_name else literal_of(self._units, key)
                    has_default = value is not None and value.type == "assignment_pattern"
                case "comment":
                    continue
            if name == "$api":
                name = None
            self._uses.append(_Use(at, name, checked=not (has_default or scope.caught)))

    def _is_guarded(self, path: list[Node], index: int) -> bool:
        """Return True if the expression at `path[index]` is only tested, or assigned to."""
        if is_target(path, index):
            return True
        index = outermost(path, index, TRANSPARENT)
        node, user = path[index], path[index - 1]
        match user.type:
            case "unary_expression":
                return operator_of(user) in {"!", "typeof", "delete"}
            case "binary_expression":
                return operator_of(user) in _TESTING_OPERATORS
            case "ternary_expression":
                return user.start_byte == node.start_byte
        return user.type in _CONDITIONAL_STATEMENTS


def _is_optional(node: Node) -> bool:
    return any(child.type in {"optional_chain", "?."} for child in node.children)
