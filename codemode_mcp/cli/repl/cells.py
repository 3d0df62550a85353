"""Analysis of an input: whether it is a command, whether it is incomplete, and the names that it declares. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.repl.scan import scan
from codemode_mcp.program.syntax import from_utf16_units, parse, utf16_units, words

if TYPE_CHECKING:
    from tree_sitter import Node

COMMANDS: Final = {
    "help": ("", "show this help"),
    "d": ("SERVER[#TOOL]", "the declaration of a server, or of one of its tools"),
    "search": ("WORDS", "find tools for what you need"),
    "wait": ("[RUN]", "resume the latest suspended program, or the one whose id begins with RUN"),
    "cancel": ("[RUN]", "end a suspended program"),
    "runs": ("", "the programs of this session"),
    "all": ("", "the last value in full, as JSON"),
    "names": ("", "the names that this session keeps, and those that it cannot keep"),
    "ts": ("", "read inputs as TypeScript from here on"),
    "js": ("", "read inputs as JavaScript from here on"),
    "load": ("FILE", "run a file here"),
    "save": ("FILE", "write the programs of this session to a file"),
    "clear": ("", "forget all names of this session"),
    "exit": ("", "leave; so does Ctrl-D"),
}
"""Commands by name, with their argument and their effect."""

MAX_JUDGED: Final = 20_000
"""Maximum number of characters of an input that can count as incomplete. A longer input is run."""

MAX_PARSED: Final = 4_000
"""Maximum characters of an input that is parsed to find an open statement. The parser is slow for invalid text."""

_COMMAND: Final = re.compile(r"\s*\.([a-z]+)(?:\s+(.*?))?\s*", re.DOTALL)
_WORD: Final = re.compile(r"\s*(exit|quit|help|clear)\s*(?:\(\s*\))?\s*;?\s*")
_CONTINUING: Final = words("= + - * / % & | ^ < > , . ? : ! ~ => ... ?.")
_UNFINISHED: Final = words(
    "const let var function class extends new typeof void delete throw in of instanceof else do try case"
)
_ENDINGS: Final = (" x", " {}", " (0)", " while (0)", " : x")
"""Texts that complete the beginning of a statement."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command `.name rest`."""

    name: str
    rest: str


def command(text: str) -> Command | None:
    """Return the command of an input, or None for a program. The name of the command may be unknown."""
    match = _COMMAND.fullmatch(text) if "\n" not in text.strip() else None
    return None if match is None else Command(match[1], match[2] or "")


def word(text: str) -> str | None:
    """Return the input if it is a command of other prompts (`exit`, `quit`, `help`, `clear`), else None."""
    match = _WORD.fullmatch(text)
    return None if match is None else match[1]


def is_incomplete(text: str) -> bool:
    """Return True if a bracket, a template or a statement is not closed, so that another line has to follow.

    Invalid text counts as complete, so that it is run and the engine reports the error.
    """
    if len(text) > MAX_JUDGED or command(text) is not None:
        return False
    found = scan(text)
    if found.mismatched:
        return False
    if found.open or found.within in ("template", "comment"):
        return True
    if not found.tokens:
        return False
    last = found.tokens[-1]
    if last.kind == "string" and not last.closed:
        return last.text.endswith("\\")
    if last.kind == "punct" and last.text in _CONTINUING:
        return True
    if last.kind == "word" and last.text in _UNFINISHED:
        before = found.tokens[-2].text if len(found.tokens) > 1 else ""
        return before not in (".", "?.")
    return len(text) <= MAX_PARSED and _is_open_statement(text)


def depth(text: str) -> int:
    """Return the number of open brackets."""
    found = scan(text[-MAX_JUDGED:])
    return 0 if found.within == "template" else len(found.open)


def _is_open_statement(text: str) -> bool:
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return False
    root = tree.root_node
    if root.has_error:
        completed = (parse(units + ending) for ending in _ENDINGS)
        return any(each is not None and not each.root_node.has_error for each in completed)
    last = root.named_children[-1] if root.named_children else None
    while last is not None and last.type == "comment":
        last = last.prev_named_sibling
    if last is None:
        return False
    if last.type == "try_statement":
        return last.child_by_field_name("handler") is None and last.child_by_field_name("finalizer") is None
    return last.type == "function_signature" and not text.rstrip().endswith(";")


def declared(text: str) -> tuple[str, ...]:
    """Return the names that a program declares at its top level, in order."""
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return ()
    found: dict[str, None] = {}

    def read(node: Node) -> str:
        return from_utf16_units(units[node.start_byte // 2 : node.end_byte // 2])

    def names(pattern: Node) -> None:
        left = [pattern]
        while left:
            node = left.pop()
            if node.type in ("identifier", "type_identifier", "shorthand_property_identifier_pattern"):
                found[read(node)] = None
            elif node.type in ("pair_pattern", "object_assignment_pattern", "assignment_pattern"):
                part = node.child_by_field_name("value" if node.type == "pair_pattern" else "left")
                left += [part] if part is not None else []
            elif node.type in ("object_pattern", "array_pattern", "rest_pattern"):
                left += reversed(node.named_children)

    for statement in tree.root_node.named_children:
        has_several = statement.type in ("lexical_declaration", "variable_declaration")
        declarations = statement.named_children if has_several else [statement] if statement.type in _NAMED else []
        for each in declarations:
            if (name := each.child_by_field_name("name")) is not None:
                names(name)
    return tuple(found)


_NAMED: Final = words(
    "function_declaration generator_function_declaration class_declaration abstract_class_declaration enum_declaration"
)
