"""Parts of a JSON Schema: their references, and what they expect in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.phrases import MAX_EXPECTED, clip, either, literal, one_line, options, pattern_text, shown_name
from declarations.references import Document
from upstream_clients.schemas import SchemaParts, UnusableSchema, compile_schema, is_legacy

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsonschema_rs

_MAX_CACHED = 1_000
_MAX_REFERENCES = 5

_MAX_NOTE = 80
"""Maximum characters of a description in a message."""

_MAX_DEPTH = 4
"""Maximum levels of a schema that are put into words."""


_NUMBER_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
LIMITS: dict[type, dict[str, str]] = {
    int: _NUMBER_LIMITS,
    float: _NUMBER_LIMITS,
    str: {"minLength": "at least {} character", "maxLength": "at most {} character", "pattern": "a match of /{}/"},
    list: {"minItems": "at least {} item", "maxItems": "at most {} item", "uniqueItems": "no two equal items"},
    dict: {"minProperties": "at least {} member", "maxProperties": "at most {} member"},
}
"""Keywords that limit a value, by the type of the value, and the words for each limit."""


@dataclass(frozen=True, slots=True)
class Subschema:
    """A part of a schema.

    Attributes:
        base: the resource to which its references are relative.
        pointer: its JSON pointer from the root; None if unknown.
    """

    schema: Any
    base: Mapping[str, Any]
    pointer: str | None


class Subschemas:
    """The subschemas of one schema, which must compile: their references, and what they expect in words.

    Attributes:
        root: the schema itself.
        legacy: True if the schema is of a draft before 2019-09.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._document = Document(schema)
        self.root = Subschema(schema, schema, "")
        self._expected: dict[tuple[int, int], str] = {}
        self._single: dict[tuple[str, Any], jsonschema_rs.Validator | None] = {}
        self._parts = SchemaParts(schema)
        self.legacy = is_legacy(schema)

    def under(self, sub: Subschema, *keys: str | int) -> Subschema:
        """Return the subschema at these keys, which must exist."""
        schema, base, pointer = sub.schema, sub.base, sub.pointer
        for key in keys:
            schema = schema[key]
            if pointer is not None:
                pointer += "/" + str(key).replace("~", "~0").replace("/", "~1")
        if isinstance(schema, Mapping) and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            base, pointer = schema, None  # `$id` begins a resource, to which references in it are relative
        return Subschema(schema, base, pointer)

    def target(self, sub: Subschema) -> Subschema | None:
        """Return the target of a `$ref`; None if there is no `$ref`, or if it cannot be resolved."""
        reference = sub.schema.get("$ref") if isinstance(sub.schema, Mapping) else None
        if not isinstance(reference, str):
            return None
        resolved = self._document.resolve(reference, sub.base)
        if resolved is None:
            return None
        local = reference == "#" or reference.startswith("#/")
        pointer = reference[1:] if local and sub.base is self.root.schema and "%" not in reference else None
        return Subschema(resolved.schema, resolved.base, pointer)

    def followed(self, sub: Subschema) -> Iterator[Mapping[str, Any]]:
        """Yield the schema of a subschema and of the next few references, as long as these are objects."""
        following: Subschema | None = sub
        for _ in range(_MAX_REFERENCES):
            if following is None or not isinstance(following.schema, Mapping):
                return
            yield following.schema
            following = self.target(following)

    def described(self, sub: Subschema) -> str:
        """Return the description or title of a subschema, or of one that it refers to, on one line."""
        texts = (schema.get(key) for schema in self.followed(sub) for key in ("description", "title"))
        return next((one_line(text, _MAX_NOTE) for text in texts if isinstance(text, str) and text.strip()), "")

    def expected(self, sub: Subschema, depth: int = 0) -> str:
        """Return a few words for the values of a subschema: `string`, `"open" | "closed"`, `array of integer`."""
        key = (id(sub.schema), depth)  # the id stays valid: the subschema lives as long as this object
        if key not in self._expected:
            if len(self._expected) >= _MAX_CACHED:
                self._expected.clear()
            self._expected[key] = self._in_words(sub, depth)
        return self._expected[key]

    def _in_words(self, sub: Subschema, depth: int) -> str:
        schema = sub.schema
        if schema is False:
            return "nothing"
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return "any value"
        choices = choices_of(schema)
        if choices is not None:
            return literal(schema["const"]) if "const" in schema else options(self.typed(schema, choices))
        names = schema.get("type")
        if isinstance(names, str | list):
            listed = names[:7] if isinstance(names, list) else [names]
            return clip(either(self._kind(str(name), sub, depth) for name in listed), MAX_EXPECTED)
        target = self.target(sub)
        if target is not None:
            return self.expected(target, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = list_in(schema, keyword)
            if branches:
                shown = [self.expected(self.under(sub, keyword, n), depth + 1) for n in range(len(branches[:8]))]
                more = [f"{len(branches) - 8} more"] if len(branches) > 8 else []
                return clip(either([*shown, *more]), MAX_EXPECTED)
        for n in range(len(list_in(schema, "allOf")[:8])):
            text = self.expected(self.under(sub, "allOf", n), depth + 1)
            if text != "any value":
                return text
        if "properties" in schema or "required" in schema:
            return self._kind("object", sub, depth)
        return self._kind("array", sub, depth) if "items" in schema else "any value"

    def _kind(self, name: str, sub: Subschema, depth: int) -> str:
        schema = sub.schema
        if name == "array" and isinstance(schema.get("items"), Mapping):
            items = self.expected(self.under(sub, "items"), depth + 1)
            return "array" if items == "any value" else f"array of {f'({items})' if ' | ' in items else items}"
        if name == "object":
            names, required = list(islice(dict_in(schema, "properties"), 5)), list_in(schema, "required")[:5]
            named = [str(each) for each in required] or names
            if not named:
                return "object"
            more = ", …" if len(names) > len(named[:4]) else ""
            return f"object {{ {', '.join(map(shown_name, named[:4]))}{more} }}"
        if name == "string" and isinstance(schema.get("format"), str):
            return f"string ({one_line(schema['format'], 30)})"
        return one_line(name, 20)

    def verdict(self, sub: Subschema, value: Any) -> bool | None:
        """Return the library's verdict: True if a value fits a subschema; None if the library cannot tell."""
        return None if sub.pointer is None else self._parts.is_valid(sub.pointer, value)

    def is_of(self, names: Any, value: Any) -> bool:
        """Return True if a value has one of the types. An unknown type counts as the type of every value."""
        names = names if isinstance(names, list) else [names]
        return any(not isinstance(name, str) or self.obeys("type", name, value) for name in names)

    def typed(self, schema: Mapping[str, Any], choices: list[Any]) -> list[Any]:
        """Return the listed values that have the type of their schema; all of them if none has."""
        return [each for each in choices if "type" not in schema or self.is_of(schema["type"], each)] or choices

    def obeys(self, keyword: str, argument: str | float, value: Any) -> bool:
        """Return the library's verdict on a schema with only this keyword. True if the library refuses the schema."""
        key = (keyword, argument)
        if key not in self._single:
            if len(self._single) >= _MAX_CACHED:
                self._single.clear()
            try:
                self._single[key] = compile_schema({keyword: argument})
            except UnusableSchema:
                self._single[key] = None
        validator = self._single[key]
        return validator is None or validator.is_valid(value)


def same(a: Any, b: Any) -> bool:
    """Return True if two values are equal in JSON, where 1 equals 1.0 but not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def choices_of(schema: Any) -> list[Any] | None:
    """Return the values that a schema lists with `const` or `enum`; None if it lists none."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else None


def choices_with_null(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists. A schema whose type is null lists null."""
    return [None] if schema.get("type") == "null" else choices_of(schema)


def dict_in(schema: Any, keyword: str) -> dict[str, Any]:
    """Return the object under a keyword, or an empty one."""
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def list_in(schema: Any, keyword: str) -> list[Any]:
    """Return the array under a keyword, or an empty one."""
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, list) else []


def limit_words(kind: type, keyword: str, limit: str | float) -> str:
    """Return the words for a limit of values of a type: `at least 3 characters`."""
    words = LIMITS[kind][keyword]
    text = words.format(pattern_text(limit) if isinstance(limit, str) else literal(limit))
    return text + ("s" if limit != 1 and words.endswith(("character", "item", "member")) else "")
