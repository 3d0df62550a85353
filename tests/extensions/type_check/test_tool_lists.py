"""The tool lists that the type check is measured with, and the values that their server answers."""

from __future__ import annotations

from itertools import pairwise

import jsonschema_rs

from tests.extensions.type_check.fake_server import result_of
from tests.extensions.type_check.tool_lists import SERVERS, declarations, listed_tools, views


def test_eight_servers_have_145_tools_of_which_two_thirds_declare_results() -> None:
    tools = [tool for view in views() for tool in view.tools]
    assert (len(views()), len(tools)) == (8, 145)
    assert sum(tool.output_schema is not None for tool in tools) == 96


def test_the_same_servers_give_as_many_tools_as_are_asked_for() -> None:
    shown = views(1000)
    names = [(view.name, tool.name) for view in shown for tool in view.tools]
    assert len(set(names)) == 1000
    texts = declarations(shown)
    assert "function createIssue2(" in texts["mcp/issues2.d.ts"]
    assert sum(len(text) for text in texts.values()) > 6 * sum(len(text) for text in declarations().values())


def test_results_fit_the_schemas_of_their_tools() -> None:
    for server in SERVERS:
        for each in listed_tools(server):
            result = result_of(each, {})
            if each.tool.output_schema is not None:
                jsonschema_rs.validate(each.tool.output_schema, result["structuredContent"])
            else:
                assert "structuredContent" not in result


def test_a_second_page_is_the_last_one_and_fits_the_schema_too() -> None:
    ends = {
        "list_issues": "cursor",
        "search_messages": "pageToken",
        "listEvents": "pageToken",
        "list_payments": "startingAfter",
    }
    for each in (tool for server in SERVERS for tool in listed_tools(server) if tool.tool.name in ends):
        page = result_of(each, {ends[each.tool.name]: "x"})["structuredContent"]
        jsonschema_rs.validate(each.tool.output_schema, page)
        assert not page.get("page", {}).get("nextCursor")
        assert not page.get("nextPageToken")
        assert not page.get("hasMore")


def test_items_of_a_list_differ_in_their_optional_members() -> None:
    items = result_of(listed_tools("issues")[0], {})["structuredContent"]["items"]
    assert [("stateReason" in item) for item in items] == [True, False, True]
    assert all(one["title"] != other["title"] for one, other in pairwise(items))
