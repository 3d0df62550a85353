"""Operations on resources and prompts: their requests, and lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from codemode_mcp.catalog.entries import MAX_ITEMS, MAX_PAGES, params, perform
from declarations.operations import OPERATIONS, Operation
from upstream_clients.schemas import compile_schema

pytestmark = pytest.mark.anyio


def operation(group: str, name: str) -> Operation:
    return next(each for each in OPERATIONS[group] if each.name == name)


LIST = operation("resources", "list")


class Pages:
    """Make a server whose page for a cursor is `page(cursor)`."""

    def __init__(self, page: Callable[[int], dict[str, Any]]) -> None:
        self._page = page
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, method: str, sent: dict[str, Any]) -> dict[str, Any]:
        assert method == "resources/list"
        self.asked.append(sent)
        return self._page(int(sent.get("cursor", 0)))

    async def listed(self, arguments: dict[str, Any] | None = None, *, room: int = 10**9) -> Any:
        left = room

        def has_room(page: Any) -> bool:
            nonlocal left
            left -= len(page["resources"])
            return left >= 0

        return await perform(LIST, arguments or {}, self, has_room)


def numbered(last: int, each: int = 2) -> Callable[[int], dict[str, Any]]:
    def page(number: int) -> dict[str, Any]:
        items = {"resources": list(range(number * each, (number + 1) * each)), "_meta": {"page": number}}
        return items if number == last else {**items, "nextCursor": str(number + 1)}

    return page


async def test_all_pages_become_one_list() -> None:
    pages = Pages(numbered(2))
    assert await pages.listed() == {"resources": [0, 1, 2, 3, 4, 5], "_meta": {"page": 0}}
    assert pages.asked == [{}, {"cursor": "1"}, {"cursor": "2"}]


async def test_a_single_page_is_returned_unchanged() -> None:
    pages = Pages(numbered(0))
    assert await pages.listed() == {"resources": [0, 1], "_meta": {"page": 0}}
    assert len(pages.asked) == 1


async def test_a_list_with_a_cursor_returns_one_page() -> None:
    pages = Pages(numbered(9))
    assert await pages.listed({"cursor": "3"}) == {"resources": [6, 7], "_meta": {"page": 3}, "nextCursor": "4"}
    assert pages.asked == [{"cursor": "3"}]


async def test_an_endless_list_is_cut_and_has_the_next_cursor() -> None:
    pages = Pages(numbered(-1))
    found = await pages.listed()
    assert (len(pages.asked), len(found["resources"]), found["nextCursor"]) == (MAX_PAGES, 200, "100")


async def test_a_very_long_list_is_cut() -> None:
    pages = Pages(numbered(-1, each=3000))
    found = await pages.listed()
    assert len(found["resources"]) >= MAX_ITEMS
    assert (len(pages.asked), found["nextCursor"]) == (4, "4")


async def test_a_page_without_room_is_left_for_the_next_request() -> None:
    found = await Pages(numbered(9)).listed(room=5)
    assert (found["resources"], found["nextCursor"]) == ([0, 1, 2, 3], "2")


async def test_a_repeated_cursor_ends_the_list() -> None:
    pages = Pages(lambda number: {"resources": [number], "nextCursor": "1"})
    assert await pages.listed() == {"resources": [0, 1]}
    assert len(pages.asked) == 2


@pytest.mark.parametrize("odd", [{"resources": None, "nextCursor": "1"}, {}, {"resources": [], "nextCursor": 7}])
async def test_an_odd_answer_is_returned_unchanged(odd: dict[str, Any]) -> None:
    assert await Pages(lambda _: odd).listed() == odd


async def test_an_odd_page_ends_the_list_before_it() -> None:
    pages = Pages(lambda number: {"resources": [0], "nextCursor": "1"} if number == 0 else {"resources": "none"})
    assert await pages.listed() == {"resources": [0], "nextCursor": "1"}


def test_a_completion_request_references_its_template_or_prompt() -> None:
    argument = {"name": "n", "value": "v"}
    assert params(operation("prompts", "complete"), {"name": "p", "argument": argument}) == {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": argument,
    }
    context = {"arguments": {"a": "b"}}
    assert params(operation("resources", "complete"), {"uri": "x:{n}", "argument": argument, "context": context}) == {
        "ref": {"type": "ref/resource", "uri": "x:{n}"},
        "argument": argument,
        "context": context,
    }


def test_other_arguments_are_sent_unchanged() -> None:
    assert params(operation("prompts", "get"), {"name": "p", "arguments": {"a": "b"}}) == {
        "name": "p",
        "arguments": {"a": "b"},
    }


def test_the_schemas_of_all_operations_compile() -> None:
    for each in (*OPERATIONS["resources"], *OPERATIONS["prompts"]):
        assert not compile_schema(each.input_schema).is_valid({"unknown": 1})
