"""The differences between two definitions of a tool, prompt or template, word by word, for a person. Pure.

A server chooses its texts, and could try to hide a change from the person who decides about it. So every character that
misleads is escaped, and a long run of blanks is shown as its length: it could push the rest out of sight.

Definitions that are not equal are never shown alike. So a member `0` of an object is told from the first item of a
list, a string that reads as another JSON value has quotation marks, and if two values would look the same, both are
shown as JSON in ASCII.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from codemode_mcp.rules.trust.items import canonical_json
from declarations.untrusted_text import count_blanks, escape_look_alikes, escape_misleading, json_escape
from upstream_clients.json_values import pointer_part

if TYPE_CHECKING:
    from codemode_mcp.rules.trust.comparison import ItemReport
    from upstream_clients.tools import JsonObject

MAX_CHANGED_WORDS: Final = 600
"""Changed words of one definition that are found one by one. Further texts are shown as a whole, the old one before the
new one. The time of a comparison grows with the square of this number."""

MAX_COMPARED_WORDS: Final = 20_000
"""Words of two texts, apart from the same beginning and end, that are compared one by one."""

_CONTEXT: Final = 80
"""Characters of unchanged text that `shortened` keeps on each side of a change."""

_TEXT_KEYS: Final = frozenset({"title", "description", "instructions", "name", "$comment"})
"""Keys whose strings are shown without quotation marks, unless they could be taken for another value."""

_LIKE_ESCAPE: Final = re.compile(r"\\[nux]")
"""A part of a text that could be taken for the escape of a character that is not shown."""

_LIKE_PUNCTUATION: Final = str.maketrans(
    {
        letter: character
        for character, letters in {
            "-": "\u2010\u2012\u2013\u2014\u2015\u2212\u2043",
            "'": "\u2018\u2019\u201b\u2032\u2035\u02b9\u02bb\u02bc\u02bd",
            '"': "\u201c\u201d\u201f",
            "/": "\u2044\u2215\u29f8",
            "\\": "\u2216\u29f5",
            ",": "\u201a",
            ":": "\u2236\ua789\u02d0",
            "*": "\u204e\u2217",
            "|": "\u01c0\u2223",
            "~": "\u223c",
            "<": "\u2039",
            ">": "\u203a",
        }.items()
        for letter in letters
    }
)
"""Punctuation that looks like ASCII, after normalization, and that of ASCII."""

_Path = tuple[str | int, ...]
"""The names of members and the positions in lists that lead to a value."""

_FIRST_KEYS: Final = ("name", "title", "description")

_WORD: Final = re.compile(r"\w+|[^\S\n]+|\n|[^\w\s]")
_LIST_WORD: Final = re.compile(rf'"(?:[^"\\]|\\.)*"|{_WORD.pattern}')


class Part(Struct, frozen=True):
    """A stretch of a text.

    Attributes:
        change: `omitted` is a note about unchanged text that is not shown.
        text: the text with misleading characters escaped. It may have line breaks.
    """

    change: Literal["kept", "removed", "added", "omitted"]
    text: str


class ValueDiff(Struct, frozen=True):
    """The difference between two values at the same place of two definitions.

    Attributes:
        where: the JSON pointer (RFC 6901) of the value, such as `/inputSchema/properties/title/description`, with
            misleading characters escaped. A name of digits has quotation marks: `/inputSchema/properties/"0"/type`.
        parts: the text of both values, in reading order.
    """

    where: str
    parts: tuple[Part, ...]


def differences_of(report: ItemReport) -> tuple[ValueDiff, ...] | None:
    """Return the differences between the accepted and the present definition; None if they cannot be shown.

    An item that cannot be shown cannot be accepted. An accepted definition that is not stored counts as none.
    """
    accepted, present = report.accepted, report.present
    if not report.is_comparable or (present is not None and present.definition is None):
        return None
    before, after = (None if each is None else each.definition for each in (accepted, present))
    differences = compare_definitions(before, after)
    is_other = accepted is None or present is None or accepted.digest != present.digest
    return differences if differences or not is_other or (before, after) == (None, None) else None


def compare_definitions(accepted: JsonObject | None, present: JsonObject | None) -> tuple[ValueDiff, ...]:
    """Return the differences between two definitions: titles and descriptions first, removed values last.

    Differences without meaning, such as the order of `required`, are left out.

    Args:
        accepted: the definition that a person has accepted; None if the item is new.
        present: the definition that the server lists; None if the item is removed.
    """
    before, after = dict(_leaves(_ordered(accepted))), dict(_leaves(_ordered(present)))
    differences = []
    limit = MAX_CHANGED_WORDS
    for path in [*after, *(path for path in before if path not in after)]:
        old, new = before.get(path), after.get(path)
        if old != new:
            is_list = path[-1] not in _TEXT_KEYS and (new or old or "").startswith("[")
            # Before words are compared, since a part of a host does not show that it is one.
            first, second = (escape_look_alikes(each or "", json_escape) for each in (old, new))
            parts, changed = _compared(first, second, _LIST_WORD if is_list else _WORD, limit)
            limit = max(0, limit - changed)
            if old and new and (old[0] == '"') != (new[0] == '"'):
                parts = Part("removed", _visible(old)), Part("added", _visible(new))  # a text, and something else
            if _looks_same(parts):
                parts = _in_ascii(old, new)
            differences.append(ValueDiff(_pointer(path), parts))
    return tuple(differences)


def _looks_same(parts: Iterable[Part]) -> bool:
    """Return True if both texts would look the same to a reader: other alphabets, accents that are combined or not."""
    old, new = (
        _look_of("".join(part.text for part in parts if part.change in ("kept", change)))
        for change in ("removed", "added")
    )
    return old == new


def _look_of(text: str) -> str:
    """Return one text for all texts that look the same."""
    return unicodedata.normalize("NFKC", text).translate(look_alikes()).translate(_LIKE_PUNCTUATION)


@cache
def look_alikes() -> Mapping[int, str]:
    """Return letters that look like Latin ones, and those, for `str.translate`."""
    table = tomllib.loads(Path(__file__).with_name("look_alikes.toml").read_text("utf-8"))
    return {ord(letter): latin for latin, letters in table.items() for letter in letters}


def _in_ascii(old: str | None, new: str | None) -> tuple[Part, ...]:
    removed = () if old is None else (Part("removed", _visible(json.dumps(old))),)
    return removed if new is None else (*removed, Part("added", _visible(json.dumps(new))))


def _compared(old: str, new: str, word: re.Pattern[str], limit: int) -> tuple[tuple[Part, ...], int]:
    """Return the parts of two texts, and how many words are changed.

    Args:
        limit: the number of changed words up to which words are compared one by one.
    """
    before, after = word.findall(old), word.findall(new)
    start = _common_length(before, after)
    first, second = before[start:], after[start:]
    end = _common_length(first[::-1], second[::-1])
    first, second = first[: len(first) - end], second[: len(second) - end]
    changed = len(first) + len(second)
    parts = [("kept", before[:start])]
    at_first = at_second = 0
    for from_first, from_second, length in _common_runs(first, second, limit):
        if all(each.isspace() and each != "\n" for each in first[from_first : from_first + length]):
            continue  # a phrase that is replaced reads better as a whole than word by word
        parts.append(("removed", first[at_first:from_first]))
        parts.append(("added", second[at_second:from_second]))
        parts.append(("kept", first[from_first : from_first + length]))
        at_first, at_second = from_first + length, from_second + length
        changed -= 2 * length
    parts.append(("removed", first[at_first:]))
    parts.append(("added", second[at_second:]))
    parts.append(("kept", before[len(before) - end :]))
    return tuple(Part(change, _visible("".join(words))) for change, words in _joined(parts)), changed


def shortened(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a difference with long unchanged text left out. Everything that changed stays."""
    shown: list[Part] = []
    for index, part in enumerate(parts):
        before = _CONTEXT if index else 0
        after = _CONTEXT if index < len(parts) - 1 else 0
        omitted = len(part.text) - before - after
        if part.change != "kept" or omitted <= _CONTEXT:
            shown.append(part)
            continue
        shown += [
            Part("kept", part.text[:before]),
            Part("omitted", f"… {omitted:,} unchanged characters …"),
            Part("kept", part.text[len(part.text) - after :]),
        ]
    return tuple(part for part in shown if part.text)


