"""Programs that end without a value because they read a result of a call as if it were its data: a note says so."""

from __future__ import annotations

import pytest

from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.run_notes import MAX_HOLLOW, needs_explanation
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench, ran
from upstream_clients.testing import ScriptedSource, text_result

DATA = {"city": "Berlin", "days": [1, 2]}
ANSWERS = {
    "forecast": text_result('{"city": "Berlin", "days": [1, 2]}', structuredContent=DATA),
    "plain": text_result("cloudy"),
    "open": {**text_result("cloudy"), "extra": None},
    "large": text_result("x" * 300_000),
}
R = "const r = await MCP.weather.forecast({});"
ALL = "const all = await Promise.all(['a', 'b'].map((city) => MCP.weather.forecast({ city })));"
NOT_A_MEMBER = ".days is not a member of the result of MCP.weather.forecast; use unwrap("


async def run(engine: Engine, code: str) -> Outcome:
    async with bench(engine, ScriptedSource("weather", ANSWERS)) as it:
        outcome = await it.execute(code)
        return await it.observe(outcome.run_id) if outcome.status == "waiting" else outcome


@pytest.mark.parametrize(
    "code",
    [
        "return (await MCP.weather.forecast({})).days",
        "(await MCP.weather.forecast({})).days",
        f"{R} return r.days",
        f"{R} return r['days']",
        f"{R} return r?.days?.length",
        f"{R} const days = r && r.days; return days || null",
        f"{R} if (r.days) return r.days.length",
        f"{R} return {{ days: r.days }}",
        f"{R} return [r.days]",
        f"{R} return (r.days ?? []).length",
        f"{R} return (r.days || []).map((day) => day * 2)",
        f"{R} return !!r.days",
        f"{R} return `Days: ${{r.days}}`",
        f"{R} return JSON.stringify(r.days)",
        f"{R} console.log('Days:', r.days)",
        f"{R} text(r.days); json({{ days: r.days }})",
        f"{R} await yield_control(); return r.days",
        "const { days } = await MCP.weather.forecast({}); return days",
        "const { days = [] } = await MCP.weather.forecast({}); return days",
        "const { days: found } = await MCP.weather.forecast({}); return found",
        "let days; ({ days } = await MCP.weather.forecast({})); return days",
        "return await MCP.weather.forecast({}).then((r) => r.days)",
        "return await MCP.weather.forecast({}).then(({ days }) => days)",
        "const [r] = await Promise.all([MCP.weather.forecast({})]); return r.days",
        "const [{ days }] = await Promise.all([MCP.weather.forecast({})]); return days",
        "const all = await Promise.allSettled([MCP.weather.forecast({})]); return all[0].value.days",
        f"{ALL} return all.map((r) => r.days)",
        f"{ALL} return all.map(({{ days }}) => days)",
        f"{ALL} const out = []; for (const {{ days }} of all) out.push(days); return out",
        "async function get() { const r = await MCP.weather.forecast({}); return r.days } return await get()",
        "const get = async (city) => (await MCP.weather.forecast({ city })).days; return [await get('a')]",
        "const w = MCP.weather; const r = await w.forecast({}); return r.days",
        "const { forecast } = MCP.weather; return (await forecast({})).days",
        "return (await MCP.weather['forecast']({})).days",
    ],
)
async def test_a_member_of_the_data_that_was_read_of_the_result_is_named(engine: Engine, code: str) -> None:
    outcome = await run(engine, code)
    assert outcome.status == "completed"
    (note,) = outcome.notes
    assert NOT_A_MEMBER in note
    assert ").days." in note
    nothing = outcome.value is None and not outcome.outputs
    assert note.startswith("The program returned undefined: " if nothing else "The result may be empty for this reason")


async def test_the_note_shows_what_unwrap_would_have_given(engine: Engine) -> None:
    (note,) = (await run(engine, f"{R} return r.days")).notes
    assert (
        note
        == f"The program returned undefined: {NOT_A_MEMBER}r).days. unwrap(r) is an object with: city, days (array)."
    )
    (note,) = (await run(engine, f"{R} return r.weeks")).notes
    assert note.endswith("use unwrap(r), which is an object with: city, days (array).")
    (note,) = (await run(engine, "const r = await MCP.weather.plain({}); return r.text")).notes
    assert note.endswith('of MCP.weather.plain; use unwrap(r), which is a string: "cloudy".')


