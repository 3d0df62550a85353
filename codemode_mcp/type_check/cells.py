"""The note about the types of a cell, by `codeMode.check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.program.type_annotations import has_types
from codemode_mcp.type_check.checked_text import of_cell
from codemode_mcp.type_check.reports import note

if TYPE_CHECKING:
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.prepare import Prepared
    from codemode_mcp.type_check.checker import TypeChecker


async def check_cell(checker: TypeChecker, prepared: Prepared, catalog: Catalog) -> str | None:
    """Check a cell, and return a note for the reader of its result; None if there is nothing to say."""
    found = prepared.preflight
    language = prepared.cell.language or ("typescript" if has_types(found.source) else "javascript")
    text = of_cell(found, language)
    checked = await checker.check(text, catalog)
    if checked.problems:
        return note(text, checked.problems, catalog)
    return f"The types of the program were not checked: {checked.gave_up}." if checked.gave_up else None
