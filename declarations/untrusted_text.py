"""Untrusted text, made safe to show: the characters that mislead a reader, and their escapes. Pure: no I/O.

Programs, servers and clients choose names, descriptions and messages. Such a text could move the cursor, end its line,
hide words, or reverse the text around it. So it passes through these functions wherever it is shown: in logs, in
declarations, on a terminal, in questions to a person and in messages to a model.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_INVISIBLE: Final = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00016fe4\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point, bidirectional marks, interlinear annotations, a filler and the empty Braille
pattern. Two names that differ only in such characters look the same."""

HIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff{_INVISIBLE}]")
"""A control character, an end of a line, half of a surrogate pair, a noncharacter, or a character that is invisible or
changes the direction of text."""

_MAX_MARKS: Final = 2
"""Maximum number of marks on one character that are shown. More marks would reach into other lines."""


def drop_hidden(text: str, *, keep: str = "") -> str:
    """Return a text without hidden characters, except those in `keep`."""
    return HIDDEN.sub(lambda found: found[0] if found[0] in keep else "", text)


def escape_hidden(text: str) -> str:
    """Return a text with hidden characters as the escapes of a Python string."""
    return text if text.isascii() and text.isprintable() else HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def escape_line(text: str, limit: int = 200) -> str:
    """Return at most `limit` characters of a text, as a part of a line, with hidden characters escaped."""
    return escape_hidden(text if len(text) <= limit else text[: limit - 1] + "…")


def escape_misleading(
    text: str,
    escape: Callable[[str], str],
    *,
    right_to_left: bool = False,
    stacked: Collection[str] = ("Mn", "Me"),
) -> str:
    """Return a text in which every character that could mislead a reader is escaped.

    These are hidden characters, other characters that do not print, letters that are written from right to left, marks
    at the beginning of the text, and further marks on a character that has two already.

    Args:
        escape: returns the escape of one character.
        right_to_left: True to show letters of Hebrew, Arabic and similar scripts.
        stacked: the Unicode categories of marks that are counted.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in stacked else 0
        is_shown = (
            character.isprintable()
            and not HIDDEN.match(character)
            and (right_to_left or not _is_right_to_left(character))
            and marks <= _MAX_MARKS
            and (shown or not marks)
        )
        shown.append(character if is_shown else escape(character))
    return "".join(shown)


def _is_right_to_left(character: str) -> bool:
    """Return True if a display reorders the text around a character (Unicode Annex 9, classes R, AL and AN).

    A display reverses all text between two letters of Hebrew or Arabic, including quotes, commas, brackets and numbers
    of JSON, so `["A",90,10,"B"]` could be read as `["B",90,10,"A"]`.
    """
    return unicodedata.bidirectional(character) in ("R", "AL", "AN")


def json_escape(character: str) -> str:
    r"""Return the escape of a character in JSON: `\u202e`, or two such escapes beyond U+FFFF."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
