"""Strict reading of the JSON that we have written ourselves, in an earlier life or another process. Pure.

Whatever does not have the exact form is refused as a whole, with one kind of error: nothing that is read here can be
relied on, be it damaged, of another version or forged.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Value = TypeVar("Value")
    Word = TypeVar("Word", bound=str)

MOST: Final = 2**53
"""No number is as large, either way: it is counted, or a time."""


class Fields:
    """The members of a JSON object, each of which is taken once.

    Every method raises `ValueError`, `TypeError` or `KeyError` for what is not there in that form.
    """

    def __init__(self, raw: object) -> None:
        if not isinstance(raw, dict):
            raise TypeError
        self._raw = dict(raw)

    def __repr__(self) -> str:
        return f"<Fields: {', '.join(self._raw)}>"

    def end(self) -> None:
        """There must be no more."""
        if self._raw:
            raise ValueError

    def any(self, name: str) -> Any:
        return self._raw.pop(name)

    def text(self, name: str) -> str:
        return text(self._raw.pop(name))

    def text_or_none(self, name: str) -> str | None:
        raw = self._raw.pop(name)
        return None if raw is None else text(raw)

    def integer(self, name: str) -> int:
        return integer(self._raw.pop(name))

    def integer_or_none(self, name: str) -> int | None:
        raw = self._raw.pop(name)
        return None if raw is None else integer(raw)

    def number(self, name: str) -> float:
        return number(self._raw.pop(name))

    def number_or_none(self, name: str) -> float | None:
        raw = self._raw.pop(name)
        return None if raw is None else number(raw)

    def flag(self, name: str) -> bool:
        raw = self._raw.pop(name)
        if not isinstance(raw, bool):
            raise TypeError
        return raw

    def one_of(self, name: str, allowed: tuple[Word, ...]) -> Word:
        raw = self._raw.pop(name)
        for each in allowed:
            if raw == each:
                return each
        raise ValueError

    def object(self, name: str) -> Fields:
        return Fields(self._raw.pop(name))

    def object_or_none(self, name: str) -> Fields | None:
        raw = self._raw.pop(name)
        return None if raw is None else Fields(raw)

    def object_if_there(self, name: str) -> Fields | None:
        """Return None where there is no such member: what an earlier version has written lacks it."""
        return Fields(self._raw.pop(name)) if name in self._raw else None

    def each(self, name: str, read: Callable[[Any], Value]) -> list[Value]:
        """Return the elements of a list."""
        return [read(item) for item in items(self._raw.pop(name))]


def text(raw: object) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def integer(raw: object) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise TypeError
    if not -MOST < raw < MOST:
        raise ValueError
    return raw


def number(raw: object) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool):
        raise TypeError
    if not -MOST < raw < MOST:
        raise ValueError
    return float(raw)


def items(raw: object, count: int | None = None) -> list[Any]:
    """Return a list, of so many elements."""
    if not isinstance(raw, list):
        raise TypeError
    if count is not None and len(raw) != count:
        raise ValueError
    return raw


@contextmanager
def strictly(refused: Callable[[str], ProgramError]) -> Iterator[None]:
    """Everything that reading in here runs into becomes the one error. `refused`: makes it of the reason."""
    try:
        yield
    except ProgramError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError):
        raise refused("it is damaged") from None


def parsed(text: str) -> Any:
    """Raises `ValueError` or `RecursionError`."""
    return json.loads(text, parse_constant=no_constant)


def first_of(text: str) -> Any:
    """Return the first element of a JSON list, without a look at the others. Raises as `parsed`."""
    if not text.startswith("["):
        raise ValueError
    return _DECODER.raw_decode(text, 1)[0]


def written(value: Any) -> str:
    """JSON in ASCII: no store and no connection has trouble with it, whatever the text of a program holds.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, it is nested too deep.
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise ProgramError(
            "snapshot_limit_exceeded", "what the program has printed is nested too deep to suspend it"
        ) from None


def no_constant(name: str) -> Any:
    """Raise `ValueError` for `NaN` and `Infinity`, which are no JSON; a `parse_constant` for decoders."""
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=no_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
