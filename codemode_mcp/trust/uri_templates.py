"""URI templates (RFC 6570) of servers, compared with URIs of programs and clients. Pure.

The templates are not trusted, and a server may list thousands of them, which are all compared with one URI. So no
pattern is compiled. `makes` keeps the set of positions in the URI that the parts of the template read so far can end
at, as the bits of an integer. Each character and each expression of the template takes a few operations on it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

MAX_URI: Final = 8 * 1024
"""Maximum number of characters of a URI that a template makes. Servers list no longer URIs than half of that."""

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")

_IGNORED: Final = re.compile(r"[\x00-\x20\x7f-\xa0]+")
"""Blanks and control characters, which parsers of URIs leave out."""

_USUAL: Final = (
    (re.compile(r"^(https://[^/?#:]*):443(?=[/?#]|$)|^(http://[^/?#:]*):80(?=[/?#]|$)"), r"\1\2"),
    (re.compile(r"^file:(?://localhost)?/(?!/)"), "file:///"),
)
"""Parts of URIs that parsers leave out, and what is left."""

_ENDS: Final = {"+": "\n\r\u2028\u2029", "#": "\n\r\u2028\u2029", "/": "?#", "?": "#", "&": "#"}
"""Characters that the value of an expression cannot have, by its operator (RFC 6570, section 2.2)."""

_OTHER_ENDS: Final = "/?#"
"""Characters that the value of an expression with another operator, or without one, cannot have."""


class _Positions:
    """The positions of the characters of a URI, as the bits of integers: bit 0 is the first character."""

    def __init__(self, uri: str) -> None:
        self.all = (1 << len(uri)) - 1
        self._of: dict[str, int] = {}
        for position, character in enumerate(uri):
            self._of[character] = self._of.get(character, 0) | 1 << position
        self._without: dict[str, int] = {}

    def of(self, character: str) -> int:
        return self._of.get(character, 0)

    def without(self, characters: str) -> int:
        """Return the positions of all other characters."""
        found = self._without.get(characters)
        if found is None:
            found = self.all
            for each in characters:
                found &= ~self.of(each)
            self._without[characters] = found
        return found


_positions = lru_cache(maxsize=4)(_Positions)


def makes(template: str, uri: str) -> bool:
    """Return True if a URI is made from a template, with values that RFC 6570 allows."""
    if uri == template:
        return True
    if len(uri) > MAX_URI:
        return False
    positions, reached = _positions(uri), 1
    for index, part in enumerate(_EXPRESSION.split(template)):  # texts and expressions in turn
        if index % 2:
            operator = part[:1]
            values = positions.without(_ENDS.get(operator, _OTHER_ENDS))
            if operator and operator in "/?&":  # a value begins with the operator, or is empty
                begun = (reached & positions.of(operator)) << 1
                reached |= begun | _spread(begun, values)
            else:
                reached |= _spread(reached, values)
        else:
            for character in part:
                reached = (reached & positions.of(character)) << 1
                if not reached:
                    return False
    return bool(reached >> len(uri) & 1)


def _spread(reached: int, values: int) -> int:
    """Return the positions that are reached from others by any number of characters at the positions `values`."""
    # The sum carries each start to the end of its run of ones.
    starts = reached & values
    return ((starts + values) ^ values) | starts


def may_make(template: str, uri: str) -> bool:
    """Return True if a server may take a URI for one that is made from a template: with any values at all.

    A client or a server may parse a URI before it compares it. So case, percent-encoding, blanks, control characters,
    usual ports and a slash at the end make no difference.
    """
    first, *rest = map(_folded, _EXPRESSION.split(template)[::2])
    if not rest:
        return same_form(uri) == first.rstrip("/")
    uri = _folded(uri)
    if rest[-1].endswith("/") and not uri.endswith("/"):
        uri += "/"
    if not uri.startswith(first):
        return False
    start = len(first)
    for text in rest[:-1]:
        found = uri.find(text, start)
        if found < 0:
            return False
        start = found + len(text)
    return len(uri) - start >= len(rest[-1]) and uri.endswith(rest[-1])


def fixed_start(text: str, *, is_template: bool = True) -> str:
    """Return the fixed text at the start of a template, or a URI, as a server may compare it; see `may_make`."""
    first, brace, _ = text.partition("{") if is_template else (text, "", "")
    return _folded(first) if brace or not is_template else same_form(first)


def same_form(uri: str) -> str:
    """Return one text for all URIs that a client or a server may take for the same; see `may_make`."""
    return _folded(uri).rstrip("/")


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFC", _IGNORED.sub("", unquote(_IGNORED.sub("", text))).casefold())
    for pattern, usual in _USUAL:
        text = pattern.sub(usual, text)
    return text
