"""The saved programs of a catalog: those that policy does not deny."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.catalog.entries import Entry, one_line
from codemode_mcp.json_text import compact_json
from codemode_mcp.policy.effects import Effects
from codemode_mcp.policy.policy import Deny
from codemode_mcp.saved_programs.saved_program import SOURCE_NAME, program_id
from codemode_mcp.search.found import Found
from declarations.signatures import signature
from upstream_clients.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from codemode_mcp.search.finder import Finder, Meaning

EFFECTS: Final = Effects(read_only=True, destructive=False, idempotent=True, open_world=False)
"""Effects of a saved program itself. Each call that it makes is decided by the effects of its own tool."""


SAVED: Final = "programs"
"""The name of saved programs among servers, in searches."""

MAX_WARNING: Final = 1_000
"""Maximum characters of the warning in a declaration file."""


class ProgramSet:
    """The saved programs that the programs of a caller see. It is immutable.

    Attributes:
        programs: the programs in the order of their names.
        entries: their entries, in the same order.
        broken: the names of other programs, whose files have problems.
    """

    def __init__(
        self, programs: Sequence[SavedProgram] = (), meaning: Meaning | None = None, broken: Iterable[str] = ()
    ) -> None:
        self.programs = tuple(programs)
        self.broken = frozenset(broken)
        self.entries = tuple(map(_entry, self.programs))
        self._by_id = {entry.id: (entry, each) for entry, each in zip(self.entries, self.programs, strict=True)}
        self._meaning = meaning
        self._signatures: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.programs)

    def get(self, entry_id: str) -> Entry | None:
        """Return the entry of a saved program by its id, if there is one."""
        found = self._by_id.get(entry_id)
        return None if found is None else found[0]

    def program(self, entry_id: str) -> SavedProgram | None:
        """Return a saved program by its id, if there is one."""
        found = self._by_id.get(entry_id)
        return None if found is None else found[1]

    def declaration(self, entry: Entry) -> str:
        """Return the text of `programs/<name>.d.ts`, with the warning of the program before it."""
        from declarations.program_files import render_program  # imported late: most programs read none

        program = self.program(entry.id)
        warning = "" if program is None or not program.warning else f"// {one_line(program.warning, MAX_WARNING)}\n"
        return warning + render_program(entry.identifier, entry.tool)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names after `programs.`."""
        return frozenset(each.name for each in self.programs)

    @property
    def manifest(self) -> str:
        """The names and ids for the guest, as a member of a JSON object after others; empty without programs."""
        if not self.programs:
            return ""
        return f',"programs":{compact_json([(each.name, each.id) for each in self.programs])}'

    def use_intl(self, source: str) -> bool:
        """Return True if a program with this text may call a saved program that needs the image with `Intl`."""
        return "program" in source and self._any_intl

    @cached_property
    def _any_intl(self) -> bool:
        from codemode_mcp.program.preflight import uses_intl  # imported late: most catalogs have no programs

        return any(uses_intl(each.text) for each in self.programs)

    def signature(self, entry: Entry) -> str:
        """Return the signature of a saved program, on one line."""
        text = self._signatures.get(entry.id)
        if text is None:
            text = self._signatures[entry.id] = signature(entry.path, entry.tool, plain=True)
        return text

    def declarations(self) -> str:
        """Return the text of `programs.d.ts`, for an editor."""
        from declarations.program_files import render_programs  # imported late: programs do not need it

        return render_programs([(entry.identifier, entry.tool) for entry in self.entries])

    def search(self, query: str, limit: int) -> Found[dict[str, Any]]:
        """Return the best hits, for `API.search` among programs alone."""
        found = self._finder.find(query, limit)
        return Found((self.hit(self.entries[each.number], each.score) for each in found), found.total)

    def hit(self, entry: Entry, score: float) -> dict[str, Any]:
        """Return a program that was found."""
        program = self.program(entry.id)
        return {
            "server": SAVED,
            "path": f"programs/{entry.identifier}.d.ts",
            "call": entry.path,
            "signature": self.signature(entry),
            "effects": entry.effect_words,
            "description": one_line(entry.tool.description),
            "score": score,
            **({"warning": program.warning} if program is not None and program.warning else {}),
        }

    @cached_property
    def _finder(self) -> Finder:
        from codemode_mcp.search.finder import Finder  # imported for the first search, as in `servers`

        return Finder([(SAVED, entry.tool) for entry in self.entries], self._meaning)


def select_programs(
    programs: Iterable[SavedProgram], policy: Policy, meaning: Meaning | None = None, broken: Iterable[str] = ()
) -> ProgramSet:
    """Return the saved programs that policy does not deny.

    Args:
        broken: the names of programs whose files have problems. Policy decides about these too.
    """
    shown = [each for each in programs if not isinstance(policy.decide(each.id, EFFECTS), Deny)]
    named = [each for each in broken if not isinstance(policy.decide(program_id(each), EFFECTS), Deny)]
    return ProgramSet(shown, meaning, named) if shown or named else NO_PROGRAMS


def _entry(program: SavedProgram) -> Entry:
    tool = Tool(
        name=program.name,
        description=program.description,
        input_schema=program.input_schema,
        output_schema=program.output_schema,
    )
    return Entry(
        id=program_id(program.name),
        source="program",
        source_name=SOURCE_NAME,
        path=f"programs.{program.name}",
        identifier=program.name,
        tool=tool,
        effects=EFFECTS,
    )


NO_PROGRAMS: Final = ProgramSet()
