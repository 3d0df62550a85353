"""All pages of a server's `tools/list`, within limits, since the cursors of a server may never end."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import anyio

from upstream_clients.tool_list_repair import cap_problems, open_page, read_tools
from upstream_clients.tools import Annotations, JsonObject, Tool

logger = logging.getLogger(__name__)

MAX_PAGES = 1_000
MAX_TOOLS = 100_000
LIST_SECONDS = 10.0
"""Seconds for all pages after the first."""

SendFn = Callable[[str, Mapping[str, Any]], Awaitable[JsonObject]]


class Listing(NamedTuple):
    """All tools of one server, and the problems of its list."""

    tools: tuple[Tool, ...]
    problems: tuple[str, ...]


async def list_tools(send: SendFn, server: str = "") -> Listing:
    """Fetch all pages through `send` and return the tools. Any exception of `send` is passed on.

    `server`: the name for the log.
    """
    size = pages = 0
    items: list[object] = []
    deadline = anyio.current_time() + LIST_SECONDS
    problems: list[str] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        raw: JsonObject | None = None
        # The caller limits the time of the first page. A later page has a limit of its own, so that a server which is
        # slow at the end does not lose its first tools.
        with anyio.CancelScope(deadline=math.inf if cursor is None else deadline):
            raw = await send("tools/list", {} if cursor is None else {"cursor": cursor})
        if raw is None:
            problems.append(f"tools/list has more pages after {LIST_SECONDS:g} s; the rest is left out")
            break
        if logger.isEnabledFor(logging.DEBUG):
            size, pages = size + len(json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace")), pages + 1
        page = open_page(raw)
        items += page.items
        problems += page.problems
        cursor = page.next_cursor
        if cursor is None:
            break
        if cursor in seen:
            problems.append("tools/list gave the same cursor twice; stopped there")
            break
        if len(items) >= MAX_TOOLS:
            problems.append(f"tools/list has more than {MAX_TOOLS} tools; the rest is left out")
            break
        seen.add(cursor)
    else:
        problems.append(f"tools/list has more than {MAX_PAGES} pages; the rest is left out")
    tools, bad_tools = read_tools(items[:MAX_TOOLS])
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "server %r: answer to tools/list: %d tools (%d with an output schema, %d with annotations), %d bytes in %d "
            "pages",
            server,
            len(tools),
            sum(tool.output_schema is not None for tool in tools),
            sum(tool.annotations != Annotations() for tool in tools),
            size,
            pages,
        )
    return Listing(tools, cap_problems([*problems, *bad_tools]))
