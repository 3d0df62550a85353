"""Values of parameters as text, in the styles of OpenAPI. Pure: no I/O.

OpenAPI defines lists of scalars and objects with scalars. What is nested deeper is sent as JSON, and with `deepObject`
in further brackets; the items of a list get their positions as keys. A value of null is not sent. In the styles
`label`, `spaceDelimited` and `pipeDelimited`, an API cannot tell a text with the delimiter from two texts.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

_UNRESERVED: Final = "-._~"
_RESERVED: Final = _UNRESERVED + ":/?@!$'()*,[]"
"""Characters that `allowReserved` leaves as they are: not those that end a value or begin another one for some server,
such as `;`."""
_LITERAL: Final = _UNRESERVED + ":@!$&'()*+,;=%"
_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_MAX_DEPTH: Final = 30


class ArgumentProblem(Exception):
    """Arguments that cannot be sent. The message names the argument and says what to do."""


def quoted(text: str, *, is_reserved: bool = False) -> str:
    """Return a text percent-encoded, for a value in a path or in a query."""
    return quote(text.encode("utf-8", "replace"), safe=_RESERVED if is_reserved else _UNRESERVED)


def plain(value: Any) -> str:
    """Return a value as text: a string as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quoted_literal(text: str) -> str:
    """Return a fixed part of a path percent-encoded. What is encoded already stays so."""
    return quote(text.encode("utf-8", "replace"), safe=_LITERAL)


def path_value(name: str, value: Any, style: str, *, explode: bool) -> str:
    """Return the text in place of a parameter in a path."""
    members = _members(value)
    if style == "label":
        return "." + _joined(members, "." if explode else ",", is_paired=explode)
    if style == "matrix":
        key = quoted(name)
        if explode and isinstance(value, dict):
            return "".join(f";{quoted(inner or '')}={quoted(text)}" for inner, text in members)
        if explode and isinstance(value, list):
            return "".join(f";{key}={quoted(text)}" for _, text in members)
        text = _joined(members, ",", is_paired=False)
        return f";{key}={text}" if text else f";{key}"
    return _joined(members, ",", is_paired=explode)


def header_value(value: Any, *, explode: bool) -> str:
    """Return the text of a header, which is not encoded."""
    members = _members(value)
    if explode:
        return ",".join(text if key is None else f"{key}={text}" for key, text in members)
    return ",".join(text if key is None else f"{key},{text}" for key, text in members)


def form_pairs(name: str, value: Any, style: str, explode: bool, *, is_reserved: bool = False) -> list[tuple[str, str]]:
    """Return the encoded names and values of a parameter in a query, a cookie or a form."""
    if value is None:
        return []
    if style == "deepObject":
        return _deep_pairs(quoted(name), value, is_reserved, 0)
    members = _members(value)
    if not isinstance(value, (dict, list)) or (explode and isinstance(value, list)):
        return [(quoted(name), quoted(text, is_reserved=is_reserved)) for _, text in members]
    if explode:
        return [(quoted(key or ""), quoted(text, is_reserved=is_reserved)) for key, text in members]
    if not members:
        return []
    return [(quoted(name), _joined(members, _DELIMITERS.get(style, ","), is_paired=False, is_reserved=is_reserved))]


def _members(value: Any) -> list[tuple[str | None, str]]:
    """Return the texts of a value, with their keys if it is an object."""
    if isinstance(value, dict):
        return [(str(key), plain(member)) for key, member in value.items() if member is not None]
    if isinstance(value, list):
        return [(None, plain(member)) for member in value if member is not None]
    return [(None, plain(value))]


def _joined(
    members: list[tuple[str | None, str]], delimiter: str, *, is_paired: bool, is_reserved: bool = False
) -> str:
    texts = []
    for key, text in members:
        encoded = quoted(text, is_reserved=is_reserved)
        if key is None:
            texts.append(encoded)
        else:
            texts += [f"{quoted(key)}={encoded}"] if is_paired else [quoted(key), encoded]
    return delimiter.join(texts)


def _deep_pairs(name: str, value: Any, is_reserved: bool, depth: int) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, (dict, list)) or depth > _MAX_DEPTH:
        return [(name, quoted(plain(value), is_reserved=is_reserved))]
    members = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        pair
        for key, member in members
        for pair in _deep_pairs(f"{name}%5B{quoted(str(key))}%5D", member, is_reserved, depth + 1)
    ]
