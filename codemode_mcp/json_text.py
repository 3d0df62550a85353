"""JSON text for guests and from guests. Pure."""

from __future__ import annotations

import json
import re
from typing import Any


def json_text(value: Any) -> str:
    """JSON for the guest; numbers that JSON does not have become null."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_without_nan(value))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def compact_json(value: Any) -> str:
    """Return a value as JSON without blanks, in which only control characters, quotes and backslashes are escaped."""
    return _COMPACT.encode(value)


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


_LONE_SURROGATE = re.compile(r"(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}")


def whole_characters(text: str) -> str:
    """JSON text of a guest with U+FFFD for halves of surrogate pairs."""
    # JSON.stringify writes pairs as they are and escapes halves, in lower case; a half has no UTF-8 form.
    return _LONE_SURROGATE.sub(r"\1" + "\\\\ufffd", text) if "\\ud" in text else text


def joined_halves(text: str) -> str:
    """Text as UTF-8 can hold it: halves of surrogate pairs become the pair they are, else U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
