"""Functions of the catalog that calls of a program call. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import TRANSPARENT, span_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from codemode_mcp.type_check.program_tree import ProgramTree


def called_function(declared: tuple[str, str] | None, call: Node, tree: ProgramTree) -> str | None:
    """Return the function of the catalog that a call calls, as programs write it; None for other functions.

    Args:
        declared: the name and the file of the declaration of the called symbol.
    """
    if declared is None:
        return None
    name, file = declared
    if file == "guest.d.ts":
        return name if name in ("unwrap", "text", "json") else None
    if file.endswith(("cell.js", "cell.ts")) or file.startswith("/"):
        return None
    function = call.child_by_field_name("function")
    source = "" if function is None else tree.text(function)
    if source == name or re.fullmatch(r"(?:MCP|tools|programs)(?:\.[\w$]+)+", source):
        return source  # a variable of the program with the function, or the function itself
    if file.startswith("mcp/"):
        return f"MCP.{file.removeprefix('mcp/').removesuffix('.d.ts')}.{name}"
    return f"tools.{name}" if file == "tools.d.ts" else name


def callee_offsets(calls: Sequence[Node]) -> list[int]:
    """Return the offset of the called name of each call; that of the call itself if it has no name."""
    return [span_of(call).start if (at := _callee_offset(call)) is None else at for call in calls]


def _callee_offset(call: Node) -> int | None:
    """Return the offset of the name by which a call names its function; None if it has no name."""
    function = call.child_by_field_name("function")
    while function is not None and function.type in TRANSPARENT and function.named_children:
        function = function.named_children[0]
    if function is None:
        return None
    if function.type == "member_expression":
        function = function.child_by_field_name("property")
    elif function.type == "subscript_expression":
        index = function.child_by_field_name("index")
        return None if index is None or index.type != "string" else span_of(index).start + 1
    return None if function is None else span_of(function).start
