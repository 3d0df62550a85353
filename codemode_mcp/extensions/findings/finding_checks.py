"""Checks of definitions that no pattern can express: names, annotations, defaults and weighed words. Pure.

Each check of a definition yields (JSON pointer, excerpt) for all that it finds. The patterns that it needs are in the
rule.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.extensions.findings.definition_texts import (
    MAX_EXCERPT,
    MAX_TEXT,
    FoldedTexts,
    excerpt,
    fold,
    shown,
    words_of,
)
from codemode_mcp.extensions.findings.finding_rules import ReadSentence, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from codemode_mcp.extensions.findings.definition_texts import Text


# Weighed words: sentences that read like those of attacks, although no rule of its own knows their wording.
#
# Rules name the parts of an attack, and a new attack can leave out any of them. Yet its words are rarely those of a
# description that only says what a tool does. So each word and each class of words has a weight, learned from labelled
# definitions: how much more often attacks have it than honest definitions. The weights of one to three sentences in a
# row are added, and divided by the square root of how many there are, so that long sentences are no worse than short
# ones.
#
# `scripts/finding_weights.py` learns the weights and writes `finding_weights.toml`. The sum can be checked by hand.


WEIGHTS_FILE: Final = Path(__file__).with_name("finding_weights.toml")

SENTENCES: Final = 3
"""Maximum number of sentences in a row that are weighed together."""

_COMPOUND: Final = re.compile(r"[A-Za-z]\w{1,60}(?:[.-]\w{1,60}){0,3}")
_COMPARED: Final = re.compile(
    r"\b(?:similar to|unlike|like|see also|confused with|alternative to|replaces|compared with) $"
)
"""Words before the name of a tool that is only compared."""
_PATH: Final = re.compile(r"(?:^|[\s'\"(,;:])(?:~|\.{0,2})/[\w.-]|(?:^|[\s'\"(/])\.[a-z][\w.-]{2}")
_ADDRESS: Final = re.compile(r"https?://|\b[\w.+-]{1,40}@[\w-]{1,40}\.\w")
_FOREIGN: Final = re.compile("[\u00c0-\u1fff\u3040-\uffef]")
_ENDINGS: Final = ("ingly", "ings", "ing", "edly", "ed", "ies", "es", "s", "ly")
_MIN_FOREIGN: Final = 3
_MAX_NAME: Final = 3
"""Maximum words of a sentence that is a name and nothing more."""
_LONGEST: Final = 4
_WORDS_OF_LENGTH: Final = 8


class Weights(Struct, frozen=True):
    """The weights of the file."""

    at_least: float
    """The sum from which sentences are a finding."""
    start: float
    """The sum of no words."""
    of: Mapping[str, float]


@functools.cache
def weights() -> Weights:
    data: dict[str, Any] = tomllib.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    of = {feature: float(weight) for weight, listed in data["weights"].items() for feature in listed.split()}
    return Weights(at_least=data["at_least"], start=data["start"], of=of)


class Passage(Struct, frozen=True):
    """One to three sentences of one text, with what is weighed in them."""

    start: int
    end: int
    text: int
    """The number of the text in the definition."""
    features: frozenset[str]

    def weight(self, by: Weights) -> float:
        return by.start + sum(by.of.get(each, 0.0) for each in self.features) / math.sqrt(len(self.features) or 1)


def heavy(folded: FoldedTexts, read: Sequence[ReadSentence], others: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the heaviest passage of each text that has a heavy one."""
    by = weights()
    heaviest: dict[int, tuple[float, Passage]] = {}
    for passage in passages(folded, read, others):
        weight = passage.weight(by)
        if weight >= by.at_least and weight > heaviest.get(passage.text, (0.0, None))[0]:
            heaviest[passage.text] = weight, passage
    for _, passage in heaviest.values():
        yield passage.start, passage.end


def passages(folded: FoldedTexts, read: Sequence[ReadSentence], others: Collection[str]) -> Iterator[Passage]:
    """Yield all passages of a definition.

    Args:
        folded: the texts of the definition.
        read: its sentences.
        others: the names of the tools of other servers that are no names of the definition itself.
    """
    last: list[tuple[int, int, set[str]]] = []
    for (start, end, number), sentence in zip(folded.sentences, read, strict=True):
        if last and last[-1][1] != number:
            last = []
        last = [*last, (start, number, _features(folded, start, end, sentence, others))][-SENTENCES:]
        together: set[str] = set()
        for first, _, features in reversed(last):
            together |= features
            yield Passage(first, end, number, frozenset(together))


