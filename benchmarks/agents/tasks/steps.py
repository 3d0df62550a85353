"""Sequences of calls that several tasks make, each with as few steps as a careful model needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from benchmarks.agents.task import Calls, Refused
from benchmarks.agents.worlds.base import Row


async def invoices(call: Calls, **filters: Any) -> list[Row]:
    """List all invoices: the first page says how many pages there are."""
    first = await call("billing.list_invoices", **filters)
    more = [("billing.list_invoices", {**filters, "page": page}) for page in range(2, first["pages"] + 1)]
    pages = await call.together(more) if more else []
    return [row for page in (first, *pages) for row in page["invoices"]]


async def sold_in_may(call: Calls) -> list[Row]:
    """Get all invoices of May 2026 that are not void, with their lines."""
    listed = await invoices(call, issued_from="2026-05-01", issued_to="2026-05-31")
    numbers = [row["number"] for row in listed if row["status"] != "void"]
    return await each(call, "billing.get_invoice", "number", numbers)


async def tickets(call: Calls, **filters: Any) -> list[Row]:
    """Search all tickets: the first answer has their number."""
    first = await call("support.search_tickets", limit=25, **filters)
    offsets = range(25, first["total"], 25)
    more = [("support.search_tickets", {**filters, "limit": 25, "offset": offset}) for offset in offsets]
    pages = await call.together(more) if more else []
    return [row for page in (first, *pages) for row in page["items"]]


async def pages(call: Calls, path: str, key: str, **filters: Any) -> list[Row]:
    """List all pages of a tool with cursors, one after the other."""
    found: list[Row] = []
    cursor: Row = {}
    while True:
        page = await call(path, **filters, **cursor)
        found += page[key]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


async def each(call: Calls, path: str, key: str, values: Sequence[Any]) -> list[Any]:
    """Call a tool for each of some values, all in one step."""
    return await call.together([(path, {key: value}) for value in values]) if values else []


async def tracked(call: Calls, numbers: Sequence[str]) -> dict[str, Row]:
    """Track shipments, and track those again for which the carrier was busy."""
    found: dict[str, Row] = {}
    left = [*numbers]
    while left:
        results = await call.together([("shipping.track", {"tracking": number}) for number in left], refusals=True)
        found |= {row["tracking"]: row for row in results if not isinstance(row, Refused)}
        left = [number for number, row in zip(left, results, strict=True) if isinstance(row, Refused)]
    return found


def minutes(begin: str, end: str) -> int:
    """Return the whole minutes between two times with offsets."""
    return int((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()) // 60


def delivered(events: Sequence[Row]) -> str | None:
    """Return the day on which a shipment was delivered."""
    return next((event["day"] for event in events if event["what"] == "delivered"), None)
