"""Removal of base64 from texts that a program made from a result, such as `JSON.stringify(result)`. Pure.

A model cannot use base64 and pays for every character. It is found in members `data` and `blob` of JSON that have a
`mimeType` nearby. Content that is not text yet is marked by the guest (`prelude/20_values.js`).
"""

from __future__ import annotations

import re
from typing import Final

_MIN_BASE64: Final = 100
"""Minimum characters of base64 to be replaced."""
_NEAR: Final = 300
"""Maximum characters between the data and its MIME type."""

_NAME: Final = "mimeType"
"""A string that a text with a picture contains. Searching it takes a hundredth of the time of the patterns."""


def _data(min_backslashes: int) -> re.Pattern[str]:
    # The pattern begins with the key, which is fast to find. A pattern that begins with backslashes would be tried at
    # each character, so `_mark` checks the quote before the key.
    return re.compile(
        rf"""(?P<key>data|blob)(?P<quote>\\{{{min_backslashes},15}}")\s*:\s*(?P=quote)"""
        rf"""(?P<base64>[A-Za-z0-9+/_-]{{{_MIN_BASE64},}}={{0,2}})(?P=quote)"""
    )


_IN_TEXT: Final = _data(0)
_IN_STRINGS: Final = _data(1)
_MIME_TYPE: Final = re.compile(r"""\\*"mimeType\\*"\s*:\s*\\*"([\w.+/-]{1,100})\\*\"""")


def without_base64(text: str) -> str:
    """Return a text with a mark in place of the base64 of each MCP content in it."""
    return _IN_TEXT.sub(_mark, text) if _NAME in text else text


def strings_without_base64(text: str) -> str:
    """Return a JSON text with such marks only in its strings. Members of the JSON itself are the program's and stay."""
    return _IN_STRINGS.sub(_mark, text) if _NAME in text else text


def _mark(found: re.Match[str]) -> str:
    # The quote before the key must have the same number of backslashes as the one after it.
    opened = found.start() - len(found["quote"])
    if opened < 0 or not found.string.startswith(found["quote"], opened) or found.string[opened - 1 : opened] == "\\":
        return found[0]
    before = found.string[max(0, found.start() - _NEAR) : found.start()]
    after = found.string[found.end() : found.end() + _NEAR]
    mime_type = _MIME_TYPE.search(after.partition("}")[0]) or _MIME_TYPE.search(before.rpartition("{")[2])
    if mime_type is None:
        return found[0]
    size = len(found["base64"].rstrip("=")) * 3 // 4
    show = "image(contents) passes it on" if found["key"] == "blob" else "show it with image(block)"
    quote, mark = found["quote"], f"[{mime_type[1]}, {size:,} bytes; {show}]"
    return f"{found['key']}{quote}:{quote}{mark}{quote}"
