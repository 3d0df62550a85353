"""Sloppy tool lists: repairs, dropped tools, and the sentences about them."""

from typing import Any

import pytest

from upstream_clients.list_repair import MAX_METADATA_BYTES, MAX_PROBLEMS, open_page, read_tools
from upstream_clients.tools import Annotations, Tool

GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}}


def only(item: object) -> tuple[Tool, tuple[str, ...]]:
    (tool,), problems = read_tools([item])
    return tool, problems


def test_a_complete_tool_is_taken_over_without_a_word() -> None:
    tool, problems = only(
        {
            "name": "create",
            "title": "Create it",
            "description": "Creates.",
            "inputSchema": {"type": "object", "properties": {"a": {}}},
            "outputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
        }
    )
    assert tool == Tool(
        "create",
        "Creates.",
        "Create it",
        {"type": "object", "properties": {"a": {}}},
        {"type": "object"},
        Annotations(read_only=False, destructive=True, idempotent=True, open_world=None),
    )
    assert problems == ()


def test_metadata_and_both_titles_are_kept() -> None:
    meta = {"ui": {"resourceUri": "ui://a/b", "visibility": ["model", "app"]}, "more": 1}
    icons = [{"src": "data:image/png;base64,AA=="}]
    tool, problems = only({**GOOD, "annotations": {"title": "Shown"}, "_meta": meta, "icons": icons})
    assert tool == Tool("good", title="Shown", annotations=Annotations(title="Shown"), meta=meta, icons=tuple(icons))
    assert problems == ()
    assert only({**GOOD, "title": "First", "annotations": {"title": "Second"}})[0].title == "First"


def test_metadata_that_is_too_large_is_left_out() -> None:
    tool, problems = only({**GOOD, "_meta": {"a": "x" * MAX_METADATA_BYTES}, "icons": [{"src": "a"}]})
    assert tool == Tool("good", icons=({"src": "a"},))
    assert problems == ("tool 'good': _meta is left out, since an item has at most 16384 bytes of metadata",)


@pytest.mark.parametrize(
    "item", ["text", None, 5, [], {}, {"name": ""}, {"name": 7}, {"name": ["x"]}, {"name": "n" * 257}]
)
def test_one_tool_that_cannot_be_called_is_dropped_and_the_others_are_kept(item: object) -> None:
    tools, problems = read_tools([GOOD, item, {**GOOD, "name": "other"}])
    assert [tool.name for tool in tools] == ["good", "other"]
    assert len(problems) == 1
    assert "dropped" in problems[0]


@pytest.mark.parametrize("schema", [None, 5, "object", [], {"type": "array"}, {"type": 7}, {"type": ["string"]}])
def test_an_input_schema_that_cannot_describe_arguments_becomes_any_object(schema: object) -> None:
    tool, problems = only({"name": "a", "inputSchema": schema})
    assert tool.input_schema == {"type": "object"}
    assert len(problems) == 1
    assert "'a'" in problems[0]


def test_an_input_schema_without_a_type_keeps_all_else() -> None:
    tool, problems = only({"name": "a", "inputSchema": {"anyOf": [{"required": ["x"]}]}})
    assert tool.input_schema == {"anyOf": [{"required": ["x"]}], "type": "object"}
    assert problems == ()


def test_wrong_types_in_optional_fields_cost_the_field_and_not_the_tool() -> None:
    tool, problems = only(
        {
            "name": "a",
            "title": 1,
            "description": ["x"],
            "inputSchema": {"type": "object"},
            "outputSchema": "none",
            "annotations": {"readOnlyHint": "yes", "destructiveHint": 1, "title": "Shown"},
        }
    )
    assert tool == Tool("a", title="Shown", annotations=Annotations(title="Shown"))
    assert len(problems) == 5


def test_annotations_that_are_no_object_are_ignored() -> None:
    tool, problems = only({**GOOD, "annotations": "readOnly"})
    assert tool.annotations == Annotations()
    assert len(problems) == 1


def test_of_equal_names_the_first_wins() -> None:
    tools, problems = read_tools([{**GOOD, "description": "first"}, {**GOOD, "description": "second"}])
    assert [tool.description for tool in tools] == ["first"]
    assert problems == ("tool 'good' is listed more than once; the first one is kept",)


def test_the_order_of_the_server_is_kept() -> None:
    names = ["z", "a", "m"]
    tools, _ = read_tools({**GOOD, "name": name} for name in names)
    assert [tool.name for tool in tools] == names


def test_very_many_problems_are_counted_and_not_listed() -> None:
    _, problems = read_tools([None] * 1000)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == "... and 950 more problems"


def test_problems_do_not_repeat_long_hostile_text() -> None:
    _, problems = read_tools([{"name": "n" * 100_000}, {"name": "a", "inputSchema": {"type": "t" * 100_000}}])
    assert all(len(problem) < 200 for problem in problems)


@pytest.mark.parametrize("raw", [{}, {"tools": None}, {"tools": {"a": 1}}, {"tools": "x"}])
def test_a_page_without_a_list_of_tools_is_an_empty_page(raw: dict[str, Any]) -> None:
    page = open_page(raw)
    assert page.items == []
    assert len(page.problems) == 1


@pytest.mark.parametrize(("cursor", "problems"), [(None, 0), ("", 0), (5, 1), ([], 1)])
def test_a_cursor_that_is_no_text_ends_the_list(cursor: object, problems: int) -> None:
    page = open_page({"tools": [], "nextCursor": cursor})
    assert page.next_cursor is None
    assert len(page.problems) == problems
