"""Saved programs in a catalog: their files, their hits in searches, and their stored form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from codemode_mcp.catalog.build import build
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text, read_catalog
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.errors import ProgramError
from codemode_mcp.policy.policy import Policy
from codemode_mcp.saved_programs.program_file import read_program
from codemode_mcp.settings import PolicyRules
from upstream_clients.tools import Tool, UpstreamView

if TYPE_CHECKING:
    from codemode_mcp.catalog.catalog import Catalog

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
    assert listed[0]["bytes"] == len(text)


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
    assert [hit["call"] for hit in hits] == ["programs.report", "MCP.sky.getForecast"]
    assert hits[0]["path"] == "programs/report.d.ts"
    assert hits[0]["signature"] == (
        "programs.report(input: { city: string; days?: number }): Promise<{ text: string }>"
    )
    assert [hit["call"] for hit in catalog().search("report", 10, "programs")] == ["programs.report"]
    assert len(catalog().search("weather of a town", 1, None)) == 1


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
