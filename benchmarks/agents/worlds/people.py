"""Employees and their absences: short lists without pages."""

from __future__ import annotations

from datetime import date, timedelta

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, only, optional, record, rows, text, tool
from benchmarks.agents.worlds.shared import TEAMS, Draw, employees

_SHORT = {"email": "string", "name": "string", "team": "string", "office": "string"}
_FULL = {**_SHORT, "manager": "string?", "started": "string", "weekly_hours": "integer"}
KINDS = ("holiday", "illness", "training")
_ABSENCE = {"email": "string", "first_day": "string", "last_day": "string", "kind": "string"}


def absences() -> list[Row]:
    """Return 36 absences between May and July 2026, by their first day."""
    draw, known = Draw(41), employees()
    made: list[Row] = []
    for index in range(36):
        first = date(2026, 5, 4) + timedelta(days=index * 2 + draw.between(0, 2))
        last = first + timedelta(days=draw.pick((0, 1, 4, 6, 11)))
        each = draw.pick(known)["email"]
        made.append(
            {"email": each, "first_day": str(first), "last_day": str(last), "kind": draw.pick(("holiday", *KINDS))}
        )
    return made


class People(World):
    name = "people"
    instructions = "Employees, their teams and offices, and when they are absent."

    @classmethod
    def make(cls) -> Tables:
        return {"employees": employees(), "absences": absences()}

    @tool(
        "list employees of a team",
        output=record(employees=rows(**_SHORT)),
        team=optional(text("Only this team", one_of=TEAMS)),
    )
    def list_employees(self, team: str | None = None) -> Row:
        """List employees. The lead of a team is the one whom get_employee shows as manager of its others."""
        found = [row for row in self.tables["employees"] if team in (None, row["team"])]
        return {"employees": [only(row, *_SHORT) for row in found]}

    @tool("one employee with manager and hours", output=record(**_FULL), email=text("The address"))
    def get_employee(self, email: str) -> Row:
        """Get one employee: also the manager's address, the first day at work and the weekly hours."""
        return self.find("employees", "email", email)

    @tool(
        "absences of employees between two days",
        output=record(absences=rows(**_ABSENCE)),
        first_day=text("As 2026-05-04"),
        last_day=text("As 2026-05-08"),
    )
    def list_absences(self, first_day: str, last_day: str) -> Row:
        """List absences that have at least one day in a span. Both days of the span belong to it."""
        if last_day < first_day:
            raise ToolError("last_day is before first_day.")
        found = self.tables["absences"]
        return {"absences": [row for row in found if row["first_day"] <= last_day and row["last_day"] >= first_day]}

    @tool(
        "enter an absence of an employee",
        output=record(**_ABSENCE),
        writes=True,
        email=text("The address of the employee"),
        first_day=text("As 2026-05-04"),
        last_day=text("As 2026-05-08"),
        kind=text("The reason", one_of=KINDS),
    )
    def enter_absence(self, email: str, first_day: str, last_day: str, kind: str) -> Row:
        """Enter an absence. It may not overlap another one of the same employee."""
        self.find("employees", "email", email)
        for row in self.tables["absences"]:
            if row["email"] == email and row["first_day"] <= last_day and row["last_day"] >= first_day:
                raise ToolError(f"{email} is absent from {row['first_day']} to {row['last_day']} already.")
        made = {"email": email, "first_day": first_day, "last_day": last_day, "kind": kind}
        self.tables["absences"].append(made)
        return made
