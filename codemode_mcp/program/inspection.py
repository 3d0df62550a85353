"""Findings of an inspection of a program's text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.program.implicit_return import RETURN
from codemode_mcp.program.source_map import Insertion

if TYPE_CHECKING:
    from codemode_mcp.settings import Language

CELL_FILES: dict[Language, str] = {"javascript": "cell.js", "typescript": "cell.ts"}
"""The file name of a program in positions."""


@dataclass(frozen=True, slots=True)
class MemberCall:
    """A use of `MCP.<server>`, or a call of `MCP.<server>.<member>`, whose existence the program does not test.

    Attributes:
        member: the called member; None if only the server is used.
        line: the 1-based line, as JavaScript counts lines.
        column: the 1-based column in UTF-16 units.
        operation: the called operation, if the member is `resources` or `prompts`.
    """

    server: str
    member: str | None
    line: int
    column: int
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call of `programs.<name>`, whose existence the program does not test. The position is as in `MemberCall`."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Called:
    """A program that is a function, with a call of the function added.

    Attributes:
        text: the program to run.
        plain: the program without the keywords of an export, to be run if `text` does not parse.
        inserted: the insertion that made `text` longer than the author's, apart from its last line.
        note: a sentence for the reader of the result.
    """

    text: str
    plain: str
    inserted: Insertion
    note: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """The findings about one program.

    Attributes:
        source: the text of the program.
        returning: the source with the implicit `return` inserted on the same lines; None if there is none.
        servers: the servers used as `MCP.<x>`; None if unknown, so that any server may be used.
        member_calls: uses of servers and members that must exist.
        returned_at: the line and column in `source` at which the returned expression begins.
        broken: whether the parser found an error or gave up. The program may be valid all the same.
        program_calls: calls of saved programs that must exist.
        called: the program to run instead, if this one is a function that its reader is expected to call.
        rounded: a sentence about integers that the program writes and JavaScript rounds; empty if there are none.
        intl: whether the program needs the image with `Intl`.
    """

    source: str
    returning: str | None
    servers: frozenset[str] | None
    member_calls: tuple[MemberCall, ...]
    returned_at: tuple[int, int] | None = None
    broken: bool = False
    called: Called | None = None
    program_calls: tuple[ProgramCall, ...] = ()
    rounded: str = ""
    intl: bool = False

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        """Map a position in `returning` to `source`."""
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @property
    def inserted(self) -> Insertion | None:
        """The insertion that makes `returning` longer than `source`."""
        return None if self.returned_at is None else Insertion(*self.returned_at, len(RETURN))
