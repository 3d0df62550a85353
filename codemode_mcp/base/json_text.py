"""JSON text to and from guests, and text without lone surrogates. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that a Number of JavaScript holds exactly (`Number.MAX_SAFE_INTEGER`)."""


def json_text(value: Any) -> str:
    """Return a value as JSON for a guest. NaN and infinite numbers become null."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_without_nan(value))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def compact_json(value: Any) -> str:
    """Return a value as JSON without blanks. Only control characters, quotes and backslashes are escaped."""
    return _COMPACT.encode(value)


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_javascript(value: Any, *, ensure_ascii: bool = True) -> str:
    """Return a JSON value as an expression of JavaScript, in which an integer beyond 2^53 is a bigint."""
    return _STRING_OR_INTEGER.sub(_with_suffix, json.dumps(value, ensure_ascii=ensure_ascii))


_STRING_OR_INTEGER = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![0-9.])-?[0-9]{16,}(?![0-9.eE])')


def _with_suffix(match: re.Match[str]) -> str:
    text = match[0]
    return f"{text}n" if not text.startswith('"') and abs(int(text)) > MAX_SAFE_INTEGER else text


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


_LONE_SURROGATE = re.compile(r"(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}")


def replace_lone_surrogates(text: str) -> str:
    """Return JSON text of a guest with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    # In JSON.stringify, pairs are unescaped, and lone surrogates are escapes in lower case.
    return _LONE_SURROGATE.sub(r"\1" + "\\\\ufffd", text) if "\\ud" in text else text


def join_surrogates(text: str) -> str:
    """Return a text that UTF-8 can encode: the two surrogates of a pair are joined, others become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def result_text(content: Any) -> str | None:
    """Return the text that `unwrap` of a program reads from the content of a result; None if there is none.

    The text of an embedded resource counts alone if the resource is the only block that is no text.
    """
    if not isinstance(content, list):
        return None
    texts: list[str] = []
    others: list[Any] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            others.append(block)
    match others:
        case [{"type": "resource", "resource": {"text": str(text)}}]:
            return text
    return "\n".join(texts) if texts else None
