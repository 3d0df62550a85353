"""The data of locales and time zones, in the form that `sandbox/intl` reads: from the files of npm packages. Pure.

This module imports the standard library only, since the build hook uses it. The result depends on nothing but the
packages, because snapshots name the image that contains it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Files: TypeAlias = "Mapping[str, Mapping[str, bytes]]"
"""Files by their names, by the name of their package."""

_LANGUAGES: Final = "ar cs da de el en es fi fr he hi hu id it ja ko nb nl pl pt ru sv tr uk vi zh"
_VARIANTS: Final = "en-AU en-CA en-GB en-IE en-IN en-NZ en-ZA de-AT de-CH es-MX fr-CA nl-BE pt-PT zh-Hant"
_REGIONS: Final = "EG CZ DK DE GR US ES FI FR IL IN HU ID IT JP KR NO NL PL BR RU SE TR UA VN CN"

PARENTS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(_LANGUAGES.split()),
    **{name: name.partition("-")[0] for name in _VARIANTS.split()},
}
"""Locales, and those from which only differences are kept."""

REGIONS: Final = dict(zip(_LANGUAGES.split(), _REGIONS.split(), strict=True))
"""The likely regions of languages."""

DEFAULTS: Final[Mapping[str, str]] = {
    **{f"{name}-{region}": name for name, region in REGIONS.items() if name != "ar"},
    "no": "nb",
    **dict.fromkeys(("zh-Hans", "zh-Hans-CN"), "zh"),
    **dict.fromkeys(("zh-TW", "zh-Hant-TW"), "zh-Hant"),
}
"""Other names of locales, which have the same data."""

DATES, CORE, ZONES, ALIASES = "cldr-dates-full", "cldr-core", "moment-timezone", "cldr-bcp47"
NUMBERS, LISTS, PLURALS = (f"@formatjs/intl-{name}" for name in ("numberformat", "listformat", "pluralrules"))

_WIDTHS: Final = {"wide": "w", "abbreviated": "a", "narrow": "n", "short": "s"}
_FIELDS: Final = ("era", "year", "month", "week", "weekday", "day", "dayperiod", "hour", "minute", "second", "zone")


def wanted(package: str, name: str) -> bool:
    """Return True if the build reads this file of a package."""
    locales = "|".join((*PARENTS, "und", *_CLDR_PARENTS))
    patterns = {
        DATES: rf"package/main/(?:{locales})/(?:ca-gregorian|timeZoneNames|dateFields)\.json",
        CORE: r"package/supplemental/(?:dayPeriods|timeData|metaZones|currencyData)\.json",
        ZONES: r"package/data/packed/latest\.json",
        ALIASES: r"package/bcp47/timezone\.json",
    }
    other = rf"package/(?:index\.js|package\.json|locale-data/(?:{locales})\.js)"
    return re.fullmatch(rf"(?:{patterns.get(package, other)}|package/LICENSE(?:\.md|\.txt)?)", name) is not None


def module(files: Files) -> str:
    """Return the JavaScript module with all data. Texts of locales are JSON, so that only those in use are parsed."""
    core = {name: _supplemental(files, name) for name in ("dayPeriods", "timeData", "metaZones", "currencyData")}
    current = _current_currencies(core["currencyData"]["currencyData"])
    sections = {
        "dates": {name: _dates(files, name, core) for name in PARENTS},
        "numbers": {name: _numbers(_formatjs(files, NUMBERS, name), current) for name in PARENTS},
        "relative": {name: _relative(files, name) for name in PARENTS},
        "lists": {name: _formatjs(files, LISTS, name) for name in PARENTS},
    }
    texts = {
        section: {name: _json(_difference(values, name)) for name in values} for section, values in sections.items()
    }
    shared = {"zones": _json(_zones(files, core["metaZones"]["metaZones"]))}
    small = {"parents": PARENTS, "defaults": DEFAULTS, "currencies": sorted(current)}
    return "".join(f"export const {name} = {_json(value)};\n" for name, value in {**texts, **shared, **small}.items())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _difference(values: Mapping[str, Any], name: str) -> Any:
    parent = PARENTS[name]
    return values[name] if parent is None else _changes(values[name], values[parent])


def _changes(value: Any, base: Any) -> Any:
    """Return the members of `value` that differ from `base`; None stands for a member that is missing."""
    if not isinstance(value, dict) or not isinstance(base, dict):
        return value
    changed = {key: _changes(value[key], base.get(key)) for key in value if value[key] != base.get(key)}
    return {**changed, **{key: None for key in base if key not in value}}


def _supplemental(files: Files, name: str) -> Any:
    return json.loads(files[CORE][f"package/supplemental/{name}.json"])["supplemental"]


def _formatjs(files: Files, package: str, name: str) -> Any:
    """Return the data of a locale: the argument of the only call in its file."""
    name = name if f"package/locale-data/{name}.js" in files[package] else PARENTS[name] or name
    text = files[package][f"package/locale-data/{name}.js"].decode()
    start = text.index("__addLocaleData({") + len("__addLocaleData(")
    return json.JSONDecoder().raw_decode(text, start)[0]["data"]


def _cldr(files: Files, name: str, file: str) -> Any:
    return json.loads(files[DATES][f"package/main/{name}/{file}.json"])["main"][name]["dates"]


def _relative(files: Files, name: str) -> dict[str, Any]:
    """Return the names of relative times of a locale, in the form of the package for them."""
    fields = _cldr(files, name, "dateFields")["fields"]
    found: dict[str, Any] = {"nu": ["latn"]}
    for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year"):
        for field in (unit, f"{unit}-short", f"{unit}-narrow"):
            names: dict[str, Any] = {}
            for key, value in fields[field].items():
                if key.startswith("relative-type-"):
                    names[key.removeprefix("relative-type-")] = value
                elif key.startswith("relativeTime-type-"):
                    forms = {count.removeprefix("relativeTimePattern-count-"): text for count, text in value.items()}
                    names[key.removeprefix("relativeTime-type-")] = forms
            found[field] = names
    return found


# dates


def _dates(files: Files, name: str, core: Mapping[str, Any]) -> Any:
    calendar = _cldr(files, name, "ca-gregorian")["calendars"]["gregorian"]
    formats = calendar["dateTimeFormats"]
    fields = _cldr(files, name, "dateFields")["fields"]
    return {
        "hour": _preferred_hour(name, core["timeData"]["timeData"]),
        "months": _names(calendar["months"], map(str, range(1, 13))),
        "days": _names(calendar["days"], ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
        "periods": {_WIDTHS[width]: _plain(names) for width, names in calendar["dayPeriods"]["format"].items()},
        "eras": {key: [calendar["eras"][long][era] for era in "01"] for key, long in _ERAS.items()},
        "date": _styles(calendar["dateFormats"]),
        "time": _styles(calendar["timeFormats"]),
        "both": _styles(calendar["dateTimeFormats-atTime"]["standard"]),
        "join": formats["medium"],
        "available": _available(files, name),
        "append": _plain(formats["appendItems"]),
        "fields": {field: fields[field]["displayName"] for field in _FIELDS},
        "intervals": {key: _plain(v) if isinstance(v, dict) else v for key, v in formats["intervalFormats"].items()},
        "rules": _rules(core["dayPeriods"]["dayPeriodRuleSet"], name),
        "zones": _zone_names(_cldr(files, name, "timeZoneNames")["timeZoneNames"]),
    }


def _available(files: Files, name: str) -> list[tuple[str, str]]:
    """Return the patterns of a locale by skeleton, those of its own first, then those of its parents.

    Where two patterns are equally near, ICU takes the first one.
    """
    chain = [name]
    while chain[-1] != "und":
        chain.append(_CLDR_PARENTS.get(chain[-1]) or PARENTS.get(chain[-1]) or "und")
    own = [_formats(files, each) for each in chain]
    found: list[tuple[str, str]] = []
    for formats, parent in zip(own, [*own[1:], {}], strict=True):
        found += sorted(
            (key, value) for key, value in formats.items() if parent.get(key) != value and key not in dict(found)
        )
    return [(key, own[0][key]) for key, _ in found if key in own[0]]


def _formats(files: Files, name: str) -> dict[str, str]:
    calendars = _cldr(files, name, "ca-gregorian")["calendars"]
    return _plain(calendars["gregorian"]["dateTimeFormats"]["availableFormats"])


_CLDR_PARENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("en-AU", "en-GB", "en-IE", "en-IN", "en-NZ", "en-ZA"), "en-001"),
    "en-CA": "en-001",
    "en-001": "en",
    "es-MX": "es-419",
    "es-419": "es",
    "zh-Hant": "und",
}
"""Parents in CLDR, where these are others than `PARENTS`."""

_ERAS: Final = {"w": "eraNames", "a": "eraAbbr", "n": "eraNarrow"}


def _plain(values: Mapping[str, str]) -> dict[str, str]:
    """Return the members that are no variants and no plural forms."""
    return {key: value for key, value in values.items() if "-alt-" not in key and "-count-" not in key}


def _styles(values: Mapping[str, str]) -> list[str]:
    return [values[style] for style in ("full", "long", "medium", "short")]


def _names(values: Mapping[str, Any], order: Iterable[str]) -> dict[str, list[str]]:
    """Return names by kind and width, such as `fa` for the abbreviated ones of a format."""
    keys = list(order)
    found: dict[str, list[str]] = {}
    for kind, widths in values.items():
        for width, names in widths.items():
            found[("f" if kind == "format" else "s") + _WIDTHS[width]] = [names[key] for key in keys]
    return found


def _preferred_hour(name: str, times: Mapping[str, Any]) -> str:
    language, _, region = name.partition("-")
    region = "TW" if region == "Hant" else region or REGIONS[name]
    found = times.get(f"{language}_{region}") or times.get(f"{language}-{region}") or times.get(region)
    return str((found or times["001"])["_preferred"])


def _rules(sets: Mapping[str, Any], name: str) -> list[list[Any]]:
    """Return the periods of a day as name, first minute and the minute after the last. A moment has one minute."""
    found = sets.get(name) or sets.get(name.partition("-")[0]) or {}
    rules = [
        [period, _minute(rule.get("_from") or rule["_at"]), _minute(rule["_before"]) if "_before" in rule else None]
        for period, rule in found.items()
    ]
    return sorted(rules, key=lambda rule: str(rule[0]))


def _minute(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def _zone_names(names: Mapping[str, Any]) -> dict[str, Any]:
    zones: dict[str, Any] = {}

    def collect(prefix: str, value: Mapping[str, Any]) -> None:
        if "_type" in value or "exemplarCity" in value or "long" in value or "short" in value:
            kept = {width[0]: value[width] for width in ("long", "short") if width in value}
            if kept:
                zones[prefix] = kept
            return
        for key, inner in value.items():
            collect(f"{prefix}/{key}" if prefix else key, inner)

    collect("", names["zone"])
    metazones = {key: {w[0]: v[w] for w in ("long", "short") if w in v} for key, v in names["metazone"].items()}
    gmt = {key: names[key] for key in ("hourFormat", "gmtFormat", "gmtZeroFormat")}
    return {**gmt, "zone": zones, "meta": metazones}


# time zones


def _zones(files: Files, metazones: Mapping[str, Any]) -> dict[str, Any]:
    """Return offsets and metazones by the names that CLDR gives to zones, and the aliases of these names."""
    packed = json.loads(files[ZONES]["package/data/packed/latest.json"])
    data: dict[str, str] = {}
    for line in packed["zones"]:
        name, _, offsets, indices, *rest = line.split("|")
        data[name] = "|".join((offsets, indices, rest[0] if rest else ""))
    for line in packed["links"]:
        target, name = line.split("|")
        data.setdefault(name, data[target])
    aliases: dict[str, str] = {}
    offsets_of: dict[str, str] = {}
    for key, entry in json.loads(files[ALIASES]["package/bcp47/timezone.json"])["keyword"]["u"]["tz"].items():
        names = entry["_alias"].split() if not key.startswith("_") and "_alias" in entry else []
        known = next((data[each] for each in (*names, entry.get("_iana", "") if names else "") if each in data), None)
        if known is None:
            continue
        offsets_of[names[0]] = known
        aliases.update((other, names[0]) for other in names[1:])
    used: dict[str, Any] = {}

    def collect(prefix: str, value: Any) -> None:
        if isinstance(value, list):
            used[prefix] = [_metazone(each["usesMetazone"]) for each in value]
            return
        for key, inner in value.items():
            collect(f"{prefix}/{key}" if prefix else key, inner)

    collect("", metazones["metazoneInfo"]["timezone"])
    golden = {
        each["mapZone"]["_other"]: each["mapZone"]["_type"]
        for each in metazones["metazones"]
        if each["mapZone"]["_territory"] == "001"
    }
    return {"offsets": offsets_of, "aliases": aliases, "meta": used, "golden": golden}


def _metazone(use: Mapping[str, str]) -> list[str]:
    return [use["_mzone"], use.get("_from", ""), use.get("_to", "")]


# numbers


def _current_currencies(data: Mapping[str, Any]) -> set[str]:
    """Return the currencies that are in use anywhere, or were in recent years, or have a name for accounts."""
    in_use = {
        code
        for entries in data["region"].values()
        for entry in entries
        for code, use in entry.items()
        if use.get("_to", "9") >= "2021" and use.get("_tender") != "false"
    }
    return in_use | {"SVC", "XDR", "XSU"}


def _numbers(data: dict[str, Any], currencies: set[str]) -> dict[str, Any]:
    """Return the number data of a locale in Western digits."""
    numbers = data["numbers"]
    kept = {key: {"latn": numbers[key]["latn"]} for key in ("currency", "decimal", "percent", "symbols")}
    percent = re.sub(r"[#,.0]+", "{0}", kept["percent"]["latn"]).replace("%", kept["symbols"]["latn"]["percentSign"])
    units = data["units"]
    simple = {**units["simple"]}
    simple["percent"] = {**simple["percent"], "narrow": {"other": percent}, "short": {"other": percent}}
    return {
        **data,
        "nu": ["latn"],
        "currencies": {code: data["currencies"][code] for code in data["currencies"] if code in currencies},
        "numbers": {**{key: numbers[key] for key in numbers if key not in (*kept, "aliases")}, **kept, "nu": ["latn"]},
        "units": {**units, "simple": simple},
    }


def plurals(files: Files) -> str:
    """Return the JavaScript module that loads the plural rules, which are functions."""
    names = (name for name in PARENTS if f"package/locale-data/{name}.js" in files[PLURALS])
    return "".join(f'import "{PLURALS}/locale-data/{name}.js";\n' for name in names)
