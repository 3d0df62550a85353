"""Changes to the members of an object in a text of any format, and the check of the result. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Parse = Callable[[str], Any]
    Change = Callable[[str, Sequence[str], Mapping[str, object], Collection[str]], str]
    """A function that changes a text: from the text, the keys of an object, and members to set and to remove."""


def change_members(
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
        accepted.append(_without_value(value, keys))  # in TOML, a table without members may be missing
    return verified(change(text, keys, put, drop), parse, *accepted)


def value_at(value: Any, keys: Sequence[str], kind: type, noun: str) -> Any:
    """Return the object or list at `keys`; None if it is missing or null.

    Raises:
        SourceError: the value has another type, or a key is given twice.
    """
    path = ".".join(key if key.isidentifier() else json.dumps(key) for key in keys)
    for key in keys:
        if not isinstance(value, dict):
            raise SourceError(f"could not be changed: {path} does not lead to {noun}")
        _refuse_repeated(value, (key,))
        value = value.get(key)
        if value is None:
            return None
    if not isinstance(value, kind):
        raise SourceError(f"could not be changed: {path} is not {noun}" if keys else f"does not contain {noun}")
    return value


def with_value(value: Any, keys: Sequence[str], new: object) -> object:
    """Return nested objects with another value at `keys`."""
    if not keys:
        return new
    return {**(value or {}), keys[0]: with_value((value or {}).get(keys[0]), keys[1:], new)}


def verified(changed: str, parse: Parse, *accepted: object) -> str:
    """Return a changed text if its value is one of those accepted.

    The check protects files that are written in a way which the code does not expect.

    Raises:
        SourceError: the text has another value.
    """
    with suppress(SourceError, RecursionError):
        if parse(changed) in accepted:
            return changed
    raise not_changeable()


def not_changeable() -> SourceError:
    """Return the error for a text that is written in a way which the code does not support."""
    return SourceError("could not be changed, because it is written in an unusual way; change it by hand")


def newline_of(text: str) -> str:
    """Return the line end of a text."""
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
    """Return a text that is equal only for equal values. Unlike in Python, `1`, `1.0` and `true` are not equal."""
    return json.dumps(value, sort_keys=True, default=str)
