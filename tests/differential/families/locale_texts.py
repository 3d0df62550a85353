"""Texts for people: their order, lists, relative times, plural forms, segments and cases, with locales and options."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from tests.differential.families.locale_numbers import LOCALES, PROBE

_ORDERED = "en en-US en-GB de de-DE fr es it pt pt-BR nl sv da nb fi cs pl tr ru uk"
ORDERED: Final = _ORDERED.split()
_WORDS = (
    "a|A|b|B|z|Z|é|É|è|e|E|résumé|Resume|resume|résumer|co-op|coop|CO-OP|file1|file10|file2|File2|File10|item-1|"
    "item_1|item 1|ä|Ä|ö|Ö|ü|å|Å|æ|Ø|ø|ñ|Ñ|n|nz|ß|ss|ç|č|c|d|h|ch|ci|łódź|lodz|ś|s|š|i|I|İ|\u0131|ğ|g|x1y2|x1y10|"
    "1.5|10|9|02|2||!|?|$|Zoë|Zoe|żaba|zebra|Oslo|Østergaard"
)
WORDS: Final = _WORDS.split("|")
_CYRILLIC = "Яна Анна анна борис Борис Ёж ель Ель ёж йод иод яблоко"
CYRILLIC: Final = _CYRILLIC.split()
LISTS: Final = (
    [],
    ["a"],
    ["a", "b"],
    ["a", "b", "c"],
    ["Ana", "Iván", "hielo", "i"],
    ["x", "y", "z", "w"],
    ["uno", "ocho"],
)
SEGMENTED: Final = (
    "Hello, World! How are you? Fine.",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 family \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "naïve café e\u0301",
    "don't stop-believing 3.14 1,000",
    "a\r\nb",
    "",
    "\U0001f44d\U0001f3fd ok",
    "He left. She stayed! Why? OK.",
)
_UNITS = "second minutes hour day days week month quarter year years"
UNITS: Final = _UNITS.split()


def program(random: Random) -> str:
    lines = "".join(f"probe(() => {_expression(random)});\n" for _ in range(8))
    return f"{PROBE}{lines}return out;"


def _some(random: Random, **choices: tuple[Any, ...]) -> str:
    return json.dumps({name: random.choice(values) for name, values in choices.items() if random.random() < 0.5})


def _expression(random: Random) -> str:
    locale = random.choice(LOCALES)
    match random.randrange(8):
        case 0 | 1:
            return _order(random)
        case 2:
            options = _some(random, type=("conjunction", "disjunction", "unit"), style=("long", "short", "narrow"))
            method = random.choice(("format", "formatToParts"))
            return f"new Intl.ListFormat('{locale}', {options}).{method}({json.dumps(random.choice(LISTS))})"
        case 3 | 4:
            options = _some(random, numeric=("auto", "always"), style=("long", "short", "narrow"))
            method = random.choice(("format", "format", "formatToParts"))
            number = random.choice(("0", "1", "-1", "2", "-2", "3", "5", "-5", "10", "1.5", "-0", "100", "21", "1234"))
            return f"new Intl.RelativeTimeFormat('{locale}', {options}).{method}({number}, '{random.choice(UNITS)}')"
        case 5:
            options = _some(random, type=("cardinal", "ordinal"), minimumFractionDigits=(0, 1))
            number = random.choice(
                ("0", "1", "2", "3", "4", "5", "6", "11", "12", "13", "21", "22", "100", "111", "1.5", "1e6")
            )
            return f"new Intl.PluralRules('{locale}', {options}).select({number})"
        case 6:
            granularity = random.choice(("grapheme", "word", "sentence"))
            text = json.dumps(random.choice(SEGMENTED))
            return (
                f"[...new Intl.Segmenter('en', {{ granularity: '{granularity}' }}).segment({text})]"
                ".map((s) => [s.segment, s.index, s.isWordLike])"
            )
    word = json.dumps(random.choice(WORDS))
    method = random.choice(("toLocaleUpperCase", "toLocaleLowerCase"))
    return f"{word}.{method}({random.choice(('', repr('tr'), repr('de'), repr('en-US')))})"


def _order(random: Random) -> str:
    locale = random.choice((*ORDERED, "en", "undefined"))
    pool = CYRILLIC if locale in {"ru", "uk"} else WORDS
    words = json.dumps([random.choice(pool) for _ in range(8)])
    options = _some(
        random,
        numeric=(True, False),
        sensitivity=("base", "accent", "case", "variant"),
        caseFirst=("upper", "lower", "false"),
        ignorePunctuation=(True, False, False),
    )
    given = "undefined" if locale == "undefined" else repr(locale)
    if random.random() < 0.5:
        return f"{words}.sort((a, b) => a.localeCompare(b, {given}, {options}))"
    return f"{words}.sort(new Intl.Collator({given}, {options}).compare)"
