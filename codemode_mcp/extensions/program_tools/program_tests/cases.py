"""The tests of a folder of saved programs, and the option `-k` that selects them.

The recording `report.first.recording.jsonl` is the test `first` of the saved program `report`. The file
`report.first.expect.json`, if there is one, has what it expects.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Predicate = Callable[[str], bool]
    """A function that returns True for the names of tests that are selected."""


RECORDING: Final = ".recording.jsonl"
"""The end of the name of a recording."""

EXPECTATION: Final = ".expect.json"
"""The end of the name of the file with what a test expects."""

ONLY: Final = "recording"
"""The name of the test of a recording without a name of its own, such as `report.recording.jsonl`."""

MAX_FILES: Final = 20_000
"""Maximum number of files in a folder that are looked at."""

_NAME = re.compile(r"(?P<program>[^.]+)(?:\.(?P<case>.+))?")


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        folder: the folder of saved programs.
        program: the name of the saved program.
        name: the name of the test.
        stem: the beginning of the names of its files, such as `report.first`.
    """

    folder: Path
    program: str
    name: str
    stem: str

    @property
    def recording(self) -> Path:
        """The path of the recording."""
        return self.folder / f"{self.stem}{RECORDING}"

    @property
    def expectation(self) -> Path:
        """The path of the file with what the test expects."""
        return self.folder / f"{self.stem}{EXPECTATION}"


def cases_of(folder: Path) -> list[Case]:
    """Return the tests of a folder, in the order of their names.

    A file with expectations but without a recording is a test too, which cannot run.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry, _ in zip(entries, range(MAX_FILES), strict=False)]
    stems = {name.removesuffix(end) for end in (RECORDING, EXPECTATION) for name in names if name.endswith(end)}
    found = [_case(folder, stem) for stem in stems]
    return sorted((each for each in found if each is not None), key=lambda each: (each.program, each.name, each.stem))


def cases_at(path: Path) -> list[Case]:
    """Return the tests that a path names: of a folder, of a saved program or of one recording.

    Raises:
        OSError: there is no such file or folder.
    """
    if path.is_dir():
        return cases_of(path)
    os.stat(path)
    named = cases_of(path.parent)
    if path.name.endswith((RECORDING, EXPECTATION)):
        return [each for each in named if path in (each.recording, each.expectation)]
    return [each for each in named if each.program == path.stem]


def without_repetition(cases: Iterable[Case]) -> list[Case]:
    """Return each test once, in order."""
    return list(dict.fromkeys(cases))


def _case(folder: Path, stem: str) -> Case | None:
    found = _NAME.fullmatch(stem)
    return None if found is None else Case(folder, found["program"], found["case"] or ONLY, stem)


# The option `-k`: words that names of tests contain, with `and`, `or`, `not` and parentheses.


_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


class SelectionError(Exception):
    """Error for an expression that cannot be read. The message is for the user."""


def selection(expression: str) -> Predicate:
    """Return the predicate of an expression such as `report and not slow`. Letters are compared without case.

    Raises:
        SelectionError: the expression cannot be read.
    """
    tokens = _TOKEN.findall(expression.strip())
    reader = _Reader(tokens, expression)
    found = reader.either()
    if reader.tokens:
        raise reader.error()
    return lambda name: found(name.lower())


class _Reader:
    def __init__(self, tokens: list[str], expression: str) -> None:
        self.tokens = tokens
        self._expression = expression
        self._depth = 0

    def error(self) -> SelectionError:
        at = f"at {self.tokens[0]!r}" if self.tokens else "at its end"
        return SelectionError(f"-k {self._expression!r} cannot be read {at}; write it as in: report and not slow")

    def either(self) -> Predicate:
        found = self._all()
        while self._took("or"):
            found = _or(found, self._all())
        return found

    def _all(self) -> Predicate:
        found = self._one()
        while self._took("and"):
            found = _and(found, self._one())
        return found

    def _one(self) -> Predicate:
        self._depth += 1
        if not self.tokens or self.tokens[0] in ("and", "or", ")") or self._depth > 50:
            raise self.error()
        token = self.tokens.pop(0)
        if token == "not":
            negated = self._one()
            found: Predicate = lambda name: not negated(name)  # noqa: E731
        elif token == "(":
            found = self.either()
            if not self._took(")"):
                raise self.error()
        else:
            word = token.lower()
            found = lambda name: word in name  # noqa: E731
        self._depth -= 1
        return found

    def _took(self, word: str) -> bool:
        if self.tokens and self.tokens[0] == word:
            del self.tokens[0]
            return True
        return False


def _or(first: Predicate, second: Predicate) -> Predicate:
    return lambda name: first(name) or second(name)


def _and(first: Predicate, second: Predicate) -> Predicate:
    return lambda name: first(name) and second(name)
