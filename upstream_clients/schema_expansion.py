"""The number of subschemas that checking a value against an untrusted JSON Schema may visit. Pure.

Validators follow a reference at every place where it stands, so a small schema can double the work with each level:
`a0` refers to `a1` twice, `a1` to `a2` twice, and so on. The count here follows every reference of one document:

- jsonschema-rs caches results only for recursive references, which lead back to an unfinished subschema. Such a
  reference counts 1 at each place, and its target is counted once more on its own.
- If a reference may lead to several targets, the most expensive one counts.
- A reference that leads nowhere makes the schema unusable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from upstream_clients.json_values import keys_of

if TYPE_CHECKING:
    from upstream_clients.tools import JsonObject

MAX_EXPANDED_NODES = 50_000
"""Maximum number of subschemas after following every local reference. A real schema of 77 kB has about 2,000."""


class UnusableSchema(Exception):
    """A schema that cannot be used safely to check values. The message says why, for a person."""


_MAX_DEPTH = 200
_MAX_STEPS = 4 * MAX_EXPANDED_NODES
_META_SCHEMA = re.compile(r"https?://json-schema\.org/[\w/.-]+#?")
_META_SCHEMA_NODES = 1_000
_AMBIGUOUS_IDENTITY = re.compile(r"(^|[/:])\.|[%\\\s]|/#?$")
"""Identities that a validator may take as equal to a different spelling."""
_HERE = re.compile(r"^\./(?=\w)")
"""The beginning of a relative identity that means the same without it."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_DATA = frozenset({"const", "enum", "default", "examples", "example", "required", "dependentRequired", "type"})

Bases = tuple[Mapping[str, Any], ...]


class _Measured(NamedTuple):
    """The cost of the target of a reference. It depends on the targets that were unfinished when it was measured.

    Attributes:
        total: number of subschemas in the target.
        back: unfinished targets that references in this target lead back to, by `id`.
        entered: all other targets that references in this target lead to, by `id`.
    """

    total: int
    back: frozenset[int]
    entered: frozenset[int]


