"""Positions in the author's own text, from engine stacks, which speak of the wrapped or transformed program. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.hints import hint
from codemode_mcp.localize import fault_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.bridge import Thrown
    from codemode_mcp.settings import Language

    Mapping = Callable[[int, int], tuple[int, int]]

WRAPPER_LINES = 2
"""Lines the engine puts before the body of a function made from text."""

MAX_FRAMES = 10
MAX_PLACES = 3

_FRAME = re.compile(r"^\s*at (?:(?P<name>.*?) \()?<input>:(?P<line>\d+):(?P<column>\d+)\)?\s*$")
_HIDDEN_NAMES = {"anonymous", "<anonymous>", "__cell__", ""}


@dataclass(frozen=True, slots=True)
class Positions:
    """How positions in what was run map to positions in what was written.

    Attributes:
        lines: how many lines the author's text has; frames outside it are ours.
        code: what was run; in it is looked for what the engine does not say.
        transformed: from the JavaScript that TypeScript became back to what it was made from.
        rewritten: from the text with the implicit return back to the author's.
    """

    language: Language
    lines: int
    code: str = ""
    transformed: Mapping | None = None
    rewritten: Mapping | None = None

    @property
    def file(self) -> str:
        return "cell.ts" if self.language == "typescript" else "cell.js"

    def author(self, line: int, column: int) -> tuple[int, int] | None:
        """The author's line and column, both from 1, for a position the engine gives; None when it is not theirs."""
        line -= WRAPPER_LINES
        if line < 1:
            return None
        if self.transformed is not None:
            line, column = self.transformed(line, column)
        if self.rewritten is not None:
            line, column = self.rewritten(line, column)
        return (line, column) if 1 <= line <= self.lines else None

    def frames(self, thrown: Thrown) -> list[str]:
        """`at name (cell.js:3:9)`, innermost first, for the frames that are the author's. Where the engine leaves open
        which of several places it was, the others follow: `at cell.js:3:9 or 5:2`."""
        found = []
        for number, text in enumerate(thrown.stack.splitlines()):
            match = _FRAME.match(text)
            if match is None:
                continue
            name = match["name"] or ""
            line, column = int(match["line"]), int(match["column"])
            places = self._arose(thrown, name, line, column) if number == 0 else []
            places = places or [at for at in [self.author(line, column)] if at is not None]
            if places:
                place = self._place(places)
                found.append(f"at {place}" if name in _HIDDEN_NAMES else f"at {name} ({place})")
            if len(found) == MAX_FRAMES:
                break
        return found

    def _arose(self, thrown: Thrown, name: str, line: int, column: int) -> list[tuple[int, int]]:
        """Where an error of the engine's own arose; nothing when it says so itself, or that cannot be told."""
        function = None if name == "anonymous" else "" if name in _HIDDEN_NAMES else name
        positions = fault_positions(self.code, line - WRAPPER_LINES, column, function, thrown.message)
        authors = [self.author(line + WRAPPER_LINES, column) for line, column in positions]
        return [at for at in authors if at is not None]

    def _place(self, places: list[tuple[int, int]]) -> str:
        first, *others = (f"{line}:{column}" for line, column in places[:MAX_PLACES])
        return f"{self.file}:{first}{' or ' if others else ''}{', '.join(others)}"

    def describe(self, thrown: Thrown) -> str:
        """`Name: message`, then the frames, a line each."""
        headline = (f"{thrown.name}: {thrown.message}" if thrown.message else thrown.name) + hint(thrown)
        return "\n".join([headline, *(f"    {frame}" for frame in self.frames(thrown))])
