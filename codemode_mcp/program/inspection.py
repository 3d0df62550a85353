"""Facts about a program's text that an inspection finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.program.implicit_return import RETURN
from codemode_mcp.program.source_map import Grown

if TYPE_CHECKING:
    from codemode_mcp.settings import Language

CELL_FILES: dict[Language, str] = {"javascript": "cell.js", "typescript": "cell.ts"}
"""File names of the program in positions."""


@dataclass(frozen=True, slots=True)
class MemberCall:
    """One use of `MCP.<server>` or call of `MCP.<server>.<member>` that the program does not guard itself."""

    server: str
    member: str | None
    """`None`: the server alone is used, so nothing is known of its members here."""
    line: int
    """1-based, as JavaScript counts lines."""
    column: int
    """1-based, in UTF-16 units."""
    operation: str | None = None
    """The called operation of `MCP.<server>.resources` or `.prompts`, which is the member then."""


@dataclass(frozen=True, slots=True)
class Called:
    """A program that is one function, with the call of it."""

    text: str
    plain: str
    """The program without the words of an export, for when `text` does not parse."""
    inserted: Grown
    """Edits that made `text` longer than the author's, apart from its last line."""
    note: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """The findings."""

    source: str
    returning: str | None
    """The source with the implicit `return` put in on the same lines; `None` when there is nothing to return."""
    servers: frozenset[str] | None
    """Servers used as `MCP.<x>`; `None` when unknown, so that all servers may be meant."""
    member_calls: tuple[MemberCall, ...]
    returned_at: tuple[int, int] | None = None
    """Start of the returned expression, as line and column of `source`."""
    broken: bool = False
    """The parser stumbles, or gives up: the program may be wrong, or more than the body of one function."""
    called: Called | None = None
    """The program to run instead, where this one is a function that its reader is expected to call."""

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        """Return the position in `source` of one in `returning`: the inserted text stands on one line only."""
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @property
    def inserted(self) -> Grown | None:
        """Return where `returning` is longer than `source`."""
        return None if self.returned_at is None else Grown(*self.returned_at, len(RETURN))
