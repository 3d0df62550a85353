"""Characters that mislead a person who reads a definition: hidden, look-alike, styled, or far out of sight. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from declarations.untrusted_text import HIDDEN

from .definition_texts import excerpt, fold, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .definition_texts import Text

_EMOJI: Final = "\u00a9\u00ae\u203c-\u205f\u2070-\u27ff\u2900-\u3163\u3165-\u3299\U0001f000-\U0001faff"
_JOINED: Final = "\u0600-\u08ff\u0900-\u109f\u1780-\u180a\u1810-\u18af\u0e00-\u0fff"
"""Scripts whose letters are joined or separated by invisible characters."""

_NEEDED: Final = re.compile(
    rf"(?<=[{_EMOJI}0-9#*])[\ufe0e\ufe0f]"
    rf"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    rf"|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}\s]|$)"
    # The flags of England, Scotland and other regions.
    "|(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{4,6}\U000e007f"
    r"|[\t\n\r]"
)
"""Hidden characters that scripts and emoji need, and the ends of lines."""

_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS_OF_DIRECTION: Final = "\u200e\u200f\u061c"
_SOFT: Final = "\xad\ufeff\u2028\u2029\u200b\f\v"
_SOFT_IN_WORD: Final = re.compile("[a-zA-Z][\xad\u200b\ufeff][a-zA-Z]")

_OTHER_ALPHABET: Final = "\u0370-\u03ff\u0400-\u052f\u0531-\u058f\u13a0-\u13ff"
_MIXED: Final = re.compile(f"[a-zA-Z][{_OTHER_ALPHABET}]|[{_OTHER_ALPHABET}][a-zA-Z]")
_MAX_LETTERS: Final = 30
"""Maximum letters of a word on each side of two letters of different alphabets that are examined."""

_STYLED: Final = re.compile(
    "[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u24b6-\u24e9\U0001f130-\U0001f189\u1d00-\u1d2b]{5}"
    # Marks through a letter, and piles of marks.
    "|[\u0334-\u0338]|[\u0300-\u036f\u0483-\u0489\u20d0-\u20f0]{3}"
)

_PADDING: Final = re.compile(r"\n(?:[ \t\r]{0,200}\n){9}|[ \t\u00a0\u2003\u3000]{100}")


def hidden_characters(texts: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Find characters that hide something, but not those that a script or an emoji needs."""
    for text in texts:
        at = _hidden_at(text.raw)
        if at is not None:
            yield text.where, excerpt(text.raw, at, at + 1)


def _hidden_at(text: str) -> int | None:
    """Return the position of the first character that hides something, or None."""
    if text.isascii() and text.isprintable():
        return None
    if split := _SOFT_IN_WORD.search(text):
        return split.start() + 1
    allowed = _SOFT + (_MARKS_OF_DIRECTION if _RIGHT_TO_LEFT.search(text) else "")
    at = 0
    while found := HIDDEN.search(text, at):
        at = found.start()
        if needed := _NEEDED.match(text, at):
            at = needed.end()
        elif found[0] in allowed:
            at += 1
        else:
            return at
    return None


def soft_characters(texts: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Find hidden characters that copied text may have, outside words of the Latin alphabet."""
    for text in texts:
        if text.raw.isascii() or _SOFT_IN_WORD.search(text.raw):
            continue
        at = next((at for at in map(text.raw.find, "\xad\u2028\u2029\u200b") if at >= 0), text.raw.find("\ufeff", 1))
        if at >= 0:
            yield text.where, excerpt(text.raw, at, at + 1)


def look_alike_letters(texts: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Find words of two alphabets whose foreign letters all look Latin, and words in styled letters."""
    for text in texts:
        if text.raw.isascii():
            continue
        if styled := _STYLED.search(text.raw):
            yield text.where, excerpt(text.raw, *styled.span())
            continue
        for mixed in _MIXED.finditer(text.raw):
            start, end = _word_around(text.raw, *mixed.span())
            if fold(text.raw[start:end]).isascii():
                yield text.where, excerpt(text.raw, start, end)
                break


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the start and end of the word that a match is in."""
    first, last = start, end
    while first > max(0, start - _MAX_LETTERS) and text[first - 1].isalpha():
        first -= 1
    while last < min(len(text), end + _MAX_LETTERS) and text[last].isalpha():
        last += 1
    return first, last


def padding(texts: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Find text behind many empty lines or spaces."""
    for text in texts:
        found = _PADDING.search(text.raw)
        rest = text.raw[found.end() :].strip() if found else ""
        if rest:
            yield text.where, shown(rest)


CHARACTER_CHECKS: Final[Mapping[str, Callable[[Iterable[Text]], Iterator[tuple[str, str]]]]] = {
    "hidden_characters": hidden_characters,
    "soft_characters": soft_characters,
    "look_alike_letters": look_alike_letters,
    "padding": padding,
}
"""The checks by their name in `finding_rules.toml`. Each yields (JSON pointer, excerpt)."""
