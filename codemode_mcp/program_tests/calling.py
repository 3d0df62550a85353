"""The program that calls a saved program in a test. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import as_javascript
from codemode_mcp.program.syntax import from_utf16_units, parse, span_of, utf16_units
from codemode_mcp.saved_programs.program_file import default_function

if TYPE_CHECKING:
    from codemode_mcp.saved_programs.saved_program import SavedProgram

_VARIABLE = "$$program"
"""The variable for a function without a name."""


def calling_program(program: SavedProgram, given: Any) -> str:
    """Return a program that calls a saved program with an input. The lines of its text are those of the file."""
    units = utf16_units(program.text)
    tree = parse(units)
    assert tree is not None  # the file was read in the same way
    found = default_function(units, tree.root_node)
    edits = []
    for statement in tree.root_node.named_children:
        start, end = span_of(statement)
        if statement.start_byte == found.statement.start_byte:
            keywords = span_of(next(child for child in statement.children if child.type == "default"))
            value = units[keywords.end : end].rstrip().removesuffix(";")
            edits.append((start, end, value if found.name else f"const {_VARIABLE} = ({value}\n);"))
        elif statement.type == "export_statement":  # of a type
            edits.append((start, start + len("export"), ""))
    for start, end, text in reversed(edits):
        units = f"{units[:start]}{text}{units[end:]}"
    return f"{from_utf16_units(units)}\nreturn await {found.name or _VARIABLE}({as_javascript(given)});"
