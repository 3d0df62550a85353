"""The differences of two texts of a program, in bounded time. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PAIRS: Final = 1_000_000
"""Maximum number of pairs of lines that are compared. `difflib` takes cubic time for hostile texts."""

CONTEXT: Final = 2
"""Number of equal lines that are shown around a difference."""


def different_lines(before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified difference, without its head. Of long texts, all lines are shown as different."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) * len(new) > MAX_PAIRS:
        yield f"@@ all lines: -{len(old)} +{len(new)}; the texts are too long to compare"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    for number, line in enumerate(difflib.unified_diff(old, new, lineterm="", n=CONTEXT)):
        if number >= 2:  # after the lines with the names of the files
            yield line
