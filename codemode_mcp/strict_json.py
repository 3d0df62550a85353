"""Strict reading of JSON that this product has written, possibly in another version or process. Pure.

The forms are declared as types for `msgspec`. A text that does not match its form exactly is rejected as a whole: it
may be damaged, forged or of another version.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BOUND: Final = 2**53

Integer = Annotated[int, Meta(gt=-_BOUND, lt=_BOUND)]
"""A count or an id, within the range that JSON keeps exactly everywhere."""

Number = Annotated[float, Meta(gt=-_BOUND, lt=_BOUND)]
"""A time or a duration, finite."""


class Form(Struct, forbid_unknown_fields=True, rename="camel"):
    """Base of the forms of stored JSON objects. Each member must be present, and no other."""


AnyForm = TypeVar("AnyForm", bound=Form)


@contextmanager
def rejecting(error: Callable[[str], ProgramError]) -> Iterator[None]:
    """Replace whatever reading a damaged text raises by one `ProgramError`.

    Args:
        error: makes it from a reason.
    """
    try:
        yield
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise error("it is damaged") from None


def versioned(raw: Any, form: type[AnyForm], version: int, error: Callable[[str], ProgramError]) -> AnyForm:
    """Return the content of a JSON object, which says with `format` by which version it was written.

    Raises:
        ProgramError: it has another format than `version`. `error` makes it from a reason.
        Exception: it has another form; see `rejecting`.
    """
    # The format comes first, since another version may write any other members.
    found = raw.pop("format")
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError
    if found != version:
        raise error(f"it was written by another version of codemode-mcp (format {str(found)[:20]})")
    return msgspec.convert(raw, form)


def fill(form: type[AnyForm], source: object, **others: Any) -> AnyForm:
    """Return a form whose fields are the attributes of the same names of `source`, except for `others`."""
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

    Any store and connection can hold it, also with the lone surrogates that a program may print.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, the value is nested too deep.
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise ProgramError(
            "snapshot_limit_exceeded", "what the program has printed is nested too deep to suspend it"
        ) from None


def no_constant(name: str) -> Any:
    """Raise `ValueError` for `NaN` and `Infinity`, which are not JSON; a `parse_constant` for decoders."""
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=no_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=msgspec.to_builtins)
