"""The inspection of a program before it runs: module access, uses of `MCP`, and the implicit `return`. Pure.

tree-sitter serves to find things, never to judge syntax, since it rejects some valid code; the engine or esbuild
reports syntax errors. Nothing here is a security boundary: text that does not parse is let through, and the sandbox
refuses access at run time.

Alternatives that were rejected: queries with `Node.parent`, where each step up starts at the root again, so that
hostile nesting makes them quadratic; UTF-8 offsets, which would have to be converted to JavaScript's UTF-16 units.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.implicit_return import RETURN, returned_span
from codemode_mcp.program.inspection import CELL_FILES, Called, Preflight
from codemode_mcp.program.intl_uses import WORDS
from codemode_mcp.program.program_form import CALL, whole_function
from codemode_mcp.program.source_map import Insertion
from codemode_mcp.program.syntax import from_utf16_units, parse, utf16_units
from codemode_mcp.program.uses import UseFinder

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

    from codemode_mcp.settings import Language


_ODD_SPACE = re.compile("[\v\f\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff]")
_LONE_RETURN = re.compile("\r(?!\n)")
"""White space of JavaScript that the parser does not know. Its replacement has the same length."""


def parse_program(units: str) -> Tree | None:
    """Parse a program that `utf16_units` has returned, with white space that the parser does not know."""
    return parse(_ODD_SPACE.sub(" ", _LONE_RETURN.sub("\n", units)))


def inspect(source: str, language: Language) -> Preflight:
    """Parse a program, and return all findings about it.

    Raises:
        ProgramError: `module_access_denied` with the position of the first access to a module.
    """
    units = utf16_units(source)
    tree = parse_program(units)
    if tree is None:
        return Preflight(source, None, None, (), broken=True, intl=WORDS.search(units) is not None)
    finder = UseFinder(units)
    finder.read(tree)
    called = _called(units, tree.root_node, finder)
    finder.refuse_module_access(CELL_FILES[language])
    span = None if finder.returns else returned_span(units, tree.root_node)
    returning = None
    if span is not None:
        returning = f"{units[: span.start]}{RETURN}{units[span.start : span.end]}){units[span.end :]}"
    return Preflight(
        source=source,
        returning=None if returning is None else from_utf16_units(returning),
        servers=finder.servers(),
        member_calls=finder.member_calls(),
        returned_at=None if span is None else finder.position(span.start),
        broken=tree.root_node.has_error,
        called=called,
        program_calls=finder.program_calls(),
        rounded=_rounded(finder, CELL_FILES[language]),
        intl=finder.intl,
    )


_MAX_SHOWN = 40


def _rounded(finder: UseFinder, file: str) -> str:
    if not finder.rounded:
        return ""
    written, at = finder.rounded[0]
    line, column = finder.position(at)
    shown, exact = (
        (written, f"{written}n") if len(written) <= _MAX_SHOWN else (f"{written[:_MAX_SHOWN]}…", "an n behind it")
    )
    more = "" if len(finder.rounded) == 1 else f" ({len(finder.rounded)} integers of this program are)"
    return (
        f"JavaScript rounds {shown} ({file}:{line}:{column}), because it is beyond 2^53{more}; write {exact} to keep "
        "all digits"
    )


def uses_intl(source: str) -> bool:
    """Return True if a program needs the image with `Intl`."""
    if WORDS.search(source) is None:
        return False
    units = utf16_units(source)
    tree = parse_program(units)
    if tree is None:
        return True
    finder = UseFinder(units)
    finder.read(tree)
    return finder.intl


def _called(units: str, root: Node, finder: UseFinder) -> Called | None:
    """Return the program with a call of the function that it is or ends with, or None for an ordinary program."""
    found = None if finder.returns else whole_function(units, root)
    if found is None or (found.exported is not None and not finder.permit(found.statement, found.exported)):
        return None
    finder.bind_globals(found.node)
    return Called(
        text=from_utf16_units(found.called(units)),
        plain=from_utf16_units(found.plain(units)),
        inserted=Insertion(*finder.position(found.value.start), len(CALL)),
        note=found.note,
    )
