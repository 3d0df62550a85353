"""The text that the compiler checks for a program, with the map from its offsets to the author's positions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from codemode_mcp.program.syntax import Lines, parse, utf16_units

if TYPE_CHECKING:
    from tree_sitter import Tree

    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.source_map import Insertion
    from codemode_mcp.settings import Language

_BEFORE: Final = "async function __cell__() {\n"
_AFTER: Final = "\n}\n"
_HASHBANG: Final = re.compile(r"\A(\ufeff?)#!")


@dataclass(frozen=True)
class CheckedText:
    """A program as it is checked.

    Attributes:
        body: the program with its implicit return, or with the call of the function that it is.
        before, after: our text around it, in which `await` and `return` are allowed.
        inserted: the insertion that makes the body longer than the author's text.
    """

    body: str
    language: Language
    before: str = ""
    after: str = ""
    inserted: Insertion | None = None

    @property
    def text(self) -> str:
        return f"{self.before}{self.body}{self.after}"

    @cached_property
    def units(self) -> str:
        """The body in UTF-16 units."""
        return utf16_units(self.body)

    @cached_property
    def tree(self) -> Tree | None:
        """The syntax tree of the body."""
        return parse(self.units)

    def position(self, at: int) -> tuple[int, int]:
        """Return the author's 1-based line and column of an offset in the body."""
        line, column = self._lines.position(at)
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.units)


def of_cell(found: Preflight, language: Language) -> CheckedText:
    """Return the text that is checked for a cell."""
    body, inserted = found.returning or found.source, found.inserted
    if found.called is not None:
        body, inserted = found.called.text, found.called.inserted
    return CheckedText(_HASHBANG.sub(r"\1//", body), language, _BEFORE, _AFTER, inserted)


def of_module(source: str, language: Language) -> CheckedText:
    """Return the text that is checked for a module, such as a saved program."""
    return CheckedText(source, language)
