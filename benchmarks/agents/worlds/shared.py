"""Names and records that several servers know: employees, customers, products. Pure, and equal in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from benchmarks.agents.worlds.base import Row

T = TypeVar("T")

TODAY = "2026-06-15"
"""The date of all tasks, a Monday."""


class Draw:
    """Numbers that look random and are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2654435761 % 2**64

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]


TEAMS = ("platform", "apps", "support", "sales", "finance", "docs")
OFFICES = ("Oslo", "Lisbon", "Toronto")
COUNTRIES = ("Norway", "Portugal", "Canada", "Japan", "Kenya", "Chile")
SEGMENTS = ("enterprise", "midmarket", "small")
CATEGORIES = ("cable", "sensor", "router", "battery", "display")

_FIRST = (
    *("Ada", "Bo", "Chen", "Dina", "Emil", "Fay", "Goran", "Hana", "Ines", "Jon", "Kaya", "Lars", "Mina", "Nils"),
    *("Olga", "Pia", "Quinn", "Rosa", "Sven", "Tara"),
)
_LAST = ("Moreau", "Lindqvist", "Wei", "Haddad", "Novak", "Okafor", "Berg", "Silva")
_COMPANY = ("Alder", "Birch", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Iris", "Juniper", "Krill", "Lumen")
_KIND = ("Works", "Labs", "Trading", "Foods", "Energy")
_ADJECTIVE = ("Compact", "Rugged", "Slim", "Outdoor", "Silent", "Modular", "Basic", "Twin", "Long-range", "Micro")


def employees() -> list[Row]:
    """Return 40 employees. The first of each team leads it, and the first of all leads the leads."""
    draw = Draw(11)
    made: list[Row] = []
    leads: dict[str, str] = {}
    for number in range(40):
        first, last = _FIRST[number % len(_FIRST)], _LAST[(number * 3 + number // len(_FIRST)) % len(_LAST)]
        email = f"{first}.{last}@acme.example".lower()
        team = TEAMS[number] if number < len(TEAMS) else draw.pick(TEAMS)
        manager = leads.setdefault(team, email)
        if manager == email:
            manager = made[0]["email"] if made else None
        made.append(
            {
                "email": email,
                "name": f"{first} {last}",
                "team": team,
                "manager": manager,
                "office": draw.pick(OFFICES),
                "started": f"{draw.between(2015, 2025)}-{draw.between(1, 12):02}-{draw.between(1, 28):02}",
                "weekly_hours": draw.pick((40, 40, 40, 32, 20)),
            }
        )
    return made


FORMER = ("former.wong@acme.example", "former.diaz@acme.example")
"""Addresses of people who have left, and who still own customers."""


def customers() -> list[Row]:
    """Return 60 customers with their owners, who are in the sales team or have left."""
    draw = Draw(12)
    sellers = [each["email"] for each in employees() if each["team"] == "sales"]
    made: list[Row] = []
    for number in range(60):
        name = f"{_COMPANY[number % len(_COMPANY)]} {_KIND[number // len(_COMPANY)]}"
        made.append(
            {
                "id": f"C-{101 + number}",
                "name": name,
                "segment": SEGMENTS[0] if number % 4 == 1 else draw.pick(SEGMENTS[1:]),
                "country": draw.pick(COUNTRIES),
                "status": draw.pick(("active", "active", "active", "active", "trial", "churned")),
                "owner": draw.pick(FORMER) if number % 9 == 4 else draw.pick(sellers),
                "since": f"{draw.between(2019, 2025)}-{draw.between(1, 12):02}-{draw.between(1, 28):02}",
                "contact_email": f"office@{name.replace(' ', '-').lower()}.example",
            }
        )
    return made


def products() -> list[Row]:
    """Return 45 products."""
    draw = Draw(13)
    made: list[Row] = []
    for number in range(45):
        category = CATEGORIES[number % len(CATEGORIES)]
        made.append(
            {
                "sku": f"{category[:2].upper()}-{200 + number}",
                "name": f"{_ADJECTIVE[number // 5]} {category}",
                "category": category,
                "weight_grams": draw.between(5, 300) * 10,
                "price_cents": draw.between(9, 400) * 100 + 95,
            }
        )
    return made


def by(items: Sequence[Row], key: str) -> dict[Any, Row]:
    """Return rows by the value of a key that is different in each."""
    return {row[key]: row for row in items}
