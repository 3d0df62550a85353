"""The tests of a folder of saved programs: its recordings, by their names.

The recording `report.first.recording.jsonl` is the test `first` of the saved program `report`. The file
`report.first.expect.json`, if there is one, has what it expects.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
