"""Tasks over five servers that join their data."""

from __future__ import annotations

from datetime import date
from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.tasks.double import euros
from benchmarks.agents.tasks.steps import delivered, each, invoices, pages, tickets, tracked
from benchmarks.agents.tasks.wide import EUROS, PAGES
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.rates import rate_of
from benchmarks.agents.worlds.shared import by

Worlds = dict[str, Tables]


# seller-report


def _sellers(worlds: Worlds) -> Any:
    people = [row for row in worlds["people"]["employees"] if (row["team"], row["office"]) == ("sales", "Toronto")]
    report: dict[str, list[float]] = {}
    for person in people:
        own = [row for row in worlds["crm"]["customers"] if row["owner"] == person["email"]]
        ids, contacts = {row["id"] for row in own}, {row["contact_email"] for row in own}
        total = sum(
            row["amount_cents"] / 100 * rate_of(worlds["rates"]["rates"], row["currency"], row["issued"])
            for row in worlds["billing"]["invoices"]
            if row["status"] == "paid" and row["issued"].startswith("2026-04") and row["customer"] in ids
        )
        found = [row for row in worlds["support"]["tickets"] if row["contact"] in contacts and row["status"] == "open"]
        report[person["email"]] = [round(total, 2), len(found)]
    return report


async def _sellers_calls(call: Calls) -> Any:
    async def customers() -> list[Row]:
        listed = await pages(call, "crm.list_customers", "customers")
        return await each(call, "crm.get_customer", "id", [row["id"] for row in listed])

    async def values() -> tuple[list[Row], dict[str, float]]:
        rows = await invoices(call, status="paid", issued_from="2026-04-01", issued_to="2026-04-30")
        return rows, await euros(call, rows)

    people, known, (rows, value), found = await call.all(
        call.together([("people.list_employees", {"team": "sales"})]),
        customers(),
        values(),
        tickets(call, status="open"),
    )
    report: dict[str, list[float]] = {}
    for person in people[0]["employees"]:
        if person["office"] == "Toronto":
            own = [row for row in known if row["owner"] == person["email"]]
            ids, contacts = {row["id"] for row in own}, {row["contact_email"] for row in own}
            total = sum(value[row["number"]] for row in rows if row["customer"] in ids)
            report[person["email"]] = [round(total, 2), sum(row["contact"] in contacts for row in found)]
    return report


# credit-by-rule


def _credit(worlds: Worlds) -> Any:
    known, customers = by(worlds["billing"]["invoices"], "number"), by(worlds["crm"]["customers"], "id")
    lead = next(row["email"] for row in worlds["people"]["employees"] if row["team"] == "finance")
    approvers: dict[str, str] = {}
    for row in worlds["shipping"]["shipments"]:
        invoice, arrived = known[row["invoice"]], delivered(row["events"])
        if row["carrier"] != "Polar" or not row["sent"].startswith("2026-05") or arrived is None:
            continue
        if (date.fromisoformat(arrived) - date.fromisoformat(row["promised"])).days > 3:
            cents = invoice["amount_cents"] // 10
            note = {"invoice": row["invoice"], "amount_cents": cents, "reason": "late"}
            worlds["billing"]["credit_notes"].append(note)
            approvers[row["invoice"]] = lead if cents > 40000 else customers[invoice["customer"]]["owner"]
    return approvers


