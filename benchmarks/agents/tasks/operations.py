"""Tasks over two servers about services, parcels and people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.tasks.steps import each, pages
from benchmarks.agents.worlds.base import Row, Tables
from benchmarks.agents.worlds.shared import CATEGORIES, by
from benchmarks.agents.worlds.shipping import CARRIERS, price

Worlds = dict[str, Tables]


# missing-reports


def _missing(worlds: Worlds) -> Any:
    pages_ = by(worlds["wiki"]["pages"], "id")
    rows = [row for row in worlds["metrics"]["incidents"] if row["severity"] < 3 and row["ended"]]
    return [row["id"] for row in rows if f"report-{row['id'].lower()}" not in pages_]


async def _missing_calls(call: Calls) -> Any:
    listed = (await call("metrics.list_incidents"))["incidents"]
    due = [row["id"] for row in listed if row["severity"] < 3 and row["ended"]]
    hits = await each(call, "wiki.search_pages", "words", [f"Report {number}" for number in due])
    return [number for number, hit in zip(due, hits, strict=True) if not hit["pages"]]


# cheapest-carrier


def _cheapest(worlds: Worlds) -> Any:
    best: dict[str, str] = {}
    for category in CATEGORIES:
        products = [row for row in worlds["stock"]["products"] if row["category"] == category]
        grams = max(products, key=lambda row: row["price_cents"])["weight_grams"]
        best[category] = min((price(carrier, "Japan", grams), carrier) for carrier in CARRIERS)[1]
    return best


async def _cheapest_calls(call: Calls) -> Any:
    dearest: dict[str, Row] = {}
    for row in await pages(call, "stock.list_products", "products"):
        known = dearest.setdefault(row["category"], row)
        if row["price_cents"] > known["price_cents"]:
            dearest[row["category"]] = row
    pairs = [(category, carrier) for category in dearest for carrier in CARRIERS]
    asked = [
        ("shipping.quote", {"carrier": carrier, "country": "Japan", "weight_grams": dearest[category]["weight_grams"]})
        for category, carrier in pairs
    ]
    best: dict[str, tuple[int, str]] = {}
    for (category, carrier), found in zip(pairs, await call.together(asked), strict=True):
        offer = (found["price_cents"], carrier)
        best[category] = min(best.get(category, offer), offer)
    return {category: carrier for category, (_, carrier) in best.items()}


# manager-of-assignee


def _manager(worlds: Worlds) -> Any:
    assignee = next(row["assignee"] for row in worlds["support"]["tickets"] if row["id"] == 5033)
    return by(worlds["people"]["employees"], "email")[assignee]["manager"]


async def _manager_calls(call: Calls) -> Any:
    ticket = await call("support.get_ticket", id=5033)
    return (await call("people.get_employee", email=ticket["assignee"]))["manager"]


# deploys-by-team


def _deploys(worlds: Worlds) -> Any:
    known = by(worlds["people"]["employees"], "email")
    rows = [row for row in worlds["metrics"]["deploys"] if row["service"] in ("orders", "login")]
    return Counter(known[row["author"]]["team"] for row in rows)


async def _deploys_calls(call: Calls) -> Any:
    first, second, people = await call.together(
        [
            ("metrics.list_deploys", {"service": "orders"}),
            ("metrics.list_deploys", {"service": "login"}),
            ("people.list_employees", {}),
        ]
    )
    teams = {row["email"]: row["team"] for row in people["employees"]}
    counts: dict[str, int] = {}
    for row in [*first["deploys"], *second["deploys"]]:
        counts[teams[row["author"]]] = counts.get(teams[row["author"]], 0) + 1
    return counts


TASKS = (
    Task(
        "missing-reports",
        ("metrics", "wiki"),
        "Which incidents of severity 1 or 2 that have ended have no report in the wiki? A report has a title such as "
        "Report IN-41.",
        "a JSON array of the ids of the incidents, in alphabetical order",
        ("metrics.list_incidents", "wiki.search_pages"),
        _missing,
        _missing_calls,
        (
            """\
const { incidents } = unwrap(await MCP.metrics.listIncidents());
const due = incidents.filter((i) => i.severity < 3 && i.ended).map((i) => i.id);
const hits = await Promise.all(due.map((id) => MCP.wiki.searchPages({ words: `Report ${id}` }).then(unwrap)));
return due.filter((id, n) => !hits[n].pages.some((p) => p.title === `Report ${id}`)).sort();""",
        ),
    ),
    Task(
        "cheapest-carrier",
        ("stock", "shipping"),
        "Which carrier is the cheapest for one piece of the dearest product of each category, sent to Japan?",
        'a JSON object of carriers by category, such as {"cable": "Swift"}',
        ("stock.list_products", "shipping.quote"),
        _cheapest,
        _cheapest_calls,
        (
            """\
const dearest = {};
let cursor;
do {
  const r = unwrap(await MCP.stock.listProducts(cursor ? { cursor } : {}));
  for (const p of r.products) if (!(p.price_cents <= dearest[p.category]?.price_cents)) dearest[p.category] = p;
  cursor = r.next_cursor;
} while (cursor);
const best = {};
for (const { category, weight_grams } of Object.values(dearest)) {
  const prices = await Promise.all(["Swift", "Polar", "Meridian"].map(async (carrier) => {
    const r = unwrap(await MCP.shipping.quote({ carrier, country: "Japan", weight_grams }));
    return [r.price_cents, carrier];
  }));
  best[category] = prices.sort((a, b) => a[0] - b[0])[0][1];
}
return best;""",
        ),
    ),
    Task(
        "manager-of-assignee",
        ("support", "people"),
        "Who is the manager of the employee to whom the ticket 5033 is assigned?",
        "the e-mail address as a JSON string",
        ("support.get_ticket", "people.get_employee"),
        _manager,
        _manager_calls,
        (
            """\
const { assignee } = unwrap(await MCP.support.getTicket({ id: 5033 }));
return unwrap(await MCP.people.getEmployee({ email: assignee })).manager;""",
        ),
    ),
    Task(
        "deploys-by-team",
        ("metrics", "people"),
        "How many deployments of the services orders and login were made by employees of each team?",
        'a JSON object of numbers by team, such as {"apps": 3}, without teams that made none',
        ("metrics.list_deploys", "people.list_employees"),
        _deploys,
        _deploys_calls,
        (
            """\
const [orders, login, { employees }] = await Promise.all([
  MCP.metrics.listDeploys({ service: "orders" }).then(unwrap),
  MCP.metrics.listDeploys({ service: "login" }).then(unwrap),
  MCP.people.listEmployees().then(unwrap),
]);
const team = Object.fromEntries(employees.map((e) => [e.email, e.team]));
const counts = {};
for (const d of [...orders.deploys, ...login.deploys]) counts[team[d.author]] = (counts[team[d.author]] ?? 0) + 1;
return counts;""",
        ),
    ),
)
