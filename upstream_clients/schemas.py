"""Compile the JSON Schemas that upstreams send, none of which is trusted.

A schema may name remote documents, hold patterns that take exponential time, or refer to itself so often that checking
one small value never ends. Such schemas give no check at all; nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsonschema_rs

    from upstream_clients.results import OutputCheck
    from upstream_clients.tools import JsonObject

MAX_EXPANDED_NODES = 50_000
"""Subschemas after following every local reference; a real schema of 77 kB has about 2,000."""

_MAX_COMPLAINT = 300


class UnusableSchema(Exception):
    """A schema that values cannot be checked against safely; the message says why, for a person."""


def is_legacy(schema: JsonObject) -> bool:
    """Return True if the schema is written in draft-07 or an older one; without `$schema` it is in 2020-12."""
    dialect = schema.get("$schema")
    return isinstance(dialect, str) and any(draft in dialect for draft in ("draft-04", "draft-06", "draft-07"))


def compile_schema(schema: JsonObject) -> jsonschema_rs.Validator:
    """Return a validator that fetches nothing and takes bounded time.

    Raises:
        UnusableSchema: the schema is invalid, refers to something outside itself, has patterns that do not match in
            linear time, or refers to itself too often.
    """
    import jsonschema_rs  # costs start-up time that a server without schemas to check never needs

    expanded_nodes(schema)
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(str(error)[:_MAX_COMPLAINT]) from None


_ROOT = "urn:codemode-mcp:schema"
_MAX_PARTS = 64


class SchemaParts:
    """Validators for the parts of a schema that compiles, each made when it is first asked for; a bounded number, that
    together take no more compiling than the largest schema."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[str, jsonschema_rs.Validator | None] = {}
        self._expansion = _Expansion(schema)
        self._left = MAX_EXPANDED_NODES

    def is_valid(self, pointer: str, value: object) -> bool | None:
        """Return True if the value fits the part at a JSON pointer (`/properties/a`); None where that cannot be
        told."""
        if pointer not in self._parts:
            self._parts[pointer] = self._compile(pointer) if len(self._parts) < _MAX_PARTS else None
        validator = self._parts[pointer]
        return None if validator is None else validator.is_valid(value)

    def _compile(self, pointer: str) -> jsonschema_rs.Validator | None:
        import jsonschema_rs

        try:
            self._left -= self._expansion.measure_part(pointer)
        except UnusableSchema:
            return None
        if self._left < 0:
            return None
        part: dict[str, Any] = {"$ref": f"{_ROOT}#{quote(pointer)}"}
        if "$schema" in self._schema:
            part["$schema"] = self._schema["$schema"]
        options = jsonschema_rs.RegexOptions()
        try:
            if self._registry is None:
                draft = jsonschema_rs.Draft7 if is_legacy(self._schema) else jsonschema_rs.Draft202012
                self._registry = jsonschema_rs.Registry([(_ROOT, dict(self._schema))], draft=draft)
            return jsonschema_rs.validator_for(
                part, registry=self._registry, offline=True, pattern_options=options, validate_formats=False
            )
        except (ValueError, jsonschema_rs.ReferencingError):
            return None


def compile_check(schema: JsonObject) -> OutputCheck | None:
    """Return a function that says what is wrong with a value, or `None` when the schema cannot be used safely."""
    try:
        validator = compile_schema(schema)
    except UnusableSchema:
        return None

    parts = SchemaParts(schema)

    def check(value: object) -> str | None:
        # Not `validate`: it makes every error of every alternative, each with copies, and remembers nothing on the way.
        try:
            return None if validator.is_valid(value) else _complaint(schema, parts, value)
        except ValueError:
            return "the value: cannot be checked"  # nested too deep, or with half a character

    return check


_MAX_DESCENT = 20
_TOLD = (
    "type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


def _complaint(schema: JsonObject, parts: SchemaParts, value: Any) -> str:
    """Return where a value does not fit and by which keyword, as far as that is easily told; nothing of the value
    itself."""
    here: Any = schema
    pointer = path = ""
    for _ in range(_MAX_DESCENT):
        if isinstance(reference := here.get("$ref"), str) and reference.startswith("#/") and "%" not in reference:
            found = next((node for node, _ in _follow((schema,), reference[1:])), None)
            if not isinstance(found, Mapping):
                break
            here, pointer = found, reference[1:]
            continue
        wrong = _first_wrong(here, pointer, parts, value)
        if wrong is None:
            break
        key, pointer, here = wrong
        path += f"/{key}"
        value = value[key]
    where = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path[:200])
    keyword = next((each for each in _TOLD if each in here and not _obeys(each, here[each], value)), "its schema")
    return f"{where or 'the value'}: does not fit {keyword}"


def _first_wrong(
    here: Mapping[str, Any], pointer: str, parts: SchemaParts, value: Any
) -> tuple[str | int, str, Mapping[str, Any]] | None:
    """Return the first member or item that does not fit what the schema says of it: its key, and its schema."""
    properties, items = here.get("properties"), here.get("items")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        for name, rule in properties.items():
            if name in value and isinstance(rule, Mapping):
                inside = f"{pointer}/properties/{name.replace('~', '~0').replace('/', '~1')}"
                if parts.is_valid(inside, value[name]) is False:
                    return name, inside, rule
    if isinstance(value, list) and isinstance(items, Mapping):
        for n, item in enumerate(value):
            if parts.is_valid(f"{pointer}/items", item) is False:
                return n, f"{pointer}/items", items
    return None


