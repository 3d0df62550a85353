"""All pages of a server's lists, within limits, since the cursors of a server may never end."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from upstream_clients.cache_hints import NO_HINT, CacheHint, combined, read_hint
from upstream_clients.item_list_repair import MAX_ITEMS, read_items
from upstream_clients.tool_list_repair import cap_problems, open_page, read_tools
from upstream_clients.tools import Annotations, JsonObject, Tool

if TYPE_CHECKING:
    from upstream_clients.item_list_repair import ItemKind

logger = logging.getLogger(__name__)

MAX_PAGES = 1_000
MAX_TOOLS = 100_000
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of the pages of a list of prompts or templates, with the fields that are not kept."""

LIST_SECONDS = 10.0
"""Seconds for all pages after the first."""

SendFn = Callable[[str, Mapping[str, Any]], Awaitable[JsonObject]]


class Listing(NamedTuple):
    """All tools of one server, and the problems of its list."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...]
    hint: CacheHint = NO_HINT


class ItemListing(NamedTuple):
    """All prompts, resource templates or resources of one server, and the problems of its list."""

    items: tuple[JsonObject, ...]
    problems: tuple[str, ...]
    hint: CacheHint = NO_HINT


class _Pages(NamedTuple):
    """The items of all pages. `size`, in bytes, and `pages` are 0 if they were not counted."""

    items: list[object]
    problems: list[str]
    size: int
    pages: int
    hint: CacheHint


async def list_tools(send: SendFn, server: str = "") -> Listing:
    """Fetch all pages through `send` and return the tools. Any exception of `send` is passed on.

    `server`: the name for the log.
    """
    fetched = await _fetch(send, "tools/list", "tools", MAX_TOOLS, f"{MAX_TOOLS} tools")
    tools, bad_tools = read_tools(fetched.items)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "server %r: answer to tools/list: %d tools (%d with an output schema, %d with annotations), %d bytes in %d "
            "pages",
            server,
            len(tools),
            sum(tool.output_schema is not None for tool in tools),
            sum(tool.annotations != Annotations() for tool in tools),
            fetched.size,
            fetched.pages,
        )
    return Listing(tools, cap_problems([*fetched.problems, *bad_tools]), fetched.hint)


async def list_items(send: SendFn, kind: ItemKind) -> ItemListing:
    """Fetch all pages through `send` and return the items. Any exception of `send` is passed on."""
    limit = f"{MAX_ITEMS} items or {MAX_BYTES} bytes"
    fetched = await _fetch(send, kind.method, kind.key, MAX_ITEMS, limit, MAX_BYTES)
    items, bad_items = read_items(kind, fetched.items)
    return ItemListing(items, cap_problems([*fetched.problems, *bad_items]), fetched.hint)


async def _fetch(
    send: SendFn, method: str, key: str, max_items: int, limit: str, max_bytes: float = math.inf
) -> _Pages:
    # The sizes of tools are not limited here: a message has a limit, and counting would delay the start of a server.
    counts = max_bytes < math.inf or logger.isEnabledFor(logging.DEBUG)
    size = pages = 0
    items: list[object] = []
    deadline = anyio.current_time() + LIST_SECONDS
    problems: list[str] = []
    hints: list[CacheHint] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        raw: JsonObject | None = None
        # The caller limits the time of the first page. A later page has a limit of its own, so that a server which is
        # slow at the end does not lose its first items.
        with anyio.CancelScope(deadline=math.inf if cursor is None else deadline):
            raw = await send(method, {} if cursor is None else {"cursor": cursor})
        if raw is None:
            problems.append(f"{method} has more pages after {LIST_SECONDS:g} s; the rest is left out")
            break
        if counts:
            size, pages = size + len(json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace")), pages + 1
        hints.append(read_hint(raw))
        page = open_page(raw, method, key)
        items += page.items
        problems += page.problems
        cursor = page.next_cursor
        if cursor is None:
            break
        if cursor in seen:
            problems.append(f"{method} gave the same cursor twice; stopped there")
            break
        if len(items) >= max_items or size > max_bytes:
            problems.append(f"{method} has more than {limit}; the rest is left out")
            break
        seen.add(cursor)
    else:
        problems.append(f"{method} has more than {MAX_PAGES} pages; the rest is left out")
    return _Pages(items[:max_items], problems, size, pages, combined(hints))
