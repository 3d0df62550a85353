"""The sets of wrong and right programs, as the files of `wrong` and `right` have them, and the blind set.

Several programs stand in a file, in JavaScript or TypeScript, each after a line with its title. Titles of wrong
programs begin with the kind of their mistake:

    // ---- wrong member: singular for plural
    const open = unwrap(await MCP.issues./*!*/listIssue({ project: "acme/web" }));

`/*!*/` marks a line where the program is wrong. It is removed before the program is used. A program may have several
marks, if a finding at any of these lines is right.

Another person has written `blind.json`, without a look at the checker. It is a JSON array of wrong programs in the form
of `WrongProgram`. `blind_right.json` has right ones, with the kind `right` and no lines:

    {"name": "...", "kind": "wrong member", "language": "javascript", "lines": [1], "code": "..."}
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FOLDER: Final = Path(__file__).parent
BLIND: Final = FOLDER / "blind.json"
BLIND_RIGHT: Final = FOLDER / "blind_right.json"
KINDS: Final = (
    "wrong member",
    "wrong argument type",
    "missing argument",
    "unknown argument",
    "missing field",
    "missing await",
    "wrong union member",
    "wrong nesting",
    "array or object",
)

_PROGRAMS: Final = FOLDER.parents[1] / "programs"

Language = Literal["javascript", "typescript"]

_MARK: Final = "/*!*/"
_HEADING: Final = re.compile(r"^// ---- (?P<title>.+)\n", re.MULTILINE)
_LANGUAGES: Final[dict[str, Language]] = {".js": "javascript", ".ts": "typescript"}


@dataclass(frozen=True)
class RightProgram:
    """A program without a mistake."""

    name: str
    language: Language
    code: str


@dataclass(frozen=True)
class WrongProgram:
    """A program with one mistake, at any of `lines`, counted from 1."""

    name: str
    kind: str
    language: Language
    lines: tuple[int, ...]
    code: str


def right_programs() -> list[RightProgram]:
    """Return the right programs."""
    return _read(FOLDER / "right")


def older_programs() -> list[RightProgram]:
    """Return the programs of `tests/programs`, which are right too. Their titles end with their values."""
    return [program for language in _LANGUAGES.values() for program in _read(_PROGRAMS / language)]


def wrong_programs() -> list[WrongProgram]:
    """Return our own wrong programs."""
    found = []
    for program in _read(FOLDER / "wrong"):
        kind, _, title = program.name.partition(": ")
        lines = tuple(number for number, line in enumerate(program.code.split("\n"), 1) if _MARK in line)
        code = program.code.replace(_MARK, "")
        found.append(WrongProgram(title, kind, program.language, lines, code))
    return found


def blind_programs() -> list[WrongProgram]:
    """Return the wrong programs of the blind set; none if there is no such file."""
    return _read_json(BLIND)


def blind_right_programs() -> list[WrongProgram]:
    """Return the right programs of the blind set, without lines; none if there is no such file."""
    return _read_json(BLIND_RIGHT)


def _read_json(path: Path) -> list[WrongProgram]:
    return [
        WrongProgram(each["name"], each["kind"], each["language"], tuple(each["lines"]), each["code"])
        for each in (json.loads(path.read_text("utf-8")) if path.exists() else [])
    ]


def _read(folder: Path) -> list[RightProgram]:
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_text("utf-8")
        headings = list(_HEADING.finditer(text))
        ends = [*(heading.start() for heading in headings[1:]), len(text)]
        for heading, end in zip(headings, ends, strict=True):
            found.append(RightProgram(heading["title"], _LANGUAGES[path.suffix], text[heading.end() : end]))
    return found