def _features(folded: FoldedTexts, start: int, end: int, sentence: ReadSentence, others: Collection[str]) -> set[str]:
    lower = folded.lower[start:end]
    words = [stem(word) for word in sentence.words if word[0].isalpha()]
    found = {*words, f"=words-{min(_LONGEST, len(words) // _WORDS_OF_LENGTH)}", *_names(sentence.all_classes)}
    if (
        others
        and len(words) > _MAX_NAME
        and any(
            _is_name(each[0], others)
            and not _COMPARED.search(folded.lower, max(start, each.start() - 30), each.start())
            for each in _COMPOUND.finditer(folded.plain, start, end)
        )
    ):
        found.add("=tool-of-another-server")
    if ("/" in lower or "." in lower[:-1]) and _PATH.search(lower):
        found.add("=path")
    if ("@" in lower or "://" in lower) and _ADDRESS.search(lower):
        found.add("=address")
    if not lower.isascii() and len(_FOREIGN.findall(lower)) >= _MIN_FOREIGN:
        found.add("=no-english")
    text = folded.text_at(start)
    if text.is_value:
        found.add("=value")
    elif text.where not in ("/description", "/instructions"):
        found.add("=inside")
    return found


def identifiers_in(text: str) -> set[str]:
    """Return all parts of a text that are weighed as a name of a tool."""
    return {found[0] for found in _COMPOUND.finditer(text)}


def _is_name(identifier: str, others: Collection[str]) -> bool:
    # The name of a server may stand before it. A single word is rarely meant as a name.
    last = identifier.rpartition(".")[2]
    return any(each in others and not (each.isalpha() and each.islower()) for each in (identifier, last))


@functools.lru_cache(maxsize=5_000)
def _names(classes: int) -> tuple[str, ...]:
    """Return classes of words as features: `+tell`, and `-tell` if it is negated."""
    return tuple(
        f"{sign}{name}"
        for name, bit in tables().bits.items()
        for sign, each in (("+", bit), ("-", bit << 1))
        if classes & each
    )


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word without the endings of English inflection, roughly."""
    word = word.removesuffix("'s")
    if not word.isascii() or len(word) < 5:
        return word
    ending = next((each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), "")
    word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "ls" else word


_BEFORE: Final = 60
"""Characters in front of a name that may have the order to call it."""

_IDENTIFIER: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9]{0,60}(?:(?:[_.-]|(?<=[a-z])(?=[A-Z]))[A-Za-z0-9]{1,60}){1,10}")
_CALLED: Final = re.compile(r"(?:['\"]([\w-]{3,40})['\"] (?:mcp )?(?:tool|function)\b|\b([a-z][\w-]{2,40})\(\))")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n")


class ReadText(Struct, frozen=True):
    """One text of a definition, as the rules read it."""

    folded: FoldedTexts
    sentences: Sequence[ReadSentence]
    others: frozenset[str]
    """The names of the tools of other servers that are no names of the definition itself."""


class Definition(Struct, frozen=True):
    """A definition with what is known about it."""

    kind: str
    json: Mapping[str, object]
    server: str
    others: frozenset[str]
    """The names of the tools of other servers."""
    texts: Sequence[Text]
    size: int
    """The number of characters of all texts."""

    @property
    def name(self) -> str:
        name = self.json.get("name")
        return name if isinstance(name, str) else ""

    @property
    def foreign_names(self) -> frozenset[str]:
        """The names of the tools of other servers that are no names of the definition itself."""
        return self.others - {text.raw for text in self.texts if text.is_name}

    @property
    def about(self) -> str:
        """The words of the server's name, of the item's name and of all texts."""
        return f"{words_of(self.server)}\n{words_of(self.name)}\n{FoldedTexts(self.texts).lower}"

    @property
    def description(self) -> str:
        """The folded description in lower case, or an empty string."""
        description = self.json.get("description")
        return fold(description[:MAX_TEXT]).lower() if isinstance(description, str) else ""


def long_text(subject: Definition, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[str, str]]:
    """Find a definition with more text than is examined."""
    if subject.size > MAX_TEXT:
        yield "", f"{subject.size:,} characters"


def look_alike_name(subject: Definition, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[str, str]]:
    if subject.kind != "tool" or len(subject.name) < 4:
        return
    skeleton = _skeleton(subject.name)
    for other in sorted(other for other in subject.others if _skeleton(other) == skeleton):
        if other.casefold() != subject.name.casefold():
            yield "/name", shown(f"{subject.name} looks like {other}")


@functools.lru_cache(maxsize=10_000)
def _skeleton(name: str) -> str:
    """Return a name in which characters that look alike are one character."""
    plain = fold(name).translate(str.maketrans("I1|0", "lllo")).lower()
    return plain.replace("rn", "m").replace("vv", "w")


def names_in(folded: FoldedTexts) -> frozenset[str]:
    """Return all parts of texts that may be the name of another server's tool."""
    found = {found[0] for found in _IDENTIFIER.finditer(folded.plain)} | identifiers_in(folded.plain)
    found |= {name.rpartition(".")[2] for name in found}
    found |= {called[1] or called[2] for called in _CALLED.finditer(folded.lower)}
    return frozenset(found)


