"""Tasks over two servers about customers, invoices and meetings."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from benchmarks.agents.task import Calls, Refused, Task
from benchmarks.agents.tasks.steps import delivered, each, invoices, pages, sold_in_may, tickets, tracked
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.rates import rate_of
from benchmarks.agents.worlds.shared import TODAY, by

Worlds = dict[str, Tables]


# overdue-enterprise


def _overdue(worlds: Worlds) -> Any:
    known = by(worlds["crm"]["customers"], "id")
    sums: Counter[str] = Counter()
    for row in worlds["billing"]["invoices"]:
        overdue = row["status"] == "open" and row["currency"] == "EUR" and row["due"] < TODAY
        if overdue and known[row["customer"]]["segment"] == "enterprise":
            sums[known[row["customer"]]["name"]] += row["amount_cents"]
    return sorted(([name, cents] for name, cents in sums.items()), key=lambda pair: -pair[1])


async def _overdue_calls(call: Calls) -> Any:
    customers, rows = await call.all(
        pages(call, "crm.list_customers", "customers", segment="enterprise"), invoices(call, status="open")
    )
    names = {row["id"]: row["name"] for row in customers}
    sums: dict[str, int] = {}
    for row in rows:
        if row["currency"] == "EUR" and row["due"] < TODAY and row["customer"] in names:
            name = names[row["customer"]]
            sums[name] = sums.get(name, 0) + row["amount_cents"]
    return [[name, sums[name]] for name in sorted(sums, key=lambda name: -sums[name])]


# tickets-by-country


def _countries(worlds: Worlds) -> Any:
    known = by(worlds["crm"]["customers"], "contact_email")
    return Counter(known[row["contact"]]["country"] for row in worlds["support"]["tickets"] if row["status"] == "open")


async def _countries_calls(call: Calls) -> Any:
    found = await tickets(call, status="open")
    contacts = sorted({row["contact"] for row in found})
    hits = await each(call, "crm.find_customers", "words", contacts)
    country = {contact: hit["customers"][0]["country"] for contact, hit in zip(contacts, hits, strict=True)}
    counts: dict[str, int] = {}
    for row in found:
        counts[country[row["contact"]]] = counts.get(country[row["contact"]], 0) + 1
    return counts


# absent-attendees


def _absentees(worlds: Worlds) -> Any:
    day = "2026-06-16"
    absent = {row["email"] for row in worlds["people"]["absences"] if row["first_day"] <= day <= row["last_day"]}
    events = [row for row in worlds["calendar"]["events"] if row["start"].startswith(day)]
    return sorted(row["id"] for row in events if absent & set(row["attendees"]))


async def _absentees_calls(call: Calls) -> Any:
    day = "2026-06-16"
    found, listed = await call.together(
        [("people.list_absences", {"first_day": day, "last_day": day}), ("calendar.list_events", {"day": day})]
    )
    absent = {row["email"] for row in found["absences"]}
    return sorted(row["id"] for row in listed["events"] if any(each in absent for each in row["attendees"]))


# may-revenue


def _may(worlds: Worlds) -> Any:
    rates, total = worlds["rates"]["rates"], 0.0
    for row in worlds["billing"]["invoices"]:
        if row["status"] == "paid" and row["issued"].startswith("2026-05"):
            total += row["amount_cents"] / 100 * rate_of(rates, row["currency"], row["issued"])
    return round(total, 2)


async def euros(call: Calls, rows: list[Row]) -> dict[str, float]:
    """Return the euros of invoices by their numbers, with rates that are asked for once each."""
    wanted = sorted({(row["currency"], row["issued"]) for row in rows if row["currency"] != "EUR"})
    asked = [("rates.get_rate", {"currency": currency, "day": day}) for currency, day in wanted]
    found = await call.together(asked, refusals=True) if asked else []
    again = {
        pair: str(answer).rpartition(", ")[2].rstrip(".")
        for pair, answer in zip(wanted, found, strict=True)
        if isinstance(answer, Refused)
    }
    more = [("rates.get_rate", {"currency": pair[0], "day": day}) for pair, day in again.items()]
    fridays = dict(zip(again, await call.together(more) if more else [], strict=True))
    rates = {pair: fridays.get(pair, answer) for pair, answer in zip(wanted, found, strict=True)}
    return {
        row["number"]: row["amount_cents"]
        / 100
        * (1 if row["currency"] == "EUR" else rates[row["currency"], row["issued"]]["rate"])
        for row in rows
    }


async def _may_calls(call: Calls) -> Any:
    rows = await invoices(call, status="paid", issued_from="2026-05-01", issued_to="2026-05-31")
    return round(sum((await euros(call, rows)).values()), 2)


# best-sellers


def _best(worlds: Worlds) -> Any:
    sold: Counter[str] = Counter()
    for row in worlds["billing"]["invoices"]:
        if row["status"] != "void" and row["issued"].startswith("2026-05"):
            for line in row["lines"]:
                sold[line["sku"]] += line["quantity"]
    names = by(worlds["stock"]["products"], "sku")
    return [names[sku]["name"] for sku, _ in sorted(sold.items(), key=lambda pair: (-pair[1], pair[0]))[:3]]


async def _best_calls(call: Calls) -> Any:
    sales, products = await call.all(sold_in_may(call), pages(call, "stock.list_products", "products"))
    sold: dict[str, int] = defaultdict(int)
    for row in sales:
        for line in row["lines"]:
            sold[line["sku"]] += line["quantity"]
    names = {row["sku"]: row["name"] for row in products}
    return [names[sku] for sku in sorted(sold, key=lambda sku: (-sold[sku], sku))[:3]]


# paid-not-delivered


def _undelivered(worlds: Worlds) -> Any:
    paid = {row["number"] for row in worlds["billing"]["invoices"] if row["status"] == "paid"}
    rows = [row for row in worlds["shipping"]["shipments"] if row["sent"] >= "2026-05-01"]
    return sorted(row["invoice"] for row in rows if row["invoice"] in paid and delivered(row["events"]) is None)


async def _undelivered_calls(call: Calls) -> Any:
    rows, listed = await call.all(
        pages(call, "shipping.list_shipments", "shipments", sent_from="2026-05-01"),
        invoices(call, status="paid", issued_from="2026-04-20"),
    )
    paid = {row["number"] for row in listed}
    left = {row["tracking"]: row["invoice"] for row in rows if row["invoice"] in paid}
    found = await tracked(call, list(left))
    return sorted(left[number] for number, row in found.items() if not delivered(row["events"]))


TASKS = (
    Task(
        "overdue-enterprise",
        ("crm", "billing"),
        f"Which enterprise customers have open invoices in EUR that were due before {TODAY}, and how much is that?",
        'a JSON array of [name, cents] for each customer, such as [["Alder Works", 12345]], the largest sum first',
        ("crm.list_customers", "billing.list_invoices"),
        _overdue,
        _overdue_calls,
        (
            """\
