"""Short descriptions of the values of a failed program, and their members. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.json_text import result_text
from codemode_mcp.program.syntax import words

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_NAMES: Final = 12
"""Maximum number of member names in a description."""

MAX_NAME: Final = 40
"""Maximum number of characters of a member name."""

MAX_TEXT: Final = 40
"""Maximum number of characters of a string in a description."""

MAX_CANDIDATES: Final = 8
"""Maximum number of values that an expression may have had."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call of the program.

    Attributes:
        names: the ids of the tool and the expressions that call it, spelled by `did_you_mean.normalize_name`.
        text: the result as JSON.
        path: the expression that calls the tool, for messages.
    """

    names: frozenset[str]
    text: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """A result of a tool that is no longer known. `path`: the expression that calls the tool."""

    path: str


@dataclass(frozen=True, slots=True)
class Promised:
    """A promise of a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Loose:
    """An array or object that the program has created. Its members are unknown, since the program may change them.

    Attributes:
        elements: values that may be in the array; None for an object.
    """

    elements: tuple[Any, ...] | None


class _Undefined:
    """The type of `UNDEFINED`."""


UNDEFINED: Final = _Undefined()
"""JavaScript's `undefined`, which JSON lacks."""


_METHODS: Final[dict[type, frozenset[str]]] = {
    list: words(
        "at concat copyWithin entries every fill filter find findIndex findLast findLastIndex flat flatMap forEach "
        "includes indexOf join keys lastIndexOf map pop push reduce reduceRight reverse shift slice some sort splice "
        "toLocaleString toReversed toSorted toSpliced toString unshift values with"
    ),
    str: words(
        "at charAt charCodeAt codePointAt concat endsWith includes indexOf lastIndexOf localeCompare match matchAll "
        "normalize padEnd padStart repeat replace replaceAll search slice split startsWith substring toLowerCase "
        "toUpperCase toLocaleLowerCase toLocaleUpperCase toString trim trimEnd trimStart valueOf substr"
    ),
}


def can_cause_error(value: Any, method: str | None) -> bool:
    """Return True if a value lacks a method or, for None, cannot be iterated."""
    if value is UNDEFINED or value is None:
        return method is None
    kind: type = list if isinstance(value, Loose) and value.elements is not None else type(value)
    if method is None:
        return kind not in (list, str)
    return method not in _METHODS.get(kind, ())


def describe_value(name: str, value: Any) -> str:
    """Describe the value of an expression, as in `r is an object with: content`."""
    if isinstance(value, Promised):
        return f"{name} is a promise: await it"
    unwrapped = unwrap_value(value) if _is_result(value) else UNDEFINED
    unwrap = f"unwrap({name.removeprefix('await ') if name.count('(') == 0 else '...'})"
    more = "" if unwrapped is UNDEFINED else f"; {unwrap} is {kind_of(unwrapped)}"
    return f"{name or 'the object'} is {kind_of(value)}{more}"


def kind_of(value: Any) -> str:
    """Describe a value, as in `an object with: content (array)`."""
    match value:
        case _Undefined():
            return "undefined"
        case None:
            return "null"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"a string: {json.dumps(value)}" if len(value) <= MAX_TEXT else f"a string: {_beginning(value)}"
        case Loose():
            return "an object" if value.elements is None else "an array"
        case list():
            objects = f" objects with: {_names(value[0])}" if value and isinstance(value[0], dict) else ""
            return f"an array of {len(value)}{objects}"
        case dict():
            return f"an object with: {_names(value)}" if value else "an object without members"
    return "something else"


def _beginning(text: str) -> str:
    return json.dumps(text[:MAX_TEXT])[:-1] + '..."'


def _names(value: dict[str, Any]) -> str:
    shown = []
    for name in list(value)[:MAX_NAMES]:
        short = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
        written = short if re.fullmatch(r"[A-Za-z_$][\w$]*", short) else json.dumps(short)
        shown.append(f"{written} (array)" if isinstance(value[name], list) else written)
    return ", ".join(shown) + (", ..." if len(value) > MAX_NAMES else "")


def member(value: Any, key: str) -> Any:
    """Return a member of a value, or UNDEFINED. Raises `LookupError` if it is unknown."""
    match value:
        case dict():
            return value.get(key, UNDEFINED)
        case list() | str() if key == "length":
            return len(value)
        case list() | str() if key.isdecimal():
            return value[int(key)] if is_index(key) and int(key) < len(value) else UNDEFINED
        case list() | str() if key in _METHODS[type(value)]:
            raise LookupError(key)
        case list() | str() | int() | float():
            return UNDEFINED
    raise LookupError(key)


def is_index(key: str) -> bool:
    """Return True if a key is an index. Python does not parse thousands of digits."""
    return key.isdecimal() and len(key) < 10


def _is_result(value: Any) -> bool:
    """Return True if a value is a result of MCP's `tools/call`."""
    return isinstance(value, dict) and isinstance(value.get("content"), list) and set(value) <= RESULT_MEMBERS


RESULT_MEMBERS: Final = words("content structuredContent isError _meta resultType")


def unwrap_value(value: Any) -> Any:
    """Return the value of `unwrap` for a result; UNDEFINED if it throws."""
    if not isinstance(value, dict) or value.get("isError") is True:
        return UNDEFINED
    if value.get("structuredContent") is not None:
        return value["structuredContent"]
    content = value.get("content")
    if not isinstance(content, list):
        return UNDEFINED
    text = result_text(content)
    if text is None:
        return content
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def elements(value: Any) -> Sequence[Any]:
    """Return some elements of an array; none for other values."""
    if isinstance(value, Loose):
        return value.elements or ()
    return value[:MAX_CANDIDATES] if isinstance(value, list) else ()


def is_there(value: Any, key: str) -> bool:
    """Return True if an object has a member."""
    return isinstance(value, dict) and key in value


def is_missing(value: Any, key: str) -> bool:
    try:
        return member(value, key) in (UNDEFINED, None)
    except LookupError:
        return False


def parsed(value: Any) -> list[Any]:
    """Return the value of `JSON.parse` in a list, which is empty if it throws."""
    try:
        return [json.loads(value)] if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return []
