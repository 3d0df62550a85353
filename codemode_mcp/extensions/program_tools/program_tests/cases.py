"""The tests of a folder of saved programs, and the option `-k` that selects them.

The recording `report.first.recording.jsonl` is the test `first` of the saved program `report`. The file
`report.first.expect.json`, if there is one, has what it expects.
"""

from __future__ import annotations

import ast
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

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


class Case(Struct, frozen=True):
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
        return self.folder / f"{self.stem}{RECORDING}"

    @property
    def expectation(self) -> Path:
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


_TOKEN = re.compile(r"[()]|[^\s()]+")
_LOGIC = (ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not)
_WORD = (ast.Compare, ast.In, ast.Constant, ast.Name, ast.Load)


class SelectionError(Exception):
    """Error for an expression that cannot be read. The message is for the user."""


def selection(expression: str) -> Predicate:
    """Return the predicate of an expression such as `report and not slow`. Letters are compared without case.

    Raises:
        SelectionError: the expression cannot be read.
    """

    def as_python(token: re.Match[str]) -> str:
        return token[0] if token[0] in ("and", "or", "not", "(", ")") else f"{token[0].lower()!r} in name"

    code = None
    with suppress(SyntaxError, RecursionError, MemoryError):
        tree = ast.parse(" ".join(map(as_python, _TOKEN.finditer(expression))), mode="eval")
        # Two words without an operator between them may be a call in Python.
        if all(isinstance(node, (*_LOGIC, *_WORD)) for node in ast.walk(tree)):
            code = compile(tree, "-k", "eval")
    if code is None:
        raise SelectionError(f"-k {expression[:200]!r} cannot be read; write it as in: report and not slow")
    return lambda name: bool(eval(code, {"__builtins__": {}, "name": name.lower()}))