const names = new Map();
let cursor;
do {
  const r = unwrap(await MCP.crm.listCustomers({ segment: "enterprise", ...(cursor && { cursor }) }));
  for (const c of r.customers) names.set(c.id, c.name);
  cursor = r.next_cursor;
} while (cursor);
const sums = {};
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ status: "open", page }));
  pages = r.pages;
  for (const i of r.invoices) {
    if (i.currency !== "EUR" || i.due >= "2026-06-15" || !names.has(i.customer)) continue;
    const name = names.get(i.customer);
    sums[name] = (sums[name] ?? 0) + i.amount_cents;
  }
}
return Object.entries(sums).sort((a, b) => b[1] - a[1]);""",
        ),
    ),
    Task(
        "tickets-by-country",
        ("crm", "support"),
        "How many tickets with the status open are there for customers of each country?",
        'a JSON object of numbers by country, such as {"Norway": 3}',
        ("support.search_tickets", "crm.find_customers"),
        _countries,
        _countries_calls,
        (
            """\
const all = [];
for (let total = 1; all.length < total; ) {
  const r = unwrap(await MCP.support.searchTickets({ status: "open", limit: 25, offset: all.length }));
  total = r.total;
  all.push(...r.items);
}
const contacts = [...new Set(all.map((t) => t.contact))];
const hits = await Promise.all(contacts.map((words) => MCP.crm.findCustomers({ words }).then(unwrap)));
const country = Object.fromEntries(contacts.map((c, n) => [c, hits[n].customers[0].country]));
const counts = {};
for (const t of all) counts[country[t.contact]] = (counts[country[t.contact]] ?? 0) + 1;
return counts;""",
        ),
    ),
    Task(
        "absent-attendees",
        ("people", "calendar"),
        "Which meetings on 2026-06-16 have an attendee who is absent on that day?",
        "a JSON array of the ids of the meetings, in alphabetical order",
        ("people.list_absences", "calendar.list_events"),
        _absentees,
        _absentees_calls,
        (
            """\
