"""Positions in the author's own text, from engine stacks, which speak of the wrapped or transformed program. Pure."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from codemode_mcp.program.hints import hint
from codemode_mcp.program.syntax import LINE_END, utf16_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.error_location import Fault
    from codemode_mcp.program.source_map import Grown, SourceMap
    from codemode_mcp.sandbox.messages import Thrown
    from codemode_mcp.settings import Language

WRAPPER_LINES = 2
"""Lines the engine puts before the body of a function made from text."""

MAX_FRAMES = 10
MAX_FRAMES_READ = 64
MAX_PLACES = 3

_FRAME = re.compile(r"^\s*at (?:(?P<name>.*?) \()?<input>:(?P<line>[0-9]{1,9}):(?P<column>[0-9]{1,9})\)?\s*$")
_lines = functools.lru_cache(maxsize=2)(LINE_END.split)
"""Lines of the program whose error is being described."""

_HIDDEN_NAMES = {"anonymous", "<anonymous>", "__cell__", ""}


@dataclass(frozen=True, slots=True)
class Positions:
    """Map from positions in the program that ran to positions in the author's text.

    Attributes:
        lines: how many lines the author's text has; frames outside it are ours.
        code: the program that ran; positions that the engine does not report are found in it.
        transformed: from the JavaScript that TypeScript became back to what it was made from.
        rewritten: from the text with the implicit return back to the author's.
    """

    language: Language
    lines: int
    code: str = ""
    transformed: SourceMap | None = None
    rewritten: Grown | None = None

    @property
    def file(self) -> str:
        return "cell.ts" if self.language == "typescript" else "cell.js"

    def author(self, line: int, column: int) -> tuple[int, int] | None:
        """Return the author's line and column, both from 1, for a position in `code`; None when it is not theirs."""
        if line < 1:
            return None
        if self.transformed is not None:
            line, column = self.transformed(line, column)
        if self.rewritten is not None:
            line, column = self.rewritten(line, column)
        return (line, column) if 1 <= line <= self.lines else None

    def frames(self, thrown: Thrown) -> list[str]:
        """Return the author's frames as `at name (cell.js:3:9)`, innermost first, as the engine reports them."""
        return self._frames(thrown, ())

    def describe(self, thrown: Thrown, *, search: bool = True, results: Sequence[Result] = ()) -> str:
        """`Name: message`, then the frames, a line each.

        Args:
            search: look in the program for what the engine does not say, which takes time (see `error_location`). If
                several places fit, all are named: `at cell.js:3:9 or 5:2`.
            results: the latest of the program's calls, to say what the value in question was.
        """
        fault = self._fault(thrown) if search else None
        message = thrown.message if fault is None else self._with_value(fault, results)
        headline = (f"{thrown.name}: {message}" if message else thrown.name) + _hint(thrown, message)
        positions = () if fault is None else fault.positions
        return "\n".join([headline, *(f"    {frame}" for frame in self._frames(thrown, positions))])

    def _frames(self, thrown: Thrown, positions: Sequence[tuple[int, int]]) -> list[str]:
        """Return the frames; `positions`: where the innermost one may be, if the engine does not say."""
        frames = list(islice(self._engine_frames(thrown.stack), MAX_FRAMES_READ))
        found = []
        for number, (name, line, column) in enumerate(frames):
            if name == "anonymous" and any(outer == "anonymous" for outer, _, _ in frames[number + 1 :]):
                continue  # made from a text by the program; its lines are not the cell's
            places = [self.author(*at) for at in positions] if number == 0 else []
            known = [at for at in places or [self.author(line, column)] if at is not None]
            if known:
                place = self._place(known)
                found.append(f"at {place}" if name in _HIDDEN_NAMES else f"at {name} ({place})")
            if len(found) == MAX_FRAMES:
                break
        return found

    def _engine_frames(self, stack: str) -> Iterator[tuple[str, int, int]]:
        """Name, line and column, as what was run counts them, of each frame in the program."""
        for text in stack.splitlines():
            match = _FRAME.match(text)
            if match is not None:
                line = int(match["line"]) - WRAPPER_LINES
                yield match["name"] or "", line, self._units(line, int(match["column"]))

    def _units(self, line: int, column: int) -> int:
        """Return the engine counts columns in bytes of UTF-8; everybody else in UTF-16 units."""
        if self.code.isascii():
            return column
        lines = _lines(self.code)
        if not 1 <= line <= len(lines):
            return column
        before = lines[line - 1].encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore")
        return len(before.encode("utf-16-le")) // 2 + 1

    def _fault(self, thrown: Thrown) -> Fault | None:
        """Return what the text tells of an error that arose in the program itself."""
        from codemode_mcp.program.error_location import find_fault  # for programs that fail: a server starts without it

        innermost = thrown.stack.partition("\n")[0]
        frame = next(self._engine_frames(innermost), None)
        if frame is None:
            return None
        name, line, column = frame
        function = None if name == "anonymous" else "" if name in _HIDDEN_NAMES else name
        return find_fault(self.code, line, column, function, thrown.message)

    def _with_value(self, fault: Fault, results: Sequence[Result]) -> str:
        """Return the message, with what the value was that the error is about, where that can be told."""
        message = fault.message
        if fault.about is None or not results or " is a promise" in message:
            return message
        from codemode_mcp.program.expression_values import advice  # as above

        told = advice(utf16_units(self.code), fault.about, message, results)
        if not told:
            return message
        return f"{message[:-1]}; {told})" if message.endswith(")") else f"{message} ({told})"

    def _place(self, places: list[tuple[int, int]]) -> str:
        first, *others = (f"{line}:{column}" for line, column in places[:MAX_PLACES])
        return f"{self.file}:{first}{' or ' if others else ''}{', '.join(others)}"


def _hint(thrown: Thrown, message: str) -> str:
    """Return a hint by the engine's wording, else by what the search has made of it: `tools.x is not a function`."""
    return hint(thrown) or (hint(replace(thrown, message=message)) if message != thrown.message else "")
