"""Find tools for a sentence: which of a tool's texts count how much, exact names first, near misses last.

Words rank; what a sentence model says of the whole request and of all tools is added where there is one.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from codemode_mcp.search.index import Field, Index
from codemode_mcp.search.thesaurus import shipped_thesaurus
from codemode_mcp.search.vectors import shipped_vectors, similarity
from codemode_mcp.search.wishes import wishes
from codemode_mcp.search.words import MAX_TOKEN, telling_words, words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from upstream_clients.tools import Tool

EXACT: Final = 100.0
"""Extra score for a request that is a tool's whole name."""
VECTOR_WEIGHT: Final = 1.5
"""Score of the same meaning, by word vectors, against 1 for a word that one tool alone has."""
CONSIDERED: Final = 100
"""The best by their words, whose meaning is compared too."""
MODEL_WEIGHT: Final = 4.0
"""Score of the same meaning, by a sentence model, against 1 for the best by words."""
_HIT_BY_MODEL: Final = 0.25
"""Least cosine of a hit that shares no word with the request."""
_NEAR_BY_MODEL: Final = 0.1
"""Least cosine of a near miss by a sentence model."""
_FEW_NEAR: Final = 3
"""Near misses by a sentence model: so small a cosine tells little."""
WISH_WEIGHT: Final = 1.25
"""Worth of the best hit for one of several wishes, beside 1 for the best hit for the whole request."""

MAX_TEXT: Final = 600
"""Characters of a description, beyond its first sentence, that count; and of all descriptions of parameters."""
MAX_PARAMETERS: Final = 200
"""Parameters whose names and descriptions count."""
MAX_SERVER_TEXT: Final = 4_000_000
"""Characters of one server's texts that count, beside names, titles and first sentences."""
OF_ONE_SERVER: Final = 0.75
"""Largest share of one server in the hits of a search in all, unless the others have too few."""
_LEAD: Final = 300
_SENTENCE_END: Final = re.compile(r"[.!?](?:\s|$)|\n\s*\n")

_FIELDS: Final = (
    Field(3.0, 0.3),  # name
    Field(2.0, 0.3),  # title
    Field(1.5, 0.5),  # first sentence of the description
    Field(0.7),  # the rest of it
    Field(0.8),  # names of parameters
    Field(0.3),  # their descriptions
    Field(1.0, 0.0),  # the server's name
)

