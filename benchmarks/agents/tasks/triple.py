"""Tasks over three servers."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.tasks.double import euros
from benchmarks.agents.tasks.steps import delivered, each, invoices, pages, tickets, tracked
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.rates import rate_of
from benchmarks.agents.worlds.shared import by

Worlds = dict[str, Tables]


# country-revenue


def _revenue(worlds: Worlds) -> Any:
    known, sums = by(worlds["crm"]["customers"], "id"), Counter[str]()
    for row in worlds["billing"]["invoices"]:
        if row["status"] == "paid" and row["issued"].startswith("2026-04"):
            rate = rate_of(worlds["rates"]["rates"], row["currency"], row["issued"])
            sums[known[row["customer"]]["country"]] += row["amount_cents"] / 100 * rate  # type: ignore[assignment]
    return {country: round(total, 2) for country, total in sums.items()}


async def _revenue_calls(call: Calls) -> Any:
    async def values() -> tuple[list[Row], dict[str, float]]:
        rows = await invoices(call, status="paid", issued_from="2026-04-01", issued_to="2026-04-30")
        return rows, await euros(call, rows)

    customers, (rows, value) = await call.all(pages(call, "crm.list_customers", "customers"), values())
    country = {row["id"]: row["country"] for row in customers}
    sums: dict[str, float] = {}
    for row in rows:
        sums[country[row["customer"]]] = sums.get(country[row["customer"]], 0.0) + value[row["number"]]
    return {name: round(total, 2) for name, total in sums.items()}


# team-load


def _load(worlds: Worlds) -> Any:
    contacts = {row["contact_email"] for row in worlds["crm"]["customers"] if row["segment"] == "enterprise"}
    team = {row["email"]: row["team"] for row in worlds["people"]["employees"]}
    rows = [row for row in worlds["support"]["tickets"] if row["status"] != "closed" and row["contact"] in contacts]
    return Counter("none" if row["assignee"] is None else team[row["assignee"]] for row in rows)


async def _load_calls(call: Calls) -> Any:
    async def enterprise() -> set[str]:
        listed = await pages(call, "crm.list_customers", "customers", segment="enterprise")
        return {row["contact_email"] for row in await each(call, "crm.get_customer", "id", [r["id"] for r in listed])}

    contacts, first, second, people = await call.all(
        enterprise(),
        tickets(call, status="open"),
        tickets(call, status="pending"),
        call.together([("people.list_employees", {})]),
    )
    team = {row["email"]: row["team"] for row in people[0]["employees"]}
    counts: dict[str, int] = {}
    for row in (*first, *second):
        if row["contact"] in contacts:
            name = team[row["assignee"]] if row["assignee"] else "none"
            counts[name] = counts.get(name, 0) + 1
    return counts


# late-credit


def _late(worlds: Worlds) -> Any:
    known, rows = by(worlds["billing"]["invoices"], "number"), worlds["shipping"]["shipments"]
    enterprise = {row["id"] for row in worlds["crm"]["customers"] if row["segment"] == "enterprise"}
    credited: dict[str, int] = {}
    for row in rows:
        invoice, arrived = known[row["invoice"]], delivered(row["events"])
        if not row["sent"].startswith("2026-04") or invoice["customer"] not in enterprise or arrived is None:
            continue
        if (date.fromisoformat(arrived) - date.fromisoformat(row["promised"])).days > 3:
            credited[row["invoice"]] = invoice["amount_cents"] // 10
    notes = [{"invoice": number, "amount_cents": cents, "reason": "late"} for number, cents in credited.items()]
    worlds["billing"]["credit_notes"] += notes
    return credited


async def _late_calls(call: Calls) -> Any:
    enterprise, sent, listed = await call.all(
        pages(call, "crm.list_customers", "customers", segment="enterprise"),
        pages(call, "shipping.list_shipments", "shipments", sent_from="2026-04-01", sent_to="2026-04-30"),
        invoices(call, issued_from="2026-03-20", issued_to="2026-04-30"),
    )
    ids = {row["id"] for row in enterprise}
    amounts = {row["number"]: row["amount_cents"] for row in listed if row["customer"] in ids}
    left = {row["tracking"]: row["invoice"] for row in sent if row["invoice"] in amounts}
    credited = {}
    for number, row in (await tracked(call, list(left))).items():
        arrived = delivered(row["events"])
        if arrived and (date.fromisoformat(arrived) - date.fromisoformat(row["promised"])).days > 3:
            credited[left[number]] = amounts[left[number]] * 10 // 100
    notes = [{"number": number, "amount_cents": cents, "reason": "late"} for number, cents in credited.items()]
    await call.together([("billing.create_credit_note", note) for note in notes])
    return credited


# book-review


def _book(worlds: Worlds) -> Any:
    team = sorted(row["email"] for row in worlds["people"]["employees"] if row["team"] == "docs")
    # Wednesday, 2026-06-17, is not allowed by the rules.
    start, end = "2026-06-18T14:00:00+02:00", "2026-06-18T14:30:00+02:00"
    for room in sorted(worlds["calendar"]["rooms"], key=lambda room: room["seats"]):
        taken = [row for row in worlds["calendar"]["events"] if row["room"] == room["room"]]
        if room["office"] != "Oslo" or room["seats"] < len(team):
            continue
        if not any(row["start"] < end and row["end"] > start for row in taken):
            events = worlds["calendar"]["events"]
            made = {"id": f"E{len(events) + 1}", "title": "Review", "room": room["room"], "start": start, "end": end}
            events.append({**made, "attendees": team})
            return {"room": room["room"], "day": "2026-06-18"}
    raise AssertionError("no room is free")


async def _book_calls(call: Calls) -> Any:
    hits = await call("wiki.search_pages", words="meetings")
    rule = (await call("wiki.get_page", id=next(p["id"] for p in hits["pages"] if p["title"] == "Meetings")))["text"]
    assert "No meetings on Wednesday afternoon" in rule
    team, rooms, events = await call.together(
        [
            ("people.list_employees", {"team": "docs"}),
            ("calendar.list_rooms", {}),
            ("calendar.list_events", {"day": "2026-06-18", "office": "Oslo"}),
        ]
    )
    emails = sorted(row["email"] for row in team["employees"])
    start, end = "2026-06-18T14:00:00+02:00", "2026-06-18T14:30:00+02:00"
    taken = {row["room"] for row in events["events"] if row["start"] < end and row["end"] > start}
    fitting = [row for row in rooms["rooms"] if row["office"] == "Oslo" and row["seats"] >= len(emails)]
    room = min((row for row in fitting if row["room"] not in taken), key=lambda row: row["seats"])["room"]
    await call("calendar.book", title="Review", room=room, start=start, end=end, attendees=emails)
    return {"room": room, "day": "2026-06-18"}


# report-authors


def _authors(worlds: Worlds) -> Any:
    severe = {row["id"] for row in worlds["metrics"]["incidents"] if row["severity"] < 3}
    email = {row["name"]: row["email"] for row in worlds["people"]["employees"]}
    pages_ = [row for row in worlds["wiki"]["pages"] if "an expired certificate" in row["text"]]
    return sorted(email[_author(row["text"])] for row in pages_ if row["title"].removeprefix("Report ") in severe)


def _author(words: str) -> str:
    found = re.search(r"Author: ([^.]+)\.", words)
    assert found is not None
    return found[1]


async def _authors_calls(call: Calls) -> Any:
    hits, listed, people = await call.together(
        [
            ("wiki.search_pages", {"words": "report expired certificate"}),
            ("metrics.list_incidents", {}),
            ("people.list_employees", {}),
        ]
    )
    severity = {row["id"]: row["severity"] for row in listed["incidents"]}
    texts = await each(call, "wiki.get_page", "id", [row["id"] for row in hits["pages"]])
    severe = [row for row in texts if severity.get(row["title"].removeprefix("Report "), 3) < 3]
    email = {row["name"]: row["email"] for row in people["employees"]}
    return sorted(email[_author(row["text"])] for row in severe)


TASKS = (
    Task(
        "country-revenue",
        ("crm", "billing", "rates"),
        "What is the sum in euros of the paid invoices issued in April 2026, by the country of the customer? Use the "
        "rate of the day on which an invoice was issued; at weekends, the rate of the Friday before.",
        'a JSON object of euros by country, such as {"Norway": 12.5}; round only the sums, to two digits',
        ("crm.list_customers", "billing.list_invoices", "rates.get_rate"),
        _revenue,
        _revenue_calls,
        (
            """\
