"""Many tools: how good the search is on labelled requests, and what 10,000 tools cost."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import report

from codemode_mcp.catalog.per_caller import build
from codemode_mcp.extensions.semantic.model import Meaning, available
from codemode_mcp.policy.policy import Policy
from codemode_mcp.search.index import Field, Index, Thesaurus
from codemode_mcp.settings import PolicyRules
from upstream_clients.list_repair import read_tools
from upstream_clients.tools import Tool, UpstreamView

LISTS = Path(__file__).parents[2] / "shared" / "corpus" / "toollists"
QUERIES = Path(__file__).parent / "search_queries.json"
"""Requests in the words of people."""
BY_MODELS = Path(__file__).parent / "search_queries_by_models.json"
"""Requests as a model at work writes them."""
MANY = 10_000
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


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


# how good


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


# how much


def many(lists: Path) -> None:
    """A catalog of 10,000 tools: time and memory to build it and its index, time to search it and to render it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        figures = pool.apply(_many, (lists,))
    report(f"{MANY} tools: catalog, names and index", f"{figures['build']:.2f} s", "< 1 s", figures["build"] < 1)
    report("  memory for that and its searches", f"{figures['memory']:.0f} MB", "< 100 MB", figures["memory"] < 100)
    report("  search, median", f"{figures['p50']:.1f} ms", "< 5 ms", figures["p50"] < 5)
    report("  search, 99th percentile", f"{figures['p99']:.1f} ms", "< 20 ms", figures["p99"] < 20)
    report("  rendering, per tool", f"{figures['render']:.0f} us", "< 100 us", figures["render"] < 100)
    report("  the same, in the next catalog", f"{figures['again']:.0f} us", "cached", figures["again"] < 20)


def _many(lists: Path) -> dict[str, float]:
    views = repeated(read_lists(lists), MANY)
    queries = [query["query"] for query in json.loads(QUERIES.read_text("utf-8"))]
    build(views[:1], Policy(PolicyRules())).search("warm up", 5, None)
    gc.collect()
    memory = _resident()
    began = time.perf_counter()
    catalog = build(views, Policy(PolicyRules()))
    catalog.search(queries[0], 8, None)
    figures = {"build": time.perf_counter() - began}
    catalog.prepare_search()  # as a server does in the background
    times = []
    for query in queries:
        began = time.perf_counter()
        catalog.search(query, 8, None)
        times.append(1000 * (time.perf_counter() - began))
    gc.collect()
    figures["memory"] = (_resident() - memory) / 1e6
    times.sort()
    figures |= {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}
    for name in ("render", "again"):
        catalog = build(views, Policy(PolicyRules()), previous=catalog)
        gc.collect()
        began = time.perf_counter()
        for path in catalog.files.paths:
            catalog.files.text(path)
        figures[name] = 1e6 * (time.perf_counter() - began) / MANY
    return figures


def repeated(views: Sequence[UpstreamView], count: int) -> list[UpstreamView]:
    """Return the same servers again and again under other names, their tools too, until there are `count` tools."""
    result: list[UpstreamView] = []
    room = count
    while room:
        turn = len(result) // len(views)
        view = views[len(result) % len(views)]
        tools = []
        for tool in view.tools[:room]:
            # Through JSON, so that nothing is shared between the copies.
            own = json.loads(
                json.dumps([f"{tool.name}_{turn}", tool.description, tool.input_schema, tool.output_schema])
            )
            tools.append(Tool(own[0], own[1], tool.title, own[2], own[3], tool.annotations))
        room -= len(tools)
        result.append(UpstreamView(f"{view.name}-{turn}", "ready", tools=tuple(tools)))
    return result


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE
