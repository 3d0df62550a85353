"""Positions in the author's text, from engine stacks, and their stored form. Pure."""

from __future__ import annotations

import functools
import json
import re
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from codemode_mcp.base.settings import Language
from codemode_mcp.base.strict_json import Form, Integer
from codemode_mcp.program.inspection import Insertion, SourceMap, decode_mappings
from codemode_mcp.program.program_form import hint
from codemode_mcp.program.syntax import LINE_END, utf16_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.error_location import Fault
    from codemode_mcp.sandbox.messages import Thrown


WRAPPER_LINES = 2
"""Number of lines that the engine puts before the body of a function created from text."""

MAX_FRAMES = 10
"""Maximum number of frames that are shown."""
MAX_FRAMES_READ = 64
"""Maximum number of frames of the engine that are read."""
MAX_POSITIONS = 3
"""Maximum number of positions of one frame."""


@functools.lru_cache(maxsize=64)
def _frame(file: str) -> re.Pattern[str]:
    place = rf"{re.escape(file)}:(?P<line>[0-9]{{1,9}}):(?P<column>[0-9]{{1,9}})"
    return re.compile(rf"^\s*at (?:(?P<name>.*?) \()?{place}\)?\s*$")


_lines = functools.lru_cache(maxsize=2)(LINE_END.split)
"""Splits a program into lines; cached while its error is described."""

_HIDDEN_NAMES = {"anonymous", "<anonymous>", "__cell__", ""}


