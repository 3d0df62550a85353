"""Untrusted text, made safe to show: the characters that mislead a reader, and their escapes. Pure: no I/O.

Programs, servers and clients choose names, descriptions and messages. Such a text could move the cursor, end its line,
hide words, or reverse the text around it. So it passes through these functions wherever it is shown: in logs, in
declarations, on a terminal, in questions to a person and in messages to a model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Final

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
    at the beginning of the text, and further marks on a character that has two already. Letters that look like those of
    ASCII are escaped in words that have both, and so is everything beyond ASCII in the host of a URL.

    Args:
        escape: returns the escape of one character.
        right_to_left: True to show letters of Hebrew, Arabic and similar scripts, and those that look like ASCII. No
            decision may depend on such a text.
        stacked: the Unicode categories of marks that are counted.
    """
    if text.isascii() and text.isprintable():
        return text
    if not right_to_left:
        text = escape_look_alikes(text, escape)
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


AUTHORITY: Final = re.compile(r"""(?<=://)[^\s/?#\\"']+""")
"""Host and port of a URL."""

_WORD: Final = re.compile(r"[\w.]+")
_ASCII_LETTER: Final = re.compile(r"[A-Za-z]")
_LOOK_ALIKE: Final = re.compile(
    "[\u0131\u0184\u0185\u01c0-\u01c3\u0237\u0250-\u02ff\u0370-\u058f\u10a0-\u10ff\u13a0-\u167f\u1d00-\u1dbf"
    "\u2100-\u214f\u2160-\u2188\u2c60-\u2dff\ua4d0-\ua7ff\uab30-\uabbf\uff01-\uff5e\U00010280-\U000104ff\U000118a0-\U000118ff"
    "\U0001d400-\U0001d7ff]"
)
"""Characters of alphabets whose letters can be taken for ASCII, and variants of ASCII: phonetic, wide, mathematical."""


def is_look_alike(character: str) -> bool:
    """Return True for a character that can be taken for one of ASCII, or whose alphabet has such letters."""
    return bool(_LOOK_ALIKE.match(character))


def escape_look_alikes(text: str, escape: Callable[[str], str]) -> str:
    """Return a text that shows which words are not the words of ASCII for which a reader could take them."""
    text = AUTHORITY.sub(lambda found: "".join(each if each.isascii() else escape(each) for each in found[0]), text)
    return _WORD.sub(lambda found: _without_look_alikes(found[0], escape), text)


def _without_look_alikes(word: str, escape: Callable[[str], str]) -> str:
    if word.isascii() or not _ASCII_LETTER.search(word):
        return word
    return _LOOK_ALIKE.sub(lambda found: escape(found[0]), word)


_BLANKS: Final = re.compile(r"\n(?: *\n){2,}| {9,}")
_INDENTED_BLANKS: Final = re.compile(r"\n(?: *\n){8,}| {40,}")


def count_blanks(text: str, *, is_code: bool = False) -> str:
    r"""Return a text with `\n{500}` for 502 line breaks, and `\x20{200}` for 202 spaces, with one at each side.

    A long run of blanks could push the rest of a text out of sight.

    Args:
        is_code: True for text with indented lines: runs that are usual there stay.
    """
    return (_INDENTED_BLANKS if is_code else _BLANKS).sub(_counted, text)


def _counted(found: re.Match[str]) -> str:
    blanks = found[0]
    if blanks[0] == "\n":
        return f"\n\\n{{{blanks.count(chr(10)) - 2}}}\n"
    return f" \\x20{{{len(blanks) - 2}}} "


def json_escape(character: str) -> str:
    r"""Return the escape of a character in JSON: `\u202e`, or two such escapes beyond U+FFFF."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
