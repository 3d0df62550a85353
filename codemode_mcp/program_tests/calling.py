"""The program that calls a saved program in a test. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from codemode_mcp.program.syntax import from_utf16_units, parse, span_of, utf16_units
from codemode_mcp.saved_programs.program_file import default_function

if TYPE_CHECKING:
    from codemode_mcp.saved_programs.saved_program import SavedProgram


def calling_program(program: SavedProgram, given: Any) -> str:
    """Return a program that calls a saved program with an input. The lines of its text are those of the file."""
    units = utf16_units(program.text)
    tree = parse(units)
    assert tree is not None  # the file was read in the same way
    found = default_function(units, tree.root_node)
    start, end = span_of(found.statement)
    node = span_of(found.node)
    # The function may be declared before `export default name`.
    function = found.name or "$$program"
    value = units[start:end].split("default", 1)[1].rstrip().rstrip(";")
    statement = units[slice(*node)] if found.name else f"const $$program = ({value});"
    before, after = units[:start], units[end:]
    text = from_utf16_units(f"{before}{statement}{after}")
    return f"{text}\nreturn await {function}({json.dumps(given)});"
