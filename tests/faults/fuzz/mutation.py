"""Programs made from other programs: their syntax trees and their tokens, spliced, duplicated, deleted, swapped."""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from pathlib import Path
from random import Random

import tree_sitter
import tree_sitter_typescript

SEEDS = Path(__file__).resolve().parent / "seeds"
CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "cells" / "typescript.json"
"""More programs to start from, where they are."""

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|`(?:[^`\\]|\\.)*`|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w$#]+|\s+|=>|\.\.\.|\?\.|"""
    r"""[<>=!*&|?+-]{1,4}|.""",
    re.DOTALL,
)
_MAX_CHARACTERS = 20_000
_REPLACEABLE = frozenset(
    (
        *("expression_statement", "lexical_declaration", "variable_declaration", "if_statement", "for_statement"),
        *("for_in_statement", "while_statement", "try_statement", "return_statement", "throw_statement"),
        *("statement_block", "function_declaration", "class_declaration", "arrow_function", "call_expression"),
        *("member_expression", "subscript_expression", "binary_expression", "unary_expression", "array", "object"),
        *("identifier", "number", "string", "template_string", "await_expression", "new_expression", "regex", "pair"),
        *("method_definition", "assignment_expression", "ternary_expression", "arguments", "property_identifier"),
        *("formal_parameters", "class_body", "spread_element", "yield_expression", "parenthesized_expression"),
    )
)
_STATEMENTS = frozenset(name for name in _REPLACEABLE if name.endswith(("_statement", "_declaration")))
_VALUES = frozenset(
    (
        *("call_expression", "member_expression", "subscript_expression", "binary_expression", "array", "identifier"),
        *("number", "string", "template_string", "new_expression", "regex", "parenthesized_expression"),
    )
)
"""Expressions that can stand nearly wherever another of them does."""

_Part = tuple[str, int, int]
"""A kind of node and where its text starts and ends."""


@functools.cache
def seeds() -> tuple[str, ...]:
    """The programs to start from."""
    return tuple(path.read_text("utf-8") for path in sorted(SEEDS.glob("*.js")))


@functools.cache
def typescript_seeds() -> tuple[str, ...]:
    """Programs with types in them, where there are any."""
    return tuple(cell["code"] for cell in json.loads(CORPUS.read_text("utf-8"))) if CORPUS.is_file() else ()


@functools.cache
def _library() -> dict[str, list[str]]:
    """Parts of all seeds, by kind."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in map(_units, (*seeds(), *typescript_seeds())):
        for kind, start, end in _parts(source):
            if end - start < 800:
                found[_family(kind)].append(source[start:end])
    return dict(found)


def _family(kind: str) -> str:
    return "statement" if kind in _STATEMENTS else "value" if kind in _VALUES else kind


@functools.cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_typescript.language_typescript()))


def _units(source: str) -> str:
    """Return one character per UTF-16 unit, so that the parser's places are ours."""
    data = source.encode("utf-16-le", "surrogatepass")
    return "".join(chr(data[at] | data[at + 1] << 8) for at in range(0, len(data), 2))


def _parts(units: str) -> list[_Part]:
    tree = _parser().parse(units.encode("utf-16-le", "surrogatepass"), encoding="utf16le")
    found = []
    left = [tree.root_node]
    while left:
        node = left.pop()
        if node.type in _REPLACEABLE:
            found.append((node.type, node.start_byte // 2, node.end_byte // 2))
        left.extend(node.named_children)
    return found


def mutate(random: Random, source: str) -> str:
    """`source` after a few changes."""
    source = _units(source)
    for _ in range(1 + int(random.random() ** 2 * 5)):
        changed = _change_tree(random, source) if random.random() < 0.85 else _change_tokens(random, source)
        source = changed[:_MAX_CHARACTERS]
    return source.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _change_tree(random: Random, source: str) -> str:
    parts = _parts(source)
    if not parts:
        return _change_tokens(random, source)
    kind, start, end = random.choice(parts)
    family = _family(kind)
    alike = [part for part in parts if _family(part[0]) == family]
    way = random.random()
    if way < 0.45:
        text = random.choice(_library().get(family) or [source[start:end]])
    elif way < 0.65:
        _, other_start, other_end = random.choice(alike)
        text = source[other_start:other_end]
    elif way < 0.8 and family == "statement":
        text = source[start:end] + "\n" + source[start:end] if random.random() < 0.5 else ";"
    elif way < 0.9 and family == "value":
        text = f"({source[start:end]}, {random.choice(_library()['value'])})"
    elif family == "value":
        text = f"[{source[start:end]}].at(0)"
    else:
        text = source[start:end]
    return source[:start] + text + source[end:]


def _change_tokens(random: Random, source: str) -> str:
    tokens = _TOKEN.findall(source)
    solid = [index for index, token in enumerate(tokens) if not token.isspace()]
    if len(solid) < 2:
        return source
    one, two = random.choice(solid), random.choice(solid)
    match int(random.random() * 4):
        case 0:
            tokens[one], tokens[two] = tokens[two], tokens[one]
        case 1:
            del tokens[one]
        case 2:
            tokens.insert(one, tokens[two])
        case _:
            tokens[one] = random.choice(_WORDS)
    return "".join(tokens)


_WORDS = (
    *("await", "async", "yield", "return", "this", "null", "0", "1e999", "-", "=>", "...", "?.", "(", ")", "{"),
    *("}", "[", "]", '""', "`${0}`", "/x/", "new", "delete", "typeof", "void", "in", "of", "let", "static"),
    *("get", "#p", ",", ";", "\n", "MCP", "tools", "globalThis", "Promise", "\u2028", "\ud800", "é", "\0"),
    *("import", "export", "eval", "arguments"),
)
