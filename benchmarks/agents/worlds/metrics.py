"""Services in operation: deployments, incidents, and series with a value for each ten minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, optional, record, rows, text, tool
from benchmarks.agents.worlds.shared import Draw, employees

SERVICES = ("gateway", "login", "orders", "search", "exports", "firmware")
METRICS = ("requests", "errors", "p95_ms")
DAYS = tuple(f"2026-06-{day:02}" for day in range(8, 15))
_DEPLOY = {"id": "string", "service": "string", "at": "string", "author": "string", "version": "string"}
_INCIDENT = {"id": "string", "service": "string", "began": "string", "ended": "string?", "severity": "integer"}


@cache
def _deploys() -> tuple[Row, ...]:
    draw, made = Draw(91), []
    authors = [each["email"] for each in employees() if each["team"] in ("platform", "apps")]
    for index in range(40):
        at = datetime(2026, 6, 8, 6, 0, tzinfo=UTC) + timedelta(hours=4 * index, minutes=10 * draw.between(0, 20))
        row = {"id": f"D{300 + index}", "service": draw.pick(SERVICES), "at": f"{at:%Y-%m-%dT%H:%M:00Z}"}
        made.append({**row, "author": draw.pick(authors), "version": f"4.{index}.{draw.below(4)}"})
    return tuple(made)


@cache
def incidents() -> tuple[Row, ...]:
    """Return 18 incidents by time; the last one has no end."""
    draw, made = Draw(92), []
    for index in range(18):
        began = datetime(2026, 5, 1, 3, 0, tzinfo=UTC) + timedelta(hours=58 * index + draw.between(0, 20))
        ended = began + timedelta(minutes=draw.between(12, 300))
        made.append(
            {
                "id": f"IN-{41 + index}",
                "service": draw.pick(SERVICES),
                "began": f"{began:%Y-%m-%dT%H:%M:00Z}",
                "ended": f"{ended:%Y-%m-%dT%H:%M:00Z}" if index < 17 else None,
                "severity": draw.between(1, 3),
            }
        )
    return tuple(made)


@cache
def series(service: str, metric: str, day: str) -> tuple[int, ...]:
    """Return the 144 values of a day."""
    draw = Draw(1000 + SERVICES.index(service) * 100 + METRICS.index(metric) * 20 + DAYS.index(day))
    base = {"requests": 900, "errors": 4, "p95_ms": 180}[metric] + 7 * SERVICES.index(service)
    values = [base + draw.between(-base // 4, base // 4) for _ in range(144)]
    for _ in range(draw.between(1, 3)):
        values[draw.below(144)] = base * draw.between(3, 6) + draw.between(0, 9)
    return tuple(values)


def instant(day: str, index: int) -> str:
    """Return the time of a value."""
    return f"{day}T{index // 6:02}:{index % 6}0:00Z"


class Metrics(World):
    name = "metrics"
    instructions = f"Services ({', '.join(SERVICES)}) from 2026-06-08 to 2026-06-14, and incidents since May. UTC."

    @classmethod
    def make(cls) -> Tables:
        return {"deploys": list(_deploys()), "incidents": list(incidents()), "comments": []}

    @tool(
        "series of a metric of a service on a day",
        output=record(points=rows(at="string", value="integer")),
        service=text("The service", one_of=SERVICES),
        metric=text("The metric", one_of=METRICS),
        day=text("As 2026-06-08", one_of=DAYS),
    )
    def query(self, service: str, metric: str, day: str) -> Row:
        """Get the values of a metric on one day, one for each ten minutes. Times are in UTC."""
        return {"points": [{"at": instant(day, at), "value": v} for at, v in enumerate(series(service, metric, day))]}

    @tool(
        "list deployments of a service",
        output=record(deploys=rows(**_DEPLOY)),
        service=optional(text("Only this service", one_of=SERVICES)),
        day=optional(text("Only this day", one_of=DAYS)),
    )
    def list_deploys(self, service: str | None = None, day: str | None = None) -> Row:
        """List deployments of the week by time."""
        found = [row for row in self.tables["deploys"] if service in (None, row["service"])]
        return {"deploys": [row for row in found if day in (None, row["at"][:10])]}

    @tool(
        "list incidents of services",
        output=record(incidents=rows(**_INCIDENT)),
        service=optional(text("Only this service", one_of=SERVICES)),
    )
    def list_incidents(self, service: str | None = None) -> Row:
        """List incidents by time. Severity 1 is the worst; an incident without an end is not over."""
        return {"incidents": [row for row in self.tables["incidents"] if service in (None, row["service"])]}

    @tool(
        "comment on a deployment",
        output=record(deploy="string", text="string"),
        writes=True,
        deploy=text("Such as D300"),
        text=text("The comment"),
    )
    def comment_deploy(self, deploy: str, text: str) -> Row:
        """Write a comment on a deployment, once."""
        self.find("deploys", "id", deploy)
        made = {"deploy": deploy, "text": text}
        if made in self.tables["comments"]:
            raise ToolError(f"{deploy} has this comment already.")
        self.tables["comments"].append(made)
        return made
