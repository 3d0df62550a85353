"""Strict reading of JSON that this product has written, possibly in another version or process. Pure.

The form of each JSON object is declared as a type for `msgspec`. A text that does not match its form exactly is
rejected as a whole: the text may be damaged, forged or of another version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.base.errors import ProgramError

_BOUND: Final = 2**53

Integer = Annotated[int, Meta(gt=-_BOUND, lt=_BOUND)]
"""A count or an id, within the range of integers that all JSON parsers read exactly."""

Number = Annotated[float, Meta(gt=-_BOUND, lt=_BOUND)]
"""A finite time or duration."""


class Form(Struct, forbid_unknown_fields=True, rename="camel"):
    """The base class of the forms of stored JSON objects. A JSON object must have exactly the declared members."""


AnyForm = TypeVar("AnyForm", bound=Form)


@contextmanager
def rejecting_damage(error: Callable[[str], ProgramError]) -> Iterator[None]:
    """Replace any exception that is raised by reading a damaged text by one `ProgramError`.

    Args:
        error: returns the `ProgramError` for a reason.
    """
    try:
        yield
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise error("it is damaged") from None


def convert_versioned(raw: Any, form: type[AnyForm], version: int, error: Callable[[str], ProgramError]) -> AnyForm:
    """Return the content of a JSON object whose member `format` is the version of its form.

    Raises:
        ProgramError: the object has another format than `version`. `error` returns the error for a reason.
        Exception: the object does not match the form. `rejecting_damage` replaces the exception.
    """
    # The format comes first, since another version may write any other members.
    found = raw.pop("format")
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError
    if found != version:
        raise error(f"it was written by another version of codemode-mcp (format {str(found)[:20]})")
    return msgspec.convert(raw, form)


def form_from(form: type[AnyForm], source: object, **others: Any) -> AnyForm:
    """Return a form whose fields are the attributes of `source` with the same names. `others` has the other fields."""
    return form(**{name: others[name] if name in others else getattr(source, name) for name in form.__struct_fields__})


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raise `ValueError` or `RecursionError`."""
    return json.loads(text, parse_constant=no_constant)


def first_element(text: str) -> Any:
    """Return the first element of a JSON list without reading the others. Raise as `parse_json`."""
    if not text.startswith("["):
        raise ValueError
    return _DECODER.raw_decode(text, 1)[0]


def ascii_json(value: Any) -> str:
    """Return a value, which may contain structs, as JSON in ASCII.

    Every store and connection accepts ASCII, even if a program has printed lone surrogates.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, the value is nested too deep.
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise ProgramError(
            "snapshot_limit_exceeded", "the output of the program is nested too deep to suspend the program"
        ) from None


def no_constant(name: str) -> Any:
    """Raise `ValueError` for `NaN` and `Infinity`, which are not JSON. Use it as `parse_constant` of a decoder."""
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=no_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=msgspec.to_builtins)


# JSON text to and from guests, and text without lone surrogates.


MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that a Number of JavaScript holds exactly (`Number.MAX_SAFE_INTEGER`)."""


def json_text(value: Any) -> str:
    """Return a value as JSON for a guest. NaN and infinite numbers become null."""
    try:
        return _UNICODE_ENCODER.encode(value)
    except ValueError:
        return _UNICODE_ENCODER.encode(_without_nan(value))


_UNICODE_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


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
