"""Typed values of the fields of events. The fields may have any type, because any file may be read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_DATES: Final = 253_402_300_800
"""The first second of the year 10000, in Unix seconds. Python has no dates after the year 9999."""


def number(value: Any) -> float | None:
    """Return a number that is a valid time in Unix seconds, or None for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _END_OF_DATES
    return float(value) if is_number else None


def text(event: Mapping[str, Any], key: str) -> str:
    """Return the string in a field, or an empty string if the field has no string."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def mapping(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the JSON object in a field, or an empty dictionary if the field has no object."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}
