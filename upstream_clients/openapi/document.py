"""OpenAPI documents as plain JSON values, the values of their keywords, and a budget. Pure: no I/O.

Documents are read into dicts and lists, and not into classes: a document may have one bad operation, which must not
hide the others, and its schemas are needed as JSON anyway.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from upstream_clients.schema_expansion import UnusableSchema, follow_pointer
from upstream_clients.schema_repair import compiled

MAX_REFERENCES: Final = 20
"""Maximum number of references that lead from one to the next."""


MAX_REFERENCE: Final = 1_000


class DocumentError(Exception):
    """A document that cannot be used. The message is a sentence for a person, without the address of the document."""


class UnsupportedError(Exception):
    """A part of a document that cannot be used. The message is the reason, as part of a sentence."""


class Document:
    """A document of OpenAPI 3.

    Attributes:
        root: the whole document.
        is_legacy: True for OpenAPI 3.0 and Swagger 2, whose schemas are not JSON Schema.
        budget: the work that the document may still take.
    """

    def __init__(self, root: Mapping[str, Any], *, is_legacy: bool, budget: Budget | None = None) -> None:
        self.root = root
        self.is_legacy = is_legacy
        self.budget = budget or Budget()
        self._targets: dict[str, Any] = {}

    def target(self, reference: str) -> Any:
        """Return the value that a reference leads to.

        Raises:
            UnsupportedError: it leads outside the document or nowhere.
            BudgetError: the document has taken too much work.
        """
        try:
            return self._targets[reference]
        except KeyError:
            self.budget.spend(1, 4 * min(len(reference), MAX_REFERENCE))
            found = self._targets[reference] = self._found(reference)
            return found

    def _found(self, reference: str) -> Any:
        if len(reference) > MAX_REFERENCE:
            raise UnsupportedError(f"its reference {shown(reference)} is longer than {MAX_REFERENCE} characters")
        if not reference.startswith("#"):
            raise UnsupportedError(f"it refers to another document, {shown(reference)}")
        for found, _ in follow_pointer((self.root,), unquote(reference[1:])):
            return found
        raise UnsupportedError(f"its reference {shown(reference)} leads nowhere")

    def follow(self, node: Any) -> Any:
        """Return a value, or the value at the end of its references.

        Raises:
            UnsupportedError: a reference leads outside the document, nowhere or in a circle.
            BudgetError: the document has taken too much work.
        """
        for _ in range(MAX_REFERENCES):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                return node
            self.budget.spend(1)
            node = self.target(node["$ref"])
        raise UnsupportedError(f"it has more than {MAX_REFERENCES} references in a row")


def shown(text: str) -> str:
    """Return a text of a document for a message: one short line of printable characters, in quotes."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:200])
    return repr(line if len(text) <= 100 else line[:97] + "...")


# The work and the memory that one document may take.
#
# A document of a few megabytes can have thousands of operations that share one list of parameters, one body or one
# answer. The work for all of them is the product of both numbers. So each part that is made or looked at is counted in
# steps. After a document has used all its steps, its further operations are skipped.
#
# A step takes at most half a microsecond. What stays in memory for an operation counts as more steps than its time. The
# number of steps depends on the document alone, so that the same document always has the same operations.


MAX_STEPS: Final = 12_000_000
"""Steps of one document. Kubernetes' in Swagger 2, which takes most of the published ones, takes 1.3 million."""

PER_ARGUMENT: Final = 30
"""Steps of an argument of an operation. It takes about 350 bytes."""
PER_DEFINITION: Final = 8
"""Steps of a definition in the schemas of one operation."""
PER_OPERATION: Final = 50
PER_SCHEMA: Final = 3
"""Steps of a schema that is converted, apart from its values."""
_CHARACTERS: Final = 8
"""Characters that are read in one step."""


class BudgetError(Exception):
    """A document that has used all its steps. The message is the reason for what is skipped, as part of a sentence.

    It is no `UnsupportedError`, after which an operation may still be a tool, without an output schema.
    """


