"""Tasks over one or two servers that change something. The tables at the end are checked too."""

from __future__ import annotations

from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.tasks.steps import each, invoices, pages, sold_in_may, tickets
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.shared import by

Worlds = dict[str, Tables]


# move-customer

SELLER = "nils.okafor@acme.example"


def _move(worlds: Worlds) -> Any:
    row = by(worlds["crm"]["customers"], "name")["Cedar Foods"]
    row["owner"] = SELLER
    return row["id"]


async def _move_calls(call: Calls) -> Any:
    (found,) = (await call("crm.find_customers", words="Cedar Foods"))["customers"]
    await call("crm.update_customer", id=found["id"], owner=SELLER)
    return found["id"]


# remind-overdue


def _remind(worlds: Worlds) -> Any:
    rows = worlds["billing"]["invoices"]
    due = [row["number"] for row in rows if row["status"] == "open" and row["due"] < "2026-05-01"]
    worlds["billing"]["reminders"] += [{"invoice": number} for number in due]
    return len(due)


async def _remind_calls(call: Calls) -> Any:
    due = [row["number"] for row in await invoices(call, status="open") if row["due"] < "2026-05-01"]
    await each(call, "billing.send_reminder", "number", due)
    return len(due)


# fill-north


def _fill(worlds: Worlds) -> Any:
    filled: list[str] = []
    routers = {row["sku"] for row in worlds["stock"]["products"] if row["category"] == "router"}
    for row in worlds["stock"]["levels"]:
        if row["sku"] in routers and row["north"] < 5:
            source = "south" if row["south"] >= row["west"] else "west"
            if row[source] >= 10:
                row[source] -= 10
                row["north"] += 10
                filled.append(row["sku"])
    return sorted(filled)


async def _fill_calls(call: Calls) -> Any:
    routers = await pages(call, "stock.list_products", "products", category="router")
    moves = []
    for row in await each(call, "stock.get_stock", "sku", [row["sku"] for row in routers]):
        level = row["levels"]
        source = max(("south", "west"), key=lambda name: (level[name], name == "south"))
        if level["north"] < 5 and level[source] >= 10:
            moves.append({"sku": row["sku"], "source": source, "target": "north", "quantity": 10})
    await call.together([("stock.transfer", move) for move in moves])
    return sorted(move["sku"] for move in moves)


# orphaned-customers


def _orphaned(worlds: Worlds) -> Any:
    known = by(worlds["people"]["employees"], "email")
    lead = next(row["email"] for row in worlds["people"]["employees"] if row["team"] == "sales")
    moved = [row for row in worlds["crm"]["customers"] if row["owner"] not in known and row["status"] != "churned"]
    for row in moved:
        row["owner"] = lead
    return sorted(row["id"] for row in moved)


async def _orphaned_calls(call: Calls) -> Any:
    async def owners() -> list[Row]:
        listed = await pages(call, "crm.list_customers", "customers")
        return await each(call, "crm.get_customer", "id", [row["id"] for row in listed])

    details, (people, lead) = await call.all(owners(), _lead(call, "sales"))
    emails = {row["email"] for row in people}
    moved = [row["id"] for row in details if row["owner"] not in emails and row["status"] != "churned"]
    await call.together([("crm.update_customer", {"id": each, "owner": lead}) for each in moved])
    return sorted(moved)


async def _lead(call: Calls, team: str) -> tuple[list[Row], str]:
    """Return all employees, and the lead of a team, who is the manager of its latest member."""
    people = (await call("people.list_employees"))["employees"]
    someone = [row["email"] for row in people if row["team"] == team][-1]
    return people, (await call("people.get_employee", email=someone))["manager"]


# assign-urgent


def _assign(worlds: Worlds) -> Any:
    lead = next(row["email"] for row in worlds["people"]["employees"] if row["team"] == "support")
    found = [row for row in worlds["support"]["tickets"] if row["assignee"] is None and row["status"] != "closed"]
    high = [row for row in found if row["priority"] in ("urgent", "high")]
    for row in high:
        row["assignee"] = lead
    return sorted(row["id"] for row in high)


