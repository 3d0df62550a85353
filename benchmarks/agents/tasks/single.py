"""Tasks over one server that mostly read."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from benchmarks.agents.task import Calls, Refused, Task
from benchmarks.agents.tasks.steps import each, invoices, minutes, pages, tickets, tracked
from benchmarks.agents.worlds.base import Tables
from benchmarks.agents.worlds.metrics import SERVICES, instant, series
from benchmarks.agents.worlds.rates import rate_of

Worlds = dict[str, Tables]


# customers-in-norway


def _norway(worlds: Worlds) -> Any:
    return sum(row["country"] == "Norway" for row in worlds["crm"]["customers"])


async def _norway_calls(call: Calls) -> Any:
    return len((await call("crm.list_customers", country="Norway"))["customers"])


# one-assignee


def _assignee(worlds: Worlds) -> Any:
    return next(row["assignee"] for row in worlds["support"]["tickets"] if row["id"] == 5033)


async def _assignee_calls(call: Calls) -> Any:
    return (await call("support.get_ticket", id=5033))["assignee"]


# hotel-limit


def _hotel(worlds: Worlds) -> Any:
    return _hotel_limit(next(row["text"] for row in worlds["wiki"]["pages"] if row["id"] == "travel"))


def _hotel_limit(words: str) -> int:
    found = re.search(r"in Toronto (\d+) euros", words)
    assert found is not None
    return int(found[1])


async def _hotel_calls(call: Calls) -> Any:
    hits = await call("wiki.search_pages", words="hotel")
    return _hotel_limit((await call("wiki.get_page", id=hits["pages"][0]["id"]))["text"])


# dollars-on-sunday


def _dollars(worlds: Worlds) -> Any:
    return round(1250 * rate_of(worlds["rates"]["rates"], "USD", "2026-05-17"), 2)


async def _dollars_calls(call: Calls) -> Any:
    try:
        found = await call("rates.get_rate", currency="USD", day="2026-05-17")
    except Refused:
        found = await call("rates.get_rate", currency="USD", day="2026-05-15")
    return round(1250 * found["rate"], 2)


# open-totals


def _totals(worlds: Worlds) -> Any:
    sums: Counter[str] = Counter()
    for row in worlds["billing"]["invoices"]:
        if row["status"] == "open":
            sums[row["currency"]] += row["amount_cents"]
    return sums


async def _totals_calls(call: Calls) -> Any:
    sums: dict[str, int] = {}
    for row in await invoices(call, status="open"):
        sums[row["currency"]] = sums.get(row["currency"], 0) + row["amount_cents"]
    return sums


# slow-replies


def _slow(worlds: Worlds) -> Any:
    replied = [row for row in worlds["support"]["tickets"] if row["first_reply"] and row["priority"] == "urgent"]
    return sum(minutes(row["opened"], row["first_reply"]) > 240 for row in replied)


async def _slow_calls(call: Calls) -> Any:
    found = await tickets(call, priority="urgent")
    details = await each(call, "support.get_ticket", "id", [row["id"] for row in found])
    return len([1 for row in details if row["first_reply"] and minutes(row["opened"], row["first_reply"]) > 240])


# slowest-service


def _slowest(worlds: Worlds) -> Any:
    values = [
        (value, service, at) for service in SERVICES for at, value in enumerate(series(service, "p95_ms", "2026-06-10"))
    ]
    value, service, at = max(values)
    return {"service": service, "at": instant("2026-06-10", at), "value": value}


async def _slowest_calls(call: Calls) -> Any:
    queries = [("metrics.query", {"service": s, "metric": "p95_ms", "day": "2026-06-10"}) for s in SERVICES]
    results = await call.together(queries)
    best = [max(each["points"], key=lambda point: point["value"]) for each in results]
    first = max(range(len(SERVICES)), key=lambda number: best[number]["value"])
    return {"service": SERVICES[first], **best[first]}


# below-reorder


def _below(worlds: Worlds) -> Any:
    levels = worlds["stock"]["levels"]
    return sorted(row["sku"] for row in levels if row["north"] + row["south"] + row["west"] < row["reorder_at"])


async def _below_calls(call: Calls) -> Any:
    products = await pages(call, "stock.list_products", "products")
    found = await each(call, "stock.get_stock", "sku", [row["sku"] for row in products])
    return sorted(row["sku"] for row in found if sum(row["levels"].values()) < row["reorder_at"])


# stuck-in-customs


def _customs(worlds: Worlds) -> Any:
    rows = worlds["shipping"]["shipments"]
    may = [row for row in rows if "2026-05-01" <= row["sent"] <= "2026-05-31"]
    return sorted(row["tracking"] for row in may if row["events"][-1]["what"] == "customs")


async def _customs_calls(call: Calls) -> Any:
    may = {"sent_from": "2026-05-01", "sent_to": "2026-05-31"}
    rows = await pages(call, "shipping.list_shipments", "shipments", **may)
    found = await tracked(call, [row["tracking"] for row in rows])
    return sorted(number for number, row in found.items() if row["events"][-1]["what"] == "customs")


# absent-all-week


def _absent(worlds: Worlds) -> Any:
    rows = worlds["people"]["absences"]
    return sorted(
        {row["email"] for row in rows if row["first_day"] <= "2026-06-08" and row["last_day"] >= "2026-06-12"}
    )


async def _absent_calls(call: Calls) -> Any:
    found = (await call("people.list_absences", first_day="2026-06-08", last_day="2026-06-12"))["absences"]
    return sorted(
        {row["email"] for row in found if row["first_day"] <= "2026-06-08" and row["last_day"] >= "2026-06-12"}
    )


# booked-minutes


def _booked(worlds: Worlds) -> Any:
    sums: Counter[str] = Counter()
    for row in worlds["calendar"]["events"]:
        if row["start"].startswith("2026-06-18"):
            sums[row["room"].split("-")[0]] += minutes(row["start"], row["end"])
    return sums


async def _booked_calls(call: Calls) -> Any:
    sums: dict[str, int] = {}
    for row in (await call("calendar.list_events", day="2026-06-18"))["events"]:
        office = row["room"].partition("-")[0]
        sums[office] = sums.get(office, 0) + minutes(row["start"], row["end"])
    return sums


TASKS = (
    Task(
        "customers-in-norway",
        ("crm",),
        "How many customers are in Norway?",
        "a number",
        ("crm.list_customers",),
        _norway,
        _norway_calls,
        ('return unwrap(await MCP.crm.listCustomers({ country: "Norway" })).customers.length;',),
    ),
    Task(
        "one-assignee",
        ("support",),
        "Who is assigned to the ticket 5033?",
        "the e-mail address as a JSON string",
        ("support.get_ticket",),
        _assignee,
        _assignee_calls,
        ("return unwrap(await MCP.support.getTicket({ id: 5033 })).assignee;",),
    ),
    Task(
        "hotel-limit",
        ("wiki",),
        "How many euros may a night in a hotel in Toronto cost, by the rules in the wiki?",
        "a number",
        ("wiki.search_pages", "wiki.get_page"),
        _hotel,
        _hotel_calls,
        (
            'const { pages } = unwrap(await MCP.wiki.searchPages({ words: "hotel" }));\n'
            "const full = await Promise.all(pages.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)));\n"
            "return full.map((p) => p.text);",
        ),
        lambda value: _hotel_limit(value[0]),
    ),
    Task(
        "dollars-on-sunday",
        ("rates",),
        "How many euros were 1250 US dollars worth on 2026-05-17, by the rate of the bank?",
        "a number of euros, rounded to two digits after the point",
        ("rates.get_rate",),
        _dollars,
        _dollars_calls,
        (
            """\
