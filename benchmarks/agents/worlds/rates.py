"""Exchange rates of a bank: one day and currency in each call, and none at weekends."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, record, text, tool
from benchmarks.agents.worlds.shared import Draw

_BEGIN = {"USD": 0.86, "NOK": 0.085, "JPY": 0.0056}


@cache
def _rates() -> tuple[Row, ...]:
    draw, made = Draw(81), []
    value = dict(_BEGIN)
    day = date(2026, 1, 1)
    while day <= date(2026, 6, 15):
        for currency, begin in _BEGIN.items():
            value[currency] = round(value[currency] + begin * (draw.between(-40, 40) / 10000), 6)
            if day.weekday() < 5:
                made.append({"currency": currency, "day": str(day), "rate": value[currency]})
        day += timedelta(days=1)
    return tuple(made)


def rate_of(rates: list[Row], currency: str, day: str) -> float:
    """Return the rate of a day, at weekends that of the Friday before; the reference of tasks."""
    if currency == "EUR":
        return 1.0
    on = date.fromisoformat(day)
    friday = str(on - timedelta(days=max(0, on.weekday() - 4)))
    return float(next(row["rate"] for row in rates if row["currency"] == currency and row["day"] == friday))


class Rates(World):
    name = "rates"
    instructions = "Exchange rates to the euro from 2026-01-01 to 2026-06-15."

    @classmethod
    def make(cls) -> Tables:
        return {"rates": list(_rates())}

    @tool(
        "exchange rate of a currency on a day",
        output=record(currency="string", day="string", rate="number"),
        currency=text("The currency", one_of=tuple(_BEGIN)),
        day=text("As 2026-05-04"),
    )
    def get_rate(self, currency: str, day: str) -> Row:
        """Get the number of euros for one unit of a currency on a day."""
        try:
            on = date.fromisoformat(day)
        except ValueError:
            raise ToolError(f"{day} is no day; write it as 2026-05-04.") from None
        if on.weekday() > 4:
            friday = on - timedelta(days=on.weekday() - 4)
            raise ToolError(f"{day} is at a weekend and has no rate. Use the Friday before, {friday}.")
        found = [row for row in self.tables["rates"] if row["currency"] == currency and row["day"] == day]
        if not found:
            raise ToolError(f"There is no rate for {day}; the first day is 2026-01-01, the last one 2026-06-15.")
        return found[0]
