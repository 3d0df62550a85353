"""Working hours and slow reports as an MCP server over stdio: no account, no network.

    python reports.py

`generate_report` really takes the seconds that it is given and tells its progress, as slow tools do. People are named
by the e-mail addresses that `tracker.py` knows. Needs nothing but the MCP SDK.
"""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal, get_args

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

Week = Literal["2026-W21", "2026-W22", "2026-W23"]
Kind = Literal["hours", "cost"]

READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
# Making one again changes nothing: it is the same report. A client that lost the answer may ask again.
MAKE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

HOURS: dict[Week, dict[str, float]] = {
    "2026-W21": {"ada": 41.5, "bo": 38, "chen": 32, "dina": 40, "emil": 36.5, "fay": 20},
    "2026-W22": {"ada": 47, "bo": 40, "chen": 16, "dina": 39.5, "emil": 38, "fay": 20},
    "2026-W23": {"ada": 44, "bo": 36, "chen": 40, "dina": 24, "emil": 38, "fay": 22.5},
}
EUROS_PER_HOUR = {"ada": 95, "bo": 90, "chen": 80, "dina": 80, "emil": 75, "fay": 70}


class PersonHours(BaseModel):
    email: str
    hours: float


class TeamHours(BaseModel):
    week: Week
    people: list[PersonHours]


class PersonTotal(BaseModel):
    email: str
    total: float


class Report(BaseModel):
    id: int
    kind: Kind
    unit: Literal["h", "EUR"]
    totals: list[PersonTotal] = Field(description="Over all weeks, the largest first")
    total: float


class Reports(BaseModel):
    reports: list[Report]


server = MCPServer(
    "reports", instructions="Working hours by week, and reports that take their time.", log_level="ERROR"
)
finished: dict[Kind, Report] = {}


@server.tool(annotations=READ)
async def team_hours(week: Week) -> TeamHours:
    """Hours that each person worked in one week."""
    people = [PersonHours(email=f"{name}@example.com", hours=hours) for name, hours in HOURS[week].items()]
    return TeamHours(week=week, people=people)


@server.tool(annotations=READ)
async def list_reports() -> Reports:
    """The reports that were generated since the server started."""
    return Reports(reports=list(finished.values()))


@server.tool(annotations=MAKE)
async def generate_report(
    kind: Kind, ctx: Context, seconds: Annotated[float, Field(ge=0, le=120, description="How long it takes")] = 20
) -> Report:
    """Add up the hours or the cost of everybody over all weeks. Slow: it tells its progress every second."""
    steps = max(1, ceil(seconds))
    for step in range(1, steps + 1):
        await anyio.sleep(seconds / steps)
        await ctx.report_progress(step, steps, f"{kind} report: step {step} of {steps}")

    totals = [
        PersonTotal(
            email=f"{name}@example.com",
            total=sum(week[name] for week in HOURS.values()) * (rate if kind == "cost" else 1),
        )
        for name, rate in EUROS_PER_HOUR.items()
    ]
    totals.sort(key=lambda person: -person.total)
    finished[kind] = Report(
        id=1 + get_args(Kind).index(kind),
        kind=kind,
        unit="EUR" if kind == "cost" else "h",
        totals=totals,
        total=sum(person.total for person in totals),
    )
    return finished[kind]


if __name__ == "__main__":
    server.run()
