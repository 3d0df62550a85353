"""URI templates (RFC 6570) of servers, compared with URIs of programs. Pure.

The templates are not trusted, so each comparison takes linear time.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from upstream_clients.schemas import UnusableSchema, compile_schema

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")

_VALUES: Final = {
    "+": ".*",
    "#": ".*",
    "/": "(?:/[^?#]*)?",
    "?": r"(?:\?[^#]*)?",
    "&": "(?:&[^#]*)?",
}
"""Patterns of the values of expressions, by their operator (RFC 6570, section 2.2)."""

_IGNORED: Final = re.compile(r"[\x00-\x20\x7f-\xa0]+")
"""Blanks and control characters, which parsers of URIs leave out."""

_VALUE: Final = "[^/?#]*"
"""Pattern of the value of an expression with another operator, or without one."""


def makes(template: str, uri: str) -> bool:
    """Return True if a URI is made from a template, with values that RFC 6570 allows. Any length of values fits."""
    parts = _EXPRESSION.split(template)  # texts and expressions in turn
    patterns = [
        _VALUES.get(part[:1], _VALUE) if index % 2 else re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", part)
        for index, part in enumerate(parts)
    ]
    try:
        # Not by `re`, whose time would grow exponentially with the number of expressions.
        return uri == template or compile_schema({"pattern": f"^(?:{''.join(patterns)})$"}).is_valid(uri)
    except UnusableSchema:
        return False  # too long for a pattern


def may_make(template: str, uri: str) -> bool:
    """Return True if a server may take a URI for one that is made from a template: with any values at all.

    A server may parse a URI before it compares it. So case, percent-encoding, blanks and control characters make no
    difference.
    """
    first, *rest = map(_folded, _EXPRESSION.split(template)[::2])
    uri = _folded(uri)
    if not rest:
        return uri == first
    if not uri.startswith(first):
        return False
    start = len(first)
    for text in rest[:-1]:
        found = uri.find(text, start)
        if found < 0:
            return False
        start = found + len(text)
    return len(uri) - start >= len(rest[-1]) and uri.endswith(rest[-1])


def _folded(text: str) -> str:
    return _IGNORED.sub("", unquote(_IGNORED.sub("", text))).casefold()
