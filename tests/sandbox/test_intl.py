"""Guests of images with `Intl`: what it says, and that it costs other programs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_harness import MANIFEST, MIB, Cell, ok

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.program.intl import intl_reader
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.sandbox.images import INTL_BYTES, with_intl

pytestmark = pytest.mark.usefixtures("intl")


@pytest.fixture
def open_with_intl(engine: Engine) -> Iterator[Callable[..., Cell]]:
    """Yield a function that opens guests with `Intl`."""
    opened: list[Cell] = []

    def open_cell(**options: Any) -> Cell:
        opened.append(Cell(engine, manifest=engine.with_intl(MANIFEST), **options))
        return opened[-1]

    yield open_cell
    for each in opened:
        each.close()


DAY = "new Date('2026-03-05T09:07:04.050Z')"

EVERYDAY = [
    # numbers
    ("(1234.5).toLocaleString('en-US', { style: 'currency', currency: 'USD' })", "$1,234.50"),
    ("(1234.5).toLocaleString('de-DE', { style: 'currency', currency: 'EUR' })", "1.234,50\u00a0€"),
    ("(5000).toLocaleString('ja-JP', { style: 'currency', currency: 'JPY' })", "￥5,000"),
    ("(0.256).toLocaleString(undefined, { style: 'percent', maximumFractionDigits: 1 })", "25.6%"),
    ("new Intl.NumberFormat('en', { notation: 'compact' }).format(1234567)", "1.2M"),
    ("new Intl.NumberFormat('en-IN').format(12345678)", "1,23,45,678"),
    ("new Intl.NumberFormat('fr').format(1234567.891)", "1\u202f234\u202f567,891"),
    ("new Intl.NumberFormat('en', { style: 'unit', unit: 'kilometer-per-hour' }).format(50)", "50 km/h"),
    ("new Intl.NumberFormat('en', { style: 'unit', unit: 'byte', unitDisplay: 'long' }).format(2)", "2 bytes"),
    ("new Intl.NumberFormat('en', { signDisplay: 'exceptZero' }).format(5)", "+5"),
    ("new Intl.NumberFormat('en', { minimumIntegerDigits: 3, useGrouping: false }).format(7)", "007"),
    ("(123456789012345678901234567890n).toLocaleString('de')", "123.456.789.012.345.678.901.234.567.890"),
    ("[1234.5, 6].toLocaleString('de', { minimumFractionDigits: 2 })", "1.234,50,6,00"),
    # dates
    (f"{DAY}.toLocaleDateString('en-US', {{ month: 'short', day: 'numeric' }})", "Mar 5"),
    (f"{DAY}.toLocaleDateString('en-US', {{ weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }})",
     "Thursday, March 5, 2026"),
    (f"{DAY}.toLocaleTimeString([], {{ hour: '2-digit', minute: '2-digit' }})", "09:07 AM"),
    (f"{DAY}.toLocaleDateString('en-CA')", "2026-03-05"),
    (f"{DAY}.toLocaleDateString('sv-SE')", "2026-03-05"),
    (f"{DAY}.toLocaleString('sv-SE')", "2026-03-05 09:07:04"),
    (f"{DAY}.toLocaleDateString('en-GB')", "05/03/2026"),
    (f"{DAY}.toLocaleDateString('de-DE', {{ dateStyle: 'full' }})", "Donnerstag, 5. März 2026"),
    (f"{DAY}.toLocaleString('en-US', {{ timeZone: 'America/New_York', timeZoneName: 'short' }})",
     "3/5/2026, 4:07:04 AM EST"),
    (f"{DAY}.toLocaleString('en-GB', {{ timeZone: 'Asia/' + 'Kolkata', hour12: false }})", "05/03/2026, 14:37:04"),
    (f"new Intl.DateTimeFormat('fr', {{ dateStyle: 'long', timeStyle: 'short' }}).format({DAY})",
     "5 mars 2026 à 09:07"),
    ("Intl.DateTimeFormat().resolvedOptions().timeZone", "UTC"),
    (f"new Intl.DateTimeFormat('en', {{ dateStyle: 'medium' }}).formatRange({DAY}, new Date('2026-03-07'))",
     "Mar 5\u2009\u2013\u20097, 2026"),
    ("new Date('2040-07-01T12:00Z').toLocaleTimeString('en-GB', { timeZone: 'Europe/Berlin' })", "14:00:00"),
    # texts
    ("['a10', 'a9', 'b1'].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).join()", "a9,a10,b1"),
    ("'résumé'.localeCompare('Resume', 'en', { sensitivity: 'base' })", 0),
    ("['z', 'ä', 'a', 'å', 'ö'].sort(new Intl.Collator('sv').compare).join('')", "azåäö"),
    ("['Яна', 'Анна', 'борис', 'Ёж', 'ель'].sort((a, b) => a.localeCompare(b, 'ru')).join()", "Анна,борис,Ёж,ель,Яна"),
    ("'istanbul'.toLocaleUpperCase('tr')", "İSTANBUL"),
    ("new Intl.PluralRules('en', { type: 'ordinal' }).select(22)", "two"),
    ("new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(-1, 'day')", "yesterday"),
    ("new Intl.RelativeTimeFormat('de').format(3, 'weeks')", "in 3 Wochen"),
    ("new Intl.ListFormat('en', { style: 'long', type: 'conjunction' }).format(['a', 'b', 'c'])", "a, b, and c"),
    ("[...new Intl.Segmenter('en', { granularity: 'grapheme' }).segment('👩‍👩‍👧é')].length", 2),
    ("[...new Intl.Segmenter('en', { granularity: 'word' }).segment('Hi, you')].filter((s) => s.isWordLike).length", 2),
    ("Intl.getCanonicalLocales('EN-us')[0]", "en-US"),
    ("Intl.NumberFormat.supportedLocalesOf(['de', 'xx']).join()", "de"),
    ("new Intl.Locale('en-Latn-US').language", "en"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), EVERYDAY, ids=[expression for expression, _ in EVERYDAY])
def test_everyday_forms_are_those_of_node(
    open_with_intl: Callable[..., Cell], expression: str, expected: object
) -> None:
    assert open_with_intl().start(f"return {expression}").value == expected


REFUSED = [
    ("new Intl.NumberFormat('sw')",
     'RangeError: Intl.NumberFormat: the locale "sw" is not available here. There are: ar, '),
    ("(1).toLocaleString('xx-YY')", 'RangeError: Intl.NumberFormat: the locale "xx-YY" is not available here'),
    ("new Date(0).toLocaleString('en', { calendar: 'hebrew' })", "RangeError: Intl.DateTimeFormat: the calendar"),
    ("'a'.localeCompare('b', 'ja')", 'RangeError: Intl.Collator: the order of the locale "ja" is not available here'),
    ("new Intl.DisplayNames(['en'], { type: 'region' })", "RangeError: Intl.DisplayNames is not available here"),
    ("new Intl.NumberFormat('en').formatRange(1, 2)", "RangeError: Intl.NumberFormat: formatRange() of numbers is not"),
    ("new Intl.Segmenter('ja', { granularity: 'word' }).segment('東京')", "RangeError: Intl.Segmenter: words of texts"),
    # as Node says
    ("new Date(0).toLocaleString('en', { timeZone: 'Mars/Base' })", "RangeError: Invalid time zone specified: Mars"),
    ("new Intl.NumberFormat('en', { style: 'currency' })", "TypeError: Currency code is required with currency style."),
    ("new Intl.NumberFormat('en_US')", "RangeError: Incorrect locale information provided"),
    ("new Intl.DateTimeFormat('en').format(NaN)", "RangeError: Invalid time value"),
    ("Intl.PluralRules()", "TypeError: Constructor Intl.PluralRules requires 'new'"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REFUSED, ids=[expression for expression, _ in REFUSED])
def test_what_is_not_there_is_refused_and_never_another_value(
    open_with_intl: Callable[..., Cell], expression: str, message: str
) -> None:
    told = open_with_intl().start(f"try {{ return {expression} }} catch (e) {{ return String(e) }}")
    assert told.value.startswith(message)


def test_the_classes_look_like_those_of_an_engine(open_with_intl: Callable[..., Cell]) -> None:
    told = open_with_intl().start(
        "const { NumberFormat, DateTimeFormat } = Intl; class Own extends NumberFormat {};"
        "return [typeof NumberFormat, NumberFormat.name, NumberFormat.length, DateTimeFormat.name, String(Intl),"
        " String(new DateTimeFormat()), NumberFormat('de') instanceof NumberFormat, new Own('de').format(1.5),"
        " Object.keys(Intl).length, Object.keys(NumberFormat.prototype).length, Number.prototype.toLocaleString.length,"
        " 'a'.localeCompare.length, new NumberFormat().format.name]"
    )
    assert told.value == [
        *("function", "NumberFormat", 0, "DateTimeFormat", "[object Intl]", "[object Intl.DateTimeFormat]"),
        *(True, "1,5", 0, 0, 0, 1, ""),
    ]


def test_a_program_that_breaks_its_own_intl_still_reaches_its_tools(open_with_intl: Callable[..., Cell]) -> None:
    cell = open_with_intl()
    cell.start(
        "const all = []; for (const T of [Array, Object, String, Map, WeakMap, JSON, RegExp, Number, Date])"
        "  for (const o of [T, T.prototype ?? {}]) for (const name of Reflect.ownKeys(o)) all.push([o, name]);"
        "const bad = () => { throw 'broken' };"
        "for (let i = 0; i < all.length; i++) try { all[i][0][all[i][1]] = bad } catch {}"
        "let said; try { new Intl.NumberFormat('de').format(1.5) } catch (e) { said = 'broken' }"
        "const got = await MCP.files.readFile({ path: 'a' }); return [said, got.content[0].text]"
    )
    told = cell.deliver(ok(1, {"content": [{"type": "text", "text": "x"}]}))
    assert told.value == ["broken", "x"]


# cost


def test_other_programs_have_the_image_that_they_had(engine: Engine, open_with_intl: Callable[..., Cell]) -> None:
    plain = Cell(engine)
    assert open_with_intl().start("return typeof Intl").value == "object"
    assert plain.start("return typeof globalThis['In' + 'tl']").value == "undefined"
    plain.close()
    image = engine.image(engine.with_intl(MANIFEST))
    assert engine.image(MANIFEST).size < image.size <= engine.image(MANIFEST).size + INTL_BYTES
    assert sum(len(block) for _, block in image.changes) < 9 * MIB
    assert (engine.image(MANIFEST).beside, image.beside) == (0, INTL_BYTES)


def test_a_name_that_only_the_running_program_makes_is_told_what_to_do(engine: Engine) -> None:
    cell = Cell(engine)
    told = cell.start("try { return (5)['toLocale' + 'String']('de') } catch (e) { return e.message }")
    assert "other forms are there for programs whose text has the call itself" in told.value
    cell.close()


@pytest.mark.parametrize("with_bundle", [False, True], ids=["without Intl", "with Intl"])
def test_the_bundle_takes_nothing_of_the_memory_of_a_program(engine: Engine, *, with_bundle: bool) -> None:
    manifest = engine.with_intl(MANIFEST) if with_bundle else MANIFEST
    fits = Cell(engine, manifest=manifest, memory_limit=16 * MIB)
    assert fits.start("const kept = new Uint8Array(11 << 20).fill(1); return kept.length").value == 11 << 20
    fits.close()
    over = Cell(engine, manifest=manifest, memory_limit=16 * MIB)
    code = (
        "const kept = []; for (let i = 0; i < 60; i++) kept.push(new Uint8Array(1 << 20).fill(1)); return kept.length"
    )
    assert over.start(code).out_of_memory
    over.close()


# images


def test_each_process_makes_the_same_image_and_keeps_it_for_the_next(engine_cache: Path, tmp_path: Path) -> None:
    reader = intl_reader(cache_dir())
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    digests = []
    for cache in (None, folder, folder):
        with open_engine(cache, max_threads=1, intl=reader) as engine:
            digests.append(engine.image(engine.with_intl(MANIFEST)).digest)
    assert len(set(digests)) == 1
    [kept] = folder.glob("intl-*.image")
    written = kept.stat().st_mtime_ns
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    with open_engine(folder, max_threads=1, intl=reader) as engine:
        assert engine.image(engine.with_intl(MANIFEST)).digest == digests[0]
    assert kept.stat().st_mtime_ns != written


def test_a_suspended_program_continues_with_its_formats(engine: Engine) -> None:
    manifest = engine.with_intl(MANIFEST)
    first = Cell(engine, manifest=manifest)
    first.start(
        "const money = new Intl.NumberFormat('de', { style: 'currency', currency: 'EUR' });"
        "const before = money.format(1); await MCP.files.readFile({});"
        "return [before, money.format(2.5), new Date(0).toLocaleDateString('fr', { month: 'long' })]"
    )
    saved = first.on_thread(first.guest.snapshot)
    first.close()
    assert len(saved) < MIB
    again = Cell(engine, manifest=manifest, suspended=saved)
    assert again.deliver(ok(1, {})).value == ["1,00\u00a0€", "2,50\u00a0€", "janvier"]
    again.close()


def test_an_image_of_another_bundle_or_without_one_is_refused(engine: Engine, engine_cache: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="the program uses Intl 00000000, and here is"):
        engine.image(with_intl(MANIFEST, 64 * "0"))
    with open_engine(engine_cache, max_threads=1) as bare, pytest.raises(RuntimeUnavailable, match="not available"):
        bare.with_intl(MANIFEST)


def test_the_manifest_of_an_image_with_intl_is_json(engine: Engine) -> None:
    assert json.loads(engine.with_intl(MANIFEST)).keys() - json.loads(MANIFEST).keys() == {"intl"}
