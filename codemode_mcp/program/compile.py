"""Compilation of a cell into the program that the sandbox runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.errors import ProgramError
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.syntax import line_count

if TYPE_CHECKING:
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.typescript import Transformed


class Transform(Protocol):
    """A transform of TypeScript to JavaScript.

    Raises:
        ProgramError: `typescript_transform_failed`.
        RuntimeUnavailable: esbuild is missing.
    """

    async def __call__(self, source: str) -> Transformed: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A program for the sandbox.

    Attributes:
        code: the body of an async function.
        fallback: the body without the implicit return, to be run if `code` does not parse.
        positions: maps positions to the author's text.
        suspect: whether the text may be more than the body of one function.
    """

    code: str
    fallback: str | None
    positions: Positions
    suspect: bool = False


def javascript(found: Preflight) -> Program:
    """Compile a JavaScript cell."""
    source = _as_body(found.source)
    if found.called is not None:
        text = _as_body(found.called.text)
        positions = Positions("javascript", line_count(source), text, rewritten=found.called.inserted)
        return Program(text, None, positions, found.broken)
    if found.returning is None:
        return Program(source, None, Positions("javascript", line_count(source), source), found.broken)
    returning = _as_body(found.returning)
    positions = Positions("javascript", line_count(source), returning, rewritten=found.inserted)
    return Program(returning, source, positions, found.broken)


async def typescript(found: Preflight, transform: Transform) -> Program:
    """Compile a TypeScript cell. Raises as `Transform` does."""
    lines = line_count(found.source)
    rewritten, inserted, plain = found.returning, found.inserted, found.source
    if found.called is not None:
        rewritten, inserted, plain = found.called.text, found.called.inserted, found.called.plain
    if rewritten is not None:
        try:
            made = await transform(_as_body(rewritten))
        except ProgramError as error:
            if error.code != "typescript_transform_failed":
                raise
            # The inserted return or call may be the cause, so the author's text is tried.
        else:
            positions = Positions("typescript", lines, made.code, made.source_map, inserted)
            return Program(made.code, None, positions)
    made = await transform(_as_body(plain))
    return Program(made.code, None, Positions("typescript", lines, made.code, made.source_map))


def _as_body(script: str) -> str:
    """Comment out a leading `#!`, which a function body may not have. Positions stay the same."""
    return _HASHBANG.sub(r"\1//", script)


_HASHBANG = re.compile(r"\A(\ufeff?)#!")
