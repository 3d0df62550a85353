"""Numbers for people: `Intl.NumberFormat` and `toLocaleString` of numbers and BigInts, with locales and options."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

_LOCALES = (
    "en en-US en-US en-US en-GB en-CA en-AU en-IN en-NZ en-IE en-ZA de de-DE de-AT de-CH fr fr-FR fr-CA es "
    "es-ES es-MX it it-IT pt pt-BR pt-PT nl nl-NL nl-BE sv sv-SE da da-DK nb nb-NO no fi fi-FI pl pl-PL cs "
    "cs-CZ tr tr-TR ru ru-RU uk uk-UA ja ja-JP zh zh-CN zh-TW ko ko-KR ar hi hi-IN he he-IL el el-GR hu hu-HU "
    "id id-ID vi vi-VN"
)
LOCALES: Final = _LOCALES.split()

_CURRENCIES = "USD EUR GBP JPY INR CHF BRL KRW CNY SEK PLN TRY MXN CAD AUD KWD HUF RUB ILS usd"
CURRENCIES: Final = _CURRENCIES.split()
_UNITS = (
    "kilometer kilometer-per-hour byte megabyte gigabyte celsius liter mile hour minute second day kilogram "
    "gram meter foot inch week year month degree mile-per-gallon percent"
)
UNITS: Final = _UNITS.split()
_NUMBERS = (
    "0 1 -1 0.5 12 1234.5 -1234.567 1e6 123456789.123 0.001 999999 1500 (0.1+0.2) 2.5 1e15 -0 NaN Infinity -Infinity "
    "12345n 1.005 950 9999.5 2 3 5 21 22 101 123456789012345n -7n '12.5' null true 1e-9 0.9999 99.995"
)
NUMBERS: Final = _NUMBERS.split()


def program(random: Random) -> str:
    lines = "".join(f"probe(() => {_expression(random)});\n" for _ in range(8))
    return f"{PROBE}{lines}return out;"


PROBE: Final = """const out = [];
const probe = (f) => { try { out.push(f()) } catch (e) { out.push(e.name + ': ' + e.message) } };
"""


def _expression(random: Random) -> str:
    locale, chosen = random.choice(LOCALES), _options(random)
    if locale.startswith("tr") and chosen.get("currencyDisplay") == "name":
        del chosen["currencyDisplay"]  # refused here: Node writes the symbol, too
    if chosen.get("notation") == "compact" and locale[:2] in {
        "ar",
        "cs",
        "es",
        "fr",
        "he",
        "it",
        "pl",
        "pt",
        "ru",
        "uk",
    }:
        chosen = {name: value for name, value in chosen.items() if name not in {"currencyDisplay", "unitDisplay"}}
    options = json.dumps(chosen)
    number = random.choice((random.choice(NUMBERS), f"{random.uniform(-1e5, 1e7):.4f}", str(random.randint(0, 10**6))))
    made = f"new Intl.NumberFormat('{locale}', {options})"
    match random.randrange(6):
        case 0 if number not in {"null", "'12.5'", "true"}:
            return f"({number}).toLocaleString('{locale}', {options})"
        case 1 if number not in {"null", "'12.5'", "true"}:
            return f"({number}).toLocaleString({random.choice(('undefined', '[]'))}, {options})"
        case 2:
            return f"{made}.formatToParts({number})"
        case 3:
            return f"{made}.resolvedOptions()"
    return f"{made}.format({number})"


def _options(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def maybe(chance: float, name: str, *values: Any) -> None:
        if random.random() < chance:
            found[name] = random.choice(values)

    maybe(0.7, "style", "decimal", "currency", "percent", "unit", "currency")
    style = found.get("style")
    if style == "currency":
        found["currency"] = random.choice(CURRENCIES)
        maybe(0.3, "currencyDisplay", "symbol", "code", "name", "narrowSymbol")
        maybe(0.1, "currencySign", "accounting", "standard")
    if style == "unit":
        found["unit"] = random.choice(UNITS)
        maybe(0.7, "unitDisplay", "long", "short", "narrow")
    plain = style in {None, "decimal"} or (style == "currency" and found.get("currencyDisplay") != "name")
    if found.get("unit") != "percent" and style != "percent":
        maybe(0.2, "notation", "compact", "standard", *(("scientific", "engineering") if plain else ()))
    if found.get("notation") == "compact":
        maybe(0.5, "compactDisplay", "short", "long")
    maybe(0.3, "minimumFractionDigits", 0, 1, 2, 3)
    maybe(0.3, "maximumFractionDigits", *range(found.get("minimumFractionDigits", 0), 5))
    maybe(0.1, "maximumSignificantDigits", 1, 2, 3, 4, 5, 6)
    maybe(0.05, "minimumIntegerDigits", 1, 2, 3, 4)
    maybe(0.1, "useGrouping", True, False, "always", "auto", "min2")
    maybe(0.1, "signDisplay", "auto", "always", "never", "exceptZero", "negative")
    maybe(0.05, "roundingMode", "ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfEven")
    if random.random() < 0.02:
        found[random.choice(("style", "currency", "notation", "signDisplay"))] = random.choice(("fooo", "", "xx"))
    return found
