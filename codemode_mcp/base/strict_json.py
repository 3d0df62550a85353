"""Strict reading of JSON that this product has written, possibly in another version or process. Pure.

The form of each JSON object is declared as a type for `msgspec`. A text that does not match its form exactly is
rejected as a whole: the text may be damaged, forged or of another version.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.base.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
