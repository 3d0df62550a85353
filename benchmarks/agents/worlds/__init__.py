"""The local servers of the tasks, each with data of its own."""

from __future__ import annotations

from benchmarks.agents.worlds.base import World
from benchmarks.agents.worlds.billing import Billing
from benchmarks.agents.worlds.calendar import Calendar
from benchmarks.agents.worlds.crm import Crm
from benchmarks.agents.worlds.metrics import Metrics
from benchmarks.agents.worlds.people import People
from benchmarks.agents.worlds.rates import Rates
from benchmarks.agents.worlds.shipping import Shipping
from benchmarks.agents.worlds.stock import Stock
from benchmarks.agents.worlds.support import Support
from benchmarks.agents.worlds.wiki import Wiki

WORLDS: dict[str, type[World]] = {
    each.name: each for each in (Crm, Billing, Support, People, Calendar, Stock, Shipping, Rates, Metrics, Wiki)
}