async def _assign_calls(call: Calls) -> Any:
    urgent, high, (_, lead) = await call.all(
        tickets(call, priority="urgent"), tickets(call, priority="high"), _lead(call, "support")
    )
    left = sorted(row["id"] for row in (*urgent, *high) if row["assignee"] is None and row["status"] != "closed")
    await call.together([("support.assign_ticket", {"id": number, "assignee": lead}) for number in left])
    return left


# order-batteries


def _order(worlds: Worlds) -> Any:
    may = [row for row in worlds["billing"]["invoices"] if row["issued"][:7] == "2026-05" and row["status"] != "void"]
    orders: dict[str, int] = {}
    batteries = {row["sku"] for row in worlds["stock"]["products"] if row["category"] == "battery"}
    for row in worlds["stock"]["levels"]:
        if row["sku"] in batteries and row["north"] + row["south"] + row["west"] < row["reorder_at"]:
            sold = sum(line["quantity"] for each in may for line in each["lines"] if line["sku"] == row["sku"])
            orders[row["sku"]] = max(10, -(-sold // 10) * 10)
    worlds["stock"]["orders"] += [{"sku": s, "warehouse": "north", "quantity": n} for s, n in orders.items()]
    return orders


async def _order_calls(call: Calls) -> Any:
    async def stock() -> list[Row]:
        batteries = await pages(call, "stock.list_products", "products", category="battery")
        return await each(call, "stock.get_stock", "sku", [row["sku"] for row in batteries])

    levels, sales = await call.all(stock(), sold_in_may(call))
    low = [row["sku"] for row in levels if sum(row["levels"].values()) < row["reorder_at"]]
    sold = dict.fromkeys(low, 0)
    for row in sales:
        for line in row["lines"]:
            if line["sku"] in sold:
                sold[line["sku"]] += line["quantity"]
    orders = {sku: max(10, (count + 9) // 10 * 10) for sku, count in sold.items()}
    made = [("stock.order", {"sku": sku, "warehouse": "north", "quantity": n}) for sku, n in orders.items()]
    await call.together(made)
    return orders


TASKS = (
    Task(
        "move-customer",
        ("crm",),
        f"From now on, {SELLER} looks after the customer Cedar Foods. Enter this.",
        "the id of the customer as a JSON string",
        ("crm.find_customers", "crm.update_customer"),
        _move,
        _move_calls,
        (
            f"""\
const [c] = unwrap(await MCP.crm.findCustomers({{ words: "Cedar Foods" }})).customers;
return unwrap(await MCP.crm.updateCustomer({{ id: c.id, owner: "{SELLER}" }})).id;""",
        ),
    ),
    Task(
        "remind-overdue",
        ("billing",),
        "Send one reminder for each open invoice that was due before 2026-05-01. Send no others.",
        "the number of reminders",
        ("billing.list_invoices", "billing.send_reminder"),
        _remind,
        _remind_calls,
        (
            """\
const open = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ status: "open", page }));
  pages = r.pages;
  open.push(...r.invoices);
}
const due = open.filter((i) => i.due < "2026-05-01");
await Promise.all(due.map((i) => MCP.billing.sendReminder({ number: i.number }).then(unwrap)));
return due.length;""",
        ),
    ),
    Task(
        "fill-north",
        ("stock",),
        "Move 10 pieces to the warehouse north of each router of which north has fewer than 5. Take them from south or "
        "west, whichever has more (south, if both have the same number). Move nothing if that warehouse has fewer than "
        "10.",
        "a JSON array of the sku values of the moved products, in alphabetical order",
        ("stock.list_products", "stock.get_stock", "stock.transfer"),
        _fill,
        _fill_calls,
        (
            """\
const { products } = unwrap(await MCP.stock.listProducts({ category: "router" }));
const all = await Promise.all(products.map((p) => MCP.stock.getStock({ sku: p.sku }).then(unwrap)));
const moved = [];
for (const { sku, levels } of all) {
  const source = levels.south >= levels.west ? "south" : "west";
  if (levels.north >= 5 || levels[source] < 10) continue;
  unwrap(await MCP.stock.transfer({ sku, source, target: "north", quantity: 10 }));
  moved.push(sku);
}
return moved.sort();""",
        ),
    ),
    Task(
        "orphaned-customers",
        ("crm", "people"),
        "Some customers have an owner who is no employee any more. Make the lead of the sales team their owner, except "
        "for customers whose status is churned.",
        "a JSON array of the ids of the changed customers, in alphabetical order",
        (
            "crm.list_customers",
            "crm.get_customer",
            "crm.update_customer",
            "people.list_employees",
            "people.get_employee",
        ),
        _orphaned,
        _orphaned_calls,
        (
            """\
const ids = [];
let cursor;
do {
  const r = unwrap(await MCP.crm.listCustomers(cursor ? { cursor } : {}));
  ids.push(...r.customers.map((c) => c.id));
  cursor = r.next_cursor;
} while (cursor);
const [customers, { employees }] = await Promise.all([
  Promise.all(ids.map((id) => MCP.crm.getCustomer({ id }).then(unwrap))),
  MCP.people.listEmployees().then(unwrap),
]);
const emails = new Set(employees.map((e) => e.email));
const sales = employees.filter((e) => e.team === "sales");
const full = await Promise.all(sales.map((e) => MCP.people.getEmployee({ email: e.email }).then(unwrap)));
const lead = sales.find((e) => full.some((f) => f.manager === e.email)).email;
const lost = customers.filter((c) => !emails.has(c.owner) && c.status !== "churned");
await Promise.all(lost.map((c) => MCP.crm.updateCustomer({ id: c.id, owner: lead }).then(unwrap)));
return lost.map((c) => c.id).sort();""",
        ),
    ),
    Task(
        "assign-urgent",
        ("support", "people"),
        "Assign each urgent or high ticket that is not closed and has no assignee to the lead of the support team.",
        "a JSON array of the ids of the assigned tickets, in ascending order",
        ("support.search_tickets", "support.assign_ticket", "people.list_employees", "people.get_employee"),
        _assign,
        _assign_calls,
        (
            """\
const found = [];
for (const priority of ["urgent", "high"]) {
  for (let offset = 0, total = 1; offset < total; offset += 25) {
    const r = unwrap(await MCP.support.searchTickets({ priority, limit: 25, offset }));
    total = r.total;
    found.push(...r.items);
  }
}
const { employees } = unwrap(await MCP.people.listEmployees({ team: "support" }));
const full = await Promise.all(employees.map((e) => MCP.people.getEmployee({ email: e.email }).then(unwrap)));
const lead = employees.find((e) => full.some((f) => f.manager === e.email)).email;
const left = found.filter((t) => t.assignee === null && t.status !== "closed");
await Promise.all(left.map((t) => MCP.support.assignTicket({ id: t.id, assignee: lead }).then(unwrap)));
return left.map((t) => t.id).sort((a, b) => a - b);""",
        ),
    ),
    Task(
        "order-batteries",
        ("stock", "billing"),
        "Order more of each battery of which the three warehouses together have fewer pieces than the number at which "
        "more should be ordered. Order for the warehouse north as many as were sold by invoices issued in May 2026 "
        "(void ones do not count), rounded up to a multiple of 10, and at least 10.",
        'a JSON object of the ordered numbers by sku, such as {"BA-203": 20}',
        ("stock.list_products", "stock.get_stock", "stock.order", "billing.list_invoices", "billing.get_invoice"),
        _order,
        _order_calls,
        (
            """\
const { products } = unwrap(await MCP.stock.listProducts({ category: "battery" }));
const levels = await Promise.all(products.map((p) => MCP.stock.getStock({ sku: p.sku }).then(unwrap)));
const low = levels.filter((s) => s.levels.north + s.levels.south + s.levels.west < s.reorder_at);
const numbers = [];
for (let page = 1, pages = 1; page <= pages; page++) {
  const r = unwrap(await MCP.billing.listInvoices({ issued_from: "2026-05-01", issued_to: "2026-05-31", page }));
  pages = r.pages;
  numbers.push(...r.invoices.filter((i) => i.status !== "void").map((i) => i.number));
}
const invoices = await Promise.all(numbers.map((number) => MCP.billing.getInvoice({ number }).then(unwrap)));
const lines = invoices.flatMap((i) => i.lines);
const orders = {};
for (const { sku } of low) {
  const sold = lines.filter((l) => l.sku === sku).reduce((sum, l) => sum + l.quantity, 0);
  orders[sku] = Math.max(10, Math.ceil(sold / 10) * 10);
  unwrap(await MCP.stock.order({ sku, warehouse: "north", quantity: orders[sku] }));
}
return orders;""",
        ),
    ),
)
