"""The ten local servers of the tasks. A JSON file for each has its tools and its tables; here is what the tools do.

The data of a server is the same in every process. As a program, `python -P worlds/__init__.py NAME STATE` is one server
on standard streams, which needs nothing but Python. After each call of a tool that writes, it writes the tables to the
file STATE, from which the end of a task is checked.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

Row = dict[str, Any]
Tables = dict[str, list[Row]]
SERVES = Path(__file__)


class ToolError(Exception):
    """A call that a tool refuses; its text is what the caller reads."""


@dataclass(frozen=True)
class Tool:
    """One tool of a server, as in the file of its server.

    Attributes:
        sought: words by which a model looks for this tool in a search.
        writes: True if the tool changes a table.
    """

    name: str
    description: str
    sought: str
    writes: bool
    inputSchema: Row  # noqa: N815 - the name in the file and on the wire
    outputSchema: Row | None = None  # noqa: N815

    def listed(self) -> Row:
        """Return the tool as in `tools/list`."""
        entry: Row = {"name": self.name, "description": self.description, "inputSchema": self.inputSchema}
        if self.outputSchema is not None:
            entry["outputSchema"] = self.outputSchema
        return {**entry, "annotations": {"readOnlyHint": not self.writes, "openWorldHint": False}}

    def check(self, arguments: Row) -> None:
        """Reject arguments that do not fit the schema of the input.

        Raises:
            ToolError: an argument is unknown, missing or wrong.
        """
        schemas = self.inputSchema["properties"]
        if unknown := sorted(set(arguments) - set(schemas)):
            raise ToolError(f"{self.name} has no argument {unknown[0]}; it has {', '.join(schemas)}.")
        if missing := [name for name in self.inputSchema.get("required", ()) if name not in arguments]:
            raise ToolError(f"{self.name} needs the argument {missing[0]}.")
        kinds: dict[str, type] = {"string": str, "integer": int, "array": list}
        for name, value in arguments.items():
            schema = schemas[name]
            if not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool):
                raise ToolError(f"{name} must be of type {schema['type']}.")
            if "enum" in schema and value not in schema["enum"]:
                raise ToolError(f"{name} must be one of {', '.join(schema['enum'])}.")
            if "maximum" in schema and value > schema["maximum"]:
                raise ToolError(f"{name} must be at most {schema['maximum']}.")
            if "minimum" in schema and value < schema["minimum"]:
                raise ToolError(f"{name} must be at least {schema['minimum']}.")


@cache
def _file(name: str) -> Row:
    return dict(json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8")))


@cache
def _tools(name: str) -> dict[str, Tool]:
    return {each["name"]: Tool(**each) for each in _file(name)["tools"]}


class World:
    """One server with its data. Its methods are its tools."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.tables = self.make()

    @classmethod
    def make(cls) -> Tables:
        """Return the data that the server begins with."""
        return copy.deepcopy(_file(cls.name)["tables"])

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        return _tools(cls.name)

    def call(self, name: str, arguments: Row) -> Any:
        """Return the value that a tool gives.

        Raises:
            ToolError: the tool is unknown, an argument is wrong, or the tool refuses the call.
        """
        made = self.tools().get(name)
        if made is None:
            raise ToolError(f"There is no tool {name}.")
        made.check(arguments)
        return getattr(self, name)(**arguments)

    def find(self, table: str, key: str, value: Any) -> Row:
        """Return the row with a value, or refuse."""
        found = next((row for row in self.tables[table] if row[key] == value), None)
        if found is None:
            raise ToolError(f"There is nothing with {key} {value} in {table}.")
        return found

    def rows(self, table: str, /, **values: Any) -> list[Row]:
        """Return the rows that have these values; None is any value."""
        return [row for row in self.tables[table] if all(value in (None, row[key]) for key, value in values.items())]

    def short(self, tool: str, row: Row) -> Row:
        """Return the part of a row that a tool lists, by the schema of its output."""
        schema = self.tools()[tool].outputSchema or {}
        (items,) = (each["items"] for each in schema["properties"].values() if each["type"] == "array")
        return only(row, *items["properties"])

    def add(self, table: str, **row: Any) -> Row:
        self.tables[table].append(row)
        return row


