"""Functions that change, find and collect parts of JSON values. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Value = TypeVar("Value")


def value_at(value: Any, keys: Iterable[str]) -> Any:
    """Return the value at nested keys; None if one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def map_strings(value: Value, change: Callable[[str], str], *, keys: bool = False) -> Value:
    """Return a copy with `change` applied to every string, and to every key if `keys` is true."""
    copy: Any = value
    match value:
        case str():
            copy = change(value)
        case list():
            copy = [map_strings(item, change, keys=keys) for item in value]
        case dict():
            copy = {change(key) if keys else key: map_strings(item, change, keys=keys) for key, item in value.items()}
    return copy  # type: ignore[no-any-return]


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string that is not a key."""
    match value:
        case str():
            yield value
        case list() | dict():
            for item in value.values() if isinstance(value, dict) else value:
                yield from strings_in(item)
