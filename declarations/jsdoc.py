"""Descriptions and annotation keywords as comments. No text can end its comment early. Pure: no I/O.

Upstream servers are not trusted: a description may try to end its comment, to reverse the direction of the text, or to
hide words from a reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from declarations.untrusted_text import drop_hidden

MAX_TOOL_TEXT: Final = 640
MAX_PROPERTY_TEXT: Final = 240
MAX_VALUE_TEXT: Final = 80
MAX_TOOL_TEXT_ALONE: Final = 4_000
MAX_PROPERTY_TEXT_ALONE: Final = 2_000
"""Limits for a tool that is shown alone. A call may need the end of a long description."""

_PLAIN: Final = re.compile(r"[\x20-\x29\x2b-\x7e]*\Z")
_BLANKS: Final = re.compile(r"\s+")


def comment_line(text: str, limit: int = MAX_PROPERTY_TEXT) -> str:
    """Return `text` as one line of a comment of about `limit` characters. `…` marks a cut."""
    # Blanks are dropped, so twice the limit is read. The rest of a long text costs nothing.
    head = text[: 2 * limit]
    if not _PLAIN.match(head):
        head = _safe(head)
    if "  " in head or "\n" in head or "\t" in head:
        head = _BLANKS.sub(" ", head)
    return _cut(head.strip(), limit, whole=len(text) <= 2 * limit)


def comment_lines(text: str, limit: int = MAX_TOOL_TEXT) -> list[str]:
    """Return `text` as lines of a comment of about `limit` characters together.

    Blank lines are dropped. A line that begins in lower case continues the line before.
    """
    if len(text) <= limit and _PLAIN.match(text):
        stripped = text.strip()
        return [stripped] if stripped else []
    lines: list[str] = []
    for line in _safe(text[: 2 * limit]).split("\n"):
        words = " ".join(line.split())
        if lines and words[:1].islower() and not lines[-1].endswith(":"):
            lines[-1] += " " + words
        elif words:
            lines.append(words)
    short = _cut("\n".join(lines), limit, whole=len(text) <= 2 * limit)
    return short.split("\n") if short else []


def _safe(text: str) -> str:
    # Characters are dropped before `*/` is escaped, because dropping one can bring `*` and `/` together.
    return drop_hidden("\n".join(text.splitlines()), keep="\t\n").replace("*/", "*\\/")


def _cut(text: str, limit: int, *, whole: bool) -> str:
    if len(text) <= limit:
        return text if whole else text + "…"
    head = text[:limit]
    # Cut at the end of a word, unless the last word is very long.
    end = max(head.rfind(" "), head.rfind("\n"))
    return head[: end if end > limit - 40 else limit].rstrip() + "…"


def property_doc(schema: object, name: str = "", limit: int = MAX_PROPERTY_TEXT) -> str:
    """Return a line about a property: its description, `@default`, `@deprecated`, `@format`, bounds and examples.

    The line is empty for a schema without these keywords. Keywords of the wrong type are ignored.
    """
    if not isinstance(schema, Mapping) or _DESCRIBING.isdisjoint(schema):
        return ""
    description = schema.get("description")
    parts = []
    if type(description) is str:
        parts.append(comment_line(description, limit))
    else:
        title = schema.get("title")
        if type(title) is str and _letters(title) != _letters(name):
            parts.append(comment_line(title))
    for alternatives in ("anyOf", "oneOf"):
        branches = schema.get(alternatives)
        if isinstance(branches, list):
            parts.extend(_from_branches(branches, described=bool(parts)))
    parts.extend(_tags(schema))
    return " ".join(part for part in parts if part)


_BOUNDS: Final = (
    *("format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems"),
)
_DRAFT_04: Final = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
"""Bounds that a boolean makes exclusive in draft-04."""
_TAGS: Final = frozenset({*_BOUNDS, "default", "deprecated", "examples", "example"})
_DESCRIBING: Final = _TAGS | {"description", "title", "anyOf", "oneOf"}
# Generators write these bounds if the author has given none.
_NO_BOUND: Final = frozenset({2**53 - 1, 1 - 2**53, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)})


def _tags(schema: Mapping[str, Any]) -> list[str]:
    if _TAGS.isdisjoint(schema):
        return []
    tags = []
    if schema.get("deprecated") is True:
        tags.append("@deprecated")
    default = schema.get("default")
    # A default of null only means that the property is optional, which `?` shows.
    if default is not None:
        tags.append("@default " + _value(default))
    for keyword in _BOUNDS:
        value = schema.get(keyword)
        if value is None or isinstance(value, bool):
            continue
        if keyword in ("format", "pattern"):
            if type(value) is str and value:
                tags.append(f"@{keyword} {comment_line(value, MAX_VALUE_TEXT)}")
        elif isinstance(value, (int, float)) and value not in _NO_BOUND:
            exclusive = _DRAFT_04.get(keyword)
            if exclusive is not None and schema.get(exclusive) is True:
                keyword = exclusive
            tags.append(f"@{keyword} {_value(value)}")
    examples = schema.get("examples")
    if not isinstance(examples, list):
        examples = [schema["example"]] if "example" in schema else []
    tags.extend(f"@example {_value(example)}" for example in examples[:2])
    return tags


def _from_branches(branches: list[object], *, described: bool) -> list[str]:
    """Return the descriptions of constants in `anyOf` or `oneOf`, or the tags of the only branch that is not null."""
    shown = [branch for branch in branches[:50] if isinstance(branch, Mapping) and branch.get("type") != "null"]
    if len(shown) == 1:
        description = shown[0].get("description")
        text = [comment_line(description)] if type(description) is str and not described else []
        return text + _tags(shown[0])
    meanings = []
    for branch in shown:
        meaning = branch.get("description", branch.get("title"))
        if "const" in branch and type(meaning) is str:
            meanings.append(f"{_value(branch['const'])}: {comment_line(meaning, MAX_VALUE_TEXT)}")
    return ["; ".join(meanings)[: 2 * MAX_PROPERTY_TEXT]]


def _value(value: object) -> str:
    """Return a JSON value as short text. Strings have quotes, so that `"1"` differs from `1`."""
    if isinstance(value, str):
        value = value[: 2 * MAX_VALUE_TEXT]
    elif isinstance(value, int) and value.bit_length() > 1024:
        return "…"
    elif isinstance(value, (list, dict)) and not _small(value):
        return "[…]" if isinstance(value, list) else "{…}"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return "…"
    return comment_line(text, MAX_VALUE_TEXT)


def _small(value: list[object] | dict[str, object]) -> bool:
    """Return True if a container has few members, none of which is long or a container with members."""
    members = value if isinstance(value, list) else value.values()
    return len(value) <= 8 and not any(
        (isinstance(member, (list, dict)) and member) or (isinstance(member, str) and len(member) > MAX_VALUE_TEXT)
        for member in members
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:200].lower()))
