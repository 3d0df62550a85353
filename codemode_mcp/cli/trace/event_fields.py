"""Typed values of events, which may come from any file. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_DATES: Final = 253_402_300_800
"""The year 10000 in Unix seconds. Python has no dates from then on."""


def number(value: Any) -> float | None:
    """Return a number that can be a time in Unix seconds, or None for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _END_OF_DATES
    return float(value) if is_number else None


def text(event: Mapping[str, Any], key: str) -> str:
    """Return a string, or an empty string for any other value."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def mapping(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object, or an empty object for any other value."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}
