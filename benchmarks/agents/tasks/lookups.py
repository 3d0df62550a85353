"""Tasks over four and five servers that look up little on each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.agents.task import Calls, Task
from benchmarks.agents.worlds.base import Tables
from benchmarks.agents.worlds.rates import rate_of
from benchmarks.agents.worlds.shared import by

Worlds = dict[str, Tables]


# incident-contact


def _contact(worlds: Worlds) -> Any:
    counts = Counter(row["service"] for row in worlds["metrics"]["incidents"] if row["severity"] == 1)
    service = counts.most_common(1)[0][0]
    author = [row for row in worlds["metrics"]["deploys"] if row["service"] == service][-1]["author"]
    events = [row for row in worlds["calendar"]["events"] if row["start"].startswith("2026-06-17")]
    absent = [row for row in worlds["people"]["absences"] if row["first_day"] <= "2026-06-17" <= row["last_day"]]
    return {
        "service": service,
        "author": author,
        "absent": any(row["email"] == author for row in absent),
        "meetings": sum(author in row["attendees"] for row in events),
        "minutes": 15,
    }


async def _contact_calls(call: Calls) -> Any:
    day = "2026-06-17"
    listed, hits, absent, events = await call.together(
        [
            ("metrics.list_incidents", {}),
            ("wiki.search_pages", {"words": "on call severity"}),
            ("people.list_absences", {"first_day": day, "last_day": day}),
            ("calendar.list_events", {"day": day}),
        ]
    )
    counts: dict[str, int] = {}
    for row in listed["incidents"]:
        counts[row["service"]] = counts.get(row["service"], 0) + (row["severity"] == 1)
    service = max(counts, key=lambda name: counts[name])
    deploys, rule = await call.together(
        [("metrics.list_deploys", {"service": service}), ("wiki.get_page", {"id": hits["pages"][0]["id"]})]
    )
    assert "severity 1 is answered within 15 minutes" in rule["text"]
    author = deploys["deploys"][-1]["author"]
    return {
        "service": service,
        "author": author,
        "absent": author in [row["email"] for row in absent["absences"]],
        "meetings": sum(author in row["attendees"] for row in events["events"]),
        "minutes": 15,
    }


def _minutes(rules: list[str]) -> int:
    return int(rules[0].partition("severity 1 is answered within ")[2].split()[0])


# morning-letter


def _letter(worlds: Worlds) -> Any:
    return {
        "owner": by(worlds["crm"]["customers"], "id")["C-117"]["owner"],
        "amount_cents": by(worlds["billing"]["invoices"], "number")["INV-1100"]["amount_cents"],
        "priority": by(worlds["support"]["tickets"], "id")[5100]["priority"],
        "office": by(worlds["people"]["employees"], "email")["rosa.moreau@acme.example"]["office"],
        "rate": rate_of(worlds["rates"]["rates"], "NOK", "2026-06-12"),
    }


async def _letter_calls(call: Calls) -> Any:
    customer, invoice, ticket, person, rate = await call.together(
        [
            ("crm.get_customer", {"id": "C-117"}),
            ("billing.get_invoice", {"number": "INV-1100"}),
            ("support.get_ticket", {"id": 5100}),
            ("people.get_employee", {"email": "rosa.moreau@acme.example"}),
            ("rates.get_rate", {"currency": "NOK", "day": "2026-06-12"}),
        ]
    )
    return {
        "owner": customer["owner"],
        "amount_cents": invoice["amount_cents"],
        "priority": ticket["priority"],
        "office": person["office"],
        "rate": rate["rate"],
    }


TASKS = (
    Task(
        "incident-contact",
        ("metrics", "people", "calendar", "wiki"),
        "Which service had the most incidents of severity 1, who made the latest deployment of it, is that person "
        "absent on 2026-06-17, how many meetings on that day does the person have, and within how many minutes must an "
        "incident of severity 1 be answered by the rules in the wiki?",
        'a JSON object with "service", "author" (an e-mail address), "absent" (true or false), "meetings", "minutes"',
        (
            *("metrics.list_incidents", "metrics.list_deploys", "people.list_absences"),
            *("calendar.list_events", "wiki.search_pages", "wiki.get_page"),
        ),
        _contact,
        _contact_calls,
        (
            """\
const day = "2026-06-17";
const [{ incidents }, { absences }, { events }, { pages }] = await Promise.all([
  MCP.metrics.listIncidents().then(unwrap),
  MCP.people.listAbsences({ first_day: day, last_day: day }).then(unwrap),
  MCP.calendar.listEvents({ day }).then(unwrap),
  MCP.wiki.searchPages({ words: "on call severity" }).then(unwrap),
]);
const counts = {};
for (const i of incidents) if (i.severity === 1) counts[i.service] = (counts[i.service] ?? 0) + 1;
const service = Object.keys(counts).sort((a, b) => counts[b] - counts[a])[0];
const { author } = unwrap(await MCP.metrics.listDeploys({ service })).deploys.at(-1);
const rules = await Promise.all(pages.map((p) => MCP.wiki.getPage({ id: p.id }).then(unwrap)));
return {
  service,
  author,
  absent: absences.some((a) => a.email === author),
  meetings: events.filter((e) => e.attendees.includes(author)).length,
  rules: rules.map((p) => p.text),
};""",
        ),
        lambda value: {**{k: v for k, v in value.items() if k != "rules"}, "minutes": _minutes(value["rules"])},
    ),
    Task(
        "morning-letter",
        ("crm", "billing", "support", "people", "rates"),
        "For the morning letter: who is the owner of the customer C-117, what is the amount of the invoice INV-1100, "
        "what priority has the ticket 5100, in which office is rosa.moreau@acme.example, and what was the rate of NOK "
        "on 2026-06-12?",
        'a JSON object with "owner", "amount_cents", "priority", "office" and "rate"',
        ("crm.get_customer", "billing.get_invoice", "support.get_ticket", "people.get_employee", "rates.get_rate"),
        _letter,
        _letter_calls,
        (
            """\
const [customer, invoice, ticket, person, rate] = (await Promise.all([
  MCP.crm.getCustomer({ id: "C-117" }),
  MCP.billing.getInvoice({ number: "INV-1100" }),
  MCP.support.getTicket({ id: 5100 }),
  MCP.people.getEmployee({ email: "rosa.moreau@acme.example" }),
  MCP.rates.getRate({ currency: "NOK", day: "2026-06-12" }),
])).map(unwrap);
return {
  owner: customer.owner,
  amount_cents: invoice.amount_cents,
  priority: ticket.priority,
  office: person.office,
  rate: rate.rate,
};""",
        ),
    ),
)
