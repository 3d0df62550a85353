"""Change the members of an object in a text, whatever its format, and check the result. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Parse = Callable[[str], Any]
    Change = Callable[[str, Sequence[str], Mapping[str, object], Collection[str]], str]
    """A function that takes a text, the keys of an object, members to set and members to remove, and returns a text."""


def edited(
    text: str,
    keys: Sequence[str],
    members: Mapping[str, object],
    without: Collection[str],
    *,
    parse: Parse,
    change: Change,
    noun: str = "an object",
) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`.

    Args:
        noun: the format's word for an object, for messages.

    Raises:
        SourceError: the text is not in the format, has another value at `keys`, or cannot be changed safely.
    """
    value = parse(text)
    target = value_at(value, keys, dict, noun)
    _refuse_repeated(target, (*members, *without))
    old = target or {}
    drop = [name for name in without if name in old and name not in members]
    put = {name: new for name, new in members.items() if name not in old or _canonical(old[name]) != _canonical(new)}
    if not drop and not put:
        return text
    new = {name: each for name, each in old.items() if name not in drop} | put
    accepted = [with_value(value, keys, new)]
    if not new and keys:
        accepted.append(_without_value(value, keys))  # TOML has no empty table that is only implied
    return verified(change(text, keys, put, drop), parse, *accepted)


def value_at(value: Any, keys: Sequence[str], kind: type, noun: str) -> Any:
    """Return the object or list at `keys`, or None if it is missing or null.

    Raises:
        SourceError: there is another value, or one of the keys is given twice.
    """
    way = ".".join(key if key.isidentifier() else json.dumps(key) for key in keys)
    for key in keys:
        if not isinstance(value, dict):
            raise SourceError(f"could not be changed: {way} does not lead to {noun}")
        _refuse_repeated(value, (key,))
        value = value.get(key)
        if value is None:
            return None
    if not isinstance(value, kind):
        raise SourceError(f"could not be changed: {way} is not {noun}" if keys else f"does not hold {noun}")
    return value


def with_value(value: Any, keys: Sequence[str], new: object) -> object:
    """Return nested objects with another value at `keys`."""
    if not keys:
        return new
    return {**(value or {}), keys[0]: with_value((value or {}).get(keys[0]), keys[1:], new)}


def verified(changed: str, parse: Parse, *accepted: object) -> str:
    """Return a changed text if it means what was asked for, so that an unknown way of writing can damage no file.

    Raises:
        SourceError: the text means something else.
    """
    with suppress(SourceError, RecursionError):
        if parse(changed) in accepted:
            return changed
    raise unchangeable()


def unchangeable() -> SourceError:
    """Return the error for a text that is written in an unknown way."""
    return SourceError("could not be changed as it is written; change it by hand")


def newline_of(text: str) -> str:
    """Return the line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def _without_value(value: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    if len(keys) == 1:
        return {key: each for key, each in value.items() if key != keys[0]}
    return {**value, keys[0]: _without_value(value.get(keys[0]) or {}, keys[1:])}


def _refuse_repeated(value: object, names: Collection[str]) -> None:
    for name in getattr(value, "repeated", ()):
        if name in names:
            raise SourceError(f"could not be changed: {json.dumps(name)} is given twice; remove one of them")


def _canonical(value: object) -> str:
    """Return a text that is equal for equal values only: `1`, `1.0` and `true` are not equal."""
    return json.dumps(value, sort_keys=True, default=str)
