"""The quality of the search: the ranks of the wanted tools for labelled requests."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.search.index import Field, Index, Thesaurus
from codemode_mcp.extensions.semantic.model import Meaning, available
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.list_repair import read_tools
from upstream_clients.tools import UpstreamView

LISTS = Path(__file__).parents[2] / "shared" / "corpus" / "toollists"
QUERIES = Path(__file__).parent / "search_queries.json"
"""Requests in the words of people."""
BY_MODELS = Path(__file__).parent / "search_queries_by_models.json"
"""Requests as a model at work writes them."""


def read_lists(folder: Path) -> list[UpstreamView]:
    """Recorded `tools/list` answers, one file per server.

    Raises:
        SystemExit: there are none.
    """
    views = []
    for file in sorted(folder.glob("*.json")):
        tools, _ = read_tools(json.loads(file.read_text("utf-8"))["tools"])
        views.append(UpstreamView(file.stem, "ready", tools=tuple(tools)))
    if not views:
        raise SystemExit(f"{folder} has no recorded tool lists; name a folder that has with --tools")
    return views


@dataclass(frozen=True, slots=True)
class Quality:
    """Shares of requests with a right answer among the first one and five, and the mean reciprocal rank."""

    recall_1: float
    recall_5: float
    mrr: float

    def __str__(self) -> str:
        return f"Recall@1 {self.recall_1:.3f}  Recall@5 {self.recall_5:.3f}  MRR {self.mrr:.3f}"


def measure_quality(find: Callable[[str], Sequence[str]], queries: Sequence[Mapping[str, Any]]) -> Quality:
    """Measure `find`, which gives the names of tools, `server/tool`, best first."""
    ranks = []
    for query in queries:
        right = set(query["answers"])
        ranks.append(next((rank for rank, name in enumerate(find(query["query"]), 1) if name in right), 0))
    count = len(queries)
    return Quality(
        sum(rank == 1 for rank in ranks) / count,
        sum(0 < rank <= 5 for rank in ranks) / count,
        sum(1 / rank for rank in ranks if rank) / count,
    )


def catalog_search(views: Sequence[UpstreamView], meaning: Meaning | None = None) -> Callable[[str], list[str]]:
    """Return a search as `API.search` does it, with the extra `semantic` once its vectors are there."""
    catalog = build(views, Policy(PolicyRules()), meaning)
    catalog.prepare_search()
    if meaning is not None:
        meaning.fill(lambda: False)
    names = {
        entry.path: f"{entry.source_name}/{entry.tool.name}" for server in catalog.servers for entry in server.tools
    }
    return lambda query: [names[hit["call"]] for hit in catalog.search(query, 50, None)]


def words_alone(views: Sequence[UpstreamView]) -> Callable[[str], list[str]]:
    """Return a search to compare with: BM25 over stemmed words of names and descriptions, no thesaurus."""
    named = [(f"{view.name}/{tool.name}", f"{tool.name} {tool.description}") for view in views for tool in view.tools]
    index = Index([(text,) for _, text in named], (Field(1.0),), Thesaurus(()))

    def find(query: str) -> list[str]:
        scores = index.scores(query)
        return [named[number][0] for number in sorted(scores, key=lambda number: (-scores[number], number))[:50]]

    return find


def search(lists: Path, *files: Path) -> None:
    """Print recall and rank over files of labelled requests, each file apart."""
    views = read_lists(lists)
    for queries in files:
        _search(views, queries)


def _search(views: Sequence[UpstreamView], queries: Path) -> None:
    labelled = json.loads(queries.read_text("utf-8"))
    known = {f"{view.name}/{tool.name}" for view in views for tool in view.tools}
    unknown = {name for query in labelled for name in query["answers"]} - known
    if unknown:
        raise SystemExit(f"{queries}: {len(unknown)} answers are in no tool list, such as {min(unknown)}")
    print(f"{queries.name}: {len(labelled)} requests over {len(known)} tools of {len(views)} servers")
    print(f"  words alone  {measure_quality(words_alone(views), labelled)}")
    print(f"  API.search   {measure_quality(catalog_search(views), labelled)}")
    if not available():
        print("  API.search with the semantic extra: not installed; pip install 'codemode-mcp[semantic]'")
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure_quality(catalog_search(views, Meaning(Path(folder))), labelled)
    print(f"  API.search with the semantic extra\n               {found}")