async def _credit_calls(call: Calls) -> Any:
    async def late() -> list[str]:
        may = {"carrier": "Polar", "sent_from": "2026-05-01", "sent_to": "2026-05-31"}
        sent = {
            row["tracking"]: row["invoice"] for row in await pages(call, "shipping.list_shipments", "shipments", **may)
        }
        found = await tracked(call, list(sent))
        days = {number: (delivered(row["events"]), row["promised"]) for number, row in found.items()}
        return [
            sent[number]
            for number, (arrived, promised) in days.items()
            if arrived and (date.fromisoformat(arrived) - date.fromisoformat(promised)).days > 3
        ]

    async def rule() -> str:
        hits = await call("wiki.search_pages", words="credit note")
        return str((await call("wiki.get_page", id=hits["pages"][0]["id"]))["text"])

    async def lead() -> str:
        team = (await call("people.list_employees", team="finance"))["employees"]
        return str((await call("people.get_employee", email=team[-1]["email"]))["manager"])

    numbers, words, finance = await call.all(late(), rule(), lead())
    assert "above 40000 cents" in words
    rows = await each(call, "billing.get_invoice", "number", numbers)
    small = sorted({row["customer"] for row in rows if row["amount_cents"] // 10 <= 40000})
    notes = [{"number": row["number"], "amount_cents": row["amount_cents"] // 10, "reason": "late"} for row in rows]
    *_, owners = await call.all(
        call.together([("billing.create_credit_note", note) for note in notes]),
        each(call, "crm.get_customer", "id", small),
    )
    owner = {row["id"]: row["owner"] for row in owners}
    return {row["number"]: owner.get(row["customer"], finance) for row in rows}


# recall


def _recall(worlds: Worlds) -> Any:
    sku = by(worlds["stock"]["products"], "name")["Rugged battery"]["sku"]
    sent = by(worlds["shipping"]["shipments"], "invoice")
    known, report = by(worlds["crm"]["customers"], "id"), {}
    for row in worlds["billing"]["invoices"]:
        if row["status"] == "void" or row["issued"] < "2026-04-01" or sku not in [line["sku"] for line in row["lines"]]:
            continue
        customer = known[row["customer"]]
        found = [each for each in worlds["support"]["tickets"] if each["contact"] == customer["contact_email"]]
        shipment = sent.get(row["number"])
        report[row["number"]] = [
            customer["name"],
            bool(shipment and delivered(shipment["events"])),
            sum("battery" in each["subject"].lower() and each["status"] != "closed" for each in found),
        ]
    return report


async def _recall_calls(call: Calls) -> Any:
    async def sold() -> list[Row]:
        listed = await invoices(call, issued_from="2026-04-01")
        numbers = [row["number"] for row in listed if row["status"] != "void"]
        return await each(call, "billing.get_invoice", "number", numbers)

    batteries, rows, sent, open_, pending = await call.all(
        pages(call, "stock.list_products", "products", category="battery"),
        sold(),
        pages(call, "shipping.list_shipments", "shipments", sent_from="2026-04-01"),
        tickets(call, words="battery", status="open"),
        tickets(call, words="battery", status="pending"),
    )
    sku = next(row["sku"] for row in batteries if row["name"] == "Rugged battery")
    hit = [row for row in rows if any(line["sku"] == sku for line in row["lines"])]
    ids = sorted({row["customer"] for row in hit})
    numbers = {row["number"] for row in hit}
    own = {row["invoice"]: row["tracking"] for row in sent if row["invoice"] in numbers}
    events, details = await call.all(tracked(call, list(own.values())), each(call, "crm.get_customer", "id", ids))
    known = {row["id"]: row for row in details}
    report = {}
    for row in hit:
        customer, tracking = known[row["customer"]], own.get(row["number"])
        done = bool(tracking and delivered(events[tracking]["events"]))
        count = sum(each["contact"] == customer["contact_email"] for each in (*open_, *pending))
        report[row["number"]] = [customer["name"], done, count]
    return report


TASKS = (
    Task(
        "seller-report",
        ("crm", "billing", "rates", "support", "people"),
        "For each employee of the sales team in Toronto: the sum in euros of the paid invoices issued in April 2026 of "
        "the customers whose owner the employee is, and the number of tickets with the status open of these customers. "
        "Use the rate of the day on which an invoice was issued; at weekends, the rate of the Friday before.",
        "a JSON object of [euros, tickets] by e-mail address; round only the sums, to two digits after the point",
        (
            *("people.list_employees", "crm.list_customers", "crm.get_customer", "billing.list_invoices"),
            *("rates.get_rate", "support.search_tickets"),
        ),
        _sellers,
        _sellers_calls,
        (
            PAGES
            + EUROS
            + """\
const april = { status: "paid", issued_from: "2026-04-01", issued_to: "2026-04-30" };
const [{ employees }, listed, rows] = await Promise.all([
  MCP.people.listEmployees({ team: "sales" }).then(unwrap),
  all(MCP.crm.listCustomers, {}, "customers"),
  all(MCP.billing.listInvoices, april, "invoices"),
]);
const customers = await Promise.all(listed.map(({ id }) => MCP.crm.getCustomer({ id }).then(unwrap)));
const tickets = [];
for (let total = 1; tickets.length < total; ) {
  const r = unwrap(await MCP.support.searchTickets({ status: "open", limit: 25, offset: tickets.length }));
  total = r.total;
  tickets.push(...r.items);
}
const report = {};
for (const { email } of employees.filter((e) => e.office === "Toronto")) {
  const own = customers.filter((c) => c.owner === email);
  let euros = 0;
  for (const i of rows.filter((i) => own.some((c) => c.id === i.customer)))
    euros += (i.amount_cents / 100) * (await rate(i.currency, i.issued));
  const count = tickets.filter((t) => own.some((c) => c.contact_email === t.contact)).length;
  report[email] = [Math.round(euros * 100) / 100, count];
}
return report;""",
        ),
    ),
    Task(
        "credit-by-rule",
        ("wiki", "shipping", "billing", "crm", "people"),
        "The carrier Polar delivered some shipments late that were sent in May 2026. Make the credit notes that the "
        "rules in the wiki grant for them, with the reason late. Who has to approve each of them by the rules?",
        'a JSON object of e-mail addresses by invoice, such as {"INV-1001": "ada@acme.example"}',
        (
            *("wiki.search_pages", "wiki.get_page", "shipping.list_shipments", "shipping.track", "billing.get_invoice"),
            *("billing.create_credit_note", "crm.get_customer", "people.list_employees", "people.get_employee"),
        ),
        _credit,
        _credit_calls,
        (
            'const { pages } = unwrap(await MCP.wiki.searchPages({ words: "credit note" }));\n'
            "const full = await Promise.all(pages.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)));\n"
            "return full.map((p) => p.text);",
            PAGES
            + """\
const may = { carrier: "Polar", sent_from: "2026-05-01", sent_to: "2026-05-31" };
const sent = await all(MCP.shipping.listShipments, may, "shipments");
const { employees } = unwrap(await MCP.people.listEmployees({ team: "finance" }));
const full = await Promise.all(employees.map((e) => MCP.people.getEmployee({ email: e.email }).then(unwrap)));
const lead = employees.find((e) => full.some((f) => f.manager === e.email)).email;
const approvers = {};
for (const { tracking, invoice } of sent) {
  let r;
  for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking })).isError) break;
  const { events, promised } = unwrap(r);
  const day = events.find((e) => e.what === "delivered")?.day;
  if (!day || new Date(day) - new Date(promised) <= 3 * 864e5) continue;
  const { amount_cents: whole, customer } = unwrap(await MCP.billing.getInvoice({ number: invoice }));
  const amount_cents = Math.floor(whole / 10);
  unwrap(await MCP.billing.createCreditNote({ number: invoice, amount_cents, reason: "late" }));
  approvers[invoice] = amount_cents > 40000 ? lead : unwrap(await MCP.crm.getCustomer({ id: customer })).owner;
}
return approvers;""",
        ),
    ),
    Task(
        "recall",
        ("stock", "billing", "crm", "shipping", "support"),
        "The product Rugged battery is called back. For each invoice issued on 2026-04-01 or later that has it (void "
        "ones do not count): the name of the customer, whether a shipment of the invoice is delivered, and the number "
        "of tickets of the customer that are not closed and have the word battery in the subject.",
        'a JSON object of [name, delivered, tickets] by invoice, such as {"INV-1001": ["Alder Works", true, 0]}',
        (
            *("stock.list_products", "billing.list_invoices", "billing.get_invoice", "crm.get_customer"),
            *("shipping.list_shipments", "shipping.track", "support.search_tickets"),
        ),
        _recall,
        _recall_calls,
        (
            PAGES
            + """\
const [batteries, listed, sent] = await Promise.all([
  all(MCP.stock.listProducts, { category: "battery" }, "products"),
  all(MCP.billing.listInvoices, { issued_from: "2026-04-01" }, "invoices"),
  all(MCP.shipping.listShipments, { sent_from: "2026-04-01" }, "shipments"),
]);
const { sku } = batteries.find((p) => p.name === "Rugged battery");
const numbers = listed.filter((i) => i.status !== "void").map((i) => i.number);
const full = await Promise.all(numbers.map((number) => MCP.billing.getInvoice({ number }).then(unwrap)));
const report = {};
for (const { number, customer } of full.filter((i) => i.lines.some((l) => l.sku === sku))) {
  const { name, contact_email: contact } = unwrap(await MCP.crm.getCustomer({ id: customer }));
  let delivered = false;
  for (const { tracking } of sent.filter((s) => s.invoice === number)) {
    let r;
    for (let n = 0; n < 4; n++) if (!(r = await MCP.shipping.track({ tracking })).isError) break;
    delivered ||= unwrap(r).events.some((e) => e.what === "delivered");
  }
  const { items } = unwrap(await MCP.support.searchTickets({ words: "battery", contact, limit: 25 }));
  report[number] = [name, delivered, items.filter((t) => t.status !== "closed").length];
}
return report;""",
        ),
    ),
)
