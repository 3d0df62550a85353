"""Counts of the attacks that are kept as tests, for SECURITY.md: `python -m tests.attacks` writes them there.

A class of attacks is a row of the table there: its name, the modules that hold its cases, and a number of cases.
A case is a test, once for each row of its tables. Variants by fixture, such as two databases, count once.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "SECURITY.md"
_ROW = re.compile(r"^\| ([^|]+) \| (`test_[^|]+`|`[a-z_/]+/test_[^|]+`) \| (\d+) \|$", re.MULTILINE)
_BESIDE = ("sandbox", "integration")
"""Folders whose helpers test modules of other folders import by their plain names."""


@dataclass(frozen=True, slots=True)
class Attacks:
    """One class of attacks.

    Attributes:
        modules: paths below `tests`, without `.py`.
        stated: cases, as the page has it.
    """

    name: str
    modules: tuple[str, ...]
    stated: int


def classes() -> list[Attacks]:
    """Return the rows of the page."""
    found = _ROW.findall(PAGE.read_text("utf-8"))
    return [Attacks(name, tuple(re.findall(r"`([^`]+)`", modules)), int(stated)) for name, modules, stated in found]


def cases(module: str) -> int:
    """Count the cases of a test module, by importing it."""
    path = TESTS / f"{module}.py"
    kept = list(sys.path)
    sys.path[:0] = [str(folder) for folder in (path.parent, *(TESTS / name for name in _BESIDE))]
    name = "tests_counted_" + module.replace("/", "_")
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    finally:
        sys.path[:] = kept
        sys.modules.pop(name, None)
    return sum(
        prod(len(mark.args[1]) for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize")
        for test in vars(loaded).values()
        if inspect.isfunction(test) and test.__module__ == name and test.__name__.startswith("test_")
    )


def main() -> None:
    """Write the numbers that there are into the page."""
    text = PAGE.read_text("utf-8")
    for each in classes():
        count = sum(map(cases, each.modules))
        start = f"| {each.name} | "
        line = next(line for line in text.splitlines() if line.startswith(start))
        text = text.replace(line, re.sub(r"\d+ \|$", f"{count} |", line))
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
