"""Texts of a definition that a server lists: each with its place, and in the form in which a model reads it. Pure.

The rules of `findings` look for wording. A server that wants to escape them can write the same words in look-alike
letters, with invisible characters between the letters, or as HTML entities, and a model still understands them. So the
rules read a folded text, in which these differences are gone. That characters were hidden is a finding of its own.
"""

from __future__ import annotations

import bisect
import html
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, structs

from codemode_mcp.extensions.findings.finding_rules import Wording, known_words
from codemode_mcp.rules.trust.text_diff import look_alikes
from declarations.untrusted_text import HIDDEN, escape_line, escape_misleading, json_escape
from upstream_clients.json_values import pointer_part

MAX_TEXT: Final = 200_000
"""Maximum characters of a definition that are examined."""

MAX_SENTENCE: Final = 400
"""Maximum characters of a sentence. A longer one is examined as several, so that the time stays linear."""

MAX_EXCERPT: Final = 160

_MAX_WHERE: Final = 200

_WORD: Final = re.compile(r"[^\W\d_]+")
_PARAGRAPH: Final = re.compile(r"\n[ \t]{0,80}(?:[-*•+#>]{1,6} |\(?\d{1,3}[.)] |\n)")
_MARKS: Final = str.maketrans(
    {"*": None, "`": "'", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\r": " ", "\t": " "}
)
_MARKS_ON_LATIN: Final = re.compile("(?<=[a-zA-Z])[\u0300-\u036f\u0483-\u0489\u20d0-\u20f0]+")
_SENTENCE: Final = re.compile("[.!?;](?=[\\s\"')])|[\u3002\uff01\uff1f\u0964]|\n")
_NAME_PARTS: Final = re.compile(r"[^\W_]+")
_LONG_NAME: Final = re.compile(r"[A-Za-z]{1,30}(?:[_-]{1,3}[A-Za-z0-9]{1,30}){3,40}")
"""A name of four words or more, which may be a sentence."""
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Text(Struct, frozen=True):
    """One string of a definition."""

    where: str
    """The JSON pointer (RFC 6901) of the string, or of the member that has this name. No two texts have the same one.

    A pointer longer than `_MAX_WHERE` is cut to it, and has a number at its end that no other text has. Otherwise the
    pointers of a deeply nested definition would take quadratic time and memory.
    """
    raw: str
    is_name: bool = False
    """True for the names of tools and properties."""
    is_value: bool = False
    """True for the places of defaults, constants and examples, and of all that is inside choices and examples."""
    value_of: str | None = None
    """The property whose default, constant, choice or example this is; empty if there is no property. Else None."""


def texts_of(definition: Mapping[str, object]) -> tuple[list[Text], int]:
    """Return the strings of a definition and the names of its properties, in their order, and the size of all of them.

    The strings have at most `MAX_TEXT` characters together; the last one may be cut. The size is that of all strings.
    Empty strings are left out.
    """
    texts: list[Text] = []
    size = 0
    for text in _strings(definition):
        left = MAX_TEXT - size
        if left > 0 and text.raw:
            texts.append(text if len(text.raw) <= left else structs.replace(text, raw=text.raw[:left]))
        size += len(text.raw)
    return texts, size


class _Value(NamedTuple):
    """A value of a definition, with what its place says about the strings in it.

    Attributes:
        keyword: the key of the value, or of the lists that it is in. Empty inside `properties`, where a key is a name.
        key: the last part of the pointer.
        holder: the part before it.
        property_name: the name of the innermost property that the value belongs to, or an empty string.
        is_within: True inside the choices or examples of a schema.
    """

    json: object
    where: str = ""
    keyword: str = ""
    key: str = ""
    holder: str = ""
    property_name: str = ""
    is_within: bool = False

    @property
    def holds_values(self) -> bool:
        """True if the members are values, and no schemas."""
        return self.is_within or self.key in ("enum", "examples")

    def members(self, numbers: Iterator[int]) -> Iterator[_Value]:
        """Yield the members of an object or a list, one when it is needed: a server chooses how many there are."""
        where, keyword, holder, holds_values = self.where, self.keyword, self.key, self.holds_values
        is_list = isinstance(self.json, list)
        for key, each in _items(self.json):
            if isinstance(each, (str, dict, list)):
                yield _Value(
                    each,
                    _pointer(where, key, numbers),
                    keyword if is_list else "" if keyword == "properties" else key,
                    key,
                    holder,
                    key if holder == "properties" else self.property_name,
                    holds_values,
                )

    def as_text(self, text: str) -> Text:
        is_default = self.key in ("default", "const")
        is_choice = is_default or self.holder in ("enum", "examples")
        return Text(
            self.where,
            text,
            is_name=self.where == "/name",
            is_value=is_default or self.is_within,
            value_of=self.property_name if is_choice else None,
        )


def _items(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(index), each) for index, each in enumerate(value)) if isinstance(value, list) else ()


def _strings(definition: Mapping[str, object]) -> Iterator[Text]:
    """Yield the strings of a definition, and the names of properties before what they name."""
    numbers = itertools.count()
    # A stack instead of recursion: a server chooses the depth.
    stack: list[Iterator[_Value]] = [iter((_Value(definition),))]
    while stack:
        value = next(stack[-1], None)
        if value is None:
            stack.pop()
        elif isinstance(value.json, str):
            yield value.as_text(value.json)
        else:
            for key in value.json if isinstance(value.json, dict) else ():
                is_name = value.keyword == "properties"
                if is_name or " " in key:
                    yield Text(_pointer(value.where, key, numbers), key, is_name, value.holds_values)
            stack.append(value.members(numbers))