class Budget:
    """The steps of one document that are left."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self, steps: int, characters: int = 0) -> None:
        """Count steps, and the characters of texts that are read.

        Raises:
            BudgetError: too few steps are left. Then all later calls fail as well.
        """
        self._left -= steps + characters // _CHARACTERS
        if self._left < 0:
            raise BudgetError("the document is too large: the operations before it have used the work that it may take")


# Values of the keywords of schemas, and texts of documents.
#
# A function of a keyword returns its value in the form of JSON Schema, or None if it cannot be used. Long values are
# not read to their end, since a document may repeat one of them at many places.


MAX_TEXT: Final = 1_000
MAX_OUTPUT_TEXT: Final = 240
"""Maximum length of the description of a schema, in requests and in answers."""
MAX_CHOICES: Final = 1_000
"""Maximum number of values in a choice. A longer one is dropped."""
MAX_VALUE: Final = 200
"""Maximum length, as JSON, of a default or an example."""

MAX_CHOICE_TEXT: Final = 20_000
"""Maximum number of characters of all values in a choice. A longer one is dropped."""
MAX_PATTERN: Final = 300
MAX_PATTERNS: Final = 500
"""Maximum length of a pattern, and maximum number of different ones in a document. Others are dropped."""

_TYPES: Final = {
    **{name: name for name in ("string", "number", "integer", "boolean", "object", "array", "null")},
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "long": "integer",
    "bool": "boolean",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "file": "string",
    "date": "string",
}
"""Types of JSON Schema, by the names in documents."""


def _type(value: Any) -> Any:
    if isinstance(value, str):
        return _TYPES.get(value)
    if isinstance(value, list):
        found = list(dict.fromkeys(_TYPES[each] for each in value if isinstance(each, str) and each in _TYPES))
        # An unknown type may be any.
        return found if found and len(found) == len(set(map(str, value))) else None
    return None


_TAG: Final = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|ol|p|pre|s|script|small|span|strong"
    r"|style|sub|sup|table|tbody|td|th|thead|tr|tt|u|ul)(?:\s[^<>]{0,500})?/?>",
    re.IGNORECASE,
)


_NO_TEXT: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")


def plain_text(value: Any, limit: int = MAX_TEXT) -> str | None:
    """Return a text of a document without HTML and control characters, and cut to a limit. None if it is no text."""
    if not isinstance(value, str):
        return None
    text = value[: 4 * limit]
    if "<" in text:
        text = _TAG.sub("", text)
    if "&" in text:
        text = html.unescape(text)
    if not text.isprintable():
        text = _NO_TEXT.sub(" ", text)
    text = text.strip()
    if len(text) <= limit and len(value) <= 4 * limit:
        return text or None
    return text[: limit - 1].rstrip() + "…"


def _title(value: Any) -> str | None:
    """Return a title that is more than a name."""
    return plain_text(value, 200) if isinstance(value, str) and " " in value[:200] else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _positive(value: Any) -> float | None:
    found = _number(value)
    return found if found is not None and found > 0 else None


def _count(value: Any) -> int | None:
    found = _number(value)
    return int(found) if found is not None and 0 <= found < 2**53 and int(found) == found else None


def small(value: Any, limit: int = MAX_VALUE) -> Any:
    """Return a value of JSON if it is not longer than a limit; else None."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not _is_within(value, limit):
        return None
    try:
        return value if len(json.dumps(value)) <= limit else None
    except (TypeError, ValueError, RecursionError):
        return None


def _is_within(value: Any, limit: int) -> bool:
    """Return False for a value that has more characters than a limit, without reading all of it."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        limit -= len(here) if isinstance(here, str) else 1
        if isinstance(here, (list, dict)):
            limit -= len(here)
            if limit >= 0:
                waiting.extend(here if isinstance(here, list) else [*here, *here.values()])
        if limit < 0:
            return False
    return True


def _choice(value: Any) -> Any:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_CHOICES or not _is_within(value, MAX_CHOICE_TEXT):
        return None
    try:
        distinct = {json.dumps(each): each for each in value}
    except (TypeError, ValueError, RecursionError):
        return None
    return list(distinct.values())


def _examples(value: Any) -> Any:
    if not isinstance(value, list):
        return None
    return [each for each in value[:2] if small(each) is not None] or None


def _names(value: Any) -> Any:
    if not isinstance(value, list):
        return None
    names = [each for each in value[:MAX_CHOICES] if isinstance(each, str) and len(each) <= MAX_VALUE]
    return list(dict.fromkeys(names)) or None


def _names_by_name(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    found = {name: _names(each) for name, each in list(value.items())[:MAX_CHOICES]}
    return {name: each for name, each in found.items() if each} or None


class Patterns:
    """The judge of the patterns of one document."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def is_usable(self, pattern: Any) -> bool:
        """Return True if a validator can compile a pattern that it matches in linear time."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            return False
        known = self._known.get(pattern)
        if known is None:
            known = len(self._known) < MAX_PATTERNS and _compiles(pattern)
            self._known[pattern] = known
        return known


_MAX_COMPILED: Final = 256 * 1024
"""Maximum size of a compiled pattern in bytes. One of 10 MB, the default of the engine, takes 300 ms."""


@lru_cache(maxsize=1_000)
def _compiles(pattern: str) -> bool:
    try:
        return bool(compiled({"pattern": pattern}, _MAX_COMPILED))
    except UnusableSchema:
        return False


KEYWORDS: Final[dict[str, Callable[[Any], Any]]] = {
    "type": _type,
    "title": _title,
    "format": _word,
    "contentEncoding": _word,
    "contentMediaType": _word,
    "enum": _choice,
    "const": lambda value: value if _choice([value]) else None,
    "default": small,
    "examples": _examples,
    "required": _names,
    "dependentRequired": _names_by_name,
    "deprecated": _boolean,
    "readOnly": _boolean,
    "writeOnly": _boolean,
    "uniqueItems": _boolean,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    "multipleOf": _positive,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
}
