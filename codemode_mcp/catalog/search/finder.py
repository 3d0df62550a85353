"""The search for tools: ranks tools by words, then by meaning; exact names come first, near misses last.

If there is a sentence model, the similarity of the whole request to each tool is added to the score by words.
"""

from __future__ import annotations

import heapq
import math
import mmap
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import add, mul
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from codemode_mcp.catalog.search import Found, index

if TYPE_CHECKING:
    from upstream_clients.tools import Tool


EXACT: Final = 100.0
"""Extra score of a tool whose whole name is the request."""
VECTOR_WEIGHT: Final = 1.5
"""Score of equal meaning by word vectors, relative to 1 for a word that only one tool has."""
MAX_COMPARED: Final = 100
"""Maximum number of tools, the best ones by words, that are compared in meaning too."""
MODEL_WEIGHT: Final = 4.0
"""Score of equal meaning by a sentence model, relative to 1 for the best tool by words."""
MIN_SHARE: Final = 0.5
"""Minimum score of a hit, relative to 1 for the best hit of the second-best server."""
FIRST_HITS: Final = 4
"""Number of the best hits that are never left out, because scores in a short list say little."""
_MIN_HIT_COSINE: Final = 0.25
"""Minimum cosine of a hit that has no word of the request."""
_MIN_NEAR_COSINE: Final = 0.1
"""Minimum cosine of a near miss by a sentence model."""
_MAX_NEAR_BY_MODEL: Final = 3
"""Maximum number of near misses by a sentence model. There are few, since such small cosines are not reliable."""
WISH_WEIGHT: Final = 2.5
"""Score of the best hit for one of several wishes, relative to 1 for the best hit for the whole request."""
WISH_RANK: Final = 0.1
"""Discount of each next hit for a wish. Without it, a wish that many tools fit hides the tools of other wishes."""

MAX_REQUEST: Final = 4_000
"""Characters of a request that are searched for. A search is made on the event loop, which all callers share."""

MAX_TEXT: Final = 600
"""Indexed characters of a description after its first sentence, and of all descriptions of parameters."""
MAX_PARAMETERS: Final = 200
"""Parameters of one tool whose names and descriptions are indexed."""
MAX_SERVER_TEXT: Final = 4_000_000
"""Indexed characters of one server's texts, besides names, titles and first sentences."""
MAX_SERVER_SHARE: Final = 0.75
"""Maximum share of one server in the hits of a search over all servers, unless the others have too few hits."""
_LEAD: Final = 300
"""Characters that are used of a name, a title or a first sentence."""
_SENTENCE_END: Final = re.compile(r"[.!?](?:\s|$)|\n\s*\n")

_FIELDS: Final = (
    index.Field(3.0, 0.3),  # name
    index.Field(2.0, 0.3),  # title
    index.Field(1.5, 0.5),  # first sentence of the description
    index.Field(0.7),  # the rest of the description
    index.Field(0.8),  # names of parameters
    index.Field(0.3),  # descriptions of parameters
    index.Field(1.0, 0.0),  # the server's name
)