let r = await MCP.rates.getRate({ currency: "USD", day: "2026-05-17" });
if (r.isError) r = await MCP.rates.getRate({ currency: "USD", day: r.content[0].text.match(/before, (\\S+)\\./)[1] });
return Math.round(1250 * unwrap(r).rate * 100) / 100;""",
        ),
    ),
    Task(
        "open-totals",
        ("billing",),
        "What is the sum of the open invoices in each currency?",
        'a JSON object of cents by currency, such as {"EUR": 100, "USD": 200}',
        ("billing.list_invoices",),
        _totals,
        _totals_calls,
        (
            """\
const sums = {};
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ status: "open", page }));
  pages = r.pages;
  for (const i of r.invoices) sums[i.currency] = (sums[i.currency] ?? 0) + i.amount_cents;
}
return sums;""",
        ),
    ),
    Task(
        "slow-replies",
        ("support",),
        "How many urgent tickets, in any status, got their first reply more than 4 hours after they were opened?",
        "a number",
        ("support.search_tickets", "support.get_ticket"),
        _slow,
        _slow_calls,
        (
            """\
const all = [];
for (let total = 1; all.length < total; ) {
  const r = unwrap(await MCP.support.searchTickets({ priority: "urgent", limit: 25, offset: all.length }));
  total = r.total;
  all.push(...r.items);
}
const full = await Promise.all(all.map((t) => MCP.support.getTicket({ id: t.id }).then(unwrap)));
return full.filter((t) => t.first_reply && new Date(t.first_reply) - new Date(t.opened) > 4 * 3600e3).length;""",
        ),
    ),
    Task(
        "slowest-service",
        ("metrics",),
        "Which service had the highest single value of p95_ms on 2026-06-10, when, and how high was it?",
        'a JSON object with the members "service", "at" (the time as in the data) and "value"',
        ("metrics.query",),
        _slowest,
        _slowest_calls,
        (
            """\
