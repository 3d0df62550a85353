"""References inside one schema document. Pure: no I/O. Other documents are never fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urljoin

MAX_VISITS: Final = 100_000
"""Maximum number of values that are searched for `$id` and `$anchor`."""
MAX_POINTER: Final = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """A schema and its resource. The resource is the nearest enclosing schema with an `$id`, the base of references."""

    schema: object
    base: Mapping[str, Any]


class Document:
    """One schema document in which references are resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._identified: dict[str, Place] | None = None

    def resolve(self, reference: str, base: Mapping[str, Any]) -> Place | None:
        """Return the target of a reference in the resource `base`; None if it is not in the document."""
        resource, _, fragment = reference.partition("#")
        if resource:
            place = self._by_identity(resource)
            if place is None:
                return None
            base = place.base
        if not fragment:
            return Place(base, base)
        if not fragment.startswith("/"):
            return self._by_identity(_anchor(base, fragment))
        return _follow(base, fragment)

    def _by_identity(self, identity: str) -> Place | None:
        """Return the schema with an `$id`, or with an anchor of a resource. The first call searches the document."""
        if self._identified is None:
            self._identified = _identities(self._root)
        return self._identified.get(identity)


def _follow(base: Mapping[str, Any], pointer: str) -> Place | None:
    """Return the target of a JSON pointer, which is percent-encoded as in a URI fragment."""
    if len(pointer) > MAX_POINTER:
        return None
    here: Any = base
    for segment in unquote(pointer).split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            if key not in here:
                return None
            here = here[key]
        elif isinstance(here, list):
            if not key.isdecimal() or len(key) > 6 or int(key) >= len(here):
                return None
            here = here[int(key)]
        else:
            return None
        if isinstance(here, Mapping) and isinstance(here.get("$id"), str) and not here["$id"].startswith("#"):
            base = here
    return Place(here, base)


def _identities(root: Mapping[str, Any]) -> dict[str, Place]:
    """Return the schemas of a document by `$id`, and by the anchors of resources. Of equal names, the first counts."""
    found: dict[str, Place] = {}
    root_id = root.get("$id")
    stack: list[tuple[Any, Mapping[str, Any]]] = [(root, root)]
    visits = MAX_VISITS
    while stack and visits:
        visits -= 1
        here, base = stack.pop()
        if isinstance(here, list):
            stack.extend((member, base) for member in reversed(here[:visits]) if isinstance(member, (dict, list)))
            continue
        if not isinstance(here, Mapping):
            continue
        for keyword in ("$id", "id"):
            identity = here.get(keyword)
            if not isinstance(identity, str) or not identity:
                continue
            if identity.startswith("#"):
                found.setdefault(_anchor(base, identity[1:]), Place(here, base))
            elif keyword == "$id":
                base = here
                found.setdefault(identity.rstrip("#"), Place(here, here))
                if isinstance(root_id, str) and here is not root:
                    found.setdefault(_joined(root_id, identity), Place(here, here))
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = here.get(keyword)
            if isinstance(anchor, str):
                found.setdefault(_anchor(base, anchor), Place(here, base))
        stack.extend((member, base) for member in here.values() if isinstance(member, (Mapping, list)))
    return found


def _anchor(base: Mapping[str, Any], name: str) -> str:
    return f"{id(base)}#{name}"


def _joined(base: str, relative: str) -> str:
    try:
        return urljoin(base, relative)
    except ValueError:
        return relative
