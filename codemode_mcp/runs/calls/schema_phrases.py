"""Values, names and parts of schemas in words, and the problems of a value that messages list.

Neither schemas nor values are trusted. All phrases are short, on one line and without control characters, so that they
cannot look like another line of the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from codemode_mcp.base.strict_json import MAX_SAFE_INTEGER
from codemode_mcp.base.text import clip
from declarations.kinds import Document
from upstream_clients.json_values import pointer_part
from upstream_clients.schemas import SchemaParts, UnusableSchema, compile_schema, is_legacy

if TYPE_CHECKING:
    import jsonschema_rs


Path = tuple[str | int, ...]
"""Member names and item numbers that lead from the whole input to a value in it."""

LARGE = 40
"""Maximum number of values inside a value that does not count as large."""

MAX_EXPECTED = 100
"""Maximum characters of the words for an expected value."""

MAX_OPTIONS = 160
"""Maximum characters of a list of choices."""

_MAX_SEEN = 60
_MAX_NAMES = 360
_MAX_NAME = 60
_MAX_PATH = 240
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")


def path_text(path: Path) -> str:
    """Return a path as `input.labels[0]["odd name"]`. The middle of a very long path is left out."""
    text = "input"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if _is_word(part) else f"[{shown_name(part)}]"
    return text if len(text) <= _MAX_PATH else f"{text[: _MAX_PATH // 2]}…{text[-_MAX_PATH // 2 :]}"


def shown_name(name: str) -> str:
    """Return a name, in quotes unless it is a plain word."""
    return name if _is_word(name) else literal(name)


def listed_names(names: Sequence[str], limit: int = _MAX_NAMES) -> str:
    """Return the names that fit in a line, and the number of the others."""
    text = ""
    for n, name in enumerate(names):
        following = f"{', ' if n else ''}{shown_name(name)}"
        if n and len(text) + len(following) > limit:
            return f"{text} and {len(names) - n} more"
        text += following
    return text


def _is_word(name: str) -> bool:
    return len(name) <= _MAX_NAME and _IDENTIFIER.fullmatch(name) is not None


def literal(value: Any) -> str:
    """Return a constant as JSON, short and on one line. A long string is cut inside its quotes."""
    text = _json(value)
    if is_bigint(value) and text[-1].isdigit():
        text += "n"
    if isinstance(value, str) and len(text) > _MAX_SEEN:
        return text[: _MAX_SEEN - 2].rstrip("\\") + '…"'
    return clip(text, _MAX_SEEN)


def options(choices: Sequence[Any]) -> str:
    """Return the choices that fit in a line, as `"open" | "closed"`."""
    text = ""
    for n, choice in enumerate(choices):
        following = f"{' | ' if n else ''}{literal(choice)}"
        if n and len(text) + len(following) > MAX_OPTIONS:
            return f"{text} | … ({len(choices)} in all)"
        text += following
    return text or "nothing"


def seen(value: Any) -> str:
    """Return a value with its type: `number 3`, `string "x"`, `array of 12 items`."""
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {literal(value)}"
        case int() | float():
            return f"{'bigint' if is_bigint(value) else 'number'} {literal(value)}"
        case str():
            return f"string {bare(value)}"
        case list():
            return f"array {bare(value)}" if _is_short(value) else f"array of {counted(len(value), 'item')}"
        case _:
            return f"object {bare(value)}" if _is_short(value) else f"object of {counted(len(value), 'member')}"


def is_bigint(value: Any) -> bool:
    """Return True for an integer that is a bigint in programs."""
    return isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER


def bare(value: Any) -> str:
    """Return a value without its type. A long array or object is only described, as by `seen`."""
    if isinstance(value, str) and len(value) > _MAX_SEEN:
        return f"{literal(value)} ({len(value)} characters)"
    return literal(value) if not isinstance(value, list | dict) or _is_short(value) else seen(value)


def _is_short(value: list[Any] | dict[str, Any]) -> bool:
    members = list(value.values()) if isinstance(value, dict) else value
    if len(members) > 8 or any(isinstance(each, list | dict) and each for each in members):
        return False
    if any(isinstance(each, str) and len(each) > _MAX_SEEN for each in (*members, *value)):
        return False
    return len(_json(value)) <= _MAX_SEEN


def _json(value: Any) -> str:
    if isinstance(value, str) and len(value) > 2 * _MAX_SEEN:
        value = value[: 2 * _MAX_SEEN]
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a very large number"
    elif isinstance(value, list | dict) and is_large(value):
        return "a long array" if isinstance(value, list) else "a large object"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # it contains a number that Python refuses to print
        return "a large value"
    return text if text.isprintable() else json.dumps(value)


def one_line(text: str, limit: int) -> str:
    """Return text on one line. Characters that do not print, such as those that move a cursor, are replaced."""
    line = " ".join(text[: 4 * limit].split())
    return clip("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line), limit)


def pattern_text(text: str) -> str:
    """Return a regular expression on one line. Without line breaks, its spaces are unchanged."""
    return clip(text, MAX_EXPECTED) if text[:MAX_EXPECTED].isprintable() else one_line(text, MAX_EXPECTED)


def counted(count: float, thing: str) -> str:
    """Return `1 item`, `2 items`."""
    return f"{literal(count)} {thing}{'' if count == 1 else 's'}"


def either(texts: Iterable[str]) -> str:
    """Return alternatives as `string | null`, each once."""
    return " | ".join(dict.fromkeys(part for text in texts for part in text.split(" | ")))


def is_large(value: Any) -> bool:
    """Return True if a value contains more than `LARGE` other values. The count stops there."""
    left = LARGE
    level = [value]
    while level:
        following: list[Any] = []
        for each in level:
            if isinstance(each, list | dict):
                left -= len(each)
                if left < 0:
                    return True
                following.extend(each.values() if isinstance(each, dict) else each)
        level = following
    return False


# Problems of a value with a schema, and the order and form in which a message lists them.


THERE_ARE = "; there are "
"""The beginning of the list of declared names in a message. The list appears only once for each path."""

_MAX_ALIKE = 3
"""Maximum number of listed problems of one kind among the items of an array. Further ones are only counted."""


class Problem(Struct, frozen=True):
    """One problem of a value, at a path in it.

    Attributes:
        kind: "missing" for a required property, and "unknown" for an undeclared one: their paths end with the name of
            the property. "kind" for a value of the wrong type. "choice" for a value that is not among the choices.
        expected: a few words for a valid value, if known.
        near: the name that was probably meant, for "unknown".
    """

    path: Path
    text: str
    kind: Literal["missing", "unknown", "kind", "choice", "other"] = "other"
    expected: str = ""
    near: str | None = None


def merged(found: Iterable[Problem]) -> list[Problem]:
    """Return each problem once. The problem of a misspelt name replaces the problem of the missing name."""
    problems = list(dict.fromkeys(found))
    meant = {(*p.path[:-1], p.near): p for p in reversed(problems) if p.kind == "unknown" and p.near is not None}
    listed: list[Problem] = []
    placed: set[Problem] = set()
    for problem in problems:
        unknown = meant.get(problem.path) if problem.kind == "missing" else None
        if unknown is not None and unknown not in placed:
            placed.add(unknown)
            about = f"missing, {problem.expected}" if problem.expected else "missing"
            listed.append(
                structs.replace(unknown, text=did_you_mean(unknown.path[:-1], str(problem.path[-1]), f" ({about})"))
            )
        else:
            listed.append(problem)
    return _gathered(_names_listed_once(problem for problem in listed if problem not in placed))


def _names_listed_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    listed: set[tuple[Path, str]] = set()
    for problem in problems:
        text, _, names = problem.text.partition(THERE_ARE) if problem.kind == "unknown" else (problem.text, "", "")
        key = (problem.path[:-1], names)
        yield structs.replace(problem, text=text) if key in listed else problem
        if names:
            listed.add(key)


def _gathered(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems. Among the items of an array, only the first few of one kind are listed, with a count."""
    counts: dict[tuple[Any, ...], int] = {}
    listed: list[Problem] = []
    ends: dict[tuple[Any, ...], int] = {}
    for problem in problems:
        inside = next((n for n, part in enumerate(problem.path) if isinstance(part, int)), None)
        if inside is None:
            listed.append(problem)
            continue
        # Paths that differ only in the numbers of items have the same form.
        form = tuple(-1 if isinstance(part, int) else part for part in problem.path)
        key = (form, problem.kind, problem.expected or problem.text.partition(", got ")[0])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MAX_ALIKE:
            listed.append(problem)
        elif counts[key] == _MAX_ALIKE + 1:
            ends[key] = len(listed)
            listed.append(Problem(problem.path[:inside], ""))
    for key, n in ends.items():
        listed[n] = structs.replace(listed[n], text=f"{counts[key] - _MAX_ALIKE} more like the last")
    return listed


