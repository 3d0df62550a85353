"""From the text of a cell to what the sandbox starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.errors import ProgramError
from codemode_mcp.positions import Positions

if TYPE_CHECKING:
    from codemode_mcp.preflight import Preflight
    from codemode_mcp.typescript import Transformed


class Transform(Protocol):
    """TypeScript to JavaScript.

    Raises:
        ProgramError: `typescript_transform_failed`.
        RuntimeUnavailable: there is no esbuild.
    """

    async def __call__(self, source: str) -> Transformed: ...


@dataclass(frozen=True, slots=True)
class Program:
    """What the sandbox is given.

    Attributes:
        code: body of an async function.
        fallback: another body, for when `code` (with the implicit return) does not parse.
        positions: back to the author's text.
    """

    code: str
    fallback: str | None
    positions: Positions


def javascript(found: Preflight) -> Program:
    """The program of a JavaScript cell."""
    lines = _line_count(found.source)
    if found.returning is None:
        return Program(found.source, None, Positions("javascript", lines))
    positions = Positions("javascript", lines, inserted=_insertion(found.source, found.returning))
    return Program(found.returning, found.source, positions)


async def typescript(found: Preflight, transform: Transform) -> Program:
    """The program of a TypeScript cell. Raises as `Transform`."""
    lines = _line_count(found.source)
    if found.returning is not None:
        try:
            made = await transform(found.returning)
        except ProgramError:
            pass  # the implicit return does not fit in; what the author wrote decides
        else:
            inserted = _insertion(found.source, found.returning)
            return Program(made.code, None, Positions("typescript", lines, made, inserted))
    made = await transform(found.source)
    return Program(made.code, None, Positions("typescript", lines, made))


def _line_count(source: str) -> int:
    return source.count("\n") + 1


def _insertion(source: str, returning: str) -> tuple[int, int, int]:
    """Where `returning` has `return ` or `return (` and `source` does not: line, column, length."""
    at = next((i for i, (a, b) in enumerate(zip(source, returning, strict=False)) if a != b), len(source))
    # What follows may begin with the same letters, so the difference may show late.
    at = returning.rfind("return", 0, at + len("return"))
    length = len("return ")
    if returning[at : at + length + 1] == "return (" and source[at : at + 1] != "(":
        length += 1
    before = source[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1, length
