"""The check of a cell by the setting `codeMode.check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from codemode_mcp.errors import ProgramError
from codemode_mcp.program.type_annotations import has_types
from codemode_mcp.type_check.checked_text import of_cell
from codemode_mcp.type_check.reports import note, refusal

if TYPE_CHECKING:
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.prepare import Prepared
    from codemode_mcp.type_check.checker import TypeChecker

CheckMode = Literal["off", "note", "refuse"]


async def check_cell(checker: TypeChecker, mode: CheckMode, prepared: Prepared, catalog: Catalog) -> str | None:
    """Check a cell, and return a note for the reader of its result; None if there is nothing to say.

    Raises:
        ProgramError: `invalid_input`: the cell has type errors, and the mode is `refuse`. Nothing of it has run.
    """
    if mode == "off":
        return None
    found = prepared.preflight
    language = prepared.cell.language or ("typescript" if has_types(found.source) else "javascript")
    text = of_cell(found, language)
    checked = await checker.check(text, catalog)
    problems = checked.certain
    if problems and mode == "refuse":
        raise ProgramError("invalid_input", refusal(text, problems, catalog))
    if problems:
        return note(text, problems, catalog)
    return f"The types of the program were not checked: {checked.gave_up}." if checked.gave_up else None
