"""Values of a failed program in few words, and their members. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.program.syntax import words

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_NAMES: Final = 12


MAX_NAME: Final = 40


MAX_TEXT: Final = 40


@dataclass(frozen=True, slots=True)
class Result:
    """The value that a call of the program gave.

    Attributes:
        names: expressions that call it and ids, each as `did_you_mean.plain` spells it.
        text: JSON.
    """

    names: frozenset[str]
    text: str


MAX_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True)
class Promised:
    """A promise of a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Loose:
    """A container that the program has made: its kind is known, its size is not.

    Attributes:
        elements: values that may be in an array; None for an object.
    """

    elements: tuple[Any, ...] | None


class _Undefined:
    """The type of `UNDEFINED`, which JSON does not have."""


UNDEFINED: Final = _Undefined()


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


def fits(value: Any, method: str | None) -> bool:
    """Tell if a value can have caused the error: it lacks the method, or cannot be iterated."""
    if value is UNDEFINED or value is None:
        return method is None
    kind: type = list if isinstance(value, Loose) and value.elements is not None else type(value)
    if method is None:
        return kind not in (list, str)
    return method not in _METHODS.get(kind, ())


def described(name: str, value: Any) -> str:
    if isinstance(value, Promised):
        return f"{name} is a promise: await it"
    unwrapped = unwrap_value(value) if _is_result(value) else UNDEFINED
    unwrap = f"unwrap({name.removeprefix('await ') if name.count('(') == 0 else '...'})"
    more = "" if unwrapped is UNDEFINED else f"; {unwrap} is {_kind(unwrapped)}"
    return f"{name or 'what it was read of'} is {_kind(value)}{more}"


def _kind(value: Any) -> str:
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
    """Return a member, or UNDEFINED; raises LookupError where that cannot be told."""
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
    """Tell if a key is the number of an element; Python refuses to read thousands of digits."""
    return key.isdecimal() and len(key) < 10


def _is_result(value: Any) -> bool:
    """Tell if a value is the result of a call, as MCP has it."""
    return isinstance(value, dict) and isinstance(value.get("content"), list) and set(value) <= _OF_RESULTS


_OF_RESULTS: Final = words("content structuredContent isError _meta resultType")


def unwrap_value(value: Any) -> Any:
    """Return what `unwrap` gives for a result; UNDEFINED where it throws."""
    if not isinstance(value, dict) or value.get("isError") is True:
        return UNDEFINED
    if value.get("structuredContent") is not None:
        return value["structuredContent"]
    content = value.get("content")
    if not isinstance(content, list):
        return UNDEFINED
    texts = [
        each["text"]
        for each in content
        if isinstance(each, dict) and each.get("type") == "text" and isinstance(each.get("text"), str)
    ]
    if not texts:
        return content
    text = "\n".join(texts)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def elements(value: Any) -> Sequence[Any]:
    if isinstance(value, Loose):
        return value.elements or ()
    return value[:MAX_CANDIDATES] if isinstance(value, list) else ()


def is_missing(value: Any, key: str) -> bool:
    try:
        return member(value, key) in (UNDEFINED, None)
    except LookupError:
        return False


def parsed(value: Any) -> list[Any]:
    try:
        return [json.loads(value)] if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return []
