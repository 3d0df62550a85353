"""The file that a cell becomes if it is saved: its text as the body of one function. Pure.

The cell stays as its author wrote it, with three changes. The call of `save_program` is left out, since the saved
program would propose itself. The declaration of an example, `const input = {...}`, is left out, since the input is the
parameter. And the implicit `return` is written down, since a function has none.

Everything may come from a hostile model. So the description and the schema cannot end their comment, and hidden
characters in them are escaped. The body could close its function and have more code after it: `is_one_function` finds
that. And a person reads the text before it is accepted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.errors import ProgramError
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.syntax import from_utf16_units, parse, span_of, text_of, utf16_units, words
from declarations.expressions import TypeWriter
from declarations.schema import compile_schema
from declarations.typetree import Unknown
from declarations.untrusted_text import HIDDEN, drop_hidden, json_escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from codemode_mcp.program.syntax import Span
    from codemode_mcp.settings import Language
    from upstream_clients.tools import JsonObject

FUNCTION: Final = "save_program"
"""The global function with which a cell proposes its own text."""

INPUT: Final = "input"
"""The name of the parameter."""

MAX_HTML_COMMENTS: Final = 1_000
"""Maximum number of texts such as `<!--` that are looked at."""

MAX_NODES: Final = 100_000
"""Maximum number of nodes of a cell that are looked at."""

_WIDTH: Final = 110
_HASHBANG: Final = re.compile(r"\A(\ufeff?)#!")
_HTML_COMMENT: Final = re.compile(r"(?P<mark><!--)|(?:^|[\n\r\u2028\u2029]|\*/)[^\S\n\r\u2028\u2029]*(?P<mark2>-->)")
_TEXT: Final = words("comment string string_fragment template_string regex_pattern")
_LINE_TAG: Final = re.compile(r"^(\s*)@", re.MULTILINE)


def proposed_text(
    source: str, language: Language, *, name: str, description: str, schema: JsonObject | None
) -> tuple[str, tuple[str, ...]]:
    """Return the text of the file, and notes for the author.

    Args:
        source: the cell.
        schema: the JSON Schema of the input; None for a program without input.

    Raises:
        ProgramError: the cell cannot be the body of a function.
    """
    body = _HASHBANG.sub(r"\1//", _without_own_lines(source, has_input=schema is not None))
    found = inspect(body, language)
    if found.called is not None:
        body = found.called.text
    elif found.returning is not None:
        body = found.returning
    notes = []
    if schema is not None and re.search(rf"(?<![\w$.]){INPUT}(?![\w$])", body) is None:
        notes.append(
            f"the program does not use {INPUT}: begin the cell with const {INPUT} = {{...}}, an example, and use "
            f"{INPUT}.member below it"
        )
    parameter = "" if schema is None else INPUT if language == "javascript" else f"{INPUT}: {_type(schema)}"
    comment = _comment(description, schema)
    text = f"{comment}export default async function {name}({parameter}) {{\n{body.strip(chr(10)).rstrip()}\n}}\n"
    return text, tuple(notes)


def is_one_function(text: str) -> bool:
    """Return True if a file has nothing but one exported function and comments."""
    units = utf16_units(text)
    tree = parse(units)
    if tree is None or _has_html_comment(units, tree.root_node):
        return False
    statements = [child for child in tree.root_node.named_children if child.type != "comment"]
    return [each.type for each in statements] == ["export_statement"]


def _has_html_comment(units: str, root: Node) -> bool:
    """Return True if a text may have comments such as `<!-- x`, which the engine knows and the parser does not.

    The rest of such a line is code for the parser. With a quote there, both would disagree about the lines below.
    """
    for number, found in enumerate(_HTML_COMMENT.finditer(units), 1):
        node = root.descendant_for_byte_range(2 * found.start(found.lastgroup or 0), 2 * found.end())
        if number > MAX_HTML_COMMENTS or node is None or node.type not in _TEXT:
            return True
    return False


def _without_own_lines(source: str, *, has_input: bool) -> str:
    """Return a cell without its calls of `save_program`, and without the example of its input."""
    units = utf16_units(source)
    tree = parse(units)
    if tree is None:
        raise ProgramError(
            "nested_tool_failed", f"{FUNCTION}(): the text of the program cannot be parsed; save a shorter program"
        )
    if any(map(_is_namespace, tree.root_node.named_children)):
        raise ProgramError(
            "nested_tool_failed",
            f"{FUNCTION}(): a namespace or module of TypeScript cannot be within a function; use an object instead",
        )
    cuts: list[tuple[Span, str]] = [*_calls(units, tree.root_node)]
    if has_input:
        cuts += [(span_of(node), "") for node in _examples(units, tree.root_node)]
    for (start, end), instead in sorted(cuts, reverse=True):
        before, after = units[:start], units[end:]
        if not instead and (not before or before.endswith("\n")) and after.startswith("\n"):
            after = after[1:]
        units = before + instead + after
    return from_utf16_units(units)


def _is_namespace(statement: Node) -> bool:
    inner = statement
    if statement.type in ("expression_statement", "ambient_declaration"):
        inner = next(iter(statement.named_children), statement)
    return inner.type in ("module", "internal_module")


def _calls(units: str, root: Node) -> Iterator[tuple[Span, str]]:
    """Yield what is replaced for each call: a statement by nothing, and a call in an expression by `undefined`."""
    # Each node with the outermost node around it that is only an `await`, parentheses or a statement.
    left: list[tuple[Node, Node | None]] = [(root, None)]
    seen = 0
    while left:
        node, around = left.pop()
        seen += 1
        if seen > MAX_NODES:
            raise ProgramError(
                "nested_tool_failed", f"{FUNCTION}(): the program is too large to be saved; save a shorter one"
            )
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        if called is not None and called.type == "identifier" and text_of(units, called) == FUNCTION:
            whole = around or node
            yield span_of(whole), "" if whole.type == "expression_statement" else "undefined"
            continue
        if node.type == "expression_statement":
            around = node
        elif node.type in ("await_expression", "parenthesized_expression"):
            around = around or node
        else:
            around = None
        left += [(child, around) for child in node.children]


def _examples(units: str, root: Node) -> Iterator[Node]:
    """Yield the top-level declarations of the input."""
    for statement in root.named_children:
        if statement.type not in ("lexical_declaration", "variable_declaration"):
            continue
        declared = [each for each in statement.named_children if each.type == "variable_declarator"]
        names = [each.child_by_field_name("name") for each in declared]
        if not any(name is not None and text_of(units, name) == INPUT for name in names):
            continue
        if len(declared) != 1:
            raise ProgramError(
                "nested_tool_failed",
                f"{FUNCTION}(): {INPUT} is declared together with other names; declare it alone, as in "
                f"const {INPUT} = {{...}};",
            )
        yield statement


def _type(schema: JsonObject) -> str:
    """Return the TypeScript type of the input; `any` if it needs declarations of its own."""
    compiled = compile_schema(schema)
    if compiled.definitions or isinstance(compiled.root, Unknown):
        return "any"
    return TypeWriter({}, docs=False).text(compiled.root)


def _comment(description: str, schema: JsonObject | None) -> str:
    """Return the JSDoc comment, with the schema on lines of its own."""
    lines = [*_described(description)] if description.strip() else []
    if schema is not None:
        if lines:
            lines.append("")
        lines += f"@input {_json(schema)}".split("\n")
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n" if lines else ""


def _described(text: str) -> Iterator[str]:
    """Yield the lines of a description. No line begins with a tag, and none ends the comment."""
    import textwrap

    plain = drop_hidden("\n".join(text.splitlines()), keep="\n")
    for line in plain.replace("*/", "*\\/").strip().split("\n"):
        # A wrapped line could begin with a tag that was inside a line.
        for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]:
            yield _LINE_TAG.sub(r"\1\\@", part)


def _json(schema: Any) -> str:
    """Return JSON that no reader mistakes, and that cannot end a comment."""
    # A `*/` can only be in a string, where `\/` means `/`.
    text = HIDDEN.sub(lambda found: json_escape(found[0]), json.dumps(schema, ensure_ascii=False))
    return text.replace("*/", "*\\/").replace("@", "\\u0040")
