"""Search for tools by requests in everyday words.

Tools are ranked by BM25F over their names and texts. A thesaurus translates the words of a request into those of APIs;
`thesaurus.txt` was written by hand from how people talk, never from the tools of a server. The best tools by words are
also compared in meaning, with one small vector for each word (`word_vectors.bin`, fitted to a sentence model).

With the extra `semantic`, the score of a hit is `4 * cosine + score by words / best score by words` over all tools. The
model finds tools that share no word with the request, and words decide between tools with the same meaning. Any weight
from 3 to 5 gives almost the same results. One second after the start, and after each change, `warmup` makes the index
and the vectors in a thread. Searches use these vectors once the vectors of all tools of a catalog are made.

A request for several things ("create a workbook, add a chart and send it") is split. Each part is ranked
alone, and the best score of a tool for one part is added to its score for the whole.

Hits far below the best ones are left out. "Best" is the best hit of the second-best server, so that no server can drive
out the tools of all others by its texts.

Change weights only for reasons that hold for any tools; `benchmarks/run.py search` measures them with labelled
requests. These were tried and dropped, because one labelled set gained what another lost: fewer hits of one server,
word vectors refitted to summaries of MCP servers, word-by-word similarity, a vector for each server, reciprocal rank
fusion, ranking the clauses of a sentence as wishes, and a higher score for tools of the server with the best hits.

`index` splits and stems texts and ranks them by words and synonyms. `finder` splits requests, compares meanings and
combines both. `warmup` prepares searches in the background. The sentence model is `extensions/semantic`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


class Found(list[Item]):
    """The best hits, best first.

    Attributes:
        total: the number of hits, including those beyond the limit.
    """

    def __init__(self, hits: Iterable[Item], total: int) -> None:
        super().__init__(hits)
        self.total = total
