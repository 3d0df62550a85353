"""Base64 of pictures inside text that a program made of a result, such as `JSON.stringify(result)`.

A model can do nothing with it and pays for every character. Only `data` and `blob` of JSON count, with
a `mimeType` close by. The guest marks content that is no text yet (`prelude/20_values.js`). Pure.
"""

from __future__ import annotations

import re
from typing import Final

_LEAST: Final = 100
"""Characters of base64 that are worth a mark."""
_NEAR: Final = 300
"""Characters before and after the data in which its MIME type is looked for."""

_NAME: Final = "mimeType"
"""Text without it holds no picture, which is known in a hundredth of the time that the patterns take."""


def _data(least: int) -> re.Pattern[str]:
    # It begins with the key, which the engine finds in little time. The quote before it is checked by `_mark`: a
    # pattern that begins with backslashes is tried at each character.
    return re.compile(
        rf"""(?P<key>data|blob)(?P<quote>\\{{{least},15}}")\s*:\s*(?P=quote)"""
        rf"""(?P<base64>[A-Za-z0-9+/_-]{{{_LEAST},}}={{0,2}})(?P=quote)"""
    )


_IN_TEXT: Final = _data(0)
_IN_STRINGS: Final = _data(1)
_MIME_TYPE: Final = re.compile(r"""\\*"mimeType\\*"\s*:\s*\\*"([\w.+/-]{1,100})\\*\"""")


def without_base64(text: str) -> str:
    """Replace the base64 of MCP content in a text that holds JSON by a mark that says what it was."""
    return _IN_TEXT.sub(_mark, text) if _NAME in text else text


def strings_without_base64(text: str) -> str:
    """Replace it in the strings of a JSON text: members of the JSON itself are the program's own."""
    return _IN_STRINGS.sub(_mark, text) if _NAME in text else text


def _mark(found: re.Match[str]) -> str:
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
