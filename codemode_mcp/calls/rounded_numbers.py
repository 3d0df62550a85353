"""Numbers beyond 2^53 in arguments: Numbers of the program, whose last digits may be lost. Pure.

The guest writes these with an exponent and `E`, and a bigint as its digits (`numberJson` in `prelude/20_values.js`).
Only the schema of a tool knows where an integer belongs: there, a Number is refused, because it is probably not the
integer that the program was given. Anywhere else it is sent as JavaScript writes it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.phrases import path_text
from codemode_mcp.json_text import MAX_SAFE_INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.calls.phrases import Path
    from codemode_mcp.sandbox.messages import ToolCall

_MARK = re.compile(r"[0-9]E[0-9+]")
"""The exponent of a Number beyond 2^53, as the guest writes it. A string may have it, too."""

_MAX_NAMED = 3
_MAX_TRIED = 50
"""Maximum number of Numbers that are tried one by one, to name those that are refused."""

_EXPONENT_FROM = 1e21
"""The first number that JavaScript writes with an exponent."""


def has_rounded(call: ToolCall) -> bool:
    """Return True if the arguments of a call may have a Number beyond 2^53."""
    request = None if call.through is None else call.through.request
    texts = (call.input, *(() if request is None else request.arguments))
    return any(text is not None and "E" in text and _MARK.search(text) is not None for text in texts)


def problems(arguments: dict[str, Any], is_valid: Callable[[Any], bool]) -> list[str]:
    """Return a line for Numbers beyond 2^53 in places of integers.

    Args:
        is_valid: returns whether arguments fit the schema. `arguments` fit it.
    """

    # An integer belongs where it fits, and a fraction next to it does not, on either side.
    def fits(chosen: Path | None) -> bool:
        farther, nearer, whole = (_replaced(arguments, chosen, each, ()) for each in (_farther, _nearer, _digits))
        return is_valid(farther) or is_valid(nearer) or not is_valid(whole)

    if fits(None):
        return []
    tried = islice(_rounded(arguments, ()), _MAX_TRIED)
    refused = list(islice(((path, number) for path, number in tried if not fits(path)), _MAX_NAMED))
    lines = [f"{path_text(path)}: {_advice(number)}" for path, number in refused]
    return lines or [f"input: {_advice(next(_rounded(arguments, ()))[1])}"]


def _advice(number: float) -> str:
    return (
        f"expected an integer, got the Number {_as_written(number)}: beyond 2^53, a Number loses its last digits; pass "
        "the bigint that the result gave (unwrap keeps it, JSON.parse rounds it), or write all digits with n at the "
        "end, such as 725653563933458433n"
    )


def as_written(value: Any) -> Any:
    """Return arguments with each Number beyond 2^53 as JavaScript writes it: its digits, up to 1e21."""
    match value:
        case float():
            return _as_written(value)
        case dict():
            return {key: as_written(item) for key, item in value.items()}
        case list():
            return list(map(as_written, value))
    return value


def _as_written(number: float) -> int | float:
    return _digits(number) if MAX_SAFE_INTEGER < abs(number) < _EXPONENT_FROM else number


def _digits(number: float) -> int:
    return int(Decimal(repr(number)))


def _rounded(value: Any, path: Path) -> Iterator[tuple[Path, float]]:
    match value:
        case float() if abs(value) > MAX_SAFE_INTEGER:
            yield path, value
        case dict():
            for key, item in value.items():
                yield from _rounded(item, (*path, key))
        case list():
            for number, item in enumerate(value):
                yield from _rounded(item, (*path, number))


def _replaced(value: Any, chosen: Path | None, other: Callable[[float], Any], path: Path) -> Any:
    """Return a copy with the other form of the chosen Number; None chooses all."""
    match value:
        case float() if abs(value) > MAX_SAFE_INTEGER and chosen in (None, path):
            return other(value)
        case dict():
            return {key: _replaced(item, chosen, other, (*path, key)) for key, item in value.items()}
        case list():
            return [_replaced(item, chosen, other, (*path, number)) for number, item in enumerate(value)]
    return value


def _farther(number: float) -> Decimal:
    return Decimal(f"{_digits(number)}.5")  # not by `+`, which rounds


def _nearer(number: float) -> Decimal:
    whole = _digits(number)
    return Decimal(f"{whole - 1 if whole > 0 else whole + 1}.5")