def no_such(path: Path) -> str:
    """Return the words for an undeclared name. The properties of the input itself are called arguments."""
    return f"no such {'property' if path else 'argument'}"


def did_you_mean(path: Path, near: str, about: str = "") -> str:
    return f"{no_such(path)}; did you mean {shown_name(near)}{about}?"


def distance(problems: Sequence[Problem], path: Path) -> tuple[int, int, int]:
    """Return the distance of a value from a branch, by the value's type, the number of problems, and their depth.

    The program most likely meant the branch with the smallest distance.
    """
    of_kind = any(p.path == path and p.kind in ("kind", "choice") for p in problems)
    return of_kind, len(problems), -min(len(p.path) for p in problems)


def with_others(problems: list[Problem], others: Sequence[str], path: Path) -> list[Problem]:
    """Return the problems of the branch that fits best. The first one also names the other branches."""
    named = clip(either(others), MAX_EXPECTED)
    first = problems[0]
    if "(or " in first.text:  # it already names inner alternatives, which are more likely meant
        return problems
    where = "" if first.path == path else f"{path_text(path)}: "
    return [structs.replace(first, text=f"{first.text} (or {where}{named})", kind="other"), *problems[1:]]


def lacks(branches: Sequence[Sequence[str]], path: Path) -> Problem:
    lacking = [" and ".join(shown_name(name) for name in names[:4]) for names in branches[:6]]
    more = ["…"] if len(branches) > 6 else []
    return Problem(path, f"missing {clip(', or '.join(dict.fromkeys([*lacking, *more])), MAX_OPTIONS)}")


# Parts of a JSON Schema: their references, and what they expect in words.


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


class Subschema(Struct, frozen=True):
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
                pointer += f"/{pointer_part(key)}"
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
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def list_in(schema: Any, keyword: str) -> list[Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, list) else []


def limit_words(kind: type, keyword: str, limit: str | float) -> str:
    """Return the words for a limit of values of a type: `at least 3 characters`."""
    words = LIMITS[kind][keyword]
    text = words.format(pattern_text(limit) if isinstance(limit, str) else literal(limit))
    return text + ("s" if limit != 1 and words.endswith(("character", "item", "member")) else "")