class Positions(Form):
    """Map from positions in the program that ran to positions in the author's text, which runs store.

    Attributes:
        lines: the number of lines of the author's text. Frames outside it are not shown.
        code: the program that ran, in which positions are searched that the engine does not report.
        transformed: the map from JavaScript to the TypeScript that it was made from.
        rewritten: the map from the text with the implicit return to the author's.
    """

    language: Language
    lines: Integer
    code: str
    transformed: SourceMap | None
    rewritten: Insertion | None

    @property
    def file_in_stacks(self) -> str:
        """The name of the program in stacks of the engine."""
        return "<input>"

    @property
    def file(self) -> str:
        return "cell.ts" if self.language == "typescript" else "cell.js"

    def author(self, line: int, column: int) -> tuple[int, int] | None:
        """Map a position in `code` to the author's 1-based line and column; None if it is outside their text."""
        if line < 1:
            return None
        if self.transformed is not None:
            line, column = self.transformed(line, column)
        if self.rewritten is not None:
            line, column = self.rewritten(line, column)
        return (line, column) if 1 <= line <= self.lines else None

    @property
    def guest_lines(self) -> str:
        """The author's line of each line of a TypeScript program, as JSON for the guest; `null` for JavaScript.

        A line with parts of several has a list of columns in UTF-8, each with the line from there on. 0 is no line.
        """
        if self.transformed is None:
            return "null"
        found: list[list[int]] = []
        units, end, at = "", 0, 0  # of the current line: its text, and the end of what `at` is the size of
        for line, column, source_line, source_column in decode_mappings(self.transformed.mappings):
            if line > len(found):
                found += ([] for _ in range(line - len(found)))
                units, end, at = utf16_units(_line_of(self.code, line)), 0, 0
            at += len(units[end:column].encode("utf-8", "surrogatepass"))
            end = column
            author = self.transformed.author(source_line, source_column + 1)
            number = 0 if author is None else author[0]
            if not found[-1] or found[-1][-1] != number:
                found[-1] += [at, number]
        lines = [parts if len(parts) > 2 else parts[1] if parts else 0 for parts in found]
        return json.dumps(lines, separators=(",", ":"))

    def frames(self, thrown: Thrown) -> list[str]:
        """Return the author's frames that the engine reports, innermost first, as `at name (cell.js:3:9)`."""
        return self._frames(thrown, ())

    def describe(self, thrown: Thrown, *, search: bool = True, results: Sequence[Result] = ()) -> str:
        """Describe an error as `Name: message`, with a line for each frame.

        Args:
            search: whether to search the program for the exact position, which takes time (see `error_location`). If
                several positions are possible, all are named: `at cell.js:3:9 or 5:2`.
            results: the latest results of the program's calls, to describe the value that caused the error.
        """
        fault = self._fault(thrown) if search else None
        message = thrown.message if fault is None else self._with_value(fault, results)
        headline = (f"{thrown.name}: {message}" if message else thrown.name) + _hint(thrown, message)
        positions = () if fault is None else fault.positions
        return "\n".join([headline, *(f"    {frame}" for frame in self._frames(thrown, positions))])

    def _frames(self, thrown: Thrown, positions: Sequence[tuple[int, int]]) -> list[str]:
        """Return the frames.

        Args:
            positions: better positions of the innermost frame in `code`, if any.
        """
        frames = list(islice(self._engine_frames(thrown.stack), MAX_FRAMES_READ))
        found = []
        for number, (name, line, column) in enumerate(frames):
            if name == "anonymous" and any(outer == "anonymous" for outer, _, _ in frames[number + 1 :]):
                continue  # a function that the program created from text, with lines of its own
            places = [self.author(*at) for at in positions] if number == 0 else []
            known = [at for at in places or [self.author(line, column)] if at is not None]
            if known:
                place = self._place(known)
                found.append(f"at {place}" if name in _HIDDEN_NAMES else f"at {name} ({place})")
            if len(found) == MAX_FRAMES:
                break
        return found

    def _engine_frames(self, stack: str) -> Iterator[tuple[str, int, int]]:
        frame = _frame(self.file_in_stacks)
        for text in stack.splitlines():
            match = frame.match(text)
            if match is not None:
                line = int(match["line"]) - WRAPPER_LINES
                yield match["name"] or "", line, self._units(line, int(match["column"]))

    def _units(self, line: int, column: int) -> int:
        """Convert a column of the engine, in bytes of UTF-8, to UTF-16 units."""
        if self.code.isascii():
            return column
        lines = _lines(self.code)
        if not 1 <= line <= len(lines):
            return column
        before = lines[line - 1].encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore")
        return len(before.encode("utf-16-le")) // 2 + 1

    def _fault(self, thrown: Thrown) -> Fault | None:
        """Search the program for an error that occurred in it; None if it occurred elsewhere."""
        from codemode_mcp.program.error_location import find_fault  # imported late: a server needs it rarely

        innermost = thrown.stack.partition("\n")[0]
        frame = next(self._engine_frames(innermost), None)
        if frame is None:
            return None
        name, line, column = frame
        function = None if name == "anonymous" else "" if name in _HIDDEN_NAMES else name
        return find_fault(self.code, line, column, function, thrown.message)

    def _with_value(self, fault: Fault, results: Sequence[Result]) -> str:
        message = fault.message
        if fault.about is None or not results or " is a promise" in message:
            return message
        from codemode_mcp.program.expression_values import advice  # imported late, as above

        value = advice(utf16_units(self.code), fault.about, message, results)
        if not value:
            return message
        return f"{message[:-1]}; {value})" if message.endswith(")") else f"{message} ({value})"

    def _place(self, places: list[tuple[int, int]]) -> str:
        first, *others = (f"{line}:{column}" for line, column in places[:MAX_POSITIONS])
        return f"{self.file}:{first}{' or ' if others else ''}{', '.join(others)}"


class FilePositions(Positions):
    """The positions of a saved program.

    Attributes:
        path: the name of its file in stacks of the engine and in messages, such as `programs/report.ts`.
    """

    path: str

    @property
    def file_in_stacks(self) -> str:
        return self.path

    @property
    def file(self) -> str:
        return self.path


def _line_of(code: str, line: int) -> str:
    lines = _lines(code)
    return lines[line - 1] if line <= len(lines) else ""


def _hint(thrown: Thrown, message: str) -> str:
    """Return a hint for the engine's message, or else for the described one, such as `tools.x is not a function`."""
    return hint(thrown) or (hint(replace(thrown, message=message)) if message != thrown.message else "")
