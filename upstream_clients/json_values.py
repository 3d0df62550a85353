"""Walks through JSON values, and pointers to parts of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def values_in(value: Any) -> Iterator[Any]:
    """Yield a JSON value and every value inside it, in their order. Not recursive, since servers may nest deeply."""
    pending = [value]
    while pending:
        here = pending.pop()
        yield here
        if isinstance(here, dict):
            pending += reversed(here.values())
        elif isinstance(here, list | tuple):
            pending += reversed(here)


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, keys too."""
    for each in values_in(value):
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from each


def is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def map_json(
    value: Any,
    text: Callable[[str], str],
    number: Callable[[float], Any] = lambda number: number,
    *,
    keys: bool = True,
) -> Any:
    """Return JSON data in which each string, each key and each number is replaced by a function's result.

    Args:
        keys: False to keep the keys.
    """
    match value:
        case str():
            return text(value)
        case list() | tuple():
            return [map_json(each, text, number, keys=keys) for each in value]
        case dict():
            return {text(key) if keys else key: map_json(each, text, number, keys=keys) for key, each in value.items()}
        case int() | float() if not isinstance(value, bool):
            return number(value)
    return value


def pointer_part(key: str | int) -> str:
    """Return a key as a part of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def keys_of(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
