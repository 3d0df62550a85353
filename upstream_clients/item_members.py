"""Members of listed items: those of an unexpected type are reported, and metadata is limited. Pure: no I/O, no MCP SDK.

Metadata is what a client shows or interprets, and no program gets: `_meta`, `icons` and the annotations of resources.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

META: Final = "_meta"
ICONS: Final = "icons"
METADATA: Final = (META, "annotations", ICONS)
"""Members with metadata. If there is no room for all of them, the first ones are kept."""

MAX_METADATA_BYTES = 16 * 1024
"""Bytes of the metadata of one item, as JSON."""

MAX_LIST_METADATA_BYTES = 4 * 1024 * 1024
"""Bytes of the metadata of all items of a list."""


def typed_member(
    of: Mapping[str, Any], key: str, kind: type[T], expected: str, subject: str, problems: list[str]
) -> T | None:
    """Return a member of the expected type. Return None if it is missing. Report another type and return None."""
    value = of.get(key)
    if value is None or isinstance(value, kind):
        return value
    problems.append(f"{subject}: {key} is not {expected} ({kind_of(value)}); ignored")
    return None


class MetadataReader:
    """The metadata of the items of one list."""

    def __init__(self) -> None:
        self._room = MAX_LIST_METADATA_BYTES
        self._is_full = False

    def read(
        self, item: Mapping[str, Any], subject: str, problems: list[str], keys: Iterable[str] = METADATA
    ) -> dict[str, Any]:
        """Return the members of `keys` that there is room for. Report those that are dropped."""
        found: dict[str, Any] = {}
        room = MAX_METADATA_BYTES
        for key in keys:
            value = _icons(item, subject, problems) if key == ICONS else _object(item, key, subject, problems)
            if not value:
                continue
            size = _size(value)
            if size > room:
                problems.append(
                    f"{subject}: {key} is left out, since an item has at most {MAX_METADATA_BYTES} bytes of metadata"
                )
            elif size > self._room:
                if not self._is_full:
                    problems.append(f"metadata is left out from {subject} on, since a list has too much of it")
                self._is_full, self._room = True, 0
            else:
                room, self._room = room - size, self._room - size
                found[key] = value
        return found


def _size(value: Any) -> int:
    """Return the bytes of a value as JSON; more than an item may have if it cannot be written."""
    try:
        return len(json.dumps(value))
    except (ValueError, RecursionError):  # ValueError: an integer of thousands of digits
        return MAX_METADATA_BYTES + 1


def _object(item: Mapping[str, Any], key: str, subject: str, problems: list[str]) -> dict[str, Any] | None:
    return typed_member(item, key, dict, "an object", subject, problems)


def _icons(item: Mapping[str, Any], subject: str, problems: list[str]) -> list[Any]:
    icons = typed_member(item, ICONS, list, "a list", subject, problems) or []
    found = [icon for icon in icons if isinstance(icon, dict) and isinstance(icon.get("src"), str)]
    if len(found) < len(icons):
        problems.append(f"{subject}: {ICONS} has an entry without src; dropped")
    return found


def kind_of(value: object) -> str:
    """Return the JSON type of a value, in words."""
    if value is None or value == "":
        return "missing" if value is None else "an empty string"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return kinds.get(type(value), "an object")
