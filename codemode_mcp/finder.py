"""Find tools for a sentence: which of a tool's texts count how much, exact names first, near misses last (SPEC 4)."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codemode_mcp.search import (
    Field,
    Index,
    shipped_thesaurus,
    shipped_vectors,
    similarity,
    telling_words,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from upstream_clients.tools import Tool

EXACT: Final = 100.0
"""What a request that is a tool's whole name scores on top."""
MEANING: Final = 1.5
"""What the same meaning scores, by word vectors, beside a word that one tool alone has."""
CONSIDERED: Final = 100
"""The best by their words, whose meaning is compared too."""

MAX_TEXT: Final = 600
"""Characters of a description, beyond its first sentence, that count; and of all descriptions of parameters."""
_LEAD: Final = 300
_SENTENCE: Final = re.compile(r"[.!?](?:\s|$)|\n\s*\n")

_FIELDS: Final = (
    Field(3.0, 0.3),  # name
    Field(2.0, 0.3),  # title
    Field(1.5, 0.5),  # first sentence of the description
    Field(0.7),  # the rest of it
    Field(0.8),  # names of parameters
    Field(0.3),  # their descriptions
    Field(1.0, 0.0),  # the server's name
)

_NEAR_WORDS: Final = 5
_NEAR: Final = 0.45
"""Similarity of a word that is tried where nothing was found."""


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
    """

    def __init__(self, tools: Sequence[tuple[str, Tool]]) -> None:
        self._tools = tools
        self._names = ["".join(words(tool.name)) for _, tool in tools]
        self._index = Index([_texts(server, tool) for server, tool in tools], _FIELDS, shipped_thesaurus())
        self._meaning = MEANING * math.log(1 + len(tools))
        self._vectors: dict[int, Sequence[float] | None] = {}

    def find(self, request: str, limit: int, among: Collection[int] | None = None) -> list[Hit]:
        """The best tools, best first; of equal ones those that came first. Near misses where none has a word of it.

        Args:
            among: only these, by number.
        """
        scores = self._index.scores(request)
        if among is not None:
            scores = {number: scores[number] for number in among if number in scores}
        if not scores:
            return self._near_misses(request, limit, among)
        whole = "".join(words(request))
        asked = shipped_vectors().of(telling_words(request))
        best = {}
        for number in heapq.nlargest(max(CONSIDERED, limit), scores, key=scores.__getitem__):
            score = scores[number]
            vector = self._vector(number) if asked is not None else None
            if asked is not None and vector is not None:
                score += self._meaning * similarity(asked, vector)
            best[number] = max(1.0, score) + EXACT * (self._names[number] == whole)
        return _best(best, limit)

    def _vector(self, number: int) -> Sequence[float] | None:
        if number not in self._vectors:
            server, tool = self._tools[number]
            name = telling_words(tool.name)
            lead = telling_words(_lead(tool.description.strip()))
            self._vectors[number] = shipped_vectors().of([*name, *name, *lead, *telling_words(server)])
        return self._vectors[number]

    def _near_misses(self, request: str, limit: int, among: Collection[int] | None) -> list[Hit]:
        """Tools with words that are near in meaning to the whole request."""
        vectors = shipped_vectors()
        asked = vectors.of(telling_words(request))
        if asked is None:
            return []
        near = {}
        for stem in self._index.vocabulary:
            vector = vectors.of((stem,))
            if vector is not None and (alike := similarity(asked, vector)) >= _NEAR:
                near[stem] = alike
        scores = self._index.meant(
            {stem: near[stem] for stem in heapq.nlargest(_NEAR_WORDS, near, key=near.__getitem__)}
        )
        most = max(scores.values(), default=1.0)
        if among is not None:
            scores = {number: scores[number] for number in among if number in scores}
        return _best({number: 0.99 * score / most for number, score in scores.items()}, limit)


def _best(scores: Mapping[int, float], limit: int) -> list[Hit]:
    best = heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(number, round(score, 3)) for number, score in best]


def _lead(description: str) -> str:
    """The first sentence."""
    end = _SENTENCE.search(description, 0, _LEAD)
    return description[: end.end() if end else _LEAD]


def _texts(server: str, tool: Tool) -> tuple[str, ...]:
    description = tool.description.strip()
    lead = _lead(description)
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    said = []
    room = MAX_TEXT
    for rule in properties.values():
        text = rule.get("description") if isinstance(rule, Mapping) else None
        if isinstance(text, str):
            said.append(text[:room])
            room -= len(text)
            if room <= 0:
                break
    return (
        tool.name,
        tool.title or "",
        lead,
        description[len(lead) : len(lead) + MAX_TEXT],
        " ".join(map(str, properties)),
        " ".join(said),
        server,
    )