def _obeys(keyword: str, argument: Any, value: Any) -> bool:
    try:
        return bool(compile_schema({keyword: argument}).is_valid(value))
    except UnusableSchema:
        return True


def expanded_nodes(schema: JsonObject) -> int:
    """Return how many subschemas there are, or may be visited for one place in a value with references followed.

    jsonschema-rs remembers what it found at a place for references that lead back to where they stand, and for no
    others: so such a reference counts once wherever it stands, and its target once more.

    Raises:
        UnusableSchema: there are more than MAX_EXPANDED_NODES, or it cannot be told.
    """
    return _Expansion(schema).measure()


_MAX_NESTED = 200
_MAX_STEPS = 4 * MAX_EXPANDED_NODES
_META_SCHEMA = re.compile(r"https?://json-schema\.org/[\w/.-]+#?")
_META_SCHEMA_NODES = 1_000
_AMBIGUOUS_IDENTITY = re.compile(r"(^|[/:])\.|[%\\\s]|/#?$")
"""Identities that may name the same place as a differently written one."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_DATA = frozenset({"const", "enum", "default", "examples", "example", "required", "dependentRequired", "type"})

Bases = tuple[Mapping[str, Any], ...]


class _Measured(NamedTuple):
    """Result of following a reference, and the targets it led to: back to unfinished ones, and into others."""

    total: int
    back: frozenset[int]
    entered: frozenset[int]


class _Expansion:
    """Follows every reference of one document. Where it cannot be told which of several places one leads to, the most
    expensive counts; one that leads nowhere makes the schema unusable."""

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
        """Return the larger one of what there is to compile and what there is to visit."""
        size = self._bounded(_size(self._root))
        total = self._schema(self._root, (), 0, set())
        done: set[int] = set()
        while left := self._recursive.keys() - done:
            for key in left:
                done.add(key)
                total = self._bounded(total + self._target(*self._recursive[key], 0, set()))
        return max(size, total)

    def measure_part(self, pointer: str) -> int:
        """Return what there is to compile for the part at a pointer, in which nothing is percent-encoded."""
        self._pending.clear()
        self._known.clear()
        self._targets_met.clear()
        for node, within in _follow((self._root,), pointer):
            self._target(node, within, 0, set())
        total = 1
        for node in self._targets_met.values():
            size = _size(node)
            self._spend(size)
            total += size
        return total

    def _bounded(self, total: int) -> int:
        # A part that is too large makes the whole too large, so the count may stop.
        if total > MAX_EXPANDED_NODES:
            raise UnusableSchema(f"it expands to more than {MAX_EXPANDED_NODES} subschemas")
        return total

    def _spend(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise UnusableSchema("its references are too many to follow")

    def _schema(self, node: Any, bases: Bases, depth: int, met: set[int]) -> int:
        """Return a schema, or a list of them. `met` takes the targets of references that it meets."""
        self._spend()
        if depth > _MAX_NESTED:
            raise UnusableSchema(f"it is nested deeper than {_MAX_NESTED} levels")
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
                # Each speaks of another place.
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
        self._targets_met[key] = node
        if key in self._pending:
            self._recursive.setdefault(key, (node, bases))
            met.add(key)
            return 1
        known = self._known.setdefault(key, [])
        self._spend(1 + len(known))
        usable = [each for each in known if each.back <= self._pending]
        if self._steps < _MAX_STEPS // 2:  # from then on more than there is will do
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

    # references

    def _targets(self, keyword: str, reference: str, bases: Bases) -> Iterator[tuple[Any, Bases]]:
        resource, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if resource:
            # By the end of their names, since what it is relative to is another thing that cannot always be told.
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
                yield from _follow(within, fragment)
        elif starts:
            self._identities()
            yield from self._anchors.get(fragment, ())

    def _identities(self) -> list[str]:
        """Return the identities of the document's resources. The document is searched at the first question."""
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
                        self._resources.append((name, node, bases))
                if node.get("$recursiveAnchor") is True:
                    self._anchors.setdefault("", []).append((node, bases))
                stack.extend((each, bases) for each in node.values() if isinstance(each, (Mapping, list)))
        return [identity for identity, _, _ in self._resources]


def _size(schema: Any) -> int:
    """Return what there is to compile: one for each object, and for each four members and items."""
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


def _follow(bases: Bases, pointer: str) -> Iterator[tuple[Any, Bases]]:
    """Yield what a JSON pointer that is no longer percent-encoded leads to from the last of the bases, if anything."""
    node: Any = bases[-1]
    for segment in pointer.split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 8 and int(key) < len(node):
            node = node[int(key)]
        else:
            return
        if isinstance(node, Mapping) and _is_resource(node):
            bases = (*bases, node)
    yield node, bases
