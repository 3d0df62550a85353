"""Saved programs in a catalog: their files, their hits in searches, and their stored form."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import OfferedTool
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text, read_catalog
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.cli.listing import list_tools
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.server.search_tools import found_tools
from upstream_clients.tools import Tool, UpstreamView

REPORT = """/**
 * Report the weather of a week.
 * @param input.city the town
 */
export default async function report({ city, days }: { city: string; days?: number }): Promise<{ text: string }> {
  return { text: `${city} ${days}` };
}"""
TOTALS = "export default (input: Query) => 1;\ninterface Query { parts: Part[] }\ninterface Part { sum: number }"


def catalog(rules: PolicyRules | None = None) -> Catalog:
    policy = Policy(rules or PolicyRules())
    tool = Tool("get_forecast", description="The weather of a town")
    view = UpstreamView(name="sky", state="ready", tools=(tool,))
    programs = [read_program("report", "typescript", REPORT), read_program("totals", "typescript", TOTALS)]
    return build([view], policy).with_tools(select_tools((), (), policy, None, programs))


def test_each_program_has_a_declaration_file() -> None:
    files = catalog().files
    listed = files.list_files("programs/")
    assert [(each["path"], each["description"]) for each in listed] == [
        ("programs/report.d.ts", "programs.report: Report the weather of a week."),
        ("programs/totals.d.ts", "programs.totals: a saved program"),
    ]
    text = files.read("programs/report.d.ts")["content"]
    assert text.startswith("declare namespace programs {\n")
    assert "function report(input: {\n    /** the town */\n    city: string" in text or "@param city the town" in text
    assert text.endswith("}): Promise<{ text: string }>;\n}\n")
    assert files.read("programs/report.d.ts")["bytes"] == len(text)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("programs.report", 'write API.read("programs/report.d.ts")'),
        ("programs/report.d.ts#report", "has one function"),
        ("programs/reprot.d.ts", "Nearest: programs/report.d.ts"),
    ],
)
def test_another_path_is_told_the_right_one(path: str, words: str) -> None:
    with pytest.raises(ProgramError, match=words.replace("(", r"\(").replace(")", r"\)")):
        catalog().files.read(path)


def test_a_search_finds_programs_beside_tools() -> None:
    hits = catalog().search("weather of a town", 10, None)
    assert [hit["call"] for hit in hits] == ["MCP.sky.getForecast", "programs.report"]
    assert hits[1]["path"] == "programs/report.d.ts"
    assert hits[1]["signature"] == (
        "programs.report(input: { city: string; days?: number }): Promise<{ text: string }>"
    )
    assert [hit["call"] for hit in catalog().search("report", 10, "programs")] == ["programs.report"]
    assert len(catalog().search("weather of a town", 1, None)) == 1


BOOKS = UpstreamView(
    "bookshop",
    "ready",
    tools=(
        Tool("listBooks", "List all books"),
        Tool("createBook", "Create a book"),
        Tool("getBook", "Get one book"),
        Tool("deleteBook", "Delete a book"),
    ),
)
ABOUT_BOOKS = (
    SavedProgram("bookStock", "javascript", "x", "Counts the books in stock.", {"type": "object"}),
    SavedProgram("authorReport", "javascript", "x", "Report about the books of an author.", {"type": "object"}),
    SavedProgram("topBooks", "javascript", "x", "Lists the most sold books of a month.", {"type": "object"}),
)
FIND = OfferedTool("plugin", "shelves", Tool("findShelf", "Finds the shelf of a book."))


def books() -> Catalog:
    policy = Policy(PolicyRules())
    return build([BOOKS], policy).with_tools(select_tools((FIND,), (), policy, None, ABOUT_BOOKS))


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("delete book", "MCP.bookshop.deleteBook"),
        ("list", "MCP.bookshop.listBooks"),
        ("get one book", "MCP.bookshop.getBook"),
        ("add a new book", "MCP.bookshop.createBook"),
        ("books in stock", "programs.bookStock"),
        ("which books were sold most", "programs.topBooks"),
        ("authorReport", "programs.authorReport"),
    ],
)
def test_the_best_hit_comes_first_whatever_the_limit_is(query: str, best: str) -> None:
    for limit in (1, 2, 5, 20):
        hits = books().search(query, limit, None)
        assert hits[0]["call"] == best
        scores = [hit["score"] for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert len(hits) <= limit


def test_a_program_has_the_score_that_a_tool_with_the_same_texts_has() -> None:
    policy = Policy(PolicyRules())
    tool = Tool("clean_up", "Delete a book")
    program = SavedProgram("clean_up", "javascript", "x", "Delete a book", {"type": "object"}, takes_input=False)
    view = UpstreamView("programs", "ready", tools=(*BOOKS.tools, tool))
    found = build([view], policy).with_tools(select_tools((), (), policy, None, [program])).search("delete", 9, None)
    scores = {hit["call"]: hit["score"] for hit in found}
    assert scores["programs.clean_up"] == pytest.approx(scores["MCP.programs_.cleanUp"])


def test_tools_of_plugins_are_ranked_among_the_others_where_both_are_listed() -> None:
    listed = list_tools(books(), [], "shelf of a book", None, 2).entries
    assert [each["call"] for each in listed][:1] == ["tools.findShelf"]
    assert "findShelf" not in str(books().search("shelf", 5, None))
    answer = found_tools(books(), {"query": "delete book", "limit": 1}, 8, 50)
    assert answer.startswith("MCP.bookshop.deleteBook")
    answer = found_tools(books(), {"query": "shelf of a book", "limit": 1}, 8, 50)
    assert answer.startswith("tools.findShelf")
    many = found_tools(books(), {"query": "books", "limit": 4}, 8, 50)
    assert many.count("MCP.bookshop.") >= 3, "programs, which cannot be called here, take no place"


def test_denied_programs_are_in_no_list() -> None:
    shown = catalog(PolicyRules(deny=("program:saved:report",)))
    assert shown.programs == {"totals"}
    everything: Any = [shown.files.list_files(""), shown.search("weather report", 10, None), shown.manifest]
    assert "report" not in str(everything)


def test_a_stored_catalog_has_the_texts_of_its_programs() -> None:
    before = catalog()
    after = read_catalog(catalog_text(before))
    assert [each.text for each in after.toolset.programs.programs] == [REPORT, TOTALS]
    assert after.manifest == before.manifest
    assert catalog_hash(after) == catalog_hash(before)
    assert catalog_hash(catalog(PolicyRules(deny=("program:saved:report",)))) != catalog_hash(before)
    with pytest.raises(ProgramError, match="cannot be read"):
        read_catalog(catalog_text(before).replace('"name":"report"', '"name":"totals"'))
