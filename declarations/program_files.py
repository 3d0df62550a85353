"""Declaration files of saved programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from declarations.expressions import NamedTypes, Renderable, indented
from declarations.functions import FunctionText, comment_block
from declarations.signatures import result_text

if TYPE_CHECKING:
    from collections.abc import Iterable


def render_program(name: str, program: Renderable) -> str:
    """Return the text of `programs/<name>.d.ts`."""
    return _namespace([_function(name, program, NamedTypes(), alone=True)])


def render_programs(programs: Iterable[tuple[str, Renderable]]) -> str:
    """Return the text of one file with all saved programs, for an editor."""
    types = NamedTypes()
    head = comment_block(["The saved programs. Each is a file of the folder `programs` beside the configuration file."])
    return head + _namespace([_function(name, program, types, alone=False) for name, program in programs])


def _namespace(functions: list[str]) -> str:
    return f"declare namespace programs {{\n{''.join(functions)}}}\n"


def _function(name: str, program: Renderable, types: NamedTypes, *, alone: bool) -> str:
    written = FunctionText(name, program, alone=alone).write(types, {})
    comment = comment_block([*written.doc, *written.last_lines], "  ")
    result = indented(result_text(written.output, plain=True))
    return f"{written.types}{comment}  function {written.call}): {result};\n"