_NEAREST_STEMS: Final = 5
_NEAR_BY_VECTOR: Final = 0.45
"""Similarity of a word that is tried where nothing was found."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_BETWEEN_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z#*\-\"'`(])|\n\s*\n")
_TOLD: Final = 200
"""Characters of whole sentences of a description that a sentence model reads; the first one may have twice as many."""
_TOLD_PARAMETERS: Final = 8
"""Parameters whose names a sentence model reads."""


class Compared(Protocol):
    """Texts that a sentence model compares requests with."""

    def similarities(self, request: str) -> Sequence[float] | None:
        """Cosines, one per text; None while they are not known."""


class Meaning(Protocol):
    """A sentence model."""

    def over(self, texts: Callable[[], Sequence[str]]) -> Compared:
        """Return these texts, which it asks for when it comes to them."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One found tool.

    Attributes:
        number: its place in the sequence that the finder was made from.
        score: comparable within one answer only; below 1 for near misses.
    """

    number: int
    score: float


class Finder:
    """An immutable index of tools.

    Args:
        tools: the name of its server and the tool.
        meaning: a sentence model, where there is one.
    """

    def __init__(self, tools: Sequence[tuple[str, Tool]], meaning: Meaning | None = None) -> None:
        self._tools = tools
        self._names = ["".join(words(tool.name[:_LEAD])) for _, tool in tools]
        self._index = Index(_all_texts(tools), _FIELDS, shipped_thesaurus(), shipped_vectors())
        self._vector_weight = VECTOR_WEIGHT * math.log(1 + len(tools))
        self._vectors: dict[int, Sequence[float] | None] = {}
        self._compared = None if meaning is None else meaning.over(partial(_told, tools))

    def find(self, request: str, limit: int, among: Collection[int] | None = None) -> list[Hit]:
        """Return the best tools, best first; of equal ones those that came first. Near misses where none has a word of
        it.

        Args:
            among: only these, by number.
        """
        asked = "".join(words(request))
        scores = self._hits(request, limit, among)
        most = max(scores.values(), default=1.0)
        for number, score in self._best_for_wishes(request, limit, among).items():
            scores[number] = scores.get(number, 0.0) + WISH_WEIGHT * most * score
        if not scores:
            return self._near_misses(request, limit, among) if asked else []
        for number in scores:
            if self._names[number] == asked:
                scores[number] += EXACT
        return self._best({number: 1 + score for number, score in scores.items()}, limit, among)

    def prepare(self) -> None:
        """Make what the first searches would otherwise make one by one. May run in another thread."""
        for number in range(len(self._tools)):
            self._vector(number)
        self._index.scores("misspeld")  # what only some requests need is made too

    def _hits(self, request: str, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Score the tools that have something of a request, by words and by the sentence model where there is one."""
        scores = self._index.scores(request)
        if among is not None:
            scores = {number: scores[number] for number in among if number in scores}
        best = self._with_vectors(request, scores, limit)
        cosines = self._cosines(request)
        if cosines is None:
            return best
        scores |= best
        most = max(scores.values(), default=1.0)
        numbers = range(len(cosines)) if among is None else among
        return {
            number: MODEL_WEIGHT * max(0.0, cosines[number]) + scores.get(number, 0.0) / most
            for number in numbers
            if number in scores or cosines[number] >= _HIT_BY_MODEL
        }

    def _best_for_wishes(self, request: str, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Score the hits for each of several wishes from 0 to 1; a tool has the score for the wish it suits best."""
        best: dict[int, float] = {}
        for wish in wishes(request):
            hits = self._hits(wish, limit, among)
            most = max(hits.values(), default=1.0)
            for number, score in hits.items():
                best[number] = max(best.get(number, 0.0), score / most)
        return best

    def _cosines(self, request: str) -> Sequence[float] | None:
        """Compare a request with all tools by the sentence model; None without one."""
        return None if self._compared is None or not words(request) else self._compared.similarities(request)

    def _with_vectors(self, request: str, scores: Mapping[int, float], limit: int) -> dict[int, float]:
        """Return the best by their words, with what word vectors say of them."""
        asked = shipped_vectors().of(telling_words(request))
        best = {}
        for number, score in self._ranked(scores, max(CONSIDERED, limit), OF_ONE_SERVER):
            vector = self._vector(number) if asked is not None else None
            if asked is not None and vector is not None:
                score += self._vector_weight * similarity(asked, vector)
            best[number] = max(0.0, score)
        return best

    def _best(self, scores: Mapping[int, float], limit: int, among: Collection[int] | None) -> list[Hit]:
        best = self._ranked(scores, limit, OF_ONE_SERVER if among is None else 1.0)
        return [Hit(number, round(score, 3)) for number, score in best]

    def _ranked(self, scores: Mapping[int, float], limit: int, share: float) -> list[tuple[int, float]]:
        """Return the best of these, in order; of one server this share at most, unless the others have too few."""
        most = math.ceil(share * limit)
        # First among some more than are wanted; among all only where one server fills those.
        for considered in (4 * limit, len(scores)):
            ranked = heapq.nsmallest(considered, scores.items(), key=_by_score)
            counts: Counter[str] = Counter()
            best: list[tuple[int, float]] = []
            crowding: list[tuple[int, float]] = []
            for item in ranked:
                server = self._tools[item[0]][0]
                counts[server] += 1
                (best if counts[server] <= most else crowding).append(item)
            if len(best) >= limit or len(ranked) == len(scores):
                break
        return sorted([*best[:limit], *crowding[: max(0, limit - len(best))]], key=_by_score)

    def _vector(self, number: int) -> Sequence[float] | None:
        if number not in self._vectors:
            server, tool = self._tools[number]
            name = telling_words(tool.name[:_LEAD])
            lead = telling_words(_lead(tool.description[: 2 * _LEAD].strip()))
            vector = shipped_vectors().of([*name, *name, *lead, *telling_words(server)])
            self._vectors[number] = None if vector is None else array("f", vector)
        return self._vectors[number]

    def _near_misses(self, request: str, limit: int, among: Collection[int] | None) -> list[Hit]:
        """Tools that are near in meaning to the whole request, or have words that are."""
        cosines = self._cosines(request)
        if cosines is not None:
            numbers = range(len(cosines)) if among is None else among
            likely = {number: cosines[number] for number in numbers if cosines[number] >= _NEAR_BY_MODEL}
            return self._best(likely, min(limit, _FEW_NEAR), among)
        vectors = shipped_vectors()
        asked = vectors.of(telling_words(request))
        if asked is None:
            return []
        near = vectors.near(asked, self._index.stems, _NEAR_BY_VECTOR)
        scores = self._index.meant(
            {stem: near[stem] for stem in heapq.nlargest(_NEAREST_STEMS, near, key=near.__getitem__)}
        )
        most = max(scores.values(), default=1.0)
        if among is not None:
            scores = {number: scores[number] for number in among if number in scores}
        near_misses = {number: 0.99 * score / most for number, score in scores.items()}
        return self._best(near_misses, limit, among)


def _by_score(item: tuple[int, float]) -> tuple[float, int]:
    return -item[1], item[0]


def _lead(description: str) -> str:
    """Return the first sentence."""
    end = _SENTENCE_END.search(description, 0, _LEAD)
    return description[: end.end() if end else _LEAD]


def _told(tools: Sequence[tuple[str, Tool]]) -> list[str]:
    """Return what a sentence model reads of each tool: a few words, since a longer text means less of each of its
    parts."""
    told = []
    for server, tool in tools:
        parts = (
            f"{_spaced(server)} {_spaced(tool.name)}",
            _other_title(tool),
            _first_sentences(tool.description),
            _parameters(tool),
        )
        told.append(". ".join(part.rstrip(". ") for part in parts if part))
    return told


def _spaced(name: str) -> str:
    """`createHTTPRoute` as "create HTTP route"."""
    parts = _PART.findall(name[:_TOLD])
    return " ".join(part if part.isupper() and len(part) > 1 else part.lower() for part in parts)


def _other_title(tool: Tool) -> str:
    title = " ".join((tool.title or "")[:_TOLD].split())
    return "" if title.lower() == _spaced(tool.name).lower() else title


def _first_sentences(description: str) -> str:
    told = ""
    for sentence in _BETWEEN_SENTENCES.split(description[: 10 * _TOLD]):
        plain = " ".join(sentence.split())
        if told and len(told) + len(plain) > _TOLD:
            break
        told = f"{told} {plain}".strip()
    return told[: 2 * _TOLD]


def _parameters(tool: Tool) -> str:
    """Return the names of the first parameters."""
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    return ", ".join(filter(None, (_spaced(str(name)) for name in islice(properties, _TOLD_PARAMETERS))))


def _texts(server: str, tool: Tool, room: int) -> tuple[str, ...]:
    """Return the texts of the fields, none of them long; `room` is for what says least."""
    description = tool.description[: 2 * MAX_TEXT].strip()
    lead = _lead(description)
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    room = min(room, MAX_TEXT)
    said = []
    left = room
    for rule in islice(properties.values(), MAX_PARAMETERS):
        if not isinstance(rule, Mapping):
            continue
        choices = rule.get("enum")
        for text in (rule.get("description"), *(choices[:20] if isinstance(choices, list) else ())):
            if isinstance(text, str) and left > 0:
                said.append(text[:left])
                left -= len(text)
    return (
        tool.name[:_LEAD],
        (tool.title or "")[:_LEAD],
        lead,
        description[len(lead) : len(lead) + room],
        " ".join([str(name)[:MAX_TOKEN] for name in islice(properties, MAX_PARAMETERS)])[: 2 * room],
        " ".join(said),
        server,
    )


def _all_texts(tools: Sequence[tuple[str, Tool]]) -> list[tuple[str, ...]]:
    """Return the texts of all tools, with a bounded share for each server."""
    room: dict[str, int] = {}
    texts = []
    for server, tool in tools:
        left = room.get(server, MAX_SERVER_TEXT)
        found = _texts(server, tool, left)
        room[server] = max(0, left - sum(map(len, found[3:6])))
        texts.append(found)
    return texts