def _pointer(where: str, key: str, numbers: Iterator[int]) -> str:
    if len(where) <= _MAX_WHERE:
        where = f"{where}/{pointer_part(key)}"
    return where if len(where) <= _MAX_WHERE else f"{where[:_MAX_WHERE]}…{next(numbers)}"


def words_of(name: str) -> str:
    """Return the words of a name in lower case: `read_file` and `readFile` are `read file`."""
    return " ".join(_NAME_PARTS.findall(_CAPITAL.sub(" ", fold(name)))).lower()


def fold(text: str) -> str:
    """Return a text as a model reads it.

    Compatible characters and look-alike letters are replaced, hidden characters and marks of Markdown dropped. One
    space is between words. A line end is left only at the end of a paragraph or before an item of a list.
    """
    if "&" in text:
        text = html.unescape(text)
    text = text.translate(_MARKS) if not text.isascii() else text.replace("*", "").replace("`", "'")
    if not text.isascii():
        text = _MARKS_ON_LATIN.sub("", unicodedata.normalize("NFKC", text))
        text = _WORD.sub(_latin_word, text)
    if not (text.isascii() and text.isprintable()):
        text = HIDDEN.sub(lambda found: found[0] if found[0].isspace() else "", text)
    return "\n".join(" ".join(each.split()) for each in _PARAGRAPH.split(text))


def _latin_word(found: re.Match[str]) -> str:
    """Replace look-alike letters in a word that has letters of the Latin alphabet, too."""
    word = found[0]
    if word.isascii():
        return word
    latin = word.translate(look_alikes())
    return latin if any(letter.isascii() for letter in word) and latin.isascii() else word


class FoldedTexts:
    """The folded texts of a definition as one string, so that a rule is a few searches and not a few for each text."""

    def __init__(self, texts: Sequence[Text]) -> None:
        # A name is read as wording only if it is more than a name.
        self._texts = [text for text in texts if not text.is_name or " " in text.raw or _LONG_NAME.fullmatch(text.raw)]
        parts = [words_of(text.raw) if _LONG_NAME.fullmatch(text.raw) else fold(text.raw) for text in self._texts]
        self.plain = "\n\n".join(parts)
        lower = self.plain.lower()
        # Some capitals have two small letters. Then positions in both texts would differ.
        self.lower = lower if len(lower) == len(self.plain) else "".join(_lower_letter(each) for each in self.plain)
        self._starts: list[int] = []
        at = 0
        for part in parts:
            self._starts.append(at)
            at += len(part) + 2
        self._ends = [start + len(part) for start, part in zip(self._starts, parts, strict=True)]
        self._sentences: list[tuple[int, int, int]] | None = None
        self._words: frozenset[str] | None = None

    @property
    def known_words(self) -> frozenset[str]:
        """The words that patterns need and the texts have."""
        if self._words is None:
            self._words = known_words().found_in(self.lower)
        return self._words

    def may_match(self, wording: Wording) -> bool:
        """Return False if a pattern matches nowhere, as far as that is quickly known."""
        return wording.may_match(self.known_words)

    def text_at(self, at: int) -> Text:
        return self._texts[bisect.bisect_right(self._starts, at) - 1]

    @property
    def sentences(self) -> list[tuple[int, int, int]]:
        """The sentences as (start, end, number of the text), none longer than `MAX_SENTENCE`."""
        if self._sentences is None:
            self._sentences = list(self._split())
        return self._sentences

    def _split(self) -> Iterator[tuple[int, int, int]]:
        for number, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            at = start
            for found in _SENTENCE.finditer(self.lower, start, end):
                yield from _pieces(at, found.end(), number)
                at = found.end()
            yield from _pieces(at, end, number)

    def windows_at(self, at: int, sentences: int) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each group of successive sentences of one text that a position is in."""
        index = self._sentence_index(at)
        number = self.sentences[index][2]
        for first in range(max(0, index - sentences + 1), index + 1):
            group = self.sentences[first : first + sentences]
            if group[0][2] == number:
                yield group[0][0], max(end for _, end, other in group if other == number)

    def sentence_at(self, at: int) -> tuple[int, int]:
        start, end, _ = self.sentences[self._sentence_index(at)]
        return start, end

    def _sentence_index(self, at: int) -> int:
        return max(0, bisect.bisect_right(self.sentences, (at, len(self.lower) + 1, 0)) - 1)

    def excerpt(self, start: int, end: int) -> str:
        """Return what stands at a match and around it, escaped."""
        number = bisect.bisect_right(self._starts, start) - 1
        return excerpt(self.plain, start, end, self._starts[number], self._ends[number])


def _pieces(start: int, end: int, number: int) -> Iterator[tuple[int, int, int]]:
    for at in range(start, end, MAX_SENTENCE):
        yield at, min(at + MAX_SENTENCE, end), number


def _lower_letter(letter: str) -> str:
    lower = letter.lower()
    return lower if len(lower) == 1 else letter


def excerpt(text: str, start: int, end: int, first: int = 0, last: int | None = None) -> str:
    """Return a part of a text with some of what is around it, on one line, with misleading characters escaped."""
    last = len(text) if last is None else last
    room = max(0, MAX_EXCERPT - (end - start)) // 2
    begin = max(first, start - room)
    stop = min(last, max(begin + MAX_EXCERPT, start + 1))
    shown = escape_misleading(text[begin:stop].replace("\n", " "), json_escape).strip()
    return f"{'…' if begin > first else ''}{shown}{'…' if stop < last else ''}"


def shown(text: str) -> str:
    """Return the beginning of a text, on one line, escaped."""
    return excerpt(text, 0, min(len(text), MAX_EXCERPT))


def shown_pointer(where: str) -> str:
    """Return a JSON pointer for people, escaped and cut."""
    return escape_line(where, _MAX_WHERE)
