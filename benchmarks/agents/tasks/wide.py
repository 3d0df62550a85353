"""Tasks over four servers."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.tasks.double import euros
from benchmarks.agents.tasks.steps import delivered, each, invoices, pages, tickets, tracked
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.rates import rate_of
from benchmarks.agents.worlds.shared import TODAY, by

Worlds = dict[str, Tables]


# reminders-by-rule


def _reminders(worlds: Worlds) -> Any:
    known = by(worlds["crm"]["customers"], "id")
    office = {row["email"]: row["office"] for row in worlds["people"]["employees"]}
    counts: Counter[str] = Counter()
    for row in worlds["billing"]["invoices"]:
        customer = known[row["customer"]]
        ripe = date.fromisoformat(row["due"]) + timedelta(days=10) <= date.fromisoformat(TODAY)
        spared = customer["segment"] == "enterprise" or customer["status"] == "churned"
        if row["status"] == "open" and row["issued"].startswith("2026-04") and ripe and not spared:
            worlds["billing"]["reminders"].append({"invoice": row["number"]})
            counts[office.get(customer["owner"], "none")] += 1
    return counts


async def _reminders_calls(call: Calls) -> Any:
    hits, (rows, customers), people = await call.all(
        call.together([("wiki.search_pages", {"words": "payment reminders"})]),
        _april_with_customers(call),
        call.together([("people.list_employees", {})]),
    )
    (page,) = await each(call, "wiki.get_page", "id", [hits[0]["pages"][0]["id"]])
    assert "10 days after the due date" in page["text"]
    office = {row["email"]: row["office"] for row in people[0]["employees"]}
    chosen = [
        row
        for row in rows
        if row["due"] <= "2026-06-05"
        and customers[row["customer"]]["segment"] != "enterprise"
        and customers[row["customer"]]["status"] != "churned"
    ]
    await each(call, "billing.send_reminder", "number", [row["number"] for row in chosen])
    counts: dict[str, int] = {}
    for row in chosen:
        name = office.get(customers[row["customer"]]["owner"], "none")
        counts[name] = counts.get(name, 0) + 1
    return counts


async def _april_with_customers(call: Calls) -> tuple[list[Row], dict[str, Row]]:
    rows = await invoices(call, status="open", issued_from="2026-04-01", issued_to="2026-04-30")
    ids = sorted({row["customer"] for row in rows})
    return rows, {row["id"]: row for row in await each(call, "crm.get_customer", "id", ids)}


# customer-status


def _status(worlds: Worlds) -> Any:
    customer = by(worlds["crm"]["customers"], "name")["Dune Trading"]
    own = [row for row in worlds["billing"]["invoices"] if row["customer"] == customer["id"]]
    numbers = {row["number"] for row in own}
    sent = [row for row in worlds["shipping"]["shipments"] if row["invoice"] in numbers and row["sent"] >= "2026-05-01"]
    rows = worlds["support"]["tickets"]
    return {
        "status": customer["status"],
        "open_invoices": sum(row["status"] == "open" for row in own),
        "open_tickets": sum(row["contact"] == customer["contact_email"] and row["status"] == "open" for row in rows),
        "on_the_way": sum(delivered(row["events"]) is None for row in sent),
    }


async def _status_calls(call: Calls) -> Any:
    (found,) = (await call("crm.find_customers", words="Dune Trading"))["customers"]

    async def open_tickets() -> tuple[str, int]:
        customer = await call("crm.get_customer", id=found["id"])
        return customer["status"], len(await tickets(call, contact=customer["contact_email"], status="open"))

    (status, count), own, sent = await call.all(
        open_tickets(),
        invoices(call, customer=found["id"]),
        pages(call, "shipping.list_shipments", "shipments", sent_from="2026-05-01"),
    )
    numbers = {row["number"] for row in own}
    events = await tracked(call, [row["tracking"] for row in sent if row["invoice"] in numbers])
    return {
        "status": status,
        "open_invoices": sum(row["status"] == "open" for row in own),
        "open_tickets": count,
        "on_the_way": sum(delivered(row["events"]) is None for row in events.values()),
    }


# sales-by-office


def _offices(worlds: Worlds) -> Any:
    known = by(worlds["crm"]["customers"], "id")
    office = {row["email"]: row["office"] for row in worlds["people"]["employees"]}
    sums: dict[str, float] = {}
    for row in worlds["billing"]["invoices"]:
        if row["status"] == "paid" and row["issued"].startswith("2026-03"):
            name = office.get(known[row["customer"]]["owner"], "none")
            rate = rate_of(worlds["rates"]["rates"], row["currency"], row["issued"])
            sums[name] = sums.get(name, 0) + row["amount_cents"] / 100 * rate
    return {name: round(total, 2) for name, total in sums.items()}


async def _offices_calls(call: Calls) -> Any:
    rows, people = await call.all(
        invoices(call, status="paid", issued_from="2026-03-01", issued_to="2026-03-31"),
        call.together([("people.list_employees", {})]),
    )
    ids = sorted({row["customer"] for row in rows})
    value, details = await call.all(euros(call, rows), each(call, "crm.get_customer", "id", ids))
    owner = {row["id"]: row["owner"] for row in details}
    office = {row["email"]: row["office"] for row in people[0]["employees"]}
    sums: dict[str, float] = {}
    for row in rows:
        name = office.get(owner[row["customer"]], "none")
        sums[name] = sums.get(name, 0) + value[row["number"]]
    return {name: round(total, 2) for name, total in sums.items()}


# late-by-carrier


def _carriers(worlds: Worlds) -> Any:
    known, customers = by(worlds["billing"]["invoices"], "number"), by(worlds["crm"]["customers"], "id")
    sums: dict[str, float] = {}
    for row in worlds["shipping"]["shipments"]:
        invoice, arrived = known[row["invoice"]], delivered(row["events"])
        midmarket = customers[invoice["customer"]]["segment"] == "midmarket"
        if row["sent"].startswith("2026-03") and midmarket and arrived and arrived > row["promised"]:
            rate = rate_of(worlds["rates"]["rates"], invoice["currency"], invoice["issued"])
            sums[row["carrier"]] = sums.get(row["carrier"], 0) + invoice["amount_cents"] / 100 * rate
    return {name: round(total, 2) for name, total in sums.items()}


async def _carriers_calls(call: Calls) -> Any:
    sent, listed, customers = await call.all(
        pages(call, "shipping.list_shipments", "shipments", sent_from="2026-03-01", sent_to="2026-03-31"),
        invoices(call, issued_from="2026-02-20", issued_to="2026-03-31"),
        pages(call, "crm.list_customers", "customers", segment="midmarket"),
    )
    ids = {row["id"] for row in customers}
    own = {row["number"]: row for row in listed if row["customer"] in ids}
    carrier = {row["tracking"]: row for row in sent if row["invoice"] in own}
    late: dict[str, str] = {}
    for number, row in (await tracked(call, list(carrier))).items():
        arrived = delivered(row["events"])
        if arrived and arrived > row["promised"]:
            late[carrier[number]["invoice"]] = carrier[number]["carrier"]
    sums: dict[str, float] = {}
    for number, value in (await euros(call, [own[number] for number in late])).items():
        sums[late[number]] = sums.get(late[number], 0) + value
    return {name: round(total, 2) for name, total in sums.items()}


EUROS = """\
const rate = async (currency, issued) => {
  if (currency === "EUR") return 1;
  const day = new Date(issued);
  while (day.getUTCDay() % 6 === 0) day.setUTCDate(day.getUTCDate() - 1);
  return unwrap(await MCP.rates.getRate({ currency, day: day.toISOString().slice(0, 10) })).rate;
};
"""
PAGES = """\
const all = async (list, filters, key) => {
  const rows = [];
  for (let cursor, page = 1; ; page++) {
    const r = unwrap(await list({ ...filters, ...(cursor && { cursor }), ...(key === "invoices" && { page }) }));
    rows.push(...r[key]);
    cursor = r.next_cursor;
    if (key === "invoices" ? page >= r.pages : !cursor) return rows;
  }
};
"""

TASKS = (
    Task(
        "reminders-by-rule",
        ("wiki", "billing", "crm", "people"),
        f"Today is {TODAY}. No reminder has been sent yet. Send one reminder for each open invoice issued in April "
        "2026 for which the rules about payment reminders in the wiki ask for one. How many were that by the office of "
        'the owner of the customer? Count owners who are no employees as "none".',
        'a JSON object of numbers by office, such as {"Oslo": 2, "none": 1}, without those that have none',
        (
            *("wiki.search_pages", "wiki.get_page", "billing.list_invoices", "billing.send_reminder"),
            *("crm.get_customer", "people.list_employees"),
        ),
        _reminders,
        _reminders_calls,
        (
            'const { pages } = unwrap(await MCP.wiki.searchPages({ words: "payment reminders" }));\n'
            "const full = await Promise.all(pages.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)));\n"
            "return full.map((p) => p.text);",
            """\