const day = "2026-06-16";
const [{ absences }, { events }] = await Promise.all([
  MCP.people.listAbsences({ first_day: day, last_day: day }).then(unwrap),
  MCP.calendar.listEvents({ day }).then(unwrap),
]);
const absent = new Set(absences.map((a) => a.email));
return events.filter((e) => e.attendees.some((a) => absent.has(a))).map((e) => e.id).sort();""",
        ),
    ),
    Task(
        "may-revenue",
        ("billing", "rates"),
        "What is the sum in euros of all paid invoices that were issued in May 2026? Use the rate of the day on which "
        "an invoice was issued; at weekends, the rate of the Friday before.",
        "a number of euros; round only the sum, to two digits after the point",
        ("billing.list_invoices", "rates.get_rate"),
        _may,
        _may_calls,
        (
            """\
const rows = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const may = { status: "paid", issued_from: "2026-05-01", issued_to: "2026-05-31", page };
  const r = unwrap(await MCP.billing.listInvoices(may));
  pages = r.pages;
  rows.push(...r.invoices);
}
const rate = async (currency, issued) => {
  if (currency === "EUR") return 1;
  const day = new Date(issued);
  while (day.getUTCDay() % 6 === 0) day.setUTCDate(day.getUTCDate() - 1);
  return unwrap(await MCP.rates.getRate({ currency, day: day.toISOString().slice(0, 10) })).rate;
};
const euros = await Promise.all(rows.map(async (i) => (i.amount_cents / 100) * (await rate(i.currency, i.issued))));
return Math.round(euros.reduce((a, b) => a + b, 0) * 100) / 100;""",
        ),
    ),
    Task(
        "best-sellers",
        ("billing", "stock"),
        "Which three products were sold most by invoices issued in May 2026, by number of pieces? Void invoices do not "
        "count. If two were sold as often, the one whose sku comes first in the alphabet comes first.",
        "a JSON array of the names of the three products, the most sold first",
        ("billing.list_invoices", "billing.get_invoice", "stock.list_products"),
        _best,
        _best_calls,
        (
            """\
const numbers = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ issued_from: "2026-05-01", issued_to: "2026-05-31", page }));
  pages = r.pages;
  numbers.push(...r.invoices.filter((i) => i.status !== "void").map((i) => i.number));
}
const invoices = await Promise.all(numbers.map((number) => MCP.billing.getInvoice({ number }).then(unwrap)));
const sold = {};
for (const l of invoices.flatMap((i) => i.lines)) sold[l.sku] = (sold[l.sku] ?? 0) + l.quantity;
const top = Object.keys(sold).sort((a, b) => sold[b] - sold[a] || (a < b ? -1 : 1)).slice(0, 3);
const names = {};
let cursor;
do {
  const r = unwrap(await MCP.stock.listProducts(cursor ? { cursor } : {}));
  for (const p of r.products) names[p.sku] = p.name;
  cursor = r.next_cursor;
} while (cursor);
return top.map((sku) => names[sku]);""",
        ),
    ),
    Task(
        "paid-not-delivered",
        ("billing", "shipping"),
        "Which paid invoices have a shipment that was sent on 2026-05-01 or later and is not delivered yet?",
        "a JSON array of the numbers of the invoices, in alphabetical order",
        ("shipping.list_shipments", "billing.list_invoices", "shipping.track"),
        _undelivered,
        _undelivered_calls,
        (
            """\
const sent = [];
let cursor;
do {
  const r = unwrap(await MCP.shipping.listShipments({ sent_from: "2026-05-01", ...(cursor && { cursor }) }));
  sent.push(...r.shipments);
  cursor = r.next_cursor;
} while (cursor);
const paid = new Set();
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ status: "paid", issued_from: "2026-04-20", page }));
  pages = r.pages;
  for (const i of r.invoices) paid.add(i.number);
}
const track = async (s) => {
  let r;
  for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking: s.tracking })).isError) break;
  return { invoice: s.invoice, events: unwrap(r).events };
};
const all = await Promise.all(sent.filter((s) => paid.has(s.invoice)).map(track));
return all.filter((s) => !s.events.some((e) => e.what === "delivered")).map((s) => s.invoice).sort();""",
        ),
    ),
)