def page(items: list[Row], cursor: str | None, size: int, key: str) -> Row:
    """Return one page of items and the cursor of the next page, which is null at the end."""
    if cursor is not None and not cursor.removeprefix("after-").isdecimal():
        raise ToolError(f"{cursor} is no cursor; pass on next_cursor of the page before.")
    start = 0 if cursor is None else int(cursor.removeprefix("after-"))
    end = start + size
    return {key: items[start:end], "next_cursor": f"after-{end}" if end < len(items) else None}


def only(row: Row, *keys: str) -> Row:
    return {key: row[key] for key in keys}


class Crm(World):
    name = "crm"

    def list_customers(self, cursor: str | None = None, **filters: str) -> Row:
        found = [self.short("list_customers", row) for row in self.rows("customers", **filters)]
        return page(found, cursor, 20, "customers")

    def get_customer(self, id: str) -> Row:  # noqa: A002 - the argument's name, here and below
        return self.find("customers", "id", id)

    def find_customers(self, words: str) -> Row:
        found = [
            each
            for each in self.tables["customers"]
            if words.lower() in f"{each['name']} {each['contact_email']}".lower()
        ]
        return {"customers": [self.short("find_customers", each) for each in found[:20]]}

    def update_customer(self, id: str, **values: str) -> Row:  # noqa: A002
        row = self.find("customers", "id", id)
        row.update(values)
        return row

    def add_note(self, id: str, text: str) -> Row:  # noqa: A002
        return self.add("notes", customer=self.find("customers", "id", id)["id"], text=text)