_MAX_NEAREST_STEMS: Final = 5
"""Words of tools that replace the request if no tool has a word of it."""
_MIN_STEM_SIMILARITY: Final = 0.45
"""Minimum similarity of such a word to the request."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_BETWEEN_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z#*\-\"'`(])|\n\s*\n")
_MODEL_CHARACTERS: Final = 200
"""Characters of whole sentences of a description for a sentence model. The first sentence may have twice as many."""
_MODEL_PARAMETERS: Final = 8
"""Parameters whose names are in the text for a sentence model."""


class Compared(Protocol):
    """Texts that a sentence model compares requests with."""

    def similarities(self, request: str) -> Sequence[float] | None:
        """Return the cosine of a request and each text; None while vectors are missing."""


class Meaning(Protocol):
    """A sentence model."""

    def compare_with(self, texts: Callable[[], Sequence[str]]) -> Compared:
        """Return a comparison of requests with these texts. `texts` is called when their vectors are made."""


class Hit(Struct, frozen=True):
    """One found tool.

    Attributes:
        number: its index in the sequence that the finder was made from.
        score: comparable only within one answer; below 1 for near misses.
    """

    number: int
    score: float


class Finder:
    """An immutable index of tools.

    Args:
        tools: each with the name of its server.
        meaning: a sentence model, if there is one.
        base: another index, whose tools come before these. It is not changed. Scores of all tools are on one scale.
    """

    def __init__(
        self, tools: Sequence[tuple[str, Tool]], meaning: Meaning | None = None, base: Finder | None = None
    ) -> None:
        self._tools, self._names = tools, ["".join(index.words(tool.name[:_LEAD])) for _, tool in tools]
        self._vector_weight = VECTOR_WEIGHT * math.log(1 + len(tools))
        self._vectors: dict[int, Sequence[float] | None] = {}
        if base is not None:
            self._tools, self._names = [*base._tools, *tools], [*base._names, *self._names]
            self._vectors = dict(base._vectors)
            if base._tools:
                self._vector_weight = base._vector_weight
        of_base = None if base is None else base._index
        self._index: index.Index = index.Index(
            _all_texts(tools), _FIELDS, index.shipped_thesaurus(), shipped_vectors(), of_base
        )
        self._own_count = len(tools)
        self._base_compared: Compared | None = None if base is None or not base._tools else base._compared
        self._compared: Compared | None = (
            None if meaning is None else meaning.compare_with(partial(_model_texts, tools))
        )

    def find(self, request: str, limit: int, among: Collection[int] | None = None) -> Found[Hit]:
        """Return the best tools, best first, or near misses if no tool matches. Equal tools keep their order.

        Tools far below the best one are no hits (see `MIN_SHARE`), except in a search among chosen ones.

        Args:
            among: numbers of the tools to search in; None for all.
        """
        request = request[:MAX_REQUEST]
        request_name = "".join(index.words(request))
        scores = self._hits(request, limit, among)
        most = max(scores.values(), default=1.0)
        for number, score in self._best_for_wishes(request, limit, among).items():
            scores[number] = scores.get(number, 0.0) + WISH_WEIGHT * most * score
        if not scores:
            return self._near_misses(request, limit, among) if request_name else Found((), 0)
        least = self._least(scores) if among is None and len(scores) > FIRST_HITS else 0.0
        exact = {number for number in scores if self._names[number] == request_name}
        hits = {
            number: 1 + score + (EXACT if number in exact else 0.0)
            for number, score in scores.items()
            if score >= least or number in exact
        }
        return self._best(hits, limit, among)

    def _least(self, scores: Mapping[int, float]) -> float:
        best: dict[str, float] = {}
        for number, score in scores.items():
            server = self._tools[number][0]
            best[server] = max(best.get(server, 0.0), score)
        if len(best) == 1:
            return 0.0
        # Not relative to the best server, because one server must not be able to drive out all others.
        reference = heapq.nlargest(2, best.values())[-1]
        return min(MIN_SHARE * reference, heapq.nlargest(FIRST_HITS, scores.values())[-1])

    def prepare(self) -> None:
        """Make everything that searches would make on demand. This may run in another thread."""
        for number in range(len(self._tools)):
            self._vector(number)
        self._index.scores("misspeld")  # a misspelt word makes the index of letter pairs

    def _hits(self, request: str, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Return the scores of tools that match, by words and by the sentence model if there is one."""
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
            if number in scores or cosines[number] >= _MIN_HIT_COSINE
        }

    def _best_for_wishes(self, request: str, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Return the best score from 0 to 1 of each tool for one of the wishes."""
        best: dict[int, float] = {}
        for wish in wishes(request):
            hits = sorted(self._hits(wish, limit, among).items(), key=_by_score)
            for rank, (number, score) in enumerate(hits):
                share = score / hits[0][1] if hits[0][1] else 0.0
                best[number] = max(best.get(number, 0.0), share / (1 + WISH_RANK * rank))
        return best

    def _cosines(self, request: str) -> Sequence[float] | None:
        if self._compared is None or not index.words(request):
            return None
        own = self._compared.similarities(request)
        if self._base_compared is None:
            return own
        of_base = self._base_compared.similarities(request)
        # Vectors of a few new tools may be missing for a while.
        return None if of_base is None else [*of_base, *(own or [0.0] * self._own_count)]

    def _with_vectors(self, request: str, scores: Mapping[int, float], limit: int) -> dict[int, float]:
        """Return the best tools by words, with the similarity by word vectors added to their scores."""
        direction = shipped_vectors().of(index.content_words(request))
        best = {}
        for number, score in self._ranked(scores, max(MAX_COMPARED, limit), MAX_SERVER_SHARE):
            vector = self._vector(number) if direction is not None else None
            if direction is not None and vector is not None:
                score += self._vector_weight * similarity(direction, vector)
            best[number] = max(0.0, score)
        return best

    def _best(self, scores: Mapping[int, float], limit: int, among: Collection[int] | None) -> Found[Hit]:
        best = self._ranked(scores, limit, MAX_SERVER_SHARE if among is None else 1.0)
        return Found((Hit(number, round(score, 3)) for number, score in best), len(scores))

    def _ranked(self, scores: Mapping[int, float], limit: int, share: float) -> list[tuple[int, float]]:
        """Return the best tools in order. One server has at most `share` of them, unless the others have too few."""
        most = math.ceil(share * limit)
        # Sort a few more than the limit first, and all tools only if one server crowds out the others.
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
            name = index.content_words(tool.name[:_LEAD])
            lead = index.content_words(_lead(tool.description[: 2 * _LEAD].strip()))
            vector = shipped_vectors().of([*name, *name, *lead, *index.content_words(server)])
            self._vectors[number] = None if vector is None else array("f", vector)
        return self._vectors[number]

    def _near_misses(self, request: str, limit: int, among: Collection[int] | None) -> Found[Hit]:
        """Return the tools nearest in meaning: by the sentence model, or else by the vectors of their words."""
        cosines = self._cosines(request)
        if cosines is not None:
            numbers = range(len(cosines)) if among is None else among
            likely = {number: cosines[number] for number in numbers if cosines[number] >= _MIN_NEAR_COSINE}
            return self._best(likely, min(limit, _MAX_NEAR_BY_MODEL), among)
        vectors = shipped_vectors()
        direction = vectors.of(index.content_words(request))
        if direction is None:
            return Found((), 0)
        near = vectors.near(direction, self._index.stems, _MIN_STEM_SIMILARITY)
        scores = self._index.concept_scores(
            {stem: near[stem] for stem in heapq.nlargest(_MAX_NEAREST_STEMS, near, key=near.__getitem__)}
        )
        most = max(scores.values(), default=1.0)
        if among is not None:
            scores = {number: scores[number] for number in among if number in scores}
        near_misses = {number: 0.99 * score / most for number, score in scores.items()}
        return self._best(near_misses, limit, among)


def _by_score(item: tuple[int, float]) -> tuple[float, int]:
    return -item[1], item[0]


def _lead(description: str) -> str:
    end = _SENTENCE_END.search(description, 0, _LEAD)
    return description[: end.end() if end else _LEAD]


def _model_texts(tools: Sequence[tuple[str, Tool]]) -> list[str]:
    """Return a text about each tool for a sentence model. It is short, because each part of a long text counts less."""
    texts = []
    for server, tool in tools:
        parts = (
            f"{_spaced(server)} {_spaced(tool.name)}",
            _other_title(tool),
            _first_sentences(tool.description),
            _parameters(tool),
        )
        texts.append(". ".join(part.rstrip(". ") for part in parts if part))
    return texts


def _spaced(name: str) -> str:
    """Return a name as words: `createHTTPRoute` becomes "create HTTP route"."""
    parts = _PART.findall(name[:_MODEL_CHARACTERS])
    return " ".join(part if part.isupper() and len(part) > 1 else part.lower() for part in parts)


def _other_title(tool: Tool) -> str:
    title = " ".join((tool.title or "")[:_MODEL_CHARACTERS].split())
    return "" if title.lower() == _spaced(tool.name).lower() else title


def _first_sentences(description: str) -> str:
    text = ""
    for sentence in _BETWEEN_SENTENCES.split(description[: 10 * _MODEL_CHARACTERS]):
        plain = " ".join(sentence.split())
        if text and len(text) + len(plain) > _MODEL_CHARACTERS:
            break
        text = f"{text} {plain}".strip()
    return text[: 2 * _MODEL_CHARACTERS]


def _parameters(tool: Tool) -> str:
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    return ", ".join(filter(None, (_spaced(str(name)) for name in islice(properties, _MODEL_PARAMETERS))))


def _texts(server: str, tool: Tool, room: int) -> tuple[str, ...]:
    """Return the texts of a tool's fields, cut to their limits. `room`: characters for the less important fields."""
    description = tool.description[: 2 * MAX_TEXT].strip()
    lead = _lead(description)
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    room = min(room, MAX_TEXT)
    details = []
    left = room
    for rule in islice(properties.values(), MAX_PARAMETERS):
        if not isinstance(rule, Mapping):
            continue
        choices = rule.get("enum")
        for text in (rule.get("description"), *(choices[:20] if isinstance(choices, list) else ())):
            if isinstance(text, str) and left > 0:
                details.append(text[:left])
                left -= len(text)
    return (
        tool.name[:_LEAD],
        (tool.title or "")[:_LEAD],
        lead,
        description[len(lead) : len(lead) + room],
        " ".join([str(name)[: index.MAX_TOKEN] for name in islice(properties, MAX_PARAMETERS)])[: 2 * room],
        " ".join(details),
        server,
    )


def _all_texts(tools: Sequence[tuple[str, Tool]]) -> list[tuple[str, ...]]:
    """Return the texts of all tools, with a bounded length for each server."""
    room: dict[str, int] = {}
    texts = []
    for server, tool in tools:
        left = room.get(server, MAX_SERVER_TEXT)
        found = _texts(server, tool, left)
        room[server] = max(0, left - sum(map(len, found[3:6])))
        texts.append(found)
    return texts


# Requests that ask for several things, split into their wishes.
#
# Models often put a whole task into one search: "create a spreadsheet, add a chart and send it by email". If it is
# ranked as a whole, a tool that matches a little of each wish precedes the tools for single wishes. So each wish is
# also ranked alone. A full sentence counts as one wish, because its commas and conjunctions mostly add reasons.


MAX_WISHES: Final = 6
"""Maximum number of wishes of a request that are ranked alone."""
MIN_WORDS: Final = 2
"""Minimum number of content words of a wish. "create, edit and delete files" is one wish: short parts join the next."""
MAX_STOP_SHARE: Final = 0.35
"""Maximum share of stop words in a list of keywords. A request with more of them is a sentence."""

_MAX_TEXT: Final = 1_000
_BETWEEN: Final = re.compile(r"[;,\n]|\s/\s|[.!?]\s|\b(?:and|or|then|plus)\b", re.IGNORECASE)
_EXAMPLES: Final = re.compile(
    r"\([^)]*\)?|\b(?:like|such as|e\.?g\b|for example|including)\b.*", re.IGNORECASE | re.DOTALL
)
_JOINING: Final = frozenset(("and", "or", "then", "plus"))


def wishes(request: str) -> list[str]:
    """Return the wishes to rank besides the whole request; none if it has only one.

    Examples are not part of a wish: "run commands such as PDF converters" is the wish to run commands.
    """
    request = request[:_MAX_TEXT]
    if not _BETWEEN.search(request) and not _EXAMPLES.search(request):
        return []
    plain = [token for token in map(str.lower, index.tokens(request)) if token not in _JOINING]
    if sum(token in index.STOP_WORDS for token in plain) > MAX_STOP_SHARE * len(plain):
        return []
    whole = index.content_words(request)
    found: dict[str, None] = {}
    rest = ""
    for part in _BETWEEN.split(request):
        text = _EXAMPLES.sub("", part).strip()
        wish = f"{rest} {text}".strip()
        if len(set(index.content_words(text))) < MIN_WORDS:
            rest = wish
            continue
        rest = ""
        if index.content_words(wish) != whole:
            found.setdefault(wish)
    return list(found)[:MAX_WISHES]


# Word vectors, which compare the meaning of texts that share no word.
#
# `word_vectors.bin` has one small vector for each stem. `scripts/fit_word_vectors.py` fits them so that the sum of a
# text's word vectors is near the vector of the whole text by a sentence model.


MAGIC: Final = b"codemode-mcp word vectors 1\n"


class WordVectors:
    """Vectors of stems.

    Args:
        data: `MAGIC`, a line with the number of dimensions, the stems separated by blanks and ended by a line feed,
            and for each stem its vector as signed bytes.

    Raises:
        ValueError: the data does not have this form.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("not a file of word vectors")
        after_width = data.find(b"\n", len(MAGIC)) + 1
        start = data.find(b"\n", after_width) + 1
        self._dimensions = width = int(data[len(MAGIC) : after_width])
        # Two arrays with a number for each word take a tenth of the memory of a dictionary.
        hashed = sorted((hash(word), row) for row, word in enumerate(data[after_width : start - 1].decode().split(" ")))
        self._hashes = array("q", [each for each, _ in hashed])
        self._rows = array("I", [row for _, row in hashed])
        self._lengths = array("d", bytes(8 * len(hashed)))
        self._matrix = memoryview(data)[start:].cast("b")
        if len(self._matrix) != width * len(hashed):
            raise ValueError(f"{len(hashed)} words of {width} dimensions are not {len(self._matrix)} bytes")

    def __contains__(self, stem: object) -> bool:
        return self._row(stem) is not None

    def _row(self, stem: object) -> int | None:
        """Return the row of a stem; None if it is unknown.

        Two words with the same hash are practically impossible: hashes have 64 bits and a random key.
        """
        wanted = hash(stem)
        place = bisect_left(self._hashes, wanted)
        if place == len(self._hashes) or self._hashes[place] != wanted:
            return None
        return self._rows[place]

    def _values(self, row: int) -> memoryview:
        return self._matrix[row * self._dimensions : (row + 1) * self._dimensions]

    def _length(self, row: int) -> float:
        length = self._lengths[row]
        if not length:
            values = self._values(row)
            length = self._lengths[row] = math.sqrt(sum(map(mul, values, values))) or 1.0
        return length

    def of(self, stems: Iterable[str]) -> list[float] | None:
        """Return the direction of a text as a vector of length 1; None if all of its words are unknown."""
        total: list[int] | None = None
        for stem in stems:
            row = self._row(stem)
            if row is not None:
                vector = self._values(row)
                total = list(vector) if total is None else list(map(add, total, vector))
        if total is None:
            return None
        length = math.sqrt(sum(map(mul, total, total)))
        return [each / length for each in total] if length else None

    def near(self, vector: Sequence[float], stems: Iterable[str], minimum: float) -> dict[str, float]:
        """Return the stems whose similarity to a vector of length 1 is at least `minimum`, with the similarity."""
        found = {}
        for stem in stems:
            row = self._row(stem)
            if row is not None:
                alike = similarity(vector, self._values(row)) / self._length(row)
                if alike >= minimum:
                    found[stem] = alike
        return found


def similarity(one: Iterable[float], other: Iterable[float]) -> float:
    """Return the cosine of two vectors of length 1."""
    cosine: float = sum(map(mul, one, other))
    return cosine


@lru_cache(maxsize=1)
def shipped_vectors() -> WordVectors:
    file = Path(__file__).with_name("word_vectors.bin")
    with file.open("rb") as opened:  # mapped, so that only needed pages are read, and processes share them
        return WordVectors(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
