"""Support tickets: searched by offset, at most 25 at a time, and no output schemas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, number, only, optional, text, tool
from benchmarks.agents.worlds.shared import Draw, customers, employees

PRIORITIES = ("low", "normal", "high", "urgent")
_STATUS = ("open", "pending", "closed")
_THINGS = ("login", "invoice", "export", "sensor", "delivery", "firmware", "dashboard", "battery")
_TROUBLES = ("fails", "is slow", "shows the wrong total", "stopped after the update", "needs a second user")
_SHORT = ("id", "subject", "priority", "status", "contact", "assignee", "opened")


@cache
def _tickets() -> tuple[Row, ...]:
    draw, first = Draw(31), datetime(2026, 4, 1, 7, 0, tzinfo=UTC)
    known = customers()
    agents = [each["email"] for each in employees() if each["team"] in ("support", "apps")]
    made: list[Row] = []
    for index in range(150):
        opened = first + timedelta(hours=index * 12 + draw.between(0, 11), minutes=draw.between(0, 59))
        waited = draw.pick((20, 55, 90, 150, 235, 241, 320, 700, 1500))
        status = "closed" if index < 90 and draw.below(10) < 8 else draw.pick(("open", "open", "pending"))
        replied = (opened + timedelta(minutes=waited)) if index < 140 and draw.below(12) else None
        contact = draw.pick(known)["contact_email"]
        subject = f"{draw.pick(_THINGS).capitalize()} {draw.pick(_TROUBLES)}"
        messages = [{"from": contact, "text": f"{subject} since this morning. Please help, we rely on it every day."}]
        assignee = None if draw.below(6) == 0 else draw.pick(agents)
        if replied and assignee:
            messages.append({"from": assignee, "text": "Thank you for the report. Which version do you use?"})
            messages.append({"from": contact, "text": f"Version {draw.between(3, 5)}.{draw.between(0, 9)}."})
        made.append(
            {
                "id": 5001 + index,
                "subject": subject,
                "priority": draw.pick((*PRIORITIES, "normal", "low")),
                "status": status,
                "contact": contact,
                "assignee": assignee,
                "opened": f"{opened:%Y-%m-%dT%H:%M:%SZ}",
                "first_reply": f"{replied:%Y-%m-%dT%H:%M:%SZ}" if replied else None,
                "messages": messages,
                "resolution": "solved" if status == "closed" else None,
            }
        )
    return tuple(made)


class Support(World):
    name = "support"
    instructions = "Tickets of customers. Times are in UTC."
    structured = False

    @classmethod
    def make(cls) -> Tables:
        return {"tickets": list(_tickets())}

    @tool(
        "search support tickets by status, priority and contact",
        words=optional(text("Only tickets with these words in the subject")),
        status=optional(text("Only tickets with this status", one_of=_STATUS)),
        priority=optional(text("Only tickets with this priority", one_of=PRIORITIES)),
        contact=optional(text("Only tickets of this contact address")),
        offset=optional(number("Number of tickets to leave out")),
        limit=optional(number("Number of tickets at most; 10 if it is not given", 1, 25)),
    )
    def search_tickets(
        self,
        words: str | None = None,
        status: str | None = None,
        priority: str | None = None,
        contact: str | None = None,
        offset: int = 0,
        limit: int = 10,
    ) -> Row:
        """Search tickets, oldest first. Returns {items, total}; an item has id, subject, priority, status, contact,
        assignee (null if there is none) and opened."""
        found = [
            only(row, *_SHORT)
            for row in self.tables["tickets"]
            if status in (None, row["status"])
            and priority in (None, row["priority"])
            and contact in (None, row["contact"])
            and (words or "").lower() in row["subject"].lower()
        ]
        return {"items": found[offset : offset + limit], "total": len(found)}

    @tool("one support ticket with its messages and first reply", id=number("Such as 5001", 1))
    def get_ticket(self, id: int) -> Row:  # noqa: A002 - the argument's name
        """Get one ticket: what the search has, first_reply (null without a reply), messages and resolution."""
        return self.find("tickets", "id", id)

    @tool(
        "assign a support ticket to an employee",
        writes=True,
        id=number("Such as 5001", 1),
        assignee=text("Address of an employee"),
    )
    def assign_ticket(self, id: int, assignee: str) -> Row:  # noqa: A002
        """Assign a ticket. Closed tickets cannot be assigned."""
        row = self.find("tickets", "id", id)
        if row["status"] == "closed":
            raise ToolError(f"Ticket {id} is closed.")
        row["assignee"] = assignee
        return only(row, *_SHORT)

    @tool(
        "write a message in a support ticket",
        writes=True,
        id=number("Such as 5001", 1),
        author=text("Address of an employee"),
        text=text("The message"),
    )
    def reply(self, id: int, author: str, text: str) -> Row:  # noqa: A002
        """Write a message to the customer of a ticket."""
        row = self.find("tickets", "id", id)
        row["messages"].append({"from": author, "text": text})
        return {"id": id, "messages": len(row["messages"])}

    @tool(
        "close a support ticket",
        writes=True,
        id=number("Such as 5001", 1),
        resolution=text("The result", one_of=("solved", "duplicate", "not reproducible")),
    )
    def close_ticket(self, id: int, resolution: str) -> Row:  # noqa: A002
        """Close a ticket that has an assignee."""
        row = self.find("tickets", "id", id)
        if row["assignee"] is None:
            raise ToolError(f"Ticket {id} has no assignee; assign it before closing it.")
        row.update(status="closed", resolution=resolution)
        return only(row, *_SHORT)