const country = {};
let cursor;
do {
  const r = unwrap(await MCP.crm.listCustomers(cursor ? { cursor } : {}));
  for (const c of r.customers) country[c.id] = c.country;
  cursor = r.next_cursor;
} while (cursor);
const rows = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const april = { status: "paid", issued_from: "2026-04-01", issued_to: "2026-04-30", page };
  const r = unwrap(await MCP.billing.listInvoices(april));
  pages = r.pages;
  rows.push(...r.invoices);
}
const rate = async (currency, issued) => {
  if (currency === "EUR") return 1;
  const day = new Date(issued);
  while (day.getUTCDay() % 6 === 0) day.setUTCDate(day.getUTCDate() - 1);
  return unwrap(await MCP.rates.getRate({ currency, day: day.toISOString().slice(0, 10) })).rate;
};
const sums = {};
await Promise.all(rows.map(async (i) => {
  const euros = (i.amount_cents / 100) * (await rate(i.currency, i.issued));
  sums[country[i.customer]] = (sums[country[i.customer]] ?? 0) + euros;
}));
for (const name of Object.keys(sums)) sums[name] = Math.round(sums[name] * 100) / 100;
return sums;""",
        ),
    ),
    Task(
        "team-load",
        ("support", "crm", "people"),
        "How many tickets of enterprise customers that are not closed does each team have? A ticket belongs to the "
        'team of its assignee; without an assignee, count it as "none".',
        'a JSON object of numbers by team, such as {"apps": 4, "none": 1}, without teams that have none',
        ("crm.list_customers", "crm.get_customer", "support.search_tickets", "people.list_employees"),
        _load,
        _load_calls,
        (
            """\