def other_tools(subject: ReadText, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Find the names of other servers' tools in sentences that order how they are used."""
    folded, others = subject.folded, subject.others
    if not others:
        return
    for found in _IDENTIFIER.finditer(folded.plain):
        # The name of a server may stand before it.
        last = found[0].rpartition(".")[2]
        if found[0] not in others and not (_IDENTIFIER.fullmatch(last) and last in others):
            continue
        start, end = folded.sentence_at(found.start())
        if folded.lower[start:end].strip() == found[0].lower():
            continue
        if folded.lower.startswith(";", end - 1):
            end = folded.sentence_at(end + 1)[1]
        before = max(start, found.start() - _BEFORE)
        if patterns["orders"].search(folded.lower, start, end) or patterns["orders_before"].search(
            folded.lower, before, found.start()
        ):
            yield found.span()
    for found in _CALLED.finditer(folded.lower):
        if (found[1] or found[2]) in others:
            yield found.span()


def values(subject: Definition, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[str, str]]:
    """Find defaults and constants that are addresses, in properties of some names, or private files."""
    name_of = functools.cache(words_of)  # a long name may have many values
    for text in subject.texts:
        if text.value_of is None:
            continue
        value = fold(text.raw[:MAX_EXCERPT]).lower()
        is_address = patterns["addresses"].search(value) and patterns["properties"].search(name_of(text.value_of))
        if is_address or patterns["secret_files"].search(value):
            yield text.where, shown(text.raw)


def annotations_deny(subject: Definition, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[str, str]]:
    hints = subject.json.get("annotations")
    if subject.kind != "tool" or not isinstance(hints, dict):
        return
    description = subject.description
    verbs = "changes" if hints.get("readOnlyHint") is True else ""
    if not verbs and hints.get("destructiveHint") is False:
        verbs = "destroys"
    if verbs:
        name = words_of(subject.name).split()
        # Many names begin with that of their server.
        acts = name[1:] if name and name[0] in words_of(subject.server).split() else name
        if acts and not acts[0].endswith(("s", "ed", "ing")) and patterns[verbs].match(" ".join(acts)):
            yield "/name", shown(subject.name)
        for sentence in _acts(description, patterns[verbs], patterns):
            yield "/description", shown(sentence)
        for pattern in (patterns["passive_effect"], patterns["final_effect"]):
            found = pattern.search(description)
            if found and not patterns["denial"].search(description, max(0, found.start() - 30), found.start()):
                yield "/description", excerpt(description, *found.span())
    if hints.get("openWorldHint") is False and (found := patterns["effect_outside"].search(description)):
        yield "/description", excerpt(description, *found.span())


def _acts(description: str, verbs: re.Pattern[str], patterns: Mapping[str, re.Pattern[str]]) -> Iterator[str]:
    """Yield the sentences that say that the tool does what one of the verbs means."""
    for index, sentence in enumerate(_SENTENCE.split(description)):
        effect = patterns["effect"].match(sentence)
        # In the first sentence, the verb is what the tool does. Elsewhere it is often an order or a noun.
        if index and not sentence.startswith(("it ", "this tool ", "also ", "then ", "additionally ")):
            effect = None
        if effect and verbs.match(sentence, effect.start(1)) and not patterns["denial"].search(sentence):
            yield sentence
            continue
        later = patterns["later_effect"].search(sentence)
        is_denied = later and patterns["denial"].search(sentence, 0, later.start())
        if later and not is_denied and verbs.match(sentence, later.start(1)):
            yield sentence


def heavy_passages(subject: ReadText, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Find sentences whose words, weighed together, are those of attacks."""
    yield from heavy(subject.folded, subject.sentences, subject.others)


CHECKS: Final[Mapping[str, Callable[[Definition, Mapping[str, re.Pattern[str]]], Iterator[tuple[str, str]]]]] = {
    "annotations_deny": annotations_deny,
    "long_text": long_text,
    "look_alike_name": look_alike_name,
    "values": values,
}
"""The checks of whole definitions by their name in `finding_rules.toml`."""

TEXT_CHECKS: Final[Mapping[str, Callable[[ReadText, Mapping[str, re.Pattern[str]]], Iterator[tuple[int, int]]]]] = {
    "heavy_passages": heavy_passages,
    "other_tools": other_tools,
}
"""The checks of single texts. Each yields (start, end) for all that it finds."""