def _ordered(definition: JsonObject | None) -> JsonObject:
    """Return the definition in its canonical form, with its own texts first. `{}` stands for none."""
    if definition is None:
        return {}
    with suppress(RecursionError, ValueError):
        definition = json.loads(canonical_json(definition))
    first = [key for key in _FIRST_KEYS if key in definition]
    return {key: definition[key] for key in dict.fromkeys([*first, *definition])}


def _leaves(definition: JsonObject) -> Iterator[tuple[_Path, str]]:
    """Yield the path and the text of each value that has no members. Not recursive: servers may nest deeply."""
    pending: list[tuple[_Path, Any]] = [((), definition)] if definition else []
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping) and value:
            pending += reversed([((*path, key), each) for key, each in value.items()])
        elif isinstance(value, list | tuple) and any(isinstance(each, Mapping | list | tuple) for each in value):
            pending += reversed([((*path, index), each) for index, each in enumerate(value)])
        else:
            yield path, _text_of(path[-1] if path else "", value)


def _text_of(key: str | int, value: Any) -> str:
    if isinstance(value, str) and key in _TEXT_KEYS and _is_plain(value):
        return value
    if isinstance(value, list | tuple):
        value = list(value)
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """Return True if a text cannot be taken for another JSON value, or for a text with escapes."""
    if not text or text[0] == '"' or _LIKE_ESCAPE.search(text):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _pointer(path: Iterable[str | int]) -> str:
    shown = "".join(f"/{pointer_part(_pointer_part(each))}" for each in path)
    return _visible(shown).replace("\n", "\\n")