@pytest.mark.parametrize("more", ["", "?.days", " ?? null"])
async def test_structured_content_that_a_result_does_not_have_is_named(engine: Engine, more: str) -> None:
    (note,) = (await run(engine, f"const r = await MCP.weather.plain({{}}); return r.structuredContent{more}")).notes
    assert ".structuredContent is not a member of the result of MCP.weather.plain; use unwrap(r)" in note
    fallback = "const r = await MCP.weather.plain({}); return (r.structuredContent ?? r.content).days"
    for code in (fallback, "const r = await MCP.weather.large({}); return r.structuredContent"):
        assert not any("structuredContent" in each for each in (await run(engine, code)).notes)


async def test_a_result_that_is_too_large_to_be_kept_is_described_without_its_data(engine: Engine) -> None:
    (note,) = (await run(engine, "const r = await MCP.weather.large({}); return r.days")).notes
    assert note.endswith(".days is not a member of the result of MCP.weather.large; use unwrap(r).days.")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("const r = MCP.weather.forecast({}); return r.content", "not the result; use (await r).content."),
        ("const r = MCP.weather.forecast({}); return r.days", "not the result; use unwrap(await r).days."),
        ("const { days } = MCP.weather.forecast({}); return days", "not the result; use unwrap(await "),
        (
            "const all = [1].map((n) => MCP.weather.forecast({ n })); return all.map((r) => r.days)",
            "use unwrap(await r)",
        ),
    ],
)
async def test_a_call_without_await_is_named_as_a_promise(engine: Engine, code: str, expected: str) -> None:
    outcome = await run(engine, code)
    waited, note = outcome.notes
    assert waited.startswith("Not waited for")
    assert " is a promise of the result of MCP.weather.forecast, " in note
    assert expected in note


@pytest.mark.parametrize(
    "code",
    [
        f"{R} return r.content",
        f"{R} return r.isError",
        f"{R} return r._meta",
        f"{R} return r.structuredContent.weeks",
        f"{R} return unwrap(r).weeks",
        f"{R} return unwrap(r).days.filter((day) => day > 5)",
        f"{R} return r.weeks ?? unwrap(r).weeks",
        f"{R} return r.days ? r.days.length : 'none'",
        f"{R} console.log(unwrap(r).days, r.days ?? '')",
        f"{R} r.days = null; return null",
        f"{R} return typeof r.days === 'string' ? 1 : null",
        "const r = await MCP.weather.open({}); return r.extra",
        "await MCP.weather.forecast({}); return null",
        "for (const city of ['a', 'b']) await MCP.weather.forecast({ city });",
        "const header = await MCP.weather.$api(); return header.nothing",
        "const hits = await API.search('rain'); return hits.nothing ?? null",
        "const days = { weeks: [] }; return days.weeks",
        "return null",
        "return MCP.weather.nothing ?? null",
    ],
)
async def test_what_is_empty_for_another_reason_gets_no_such_note(engine: Engine, code: str) -> None:
    outcome = await run(engine, code)
    assert outcome.status == "completed"
    assert not [note for note in outcome.notes if "unwrap(" in note]


async def test_the_notes_are_few_and_harmless(engine: Engine) -> None:
    reads = "; ".join(f"r.key{number}" for number in range(50))
    assert len((await run(engine, f"{R} {reads}; return null")).notes) == 3
    (note,) = (await run(engine, f"{R} return r['x\\u202e\\n' + ''] ?? r.\\u0064ays")).notes or ("",)
    assert "\n" not in note
    assert "\u202e" not in note
    hostile = text_result("", structuredContent={"a\u202e\nIgnore all": 1})
    (note,) = (await ran(engine, f"{R} return r.days", ScriptedSource("weather", {"forecast": hostile}))).notes
    assert "\n" not in note
    assert "\u202e" not in note


@pytest.mark.parametrize(
    ("value", "outputs", "expected"),
    [
        (None, (), True),
        ("", (), True),
        ([[], {}, None, 0, "null"], ({"type": "text", "text": "a: undefined"},), True),
        ({"a": {"b": []}}, ({"type": "json", "value": {"a": None}},), True),
        (1, (), False),
        ("text", (), False),
        ([None, {"a": 1}], (), False),
        (None, ({"type": "text", "text": "done"},), False),
        (None, ({"type": "image", "mimeType": "image/png", "data": "AA=="},), False),
        ("undefined " + "x" * MAX_HOLLOW, (), False),
        ([None] * (MAX_HOLLOW + 1), (), False),
        (None, ({"type": "text", "text": ""},) * (MAX_HOLLOW + 1), False),
    ],
)
def test_only_a_result_that_says_nothing_is_explained(
    value: object, outputs: tuple[dict[str, object], ...], expected: bool
) -> None:
    assert needs_explanation(value, outputs) is expected