class Billing(World):
    name = "billing"

    def list_invoices(self, issued_from: str = "", issued_to: str = "9", page: int = 1, **filters: str) -> Row:
        found = [
            self.short("list_invoices", row)
            for row in self.rows("invoices", **filters)
            if issued_from <= row["issued"] <= issued_to
        ]
        pages = max(1, -(-len(found) // 40))
        if page > pages:
            raise ToolError(f"There is no page {page}; the last one is {pages}.")
        return {"invoices": found[(page - 1) * 40 : page * 40], "page": page, "pages": pages}

    def get_invoice(self, number: str) -> Row:
        return self.find("invoices", "number", number)

    def create_credit_note(self, number: str, amount_cents: int, reason: str) -> Row:
        row = self.find("invoices", "number", number)
        if row["status"] == "void":
            raise ToolError(f"{number} is void; a void invoice takes no credit note.")
        if amount_cents > row["amount_cents"]:
            raise ToolError(f"{amount_cents} is more than the amount of {number}, {row['amount_cents']}.")
        return self.add("credit_notes", invoice=number, amount_cents=amount_cents, reason=reason)

    def send_reminder(self, number: str) -> Row:
        row = self.find("invoices", "number", number)
        if row["status"] != "open":
            raise ToolError(f"{number} is {row['status']}; only open invoices have reminders.")
        return self.add("reminders", invoice=number)


class Support(World):
    name = "support"
    _LISTED = ("id", "subject", "priority", "status", "contact", "assignee", "opened")

    def search_tickets(self, words: str = "", offset: int = 0, limit: int = 10, **filters: str) -> Row:
        found = [
            only(row, *self._LISTED)
            for row in self.rows("tickets", **filters)
            if words.lower() in row["subject"].lower()
        ]
        return {"items": found[offset : offset + limit], "total": len(found)}

    def get_ticket(self, id: int) -> Row:  # noqa: A002
        return self.find("tickets", "id", id)

    def assign_ticket(self, id: int, assignee: str) -> Row:  # noqa: A002
        row = self.find("tickets", "id", id)
        if row["status"] == "closed":
            raise ToolError(f"Ticket {id} is closed.")
        row["assignee"] = assignee
        return only(row, *self._LISTED)

    def reply(self, id: int, author: str, text: str) -> Row:  # noqa: A002
        row = self.find("tickets", "id", id)
        row["messages"].append({"from": author, "text": text})
        return {"id": id, "messages": len(row["messages"])}

    def close_ticket(self, id: int, resolution: str) -> Row:  # noqa: A002
        row = self.find("tickets", "id", id)
        if row["assignee"] is None:
            raise ToolError(f"Ticket {id} has no assignee; assign it before closing it.")
        row.update(status="closed", resolution=resolution)
        return only(row, *self._LISTED)


class People(World):
    name = "people"

    def list_employees(self, team: str | None = None) -> Row:
        return {"employees": [self.short("list_employees", row) for row in self.rows("employees", team=team)]}

    def get_employee(self, email: str) -> Row:
        return self.find("employees", "email", email)

    def list_absences(self, first_day: str, last_day: str) -> Row:
        if last_day < first_day:
            raise ToolError("last_day is before first_day.")
        return {"absences": self._absent(first_day, last_day)}

    def enter_absence(self, email: str, first_day: str, last_day: str, kind: str) -> Row:
        self.find("employees", "email", email)
        for row in self._absent(first_day, last_day, email=email):
            raise ToolError(f"{email} is absent from {row['first_day']} to {row['last_day']} already.")
        return self.add("absences", email=email, first_day=first_day, last_day=last_day, kind=kind)

    def _absent(self, first: str, last: str, **filters: str) -> list[Row]:
        rows = self.rows("absences", **filters)
        return [row for row in rows if row["first_day"] <= last and row["last_day"] >= first]


class Calendar(World):
    name = "calendar"

    def list_rooms(self) -> Row:
        return {"rooms": self.tables["rooms"]}

    def list_events(self, day: str, office: str = "") -> Row:
        events = self.tables["events"]
        return {"events": [row for row in events if row["start"][:10] == day and row["room"].startswith(office)]}

    def book(self, title: str, room: str, start: str, end: str, attendees: list[str]) -> Row:
        seats = self.find("rooms", "room", room)["seats"]
        if len(attendees) > seats:
            raise ToolError(f"{room} has {seats} seats.")
        begin, until = _moment(start), _moment(end)
        for row in self.rows("events", room=room):
            if _moment(row["start"]) < until and _moment(row["end"]) > begin:
                raise ToolError(f"{room} is taken by {row['id']} from {row['start']} to {row['end']}.")
        number = f"E{len(self.tables['events']) + 1}"
        times = {"start": begin.isoformat(), "end": until.isoformat()}
        return self.add("events", id=number, title=title, room=room, **times, attendees=sorted(attendees))

    def cancel(self, id: str) -> Row:  # noqa: A002
        self.tables["events"].remove(self.find("events", "id", id))
        return {"id": id}


def _moment(words: str) -> datetime:
    """Return a time with its offset, or refuse."""
    try:
        found = datetime.fromisoformat(words)
    except ValueError:
        raise ToolError(f"{words} is no time; write it as 2026-06-15T09:00:00+02:00.") from None
    if found.tzinfo is None:
        raise ToolError(f"{words} has no offset; write it as 2026-06-15T09:00:00+02:00.")
    return found


class Stock(World):
    name = "stock"
    _WAREHOUSES = ("north", "south", "west")

    def list_products(self, cursor: str | None = None, **filters: str) -> Row:
        return page(self.rows("products", **filters), cursor, 15, "products")

    def get_stock(self, sku: str) -> Row:
        row = self.find("levels", "sku", sku)
        return {**only(row, "sku", "reorder_at"), "levels": only(row, *self._WAREHOUSES)}

    def transfer(self, sku: str, source: str, target: str, quantity: int) -> Row:
        row = self.find("levels", "sku", sku)
        if row[source] < quantity:
            raise ToolError(f"{source} has only {row[source]} of {sku}.")
        row[source] -= quantity
        row[target] += quantity
        return {"sku": sku, "levels": only(row, *self._WAREHOUSES)}

    def order(self, sku: str, warehouse: str, quantity: int) -> Row:
        self.find("levels", "sku", sku)
        if quantity % 10:
            raise ToolError(f"{quantity} is no multiple of 10.")
        return self.add("orders", sku=sku, warehouse=warehouse, quantity=quantity)


class Shipping(World):
    """Shipments: tracking fails the first time for some, as the services of carriers do."""

    name = "shipping"
    _PRICES: ClassVar = {"Swift": (900, 300), "Polar": (740, 360), "Meridian": (500, 520)}
    """Cents for a parcel, and for each kilogram."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[str] = set()

    def list_shipments(self, sent_from: str = "", sent_to: str = "9", cursor: str | None = None, **filters: str) -> Row:
        found = [
            self.short("list_shipments", row)
            for row in self.rows("shipments", **filters)
            if sent_from <= row["sent"] <= sent_to
        ]
        return page(found, cursor, 25, "shipments")

    def track(self, tracking: str) -> Row:
        row = self.find("shipments", "tracking", tracking)
        if int(tracking[1:]) % 3 == 0 and tracking not in self._asked:
            self._asked.add(tracking)
            raise ToolError(f"The service of {row['carrier']} is busy. Call track again for {tracking}.")
        return only(row, "tracking", "promised", "events")

    def quote(self, carrier: str, country: str, weight_grams: int) -> Row:
        base, kilo = self._PRICES[carrier]
        far = country in ("Japan", "Kenya", "Chile", "Canada")
        return {"price_cents": (base + kilo * -(-weight_grams // 1000)) * (2 if far else 1)}

    def claim(self, tracking: str, days_late: int) -> Row:
        self.find("shipments", "tracking", tracking)
        return self.add("claims", tracking=tracking, days_late=days_late)


class Rates(World):
    name = "rates"

    def get_rate(self, currency: str, day: str) -> Row:
        try:
            on = date.fromisoformat(day)
        except ValueError:
            raise ToolError(f"{day} is no day; write it as 2026-05-04.") from None
        if on.weekday() > 4:
            friday = on - timedelta(days=on.weekday() - 4)
            raise ToolError(f"{day} is at a weekend and has no rate. Use the Friday before, {friday}.")
        for row in self.rows("rates", currency=currency, day=day):
            return row
        raise ToolError(f"There is no rate for {day}; the first day is 2026-01-01, the last one 2026-06-15.")


class Metrics(World):
    name = "metrics"

    def query(self, service: str, metric: str, day: str) -> Row:
        values = _file(self.name)["series"][f"{service} {metric} {day}"]
        times = (f"{day}T{at // 6:02}:{at % 6}0:00Z" for at in range(144))
        return {"points": [{"at": at, "value": value} for at, value in zip(times, values, strict=True)]}

    def list_deploys(self, service: str | None = None, day: str = "") -> Row:
        return {"deploys": [row for row in self.rows("deploys", service=service) if row["at"].startswith(day)]}

    def list_incidents(self, service: str | None = None) -> Row:
        return {"incidents": self.rows("incidents", service=service)}

    def comment_deploy(self, deploy: str, text: str) -> Row:
        self.find("deploys", "id", deploy)
        if self.rows("comments", deploy=deploy, text=text):
            raise ToolError(f"{deploy} has this comment already.")
        return self.add("comments", deploy=deploy, text=text)


class Wiki(World):
    name = "wiki"

    def search_pages(self, words: str) -> Row:
        wanted = words.lower().split()
        found = [
            row
            for row in self.tables["pages"]
            if all(word in f"{row['title']} {row['text']}".lower() for word in wanted)
        ]
        return {"pages": [{**only(row, "id", "title"), "beginning": row["text"][:80]} for row in found[:10]]}

    def get_page(self, id: str) -> Row:  # noqa: A002
        return self.find("pages", "id", id)

    def create_page(self, id: str, title: str, text: str) -> Row:  # noqa: A002
        if self.rows("pages", id=id):
            raise ToolError(f"There is a page {id} already.")
        return only(self.add("pages", id=id, title=title, text=text), "id")


WORLDS: dict[str, type[World]] = {
    each.name: each for each in (Crm, Billing, Support, People, Calendar, Stock, Shipping, Rates, Metrics, Wiki)
}


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def save(world: World, state: Path) -> None:
    """Write the tables in one step, so that a reader never sees half of them."""
    part = state.with_suffix(".part")
    part.write_text(text_of(world.tables), "utf-8")
    os.replace(part, state)


def answer(world: World, state: Path, method: str, params: Row) -> Row | None:
    """Return the result of a request, or None for a method that this server does not have."""
    about = _file(world.name)
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": world.name, "version": "1"},
                "instructions": about["instructions"],
            }
        case "tools/list":
            return {"tools": [each.listed() for each in world.tools().values()]}
        case "tools/call":
            try:
                value = world.call(params["name"], params.get("arguments") or {})
            except ToolError as error:
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}
            if world.tools()[params["name"]].writes:
                save(world, state)
            result: Row = {"content": [{"type": "text", "text": text_of(value)}]}
            return {**result, "structuredContent": value} if about["structured"] else result
        case "ping":
            return {}
    return None


def main() -> None:
    world, state = WORLDS[sys.argv[1]](), Path(sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(world, state, message["method"], message.get("params") or {})
        body = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        sys.stdout.write(text_of({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