def _pointer_part(part: str | int) -> str:
    """Return a part of a pointer. A name that could be taken for a position or an escape has quotation marks.

    One that could be taken for another name is written as JSON in ASCII.
    """
    if isinstance(part, int):
        return str(part)
    if not part.isascii() and (_look_of(part).isascii() or not unicodedata.is_normalized("NFC", part)):
        return json.dumps(part)
    is_unclear = part[:1] == '"' or part.isdecimal() or _LIKE_ESCAPE.search(part)
    return json.dumps(part, ensure_ascii=False) if is_unclear else part


def _visible(text: str) -> str:
    """Return a text in which every misleading character is escaped. Up to two line breaks in a row stay."""
    return "\n".join(escape_misleading(line, json_escape) for line in count_blanks(text).split("\n"))


def _joined(parts: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[Any, list[str]]]:
    """Yield the parts that have words. Adjacent parts of the same kind are joined."""
    for change, group in groupby((part for part in parts if part[1]), key=itemgetter(0)):
        yield change, [word for _, words in group for word in words]


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length


class _Run(Struct, frozen=True):
    """A run of common words on a path of `_common_runs`, with the runs before it."""

    previous: _Run | None
    old: int
    new: int
    length: int


def _common_runs(old: Sequence[str], new: Sequence[str], limit: int) -> list[tuple[int, int, int]]:
    """Return the runs of common words as their starts in both texts and their lengths, for the fewest changed words.

    This is the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations" (1986). Return no run if
    more than `limit` words differ. `difflib` has no such limit: its time is cubic for hostile texts.
    """
    if len(old) + len(new) > MAX_COMPARED_WORDS:
        return []
    reached: dict[int, tuple[int, _Run | None]] = {1: (0, None)}
    for changes in range(min(limit, len(old) + len(new)) + 1):
        for diagonal in range(-changes, changes + 1, 2):
            below, above = reached.get(diagonal + 1), reached.get(diagonal - 1)
            if above is None or (diagonal != changes and below is not None and above[0] < below[0]):
                if below is None:
                    continue
                at, run = below
            else:
                at, run = above[0] + 1, above[1]
            if at > len(old) or at - diagonal > len(new):
                continue
            start = at
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            if at > start:
                run = _Run(run, start, start - diagonal, at - start)
            reached[diagonal] = at, run
            if at == len(old) and at - diagonal == len(new):
                return _unwound(run)
    return []


def _unwound(run: _Run | None) -> list[tuple[int, int, int]]:
    runs = []
    while run is not None:
        runs.append((run.old, run.new, run.length))
        run = run.previous
    return runs[::-1]
