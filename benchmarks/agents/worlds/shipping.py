"""Shipments: tracking fails the first time for some, as the services of carriers do."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache

from benchmarks.agents.worlds.base import (
    Row,
    Tables,
    ToolError,
    World,
    number,
    only,
    optional,
    page,
    record,
    rows,
    text,
    tool,
)
from benchmarks.agents.worlds.billing import invoices
from benchmarks.agents.worlds.shared import COUNTRIES, TODAY, Draw, by, customers

CARRIERS = ("Swift", "Polar", "Meridian")
BASE = {"Swift": 900, "Polar": 740, "Meridian": 500}
PER_KILO = {"Swift": 300, "Polar": 360, "Meridian": 520}
FAR = {"Japan", "Kenya", "Chile", "Canada"}
_SHORT = {"tracking": "string", "invoice": "string", "carrier": "string", "sent": "string", "country": "string"}
_EVENTS = rows(day="string", what="string")


@cache
def _shipments() -> tuple[Row, ...]:
    draw, known = Draw(71), by(customers(), "id")
    made: list[Row] = []
    for invoice in invoices():
        if invoice["status"] == "void" or draw.below(10) < 4:
            continue
        sent = date.fromisoformat(invoice["issued"]) + timedelta(days=draw.between(1, 6))
        if str(sent) > TODAY:
            continue
        days = draw.pick((2, 3, 4, 6, 9, 13))
        arrived = sent + timedelta(days=days)
        events = [{"day": str(sent), "what": "collected"}]
        if draw.below(4) == 0:
            events.append({"day": str(sent + timedelta(days=1)), "what": "customs"})
        if str(arrived) <= TODAY and draw.below(14):
            events.append({"day": str(arrived), "what": "delivered"})
        made.append(
            {
                "tracking": f"T{7000 + len(made) * 7}",
                "invoice": invoice["number"],
                "carrier": draw.pick(CARRIERS),
                "sent": str(sent),
                "country": known[invoice["customer"]]["country"],
                "promised": str(sent + timedelta(days=5)),
                "events": events,
            }
        )
    return tuple(made)


def price(carrier: str, country: str, grams: int) -> int:
    """Return the price of a parcel in cents."""
    kilos = -(-grams // 1000)
    return (BASE[carrier] + PER_KILO[carrier] * kilos) * (2 if country in FAR else 1)


class Shipping(World):
    name = "shipping"
    instructions = "Shipments of invoices, their tracking, and prices of carriers."

    def __init__(self, tables: Tables | None = None) -> None:
        super().__init__(tables)
        self._asked: set[str] = set()

    @classmethod
    def make(cls) -> Tables:
        return {"shipments": list(_shipments()), "claims": []}

    @tool(
        "list shipments by carrier and date",
        output=record(shipments=rows(**_SHORT), next_cursor="string?"),
        carrier=optional(text("Only this carrier", one_of=CARRIERS)),
        sent_from=optional(text("Only shipments sent on this day or later, as 2026-05-01")),
        sent_to=optional(text("Only shipments sent on this day or earlier")),
        cursor=optional(text("next_cursor of the page before")),
    )
    def list_shipments(
        self,
        carrier: str | None = None,
        sent_from: str | None = None,
        sent_to: str | None = None,
        cursor: str | None = None,
    ) -> Row:
        """List shipments by date, 25 on a page. Only track has their events."""
        found = [
            only(row, *_SHORT)
            for row in self.tables["shipments"]
            if carrier in (None, row["carrier"]) and (sent_from or "") <= row["sent"] <= (sent_to or "9")
        ]
        return page(found, cursor, 25, "shipments")

    @tool(
        "track a shipment, its events and delivery",
        output=record(tracking="string", promised="string", events=_EVENTS),
        tracking=text("Such as T7000"),
    )
    def track(self, tracking: str) -> Row:
        """Get the events of a shipment (collected, customs, delivered) and the day for which it was promised. If the
        service of the carrier is busy, the same call works a moment later."""
        row = self.find("shipments", "tracking", tracking)
        if int(tracking[1:]) % 3 == 0 and tracking not in self._asked:
            self._asked.add(tracking)
            raise ToolError(f"The service of {row['carrier']} is busy. Call track again for {tracking}.")
        return only(row, "tracking", "promised", "events")

    @tool(
        "price of a parcel with a carrier",
        output=record(price_cents="integer"),
        carrier=text("The carrier", one_of=CARRIERS),
        country=text("Where it goes", one_of=COUNTRIES),
        weight_grams=number("Weight of the parcel", 1),
    )
    def quote(self, carrier: str, country: str, weight_grams: int) -> Row:
        """Get the price of one parcel in euro cents."""
        return {"price_cents": price(carrier, country, weight_grams)}

    @tool(
        "claim damages for a late shipment",
        output=record(tracking="string", days_late="integer"),
        writes=True,
        tracking=text("Such as T7000"),
        days_late=number("Days between the promised and the real delivery", 1),
    )
    def claim(self, tracking: str, days_late: int) -> Row:
        """Claim damages from the carrier of a late shipment."""
        self.find("shipments", "tracking", tracking)
        made = {"tracking": tracking, "days_late": days_late}
        self.tables["claims"].append(made)
        return made