class SchemaExpansion:
    """The references of one document, followed on demand."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._steps = 0
        self._pending: set[int] = set()
        self._known: dict[int, list[_Measured]] = {}
        self._targets_met: dict[int, Any] = {}
        self._recursive: dict[int, tuple[Any, Bases]] = {}
        self._resources: list[tuple[str, Any, Bases]] | None = None
        self._anchors: dict[str, list[tuple[Any, Bases]]] = {}

    def measure(self) -> int:
        """Return the number of subschemas to compile, or to visit for one place in a value, whichever is larger.

        Raises:
            UnusableSchema: there are more than `MAX_EXPANDED_NODES`, or they cannot be counted.
        """
        size = self._bounded(_size(self._root))
        total = self._schema(self._root, (), 0, set())
        done: set[int] = set()
        while left := self._recursive.keys() - done:
            for key in left:
                done.add(key)
                total = self._bounded(total + self._target(*self._recursive[key], 0, set()))
        return max(size, total)

    def measure_part(self, pointer: str) -> int:
        """Return the number of subschemas to compile for the part at a JSON pointer without percent-encoding.

        Raises:
            UnusableSchema: see `measure`.
        """
        self._pending.clear()
        self._known.clear()
        self._targets_met.clear()
        for node, within in follow_pointer((self._root,), pointer):
            self._target(node, within, 0, set())
        total = 1
        for node in self._targets_met.values():
            size = _size(node)
            self._spend(size)
            total += size
        return total

    def leads_somewhere(self, keyword: str, reference: object) -> bool:
        """Return False for a reference that cannot be followed from any place in the document.

        Args:
            keyword: `$ref`, `$dynamicRef` or `$recursiveRef`.
        """
        if not isinstance(reference, str):
            return False
        try:
            self._identities()
            resources = [node for _, node, _ in self._resources or ()]
            return _META_SCHEMA.fullmatch(reference) is not None or any(
                True for _ in self._targets(keyword, reference, (self._root, *resources))
            )
        except UnusableSchema:
            return False

    def _bounded(self, total: int) -> int:
        # A part that is too large makes the whole too large, so the count stops early.
        if total > MAX_EXPANDED_NODES:
            raise UnusableSchema(f"it expands to more than {MAX_EXPANDED_NODES} subschemas")
        return total

    def _spend(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise UnusableSchema("its references are too many to follow")

    def _schema(self, node: Any, bases: Bases, depth: int, met: set[int]) -> int:
        """Count the subschemas in a schema or a list of schemas. Add the targets of its references to `met`."""
        self._spend()
        if depth > _MAX_DEPTH:
            raise UnusableSchema(f"it is nested deeper than {_MAX_DEPTH} levels")
        if isinstance(node, list):
            total = 0
            for each in node:
                total = self._bounded(total + self._schema(each, bases, depth + 1, met))
            return total
        if not isinstance(node, Mapping):
            return 1
        if not bases or _is_resource(node):
            bases = (*bases, node)
        total = 1
        for key, value in node.items():
            if key in _DATA:
                continue
            if key == "properties" and isinstance(value, Mapping):
                # Each describes another place of a value; for one place only the most expensive is visited.
                total += max([self._schema(each, bases, depth + 1, met) for each in value.values()], default=0)
            elif key in _MAPS and isinstance(value, Mapping):
                for each in value.values():
                    total = self._bounded(total + self._schema(each, bases, depth + 1, met))
            elif key in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(value, str):
                    total += self._reference(key, value, bases, depth + 1, met)
            elif key not in _DEFINITIONS and isinstance(value, (Mapping, list)):
                total += self._schema(value, bases, depth + 1, met)
            total = self._bounded(total)
        return total

    def _reference(self, keyword: str, reference: str, bases: Bases, depth: int, met: set[int]) -> int:
        targets = list(self._targets(keyword, reference, bases))
        if not targets:
            if _META_SCHEMA.fullmatch(reference) and not any("json-schema.org" in each for each in self._identities()):
                return _META_SCHEMA_NODES
            raise UnusableSchema("it has a reference that leads nowhere, or outside")
        return max(self._target(node, within, depth, met) for node, within in targets)

    def _target(self, node: Any, bases: Bases, depth: int, met: set[int]) -> int:
        key = id(node)
        self._targets_met[key] = node  # keeps the node alive, so that no other object gets its `id`
        if key in self._pending:
            self._recursive.setdefault(key, (node, bases))
            met.add(key)
            return 1
        known = self._known.setdefault(key, [])
        self._spend(1 + len(known))
        # A measured cost is too low if a reference back was counted as 1 and its target is not unfinished now.
        usable = [each for each in known if each.back <= self._pending]
        # A cost is too high if it has the full cost of a target that is unfinished now. After half of the steps, such a
        # cost is accepted, so that the count comes to an end.
        if self._steps < _MAX_STEPS // 2:
            usable = [each for each in usable if each.entered.isdisjoint(self._pending)]
        if usable:
            found = min(usable, key=lambda each: each.total)
        else:
            inside: set[int] = set()
            self._pending.add(key)
            total = self._schema(node, bases, depth, inside)
            self._pending.discard(key)
            inside.discard(key)
            found = _Measured(total, frozenset(inside & self._pending), frozenset(inside - self._pending))
            known.append(found)
        met |= found.back
        met |= found.entered
        met.add(key)
        return found.total

    def _targets(self, keyword: str, reference: str, bases: Bases) -> Iterator[tuple[Any, Bases]]:
        resource, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if resource:
            resource = _HERE.sub("", resource)
            # Compared by the last segment, since the base of a relative reference is not always known.
            identities = self._identities()
            if any(_AMBIGUOUS_IDENTITY.search(each) for each in (resource, *identities)):
                raise UnusableSchema("it has references to identities that may be written in several ways")
            assert self._resources is not None
            starts = [within for identity, _, within in self._resources if _last(identity) == _last(resource)]
        else:
            starts = [bases[: n + 1] for n in range(len(bases))]
        if keyword == "$recursiveRef":
            self._identities()
            yield from self._anchors.get("", ())
        if fragment.startswith("/") or not fragment:
            for within in starts:
                yield from follow_pointer(within, fragment)
        elif starts:
            self._identities()
            yield from self._anchors.get(fragment, ())

    def _identities(self) -> list[str]:
        """Return the identities of the document's resources. The first call searches the document."""
        if self._resources is None:
            self._resources = []
            stack: list[tuple[Any, Bases]] = [(self._root, ())]
            while stack:
                self._spend()
                node, bases = stack.pop()
                if isinstance(node, list):
                    stack.extend((each, bases) for each in node if isinstance(each, (Mapping, list)))
                    continue
                if not bases or _is_resource(node):
                    bases = (*bases, node)
                for keyword in ("$id", "id", "$anchor", "$dynamicAnchor"):
                    name = node.get(keyword)
                    if isinstance(name, str) and (name.startswith("#") or "nchor" in keyword):
                        self._anchors.setdefault(name.removeprefix("#"), []).append((node, bases))
                    elif isinstance(name, str) and name:
                        self._resources.append((_HERE.sub("", name), node, bases))
                if node.get("$recursiveAnchor") is True:
                    self._anchors.setdefault("", []).append((node, bases))
                stack.extend((each, bases) for each in node.values() if isinstance(each, (Mapping, list)))
        return [identity for identity, _, _ in self._resources]


def _size(schema: Any) -> int:
    """Return the amount to compile: one for each object, and one for each four members or items."""
    size, stack = 0, [schema] if isinstance(schema, (Mapping, list)) else []
    while stack and size <= 4 * MAX_EXPANDED_NODES:
        here = stack.pop()
        size += len(here) if isinstance(here, list) else len(here) + 4
        members = here if isinstance(here, list) else here.values()
        stack.extend(each for each in members if isinstance(each, (Mapping, list)))
    return size // 4


def _is_resource(node: Mapping[str, Any]) -> bool:
    return any(isinstance(node.get(keyword), str) for keyword in ("$id", "id"))


def _last(identity: str) -> str:
    return re.split("[/:]", identity.partition("#")[0].casefold())[-1]


def follow_pointer(bases: Bases, pointer: str) -> Iterator[tuple[Any, Bases]]:
    """Yield the node at a decoded JSON pointer, relative to the last of the bases, and its bases.

    Yield nothing if there is no such node.
    """
    node: Any = bases[-1]
    for key in keys_of(pointer):
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 8 and int(key) < len(node):
            node = node[int(key)]
        else:
            return
        if isinstance(node, Mapping) and _is_resource(node):
            bases = (*bases, node)
    yield node, bases