const names = ["gateway", "login", "orders", "search", "exports", "firmware"];
const all = await Promise.all(names.map(async (service) => {
  const { points } = unwrap(await MCP.metrics.query({ service, metric: "p95_ms", day: "2026-06-10" }));
  return points.map((p) => ({ service, at: p.at, value: p.value }));
}));
return all.flat().reduce((a, b) => (b.value > a.value ? b : a));""",
        ),
    ),
    Task(
        "below-reorder",
        ("stock",),
        "Of which products do the three warehouses together have fewer pieces than the number at which more should be "
        "ordered?",
        "a JSON array of the sku values, in alphabetical order",
        ("stock.list_products", "stock.get_stock"),
        _below,
        _below_calls,
        (
            """\
const skus = [];
let cursor;
do {
  const r = unwrap(await MCP.stock.listProducts(cursor ? { cursor } : {}));
  skus.push(...r.products.map((p) => p.sku));
  cursor = r.next_cursor;
} while (cursor);
const all = await Promise.all(skus.map((sku) => MCP.stock.getStock({ sku }).then(unwrap)));
return all.filter((s) => s.levels.north + s.levels.south + s.levels.west < s.reorder_at).map((s) => s.sku).sort();""",
        ),
    ),
    Task(
        "stuck-in-customs",
        ("shipping",),
        "Of which shipments that were sent in May 2026 is customs the last event?",
        "a JSON array of the tracking numbers, in alphabetical order",
        ("shipping.list_shipments", "shipping.track"),
        _customs,
        _customs_calls,
        (
            """\
const rows = [];
let cursor;
do {
  const may = { sent_from: "2026-05-01", sent_to: "2026-05-31" };
  const r = unwrap(await MCP.shipping.listShipments(cursor ? { ...may, cursor } : may));
  rows.push(...r.shipments);
  cursor = r.next_cursor;
} while (cursor);
const track = async (tracking) => {
  let r = await MCP.shipping.track({ tracking });
  for (let n = 0; r.isError && n < 3; n++) r = await MCP.shipping.track({ tracking });
  return unwrap(r);
};
const all = await Promise.all(rows.map((s) => track(s.tracking)));
return all.filter((s) => s.events.at(-1).what === "customs").map((s) => s.tracking).sort();""",
        ),
    ),
    Task(
        "absent-all-week",
        ("people",),
        "Who is absent on every day from Monday, 2026-06-08, to Friday, 2026-06-12, within one absence?",
        "a JSON array of e-mail addresses, in alphabetical order",
        ("people.list_absences",),
        _absent,
        _absent_calls,
        (
            """\
const week = { first_day: "2026-06-08", last_day: "2026-06-12" };
const { absences } = unwrap(await MCP.people.listAbsences(week));
const all = absences.filter((a) => a.first_day <= week.first_day && a.last_day >= week.last_day);
return [...new Set(all.map((a) => a.email))].sort();""",
        ),
    ),
    Task(
        "booked-minutes",
        ("calendar",),
        "For how many minutes are the rooms of each office booked on 2026-06-18, all rooms of the office together?",
        'a JSON object of minutes by office, such as {"Oslo": 90}',
        ("calendar.list_events",),
        _booked,
        _booked_calls,
        (
            """\
const { events } = unwrap(await MCP.calendar.listEvents({ day: "2026-06-18" }));
const sums = {};
for (const e of events) {
  const office = e.room.split("-")[0];
  sums[office] = (sums[office] ?? 0) + (new Date(e.end) - new Date(e.start)) / 60000;
}
return sums;""",
        ),
    ),
)
