"""Checks of `finding_rules.toml` for names, annotations and defaults, which no pattern alone can express. Pure.

Each check of a definition yields (JSON pointer, excerpt) for all that it finds. The patterns that it needs are in the
rule.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .definition_texts import MAX_EXCERPT, MAX_TEXT, FoldedTexts, excerpt, fold, shown, words_of
from .finding_weights import heavy, identifiers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .definition_texts import Text
    from .finding_words import ReadSentence

_BEFORE: Final = 60
"""Characters in front of a name that may have the order to call it."""

_IDENTIFIER: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9]{0,60}(?:(?:[_.-]|(?<=[a-z])(?=[A-Z]))[A-Za-z0-9]{1,60}){1,10}")
_CALLED: Final = re.compile(r"(?:['\"]([\w-]{3,40})['\"] (?:mcp )?(?:tool|function)\b|\b([a-z][\w-]{2,40})\(\))")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n")


@dataclass(frozen=True, slots=True)
class ReadText:
    """One text of a definition, as the rules read it."""

    folded: FoldedTexts
    sentences: Sequence[ReadSentence]
    others: frozenset[str]
    """The names of the tools of other servers that are no names of the definition itself."""


@dataclass(frozen=True, slots=True)
class Definition:
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
        """The name of the item, or an empty string."""
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
    """Find a name that looks like the name of another server's tool."""
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
    """Find acts that the annotations of a tool deny."""
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