const rows = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const april = { status: "open", issued_from: "2026-04-01", issued_to: "2026-04-30", page };
  const r = unwrap(await MCP.billing.listInvoices(april));
  pages = r.pages;
  rows.push(...r.invoices.filter((i) => i.due <= "2026-06-05"));
}
const ids = [...new Set(rows.map((i) => i.customer))];
const customers = await Promise.all(ids.map((id) => MCP.crm.getCustomer({ id }).then(unwrap)));
const { employees } = unwrap(await MCP.people.listEmployees());
const office = Object.fromEntries(employees.map((e) => [e.email, e.office]));
const counts = {};
for (const { number, customer } of rows) {
  const c = customers.find((c) => c.id === customer);
  if (c.segment === "enterprise" || c.status === "churned") continue;
  unwrap(await MCP.billing.sendReminder({ number }));
  const name = office[c.owner] ?? "none";
  counts[name] = (counts[name] ?? 0) + 1;
}
return counts;""",
        ),
    ),
    Task(
        "customer-status",
        ("crm", "billing", "support", "shipping"),
        "How are things with the customer Dune Trading? I need its status, the number of its open invoices, the number "
        "of its tickets with the status open, and the number of its shipments that were sent on 2026-05-01 or later "
        "and are not delivered yet.",
        'a JSON object with "status", "open_invoices", "open_tickets" and "on_the_way"',
        (
            *("crm.find_customers", "crm.get_customer", "billing.list_invoices", "support.search_tickets"),
            *("shipping.list_shipments", "shipping.track"),
        ),
        _status,
        _status_calls,
        (
            PAGES
            + """\
