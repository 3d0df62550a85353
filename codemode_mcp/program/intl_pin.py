"""The bundle with `Intl`: our scripts and pinned packages of npm, in one script, built by the pinned esbuild.

The same packages and the same esbuild give the same bytes on every machine. Snapshots name the image that contains
them. This module and what it imports use the standard library only, since the build hook uses them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from codemode_mcp.program import npm_package
from codemode_mcp.program.npm_package import FetchError

# The data of locales and time zones, in the form that `sandbox/intl` reads: from the files of npm packages.
#
# This module imports the standard library only, since the build hook uses it. The result depends on nothing but the
# packages, because snapshots name the image that contains it.


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


NAME: Final = "intl.js"
"""The file name of the bundle in an installation."""

SHA256: Final = "c38508e2a7de83b785c8860cd2a2759043c7b762ea508c40e74cf20309acc8c8"
"""SHA-256 of the bundle. `scripts/pin_intl.py` writes it."""

PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    NUMBERS: (
        "9.4.3",
        "absVu2I7FlWl+Buictw2PL8Fl385uab3bEA3TCCTu+0DBHHFE+RTbmPmj0nUVO82U1b2Qw3/OA2I7KKLI48EpQ==",
    ),
    PLURALS: (
        "6.3.16",
        "iOqCpBM2fo7bbbWqno+yN9WioepV01N2q3KawFZhRYADzijpzmIIA6cbFXrriCI1Mt2q5c7mceiKHoQkEFf0/Q==",
    ),
    LISTS: (
        "8.3.15",
        "dZEUYngBoAWLgYXvoBX3P6jIk5cg2rva7p5ZJTTn4lsCx/9abUKoPI2Wf59twxl5jgw1SDQMR1MBzJ7oiHwffw==",
    ),
    "@formatjs/intl-relativetimeformat": (
        "13.0.1",
        "Gl5dCHb7elEC19tTzxIyllWLHaHnN+HpQYEaA9xxAt9rKgRLwC3vGty1w8bVGG7p2YcGSPIg5c4qn4KdkGcTqg==",
    ),
    "@formatjs/intl-segmenter": (
        "12.2.15",
        "1AEewdf+fVMgmYdzwHKX1cNLQZ42coRWAiboAtSVlAEM7n23U/DkHxKQ32+AUGDNZY1WsmRtXZkFhiMGxAhbww==",
    ),
    "@formatjs/intl-locale": (
        "5.3.12",
        "bI5CrvuC6A5PMOIiHX+6ETTHXzUofHw1U/fkI59sQJ+BFbkglxIVVncFPxHf4IHmAqAs/Rlp2bdzTEcLaq2tQw==",
    ),
    "@formatjs/intl-getcanonicallocales": (
        "3.2.12",
        "THqQLTJUH2z2A7oE1guW8VzpGpsGFxwWZ+l8cI8Bk75xUU8DxtJoLfKl+5a6fYK26GeDWDWE0UbDhE5SwcLoFg==",
    ),
    "@formatjs/bigdecimal": (
        "0.2.7",
        "B4+XY/e4u5v261r3a37Kq2ax91gPZSKGyVpx8X5dygAggLlUz+6MeBpmAhaBFGB8WQ4JB1qD+QtKHk9aJkEb9Q==",
    ),
    DATES: (
        "48.1.0",
        "GyVLYFmC8Xsd+awXwAedeAXTr3u9FGnpRTFEf9aYbB6zVzz5CqATPBvyFqLs0+PLPbdHrqhjgxQ6oIf9EAavbw==",
    ),
    CORE: (
        "48.1.0",
        "Br9lHQHRhFVyQ/4dY2AnTOuJVEwzDSFR9tE4EzaZxdtux4BFZ4V6oY0SiSAe/8H9+CJ6njpBiPJdDv+vdXnvfA==",
    ),
    ALIASES: (
        "48.2.0",
        "ks3zN+Wbg1zMqvJNeDai1zA0JBGHbAnxv2Ko4rjVohvXscDGmTa7VNy1T+QRlQw3QVPzQcCm2EOiEtAfOU4d+g==",
    ),
    ZONES: (
        "0.6.6",
        "LF5AAYsMduXFW2ungr/D9JqNq9ykZyhWgYG6wFtdGZW5ZlBDTBgTUFqW8EC7Fa+Dvs3IMZxlWkSR09sW2D/+0w==",
    ),
}
"""The packages: version, and SHA-512 of the archive as npm publishes it."""

_SCRIPTS: Final = Path(__file__).parents[1] / "sandbox" / "intl"
_BUILD_SECONDS: Final = 60


def fetch(target: Path, esbuild: Path, *, registry: str | None = None) -> Path:
    """Build the bundle from the pinned packages, and write it to `target`, atomically.

    Args:
        target: the file to write; its folder is created.
        esbuild: the pinned esbuild of this machine.
        registry: a registry in place of the configured one.

    Raises:
        FetchError: npm is missing or offline, a package is not the pinned one, or esbuild builds something else.
    """
    content = build(esbuild, registry=registry)
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise FetchError(
            f"the bundle with Intl is not the pinned one: its SHA-256 is {digest}. It is built by esbuild {esbuild}."
        )
    npm_package.write_files(target.parent, {target.name: content})
    return target


def build(esbuild: Path, *, registry: str | None = None) -> bytes:
    """Return the bundle: a script whose value is a function that adds `Intl` to the globals. Raises `FetchError`."""
    files = {
        name: npm_package.fetch_files(f"{name}@{version}", integrity, registry, wanted=functools.partial(wanted, name))
        for name, (version, integrity) in PACKAGES.items()
    }
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-") as directory:
        folder = Path(directory)
        for script in _SCRIPTS.glob("*.js"):
            (folder / script.name).write_bytes(script.read_bytes())
        (folder / "data.js").write_text(module(files), "utf-8")
        (folder / "plurals.js").write_text(plurals(files), "utf-8")
        for name, members in files.items():
            for member, content in members.items():
                path = folder / "node_modules" / name / member.removeprefix("package/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return _licences(files) + _bundled(esbuild, folder)


def _bundled(esbuild: Path, folder: Path) -> bytes:
    command = [
        *(str(esbuild), "main.js", "--bundle", "--format=iife", "--global-name=bundle", "--target=es2023"),
        *("--banner:js=(function(){", "--footer:js=return bundle.default})()"),
        # What the packages see as `Intl` is an object of the bundle.
        *("--define:Intl=intlInternals", "--inject:./internals.js"),
        *(f"--alias:@formatjs/intl-{name}=./matcher.js" for name in ("localematcher", "supportedvaluesof")),
        *("--minify-whitespace", "--minify-syntax", "--charset=utf8", "--legal-comments=none", "--log-level=error"),
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BUILD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"esbuild cannot build the bundle with Intl ({type(error).__name__}).") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise FetchError(f"esbuild cannot build the bundle with Intl: {' '.join(reason)[:200]}")
    return done.stdout


def _licences(files: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Return the licences of the packages as a comment, each text once."""
    texts: dict[str, list[str]] = {}
    for name, members in files.items():
        for member, content in members.items():
            if member.startswith("package/LICENSE"):
                texts.setdefault(content.decode().replace("*/", "* /").strip(), []).append(name)
    return "".join(f"/* {', '.join(names)}\n\n{text}\n*/\n" for text, names in texts.items()).encode()
