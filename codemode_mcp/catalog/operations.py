"""Operations on resources and prompts of a server, as MCP requests. Pure, except that `perform` awaits requests.

All pages of a list are fetched, within bounds, because programs would take the first page for the whole list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from declarations.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from declarations.operations import Operation

RESOURCE_LIST: Final = next(each for each in OPERATIONS["resources"] if each.id == "resources/list")

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000


def params(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the MCP request for the arguments of the program."""
    if operation.method != "completion/complete":
        return dict(arguments)
    rest = {name: value for name, value in arguments.items() if name not in ("name", "uri")}
    if operation.id.startswith("prompts/"):
        return {"ref": {"type": "ref/prompt", "name": arguments["name"]}, **rest}
    return {"ref": {"type": "ref/resource", "uri": arguments["uri"]}, **rest}


async def perform(
    operation: Operation,
    arguments: Mapping[str, Any],
    request: Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]],
    has_room: Callable[[Mapping[str, Any]], bool],
) -> Mapping[str, Any]:
    """Return the result of an operation.

    A list has all pages, unless the arguments have a `cursor`. A very long list is cut, and has the cursor of the next
    page.

    Args:
        request: sends one MCP request.
        has_room: returns True if a page can be added to the pages before. It is called for each page, except for a list
            that has one page only.
    """
    sent = params(operation, arguments)
    first = await request(operation.method, sent)
    items = operation.items
    if items is None or "cursor" in arguments or not _has_more(first, items):
        return first
    others = {name: value for name, value in first.items() if name != "nextCursor"}
    found = list(first[items])
    cursors = set()
    cursor = first["nextCursor"]
    # A faulty server can send pages without end: it repeats a cursor, or sends empty pages.
    has_room(first)
    for _ in range(MAX_PAGES - 1):
        if cursor in cursors or len(found) >= MAX_ITEMS:
            break
        page = await request(operation.method, {**sent, "cursor": cursor})
        if not isinstance(page.get(items), list) or not has_room(page):
            break
        cursors.add(cursor)
        found.extend(page[items])
        if not _has_more(page, items):
            return {**others, items: found}
        cursor = page["nextCursor"]
    rest = {} if cursor in cursors else {"nextCursor": cursor}
    return {**others, items: found, **rest}


def _has_more(page: Mapping[str, Any], items: str) -> bool:
    cursor = page.get("nextCursor")
    return isinstance(page.get(items), list) and isinstance(cursor, str) and cursor != ""