const [{ id }] = unwrap(await MCP.crm.findCustomers({ words: "Dune Trading" })).customers;
const { status, contact_email: contact } = unwrap(await MCP.crm.getCustomer({ id }));
const [own, sent, found] = await Promise.all([
  all(MCP.billing.listInvoices, { customer: id }, "invoices"),
  all(MCP.shipping.listShipments, { sent_from: "2026-05-01" }, "shipments"),
  MCP.support.searchTickets({ contact, status: "open", limit: 1 }).then(unwrap),
]);
let on_the_way = 0;
for (const { tracking } of sent.filter((s) => own.some((i) => i.number === s.invoice))) {
  let r;
  for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking })).isError) break;
  if (!unwrap(r).events.some((e) => e.what === "delivered")) on_the_way++;
}
const open_invoices = own.filter((i) => i.status === "open").length;
return { status, open_invoices, open_tickets: found.total, on_the_way };""",
        ),
    ),
    Task(
        "sales-by-office",
        ("crm", "billing", "rates", "people"),
        "What is the sum in euros of the paid invoices issued in March 2026, by the office of the owner of the "
        "customer? Use the rate of the day on which an invoice was issued; at weekends, the rate of the Friday before. "
        'Count owners who are no employees as "none".',
        'a JSON object of euros by office, such as {"Oslo": 12.5, "none": 3}; round only the sums, to two digits',
        ("billing.list_invoices", "rates.get_rate", "crm.get_customer", "people.list_employees"),
        _offices,
        _offices_calls,
        (
            PAGES
            + EUROS
            + """\
const march = { status: "paid", issued_from: "2026-03-01", issued_to: "2026-03-31" };
const rows = await all(MCP.billing.listInvoices, march, "invoices");
const ids = [...new Set(rows.map((i) => i.customer))];
const customers = await Promise.all(ids.map((id) => MCP.crm.getCustomer({ id }).then(unwrap)));
const owner = Object.fromEntries(customers.map((c) => [c.id, c.owner]));
const { employees } = unwrap(await MCP.people.listEmployees());
const office = Object.fromEntries(employees.map((e) => [e.email, e.office]));
const sums = {};
for (const i of rows) {
  const name = office[owner[i.customer]] ?? "none";
  sums[name] = (sums[name] ?? 0) + (i.amount_cents / 100) * (await rate(i.currency, i.issued));
}
for (const name in sums) sums[name] = Math.round(sums[name] * 100) / 100;
return sums;""",
        ),
    ),
    Task(
        "late-by-carrier",
        ("shipping", "billing", "crm", "rates"),
        "Which sums in euros were in shipments to midmarket customers that were sent in March 2026 and delivered after "
        "the promised day, by carrier? The sum of a shipment is that of its invoice. Use the rate of the day on which "
        "the invoice was issued; at weekends, the rate of the Friday before.",
        'a JSON object of euros by carrier, such as {"Swift": 12.5}; round only the sums, to two digits',
        (
            *("shipping.list_shipments", "shipping.track", "billing.list_invoices"),
            *("crm.list_customers", "rates.get_rate"),
        ),
        _carriers,
        _carriers_calls,
        (
            PAGES
            + EUROS
            + """\
const [sent, listed, customers] = await Promise.all([
  all(MCP.shipping.listShipments, { sent_from: "2026-03-01", sent_to: "2026-03-31" }, "shipments"),
  all(MCP.billing.listInvoices, { issued_from: "2026-02-01", issued_to: "2026-03-31" }, "invoices"),
  all(MCP.crm.listCustomers, { segment: "midmarket" }, "customers"),
]);
const ids = new Set(customers.map((c) => c.id));
const own = Object.fromEntries(listed.filter((i) => ids.has(i.customer)).map((i) => [i.number, i]));
const sums = {};
for (const { tracking, invoice, carrier } of sent.filter((s) => own[s.invoice])) {
  let r;
  for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking })).isError) break;
  const { events, promised } = unwrap(r);
  if (!(events.find((e) => e.what === "delivered")?.day > promised)) continue;
  const { amount_cents, currency, issued } = own[invoice];
  sums[carrier] = (sums[carrier] ?? 0) + (amount_cents / 100) * (await rate(currency, issued));
}
for (const name in sums) sums[name] = Math.round(sums[name] * 100) / 100;
return sums;""",
        ),
    ),
)
