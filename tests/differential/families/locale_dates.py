"""Dates for people: `Intl.DateTimeFormat` and methods of dates, with locales, options and zones."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from tests.differential.families.locale_numbers import LOCALES, PROBE

_ZONES = (
    "UTC America/New_York America/Los_Angeles America/Chicago America/Sao_Paulo America/Argentina/Buenos_Aires"
    " America/St_Johns America/Phoenix America/Toronto America/Mexico_City Europe/London Europe/Berlin "
    "Europe/Paris Europe/Dublin Europe/Moscow Europe/Istanbul Asia/Tokyo Asia/Kolkata Asia/Kathmandu "
    "Asia/Dubai Asia/Shanghai Asia/Singapore Asia/Tehran Australia/Sydney Australia/Lord_Howe Pacific/Auckland"
    " Pacific/Honolulu Africa/Lagos Africa/Johannesburg US/Pacific EST GMT Etc/GMT+5 america/new_york "
    "Mars/Base"
)
ZONES: Final = _ZONES.split()
NAMES: Final = ("short", "long", "shortOffset", "longOffset")
WIDTHS: Final = ("long", "short", "narrow")
FIELDS: Final = {
    "weekday": (0.3, WIDTHS),
    "year": (0.5, ("numeric", "2-digit")),
    "month": (0.6, ("numeric", "2-digit", *WIDTHS)),
    "day": (0.6, ("numeric", "2-digit")),
    "hour": (0.4, ("numeric", "2-digit")),
    "minute": (0.35, ("numeric", "2-digit")),
    "second": (0.2, ("numeric", "2-digit")),
    "era": (0.03, WIDTHS),
    "fractionalSecondDigits": (0.04, (1, 2, 3)),
    "dayPeriod": (0.04, WIDTHS),
    "timeZoneName": (0.12, NAMES),
}
LAST: Final = 2_145_000_000_000
"""A time in 2037. Later changes of offsets follow the rules of that year."""


def program(random: Random) -> str:
    lines = "".join(f"probe(() => {_expression(random)});\n" for _ in range(8))
    return f"{PROBE}{lines}return out;"


def _date(random: Random) -> str:
    usual = (
        "0",
        "1.7e12",
        "Date.UTC(2024, 0, 5, 9, 3, 4, 50)",
        "Date.UTC(2026, 6, 5, 12)",
        "Date.UTC(2025, 11, 31, 23, 59, 59)",
    )
    time = random.choice((random.choice(usual), str(random.randrange(1, LAST)), str(random.randrange(1, 2 * LAST))))
    return f"new Date({time})"


def _expression(random: Random) -> str:
    locale, options = random.choice(LOCALES), json.dumps(_options(random))
    made, date = f"new Intl.DateTimeFormat('{locale}', {options})", _date(random)
    match random.randrange(9):
        case 0:
            return f"{date}.toLocaleDateString('{locale}', {options})"
        case 1:
            return f"{date}.toLocaleTimeString('{locale}', {options})"
        case 2:
            return f"{date}.toLocaleString('{locale}', {options})"
        case 3:
            method = random.choice(("toLocaleDateString", "toLocaleTimeString", "toLocaleString"))
            return f"{date}.{method}({random.choice((repr(locale), 'undefined', '[]', repr(locale)))})"
        case 4:
            return f"{made}.formatToParts({date})"
        case 5:
            return f"{made}.resolvedOptions()"
        case 6:
            later = random.choice((1, 60_000, 3_600_000, 86_400_000, 20 * 86_400_000, 400 * 86_400_000))
            method = random.choice(("formatRange", "formatRangeToParts"))
            return f"{made}.{method}({date}, new Date({date}.getTime() + {later}))"
    return f"{made}.format({date})"


def _options(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if random.random() < 0.3:
        styles = ("full", "long", "medium", "short")
        if random.random() < 0.8:
            found["dateStyle"] = random.choice(styles)
        if random.random() < 0.5:
            found["timeStyle"] = random.choice(styles)
    else:
        for name, (chance, values) in FIELDS.items():
            if random.random() < chance:
                found[name] = random.choice(values)
    if random.random() < 0.2:
        found["hour12"] = random.choice((True, False))
    elif random.random() < 0.1:
        found["hourCycle"] = random.choice(("h11", "h12", "h23", "h24"))
    if random.random() < 0.5:
        found["timeZone"] = random.choice(ZONES)
    return found
