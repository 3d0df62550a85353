"""The check of a cell by the setting `codeMode.check`, and the texts about its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.extensions.type_check.declared import CheckedText, entry_of, of_cell
from codemode_mcp.program.inspection import CELL_FILES
from codemode_mcp.program.prepare import Prepared, has_types
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.extensions.type_check.checker import TypeChecker
    from codemode_mcp.extensions.type_check.problems import TypeProblem


MAX_SHOWN: Final = 5
"""Maximum number of errors in a message."""

_MAX_SIGNATURE: Final = 1_000
_MAX_TEXT: Final = 500


async def check_cell(checker: TypeChecker, prepared: Prepared, catalog: Catalog) -> str | None:
    """Check a cell, and return a note for the reader of its result; None if there is nothing to say."""
    found = prepared.preflight
    language = prepared.cell.language or ("typescript" if has_types(found.source) else "javascript")
    text = of_cell(found, language)
    checked = await checker.check(text, catalog)
    if checked.problems:
        count = "a type error" if len(checked.problems) == 1 else f"{len(checked.problems)} type errors"
        return f"The type check found {count}:\n" + "\n".join(lines(text, checked.problems, signatures(catalog)))
    return f"The types of the program were not checked: {checked.gave_up}." if checked.gave_up else None


def lines(text: CheckedText, problems: Sequence[TypeProblem], signature: Callable[[str], str]) -> list[str]:
    """Return a line for each of the first errors with its position, and the signatures of the functions in them.

    Args:
        signature: returns the signature of a function; empty if it is unknown.
    """
    shown = []
    for each in problems[:MAX_SHOWN]:
        line, column = text.position(each.at)
        shown.append(f"- {escape_line(each.text, _MAX_TEXT)} ({CELL_FILES[text.language]}:{line}:{column})")
    if len(problems) > MAX_SHOWN:
        shown.append(f"- … and {len(problems) - MAX_SHOWN} more")
    calls = dict.fromkeys(each.call for each in problems[:MAX_SHOWN] if each.call is not None)
    known = [found for call in calls if (found := signature(call))]
    return [*shown, *(f"Signature: {each}" for each in known if len(each) <= _MAX_SIGNATURE)]


def positions(
    text: CheckedText, problems: Sequence[TypeProblem], file: str, signature: Callable[[str], str]
) -> list[str]:
    """Return a line for each error, as editors and terminals read them."""
    shown = []
    for each in problems:
        line, column = text.position(each.at)
        known = "" if each.call is None else signature(each.call)
        end = "" if not known else f" Signature: {known}" if each.text.endswith("?") else f". Signature: {known}"
        shown.append(f"{file}:{line}:{column}: {escape_line(each.text, _MAX_TEXT)}{end}")
    return shown


def signatures(catalog: Catalog) -> Callable[[str], str]:
    """Return a function that returns the signature of a function of the catalog; empty if it is unknown."""

    def signature(call: str) -> str:
        entry = entry_of(catalog, call)
        return "" if entry is None else catalog.signature(entry)

    return signature
