"""Uses of modules and module loaders, which programs do not have. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.node_names import MEMBER_ACCESS, is_callee, is_target, operator_of, outermost
from codemode_mcp.program.scopes import PATTERNS, Scope
from codemode_mcp.program.syntax import TRANSPARENT, span_of, words

if TYPE_CHECKING:
    from tree_sitter import Node

LOADERS = words("require define System module")
"""Names of module loaders. Every read is refused unless the program declares the name itself."""

_LOADER_CALLS = words("require createRequire importScripts")

_LOADER_MEMBERS: dict[str, frozenset[str]] = {
    "require": words("resolve cache main extensions"),
    "module": words("exports require createRequire"),
    "process": words("binding getBuiltinModule mainModule"),
}

_STRAY_IMPORT = re.compile(r"""import\s*(?:[({*"']|\.\s*meta\b|[\w$]+\s*(?:from\b|[,=]))""")

_STRAY_EXPORT = re.compile(
    r"export\s*(?:[{*=]|(?:default|const|let|var|function|class|async|type|interface|enum|abstract|declare)\b)"
)

_NO_READ = words("ERROR nested_identifier type_predicate asserts import_alias")
"""Types of parents of names that are not values. In text that does not parse, a word may be anything."""

_SYNTAX = {"import_statement": "`import`", "call_expression": "`import()`", "meta_property": "`import.meta`"}


class ModuleAccess:
    """The module accesses of one program, each at an offset, with a name that a declaration would shadow."""

    def __init__(self, units: str) -> None:
        self._units = units
        self._loads: list[tuple[int, str, str]] = []  # offset, name, wording
        self._reads: list[tuple[int, str, str]] = []  # reads of loaders as values
        self._tested: set[str] = set()  # loaders whose existence the program tests with `typeof`

    def add_load(self, at: int, name: str, wording: str) -> None:
        self._loads.append((at, name, f"`{wording}`"))

    def add_read(self, at: int, name: str, wording: str) -> None:
        self._reads.append((at, name, f"`{wording}`"))

    def permit(self, at: int) -> None:
        """Permit the export that begins at an offset."""
        self._loads = [load for load in self._loads if load[0] != at]

    def found(self) -> list[tuple[int, str, str]]:
        """Return the offset, name and wording of each access that is refused unless its name is shadowed."""
        # A program that tests `typeof define` reads it only where it exists; `require` is refused all the same.
        reads = [read for read in self._reads if read[1] == "require" or read[1] not in self._tested]
        return sorted(self._loads + reads)

    def add_syntax(self, path: list[Node], scope: Scope) -> None:
        """Add an `import` or `export`, unless it exports from a TypeScript namespace."""
        leaf, parent = path[-1], path[-2].type
        if parent == "import":  # the keyword as an expression is a node of its own
            parent = path[-3].type
        start = span_of(leaf).start
        wording = _SYNTAX.get(parent, f"`{leaf.type}`")
        if parent in ("export_statement", "import_alias"):
            if scope.namespace and path[-2].child_by_field_name("source") is None:
                return
        elif parent not in _SYNTAX:
            # The tree is broken here, so only text that reads like a declaration counts.
            stray = _STRAY_IMPORT if leaf.type == "import" else _STRAY_EXPORT
            before = self._units[max(0, start - 80) : start].rstrip()
            if before.endswith(".") or stray.match(self._units, start) is None:
                return
        self._loads.append((start, leaf.type, wording))

    def add_reference(self, path: list[Node], name: str, member: str | None) -> bool:
        """Add a reference to a global name, if it is a loader.

        Args:
            member: the name of the member that is read.

        Returns:
            True if the program assigns to the name of a loader, which then is its own.
        """
        leaf, parent = path[-1], path[-2]
        at = span_of(leaf).start
        if name == "exports":
            # `exports.x = 1`: member access and assignment both begin with the name.
            inner, outer = parent.type in MEMBER_ACCESS, path[-3].type == "assignment_expression"
            if inner and outer and parent.start_byte == path[-3].start_byte == leaf.start_byte:
                self.add_load(at, name, name)
        elif name in _LOADER_CALLS and is_callee(leaf, parent):
            self.add_load(at, name, f"{name}()")
        elif member is not None and member in _LOADER_MEMBERS.get(name, ()):
            self.add_load(at, name, f"{name}.{member}")
        elif name in LOADERS:
            return self._add_loader(path, name, member)
        return False

    def _add_loader(self, path: list[Node], name: str, member: str | None) -> bool:
        parent = path[-2]
        if name != "require" and (
            (parent.type == "assignment_expression" and is_target(path, len(path) - 1))
            or (parent.type == "for_in_statement" and parent.child_by_field_name("left") == path[-1])
        ):
            return True
        around = path[outermost(path, len(path) - 1, TRANSPARENT) - 1]
        if operator_of(around) == "typeof":
            self._tested.add(name)
        elif parent.type not in _NO_READ and parent.type not in PATTERNS:
            wording = f"{name}()" if is_callee(path[-1], parent) else name if member is None else f"{name}.{member}"
            self.add_read(span_of(path[-1]).start, name, wording)
        return False