const ids = [];
let cursor;
do {
  const r = unwrap(await MCP.crm.listCustomers({ segment: "enterprise", ...(cursor && { cursor }) }));
  ids.push(...r.customers.map((c) => c.id));
  cursor = r.next_cursor;
} while (cursor);
const full = await Promise.all(ids.map((id) => MCP.crm.getCustomer({ id }).then(unwrap)));
const contacts = new Set(full.map((c) => c.contact_email));
const tickets = [];
for (const status of ["open", "pending"]) {
  for (let offset = 0, total = 1; offset < total; offset += 25) {
    const r = unwrap(await MCP.support.searchTickets({ status, limit: 25, offset }));
    total = r.total;
    tickets.push(...r.items);
  }
}
const { employees } = unwrap(await MCP.people.listEmployees());
const team = Object.fromEntries(employees.map((e) => [e.email, e.team]));
const counts = {};
for (const t of tickets.filter((t) => contacts.has(t.contact))) {
  const name = t.assignee ? team[t.assignee] : "none";
  counts[name] = (counts[name] ?? 0) + 1;
}
return counts;""",
        ),
    ),
    Task(
        "late-credit",
        ("billing", "shipping", "crm"),
        "Some shipments of enterprise customers that were sent in April 2026 came more than 3 days after the promised "
        "day. Make a credit note of 10 percent of the invoice for each, rounded down to whole cents, with the reason "
        "late.",
        'a JSON object of the cents of the credit notes by invoice, such as {"INV-1001": 1234}',
        (
            *("crm.list_customers", "shipping.list_shipments", "shipping.track"),
            *("billing.list_invoices", "billing.create_credit_note"),
        ),
        _late,
        _late_calls,
        (
            """\
