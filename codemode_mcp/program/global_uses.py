"""Uses of modules, saved programs and `Intl` in a program's syntax tree. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.text import listed
from codemode_mcp.program import syntax
from codemode_mcp.program.inspection import CELL_FILES, ProgramCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language


LOADERS = syntax.words("require define System module")
"""Names of module loaders. Every read is refused unless the program declares the name itself."""

_LOADER_CALLS = syntax.words("require createRequire importScripts")

_LOADER_MEMBERS: dict[str, frozenset[str]] = {
    "require": syntax.words("resolve cache main extensions"),
    "module": syntax.words("exports require createRequire"),
    "process": syntax.words("binding getBuiltinModule mainModule"),
}

_STRAY_IMPORT = re.compile(r"""import\s*(?:[({*"']|\.\s*meta\b|[\w$]+\s*(?:from\b|[,=]))""")

_STRAY_EXPORT = re.compile(
    r"export\s*(?:[{*=]|(?:default|const|let|var|function|class|async|type|interface|enum|abstract|declare)\b)"
)

_NO_READ = syntax.words("ERROR nested_identifier type_predicate asserts import_alias")
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
        self._loads = [load for load in self._loads if load[0] != at]

    def found(self) -> list[tuple[int, str, str]]:
        """Return the offset, name and wording of each access that is refused unless its name is shadowed."""
        # A program that tests `typeof define` reads it only where it exists; `require` is refused all the same.
        reads = [read for read in self._reads if read[1] == "require" or read[1] not in self._tested]
        return sorted(self._loads + reads)

    def add_syntax(self, path: list[Node], scope: syntax.Scope) -> None:
        """Add an `import` or `export`, unless it exports from a TypeScript namespace."""
        leaf, parent = path[-1], path[-2].type
        if parent == "import":  # the keyword as an expression is a node of its own
            parent = path[-3].type
        start = syntax.span_of(leaf).start
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
        at = syntax.span_of(leaf).start
        if name == "exports":
            # `exports.x = 1`: member access and assignment both begin with the name.
            inner, outer = parent.type in syntax.MEMBER_ACCESS, path[-3].type == "assignment_expression"
            if inner and outer and parent.start_byte == path[-3].start_byte == leaf.start_byte:
                self.add_load(at, name, name)
        elif name in _LOADER_CALLS and syntax.is_callee(leaf, parent):
            self.add_load(at, name, f"{name}()")
        elif member is not None and member in _LOADER_MEMBERS.get(name, ()):
            self.add_load(at, name, f"{name}.{member}")
        elif name in LOADERS:
            return self._add_loader(path, name, member)
        return False

    def _add_loader(self, path: list[Node], name: str, member: str | None) -> bool:
        parent = path[-2]
        if name != "require" and (
            (parent.type == "assignment_expression" and syntax.is_target(path, len(path) - 1))
            or (parent.type == "for_in_statement" and parent.child_by_field_name("left") == path[-1])
        ):
            return True
        around = path[syntax.outermost(path, len(path) - 1, syntax.TRANSPARENT) - 1]
        if syntax.operator_of(around) == "typeof":
            self._tested.add(name)
        elif parent.type not in _NO_READ and parent.type not in syntax.PATTERNS:
            wording = (
                f"{name}()" if syntax.is_callee(path[-1], parent) else name if member is None else f"{name}.{member}"
            )
            self.add_read(syntax.span_of(path[-1]).start, name, wording)
        return False


# Uses of saved programs, as `programs.<name>`, in a program's syntax tree.


_MAX_REPORTED = 5
_MAX_LISTED = 12
BROKEN = "its file has a problem; ask the user to run: codemode-mcp programs check"
"""The reason why a program whose file has a problem cannot be called."""


class ProgramUses:
    """The uses of `programs` in one program. A use that a declaration of the program shadows is left out."""

    def __init__(self, units: str, is_shadowed: Callable[[int], bool]) -> None:
        self._units = units
        self._is_shadowed = is_shadowed
        self._calls: list[tuple[int, str]] = []
        self._probed: set[str] = set()
        """Names that the program tests for, or reads without a call."""
        self._inspected = False
        """True if the program lists the names, or passes them on."""

    def add_reference(self, path: list[Node], at: int, scope: syntax.Scope) -> None:
        parent = path[-2]
        if parent.type in syntax.MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            name = syntax.member_of(self._units, parent)
            if name is None:
                self._inspected = True
            elif syntax.is_callee(path[-2], path[-3]) and not _is_optional(parent) and not _is_optional(path[-3]):
                if not scope.caught:
                    self._calls.append((at, name))
            else:
                self._probed.add(name)
        elif syntax.operator_of(parent) == "in":
            tested = syntax.literal_of(self._units, parent.children[0])
            self._inspected = self._inspected or tested is None
            if tested is not None:
                self._probed.add(tested)
        elif syntax.operator_of(parent) != "typeof":
            self._inspected = True

    def calls(self, position: Callable[[int], tuple[int, int]]) -> tuple[ProgramCall, ...]:
        return () if self._inspected else tuple(self._own(position))

    def _own(self, position: Callable[[int], tuple[int, int]]) -> Iterator[ProgramCall]:
        for at, name in self._calls:
            if name not in self._probed and not self._is_shadowed(at):
                yield ProgramCall(name, *position(at))


def check_programs(
    calls: Collection[ProgramCall], names: Collection[str], language: Language, broken: Collection[str] = ()
) -> None:
    """Refuse a program that calls saved programs that do not exist, before it has side effects.

    Args:
        broken: the names of programs whose files have problems.

    Raises:
        ProgramError: `invalid_input` with a line for each distinct mistake (at most five) and the nearest names.
    """
    mistakes: dict[str, str] = {}
    for call in calls:
        if call.name in names or call.name in mistakes or call.name in _OF_OBJECTS:
            continue
        if len(mistakes) == _MAX_REPORTED:
            break
        place = f"{CELL_FILES[language]}:{call.line}:{call.column}"
        if call.name in broken:
            mistakes[call.name] = f"programs.{call.name} cannot be used ({place}): {BROKEN}"
            continue
        near = nearest(call.name, names)
        advice = f"Nearest: {', '.join(f'programs.{name}' for name in near)}." if near else _listed(names)
        mistakes[call.name] = f"programs.{call.name[:80]} does not exist ({place}). {advice}"
    if mistakes:
        raise ProgramError("invalid_input", "\n".join(mistakes.values()))


def _listed(names: Collection[str]) -> str:
    if not names:
        return "There are no saved programs; call tools with MCP.<server>.<tool>({...})."
    return f'Saved programs: {listed(sorted(names), _MAX_LISTED)}. Read API.list("programs/").'


_OF_OBJECTS = frozenset(("toString", "toJSON", "valueOf", "constructor", "hasOwnProperty"))
"""Names that a program may call on any object, whatever comes of it."""


def _is_optional(node: Node) -> bool:
    return any(child.type in {"optional_chain", "?."} for child in node.children)


# Uses of `Intl`, and of methods of built-ins with locales and options, in a program's syntax tree.
#
# A program with such a use starts from an image with `Intl`, which takes a few milliseconds more. The prelude itself
# has the form of en-US without options; see `prelude/65_locale.js`. What only a running program names, such as
# `globalThis["In" + "tl"]`, is not found, and is refused there.


METHODS: Final = syntax.words(
    "toLocaleString toLocaleDateString toLocaleTimeString localeCompare toLocaleUpperCase toLocaleLowerCase"
)
"""Methods that take locales."""

WORDS: Final = re.compile(rf"(?<![\w$])(?:Intl|{'|'.join(sorted(METHODS))})(?![\w$])")

_AS_TEXT: Final = re.compile(rf"([\"'`])(?:Intl|{'|'.join(sorted(METHODS))})\1")
"""A name in quotes, as in `globalThis["Intl"]`."""

_LIGHT_OPTIONS: Final = {
    "toLocaleString": frozenset(("minimumFractionDigits", "maximumFractionDigits", "timeZone")),
    "toLocaleDateString": frozenset(("timeZone",)),
    "toLocaleTimeString": frozenset(("timeZone",)),
}
"""Options that the prelude knows."""


def names_as_text(units: str) -> bool:
    """Return True if a program has one of the names in quotes."""
    return _AS_TEXT.search(units) is not None


def is_beyond_prelude(units: str, path: list[Node]) -> bool:
    """Return True if the prelude alone does not have what a name is used for.

    Args:
        path: the path to the name, which is `Intl` or one of `METHODS`.
    """
    name, access = syntax.name_of(units, path[-1]), path[-2]
    if name == "Intl":
        return True
    if access.type != "member_expression":
        # A pattern takes the method from its object. Otherwise the program defines a member with this name.
        return "pattern" in access.type or "pattern" in path[-1].type
    call = path[-3]
    arguments = call.child_by_field_name("arguments") if syntax.is_callee(access, call) else None
    if arguments is None:
        return True
    given = [node for node in arguments.named_children if node.type != "comment"]
    if name == "localeCompare":
        return not all(_is_usual(units, node) for node in given[1:])
    if not given:
        return False
    options = [node for node in given[1:] if syntax.text_of(units, node) != "undefined"]
    return not _is_usual(units, given[0]) or not all(_is_light(units, name, node) for node in options)


def _is_usual(units: str, locale: Node) -> bool:
    return syntax.text_of(units, locale) == "undefined" or syntax.literal_of(units, locale) in {"en-US", "en"}


def _is_light(units: str, method: str, options: Node) -> bool:
    """Return True if the prelude knows all members of an object literal."""
    if options.type != "object":
        return False
    known = _LIGHT_OPTIONS.get(method, frozenset())
    for member in options.named_children:
        key = member.child_by_field_name("key") if member.type == "pair" else member
        if member.type == "comment":
            continue
        if (
            key is None
            or member.type not in {"pair", "shorthand_property_identifier"}
            or syntax.text_of(units, key) not in known
        ):
            return False
    return True
