"""Uses of saved programs, as `programs.<name>`, in a program's syntax tree. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.did_you_mean import nearest
from codemode_mcp.errors import ProgramError
from codemode_mcp.program.inspection import CELL_FILES, ProgramCall
from codemode_mcp.program.node_names import MEMBER_ACCESS, is_callee, literal_of, member_of, operator_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tree_sitter import Node

    from codemode_mcp.program.scopes import Scope
    from codemode_mcp.settings import Language

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

    def add_reference(self, path: list[Node], at: int, scope: Scope) -> None:
        """Add a reference to the global `programs`."""
        parent = path[-2]
        if parent.type in MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            name = member_of(self._units, parent)
            if name is None:
                self._inspected = True
            elif is_callee(path[-2], path[-3]) and not _is_optional(parent) and not _is_optional(path[-3]):
                if not scope.caught:
                    self._calls.append((at, name))
            else:
                self._probed.add(name)
        elif operator_of(parent) == "in":
            tested = literal_of(self._units, parent.children[0])
            self._inspected = self._inspected or tested is None
            if tested is not None:
                self._probed.add(tested)
        elif operator_of(parent) != "typeof":
            self._inspected = True

    def calls(self, position: Callable[[int], tuple[int, int]]) -> tuple[ProgramCall, ...]:
        """Return the calls that rely on the existence of a saved program."""
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
    shown = sorted(names)[:_MAX_LISTED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f'Saved programs: {", ".join(shown)}{more}. Read API.list("programs/").'


_OF_OBJECTS = frozenset(("toString", "toJSON", "valueOf", "constructor", "hasOwnProperty"))
"""Names that a program may call on any object, whatever comes of it."""


def _is_optional(node: Node) -> bool:
    return any(child.type in {"optional_chain", "?."} for child in node.children)