const all = async (list, filters, key) => {
  const rows = [];
  let cursor;
  do {
    const r = unwrap(await list({ ...filters, ...(cursor && { cursor }) }));
    rows.push(...r[key]);
    cursor = r.next_cursor;
  } while (cursor);
  return rows;
};
const customers = await all(MCP.crm.listCustomers, { segment: "enterprise" }, "customers");
const enterprise = new Set(customers.map((c) => c.id));
const sent = await all(MCP.shipping.listShipments, { sent_from: "2026-04-01", sent_to: "2026-04-30" }, "shipments");
const amounts = {};
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ issued_from: "2026-03-01", issued_to: "2026-04-30", page }));
  pages = r.pages;
  for (const i of r.invoices) if (enterprise.has(i.customer)) amounts[i.number] = i.amount_cents;
}
const credited = {};
await Promise.all(sent.filter((s) => s.invoice in amounts).map(async (s) => {
  let r;
  for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking: s.tracking })).isError) break;
  const { events, promised } = unwrap(r);
  const day = events.find((e) => e.what === "delivered")?.day;
  if (!day || new Date(day) - new Date(promised) <= 3 * 864e5) return;
  const amount_cents = Math.floor(amounts[s.invoice] / 10);
  unwrap(await MCP.billing.createCreditNote({ number: s.invoice, amount_cents, reason: "late" }));
  credited[s.invoice] = amount_cents;
}));
return credited;""",
        ),
    ),
    Task(
        "book-review",
        ("people", "calendar", "wiki"),
        "Book a meeting with the title Review for all members of the docs team in Oslo, from 14:00 to 14:30 in Oslo, "
        "on the first day from 2026-06-17 on that the rules for meetings in the wiki allow. Take the smallest free "
        "room in Oslo that has enough seats.",
        'a JSON object with "room" and "day", such as {"room": "Oslo-1", "day": "2026-06-20"}',
        (
            *("wiki.search_pages", "wiki.get_page", "people.list_employees"),
            *("calendar.list_rooms", "calendar.list_events", "calendar.book"),
        ),
        _book,
        _book_calls,
        (
            'const { pages } = unwrap(await MCP.wiki.searchPages({ words: "meetings" }));\n'
            "const full = await Promise.all(pages.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)));\n"
            "return full.map((p) => p.text);",
            """\
const day = "2026-06-18"; // Thursday: no meetings on Wednesday afternoon
const [{ employees }, { rooms }, { events }] = await Promise.all([
  MCP.people.listEmployees({ team: "docs" }).then(unwrap),
  MCP.calendar.listRooms().then(unwrap),
  MCP.calendar.listEvents({ day, office: "Oslo" }).then(unwrap),
]);
const start = `${day}T14:00:00+02:00`, end = `${day}T14:30:00+02:00`;
const busy = new Set(events.filter((e) => e.start < end && e.end > start).map((e) => e.room));
const fits = rooms.filter((r) => r.office === "Oslo" && r.seats >= employees.length && !busy.has(r.room));
const { room } = fits.sort((a, b) => a.seats - b.seats)[0];
const attendees = employees.map((e) => e.email);
unwrap(await MCP.calendar.book({ title: "Review", room, start, end, attendees }));
return { room, day };""",
        ),
    ),
    Task(
        "report-authors",
        ("metrics", "wiki", "people"),
        "Who wrote the reports in the wiki about incidents of severity 1 or 2 whose cause was an expired certificate?",
        "a JSON array of the e-mail addresses of the authors, in alphabetical order",
        ("metrics.list_incidents", "wiki.search_pages", "wiki.get_page", "people.list_employees"),
        _authors,
        _authors_calls,
        (
            """\
const [{ pages }, { incidents }] = await Promise.all([
  MCP.wiki.searchPages({ words: "report expired certificate" }).then(unwrap),
  MCP.metrics.listIncidents().then(unwrap),
]);
const severe = new Set(incidents.filter((i) => i.severity < 3).map((i) => `Report ${i.id}`));
const found = pages.filter((p) => severe.has(p.title));
return (await Promise.all(found.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)))).map((p) => p.text);""",
            """\
const { employees } = unwrap(await MCP.people.listEmployees());
const names = ["Rosa Moreau", "Tara Berg"];
return employees.filter((e) => names.includes(e.name)).map((e) => e.email).sort();""",
        ),
    ),
)
