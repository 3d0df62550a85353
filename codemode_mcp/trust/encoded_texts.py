"""Encoded parts of texts, decoded: Base64, hexadecimal, escapes, substitutions, reversed text. Pure.

A model decodes such a part when a description asks for it, or without being asked. Whether it is an instruction, the
rules for wording decide.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import itertools
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .definition_texts import FoldedTexts

MAX_PART: Final = 8_000
"""Maximum characters of one encoded part that are decoded, in front of the rest."""

MAX_PARTS: Final = 8
"""Maximum number of parts of one encoding that are decoded."""

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_HEXADECIMAL: Final = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){16,}")
_ESCAPE: Final = re.compile(r"(?:\\x|\\u00)([0-9a-fA-F]{2})")
_PERCENT: Final = re.compile(r"(?:%[0-9a-fA-F]{2}[\w.-]{0,12}){6}")
_DIGITS_AS_LETTERS: Final = re.compile("[a-z][013457@$][a-z]")
_LETTERS: Final = str.maketrans("013457@$", "oieastas")
_ROT13: Final = ("vafgehpgvba", "vtaber ", "cnffjbeq", "frperg", "cerivbhf", "nffvfgnag")
_BACKWARDS: Final = ("snoitcurtsni", " erongi", "suoiverp", "drowssap", "tnatsissa", "resu eht", "noitasrevnoc")
"""Words of instructions, encoded. Text without them is not decoded."""


def decoded_parts(folded: FoldedTexts) -> Iterator[tuple[int, str]]:
    """Yield the positions of parts that seem to be encoded, each with the part decoded."""
    plain, lower = folded.plain, folded.lower
    for found in itertools.islice(_BASE64.finditer(plain), MAX_PARTS):
        yield found.start(), _from_base64(found[0][:MAX_PART])
    for found in itertools.islice(_HEXADECIMAL.finditer(plain), MAX_PARTS):
        digits = re.sub("[ :,]", "", found[0][:MAX_PART])
        yield found.start(), _readable(bytes.fromhex(digits[: len(digits) // 2 * 2]))
    for found in itertools.islice(_PERCENT.finditer(plain), MAX_PARTS):
        yield found.start(), unquote(plain[found.start() : found.start() + MAX_PART])
    if escape := _ESCAPE.search(plain):
        yield escape.start(), _ESCAPE.sub(lambda found: chr(int(found[1], 16)), _around(plain, escape.start()))
    spelled = [found.start() for found in itertools.islice(_DIGITS_AS_LETTERS.finditer(lower), 3)]
    if len(spelled) == 3:
        yield spelled[0], _around(lower, spelled[0]).translate(_LETTERS)
    if (at := _first_of(_ROT13, lower)) >= 0:
        yield at, codecs.decode(_around(plain, at), "rot13")
    if (at := _first_of(_BACKWARDS, lower)) >= 0:
        yield at, _around(plain, at)[::-1]


def _around(text: str, at: int) -> str:
    return text[max(0, at - MAX_PART // 2) : at + MAX_PART // 2]


def _first_of(words: tuple[str, ...], text: str) -> int:
    return next((at for at in map(text.find, words) if at >= 0), -1)


def _from_base64(text: str) -> str:
    digits = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    # A single digit at the end has not a whole byte.
    digits = digits[:-1] if len(digits) % 4 == 1 else digits
    try:
        return _readable(base64.b64decode(digits + "=" * (-len(digits) % 4)))
    except binascii.Error:
        return ""


def _readable(data: bytes) -> str:
    """Return bytes as text if they are words, or an empty string."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if " " in text and text.replace("\n", " ").isprintable() else ""
