"""Short phrases for values, names and paths in messages.

Neither schemas nor values are trusted. All phrases are short, on one line and without control characters, so that they
cannot look like another line of the message.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import MAX_SAFE_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, the last one `…` if the text is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


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
