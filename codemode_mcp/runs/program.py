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


def line_count(source: str) -> int:
    return source.count("\n") + 1


def javascript(found: Preflight) -> Program:
    """The program of a JavaScript cell."""
    positions = Positions("javascript", line_count(found.source))
    if found.returning is None:
        return Program(found.source, None, positions)
    return Program(found.returning, found.source, positions)


async def typescript(found: Preflight, transform: Transform) -> Program:
    """The program of a TypeScript cell. Raises as `Transform`."""
    if found.returning is not None:
        try:
            return _typescript(await transform(found.returning), found.source)
        except ProgramError:
            pass  # the implicit return does not fit in; what the author wrote decides
    return _typescript(await transform(found.source), found.source)


def _typescript(transformed: Transformed, source: str) -> Program:
    return Program(transformed.code, None, Positions("typescript", line_count(source), transformed))
