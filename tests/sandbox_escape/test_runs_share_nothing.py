"""Promise 7: every program starts from the same image, with randomness of its own, and a run belongs to its owner."""

from __future__ import annotations

from typing import Any

import pytest
from guest_harness import ok

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.manager import Cell
from codemode_mcp.runs.store import Claim
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import OWNER, Bench, bench
from tests.sandbox.conftest import OpenCell
from tests.sandbox_escape.reach import WALK
from tests.values import replace
from upstream_clients.testing import ScriptedSource, SlowSource, text_result

pytestmark = pytest.mark.anyio

OTHER = "another owner"


async def execute_as(it: Bench, owner: str, code: str) -> Outcome:
    return await it.manager.execute(Cell(code, "javascript", Caller(owner)))


FINGERPRINT = (
    WALK
    + """
const lines = [];
const show = (v) => typeof v === "function" ? "function " + v.name + v.length
  : typeof v === "object" && v !== null ? "object" : typeof v + " " + String(v);
for (const [object, place] of walk(ROOTS)) {
  lines.push(place.join(" ") + Object.isFrozen(object) + Object.isExtensible(object));
  for (const key of Reflect.ownKeys(object)) {
    const d = Object.getOwnPropertyDescriptor(object, key);
    const how = String(d.writable) + d.enumerable + d.configurable;
    lines.push(String(key) + " " + show(d.value) + show(d.get) + show(d.set) + how);
  }
}
return lines;
"""
)

SPOIL = (
    WALK
    + """
globalThis.left = "behind"; Object.prototype.left = 1; Array.prototype.push = () => "replaced"; var leaked = 1;
(0, eval)("var declared = 1; function made() {}"); Symbol.for("registered").left = 1; console.log = () => 1;
console.kept = new WeakRef({}); new FinalizationRegistry(() => {}).register({}, 1); Error.stackTraceLimit = 1;
RegExp.prototype.exec.kept = 1; /x(.)/.exec("xy"); URL.prototype.kept = 1; Math.kept = 1; JSON.kept = 1;
for (const object of walk({ globalThis, proto: Object.getPrototypeOf(async () => {}) }).keys())
  try { object.kept = "here" } catch {}
for (const it of [Object.prototype, globalThis, Promise.prototype]) Object.preventExtensions(it);
delete globalThis.Map; delete globalThis.text;
return 1;
"""
)


def test_a_guest_finds_everything_as_new_whatever_another_did(cell: OpenCell) -> None:
    before = cell().start(FINGERPRINT).value
    spoiled = cell()
    assert spoiled.start(SPOIL).value == 1
    beside, after = cell().start(FINGERPRINT).value, cell()
    spoiled.close()
    assert len(before) > 2000
    assert beside == before
    assert after.start(FINGERPRINT).value == before


def test_a_suspended_guest_is_not_touched_by_others(cell: OpenCell) -> None:
    suspended = cell()
    suspended.start("globalThis.mine = 'mine'; await MCP.files.readFile({});" + FINGERPRINT)
    stored = suspended.snapshot()
    plain = cell()
    plain.start("globalThis.mine = 'mine'; await MCP.files.readFile({});" + FINGERPRINT)
    cell().start(SPOIL)
    assert cell(suspended=stored).deliver(ok(1)).value == plain.deliver(ok(1)).value


async def test_what_a_program_leaves_is_gone_for_the_next_of_the_same_owner(engine: Engine) -> None:
    async with bench(engine) as it:
        await it.execute(SPOIL)
        outcome = await it.execute(
            "return [typeof left, typeof leaked, typeof declared, {}.left, Math.kept, [].push(1), typeof Map,"
            "  typeof text, Symbol.for('registered').left, console.kept, RegExp.$1]"
        )
    assert outcome.value == ["undefined"] * 3 + [None, None, 1, "function", "function", None, None, None]


async def test_random_numbers_are_never_the_same(engine: Engine) -> None:
    code = (
        "return [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint32Array(4))].join(),"
        "  [1, 2, 3, 4, 5, 6, 7, 8].map(() => Math.random()).join()]"
    )
    async with bench(engine) as it:
        drawn = [(await execute_as(it, owner, code)).value for owner in (OWNER, OWNER, OTHER) * 4]
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == len(kind)


async def test_ids_of_runs_have_no_order_and_much_randomness(engine: Engine) -> None:
    async with bench(engine) as it:
        ids = [(await it.execute("await yield_control(); return 1")).run_id for _ in range(8)]
    bodies = [run_id.removeprefix("run_") for run_id in ids]
    assert len(set(bodies)) == 8
    assert {len(body) for body in bodies} == {24}
    assert sorted(bodies) != bodies or sorted(bodies, reverse=True) != bodies
    assert len({body[:4] for body in bodies}) == 8


async def test_the_id_of_a_run_is_not_known_to_its_program(engine: Engine) -> None:
    async with bench(engine) as it:
        suspended = await it.execute("await yield_control();" + FINGERPRINT)
        outcome = await it.observe(suspended.run_id)
    assert suspended.run_id not in str(outcome.value)


# owners

VALUES = (
    ("return await load('k') ?? 'nothing'", "nothing"),
    ("return await load('__proto__') ?? 'nothing'", "nothing"),
    ("return await load('') ?? 'nothing'", "nothing"),
)


async def test_stored_values_are_for_their_owner_alone(engine: Engine) -> None:
    async with bench(engine) as it:
        await it.execute("store('k', 'secret'); store('', 'secret'); store('__proto__', 'secret')")
        for code, expected in VALUES:
            assert (await execute_as(it, OTHER, code)).value == expected
        await execute_as(it, OTHER, "store('k', 'other')")
        assert (await it.execute("return await load('k')")).value == "secret"
        # Full for one is not full for the other.
        outcome = await it.execute("store('big', 'x'.repeat(1e9 / 20)); return 1")
        assert outcome.status == "completed"
        assert (await execute_as(it, OTHER, "return await load('k')")).value == "other"


async def test_a_ref_of_another_owner_leads_nowhere(engine: Engine) -> None:
    async with bench(engine) as it:
        values = it.manager._driver._deliveries._values
        ref = await values.offload(OWNER, '"secret"')
        code = f"return await load('{ref}') ?? 'nothing'"
        assert (await it.execute(code)).value == "secret"
        assert (await execute_as(it, OTHER, code)).value == "nothing"
        refused = await execute_as(it, OTHER, f"await store('{ref}', 1); await load('x'); return 1")
        assert "belong to results" in str(refused.notes) + str(refused.error)


async def failure(it: Bench, run_id: str, owner: str, **options: Any) -> tuple[str, str]:
    with pytest.raises(ProgramError) as refused:
        await it.observe(run_id, owner=owner, **options)
    return refused.value.code, refused.value.message.replace(run_id, "RUN")


@pytest.mark.parametrize("options", [{}, {"cancel": True}, {"from_start": True}], ids=["wait", "cancel", "from start"])
async def test_a_run_of_another_is_like_none_in_every_state(engine: Engine, options: dict[str, bool]) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow) as it:
        unknown = await failure(it, "run_" + "x" * 24, OTHER, **options)
        assert unknown[0] == "invalid_input"

        suspended = await it.execute("await yield_control(); await MCP.slow.work({}); return 1")
        assert await failure(it, suspended.run_id, OTHER, **options) == unknown

        waiting = await it.execute("await yield_control(); return 2")
        ended = await it.observe(waiting.run_id)
        assert ended.value == 2
        assert await failure(it, waiting.run_id, OTHER, **options) == unknown

        it.clock.advance(it.settings.snapshot_ttl_seconds + 1)
        await it.manager.sweep()
        assert (await failure(it, suspended.run_id, OWNER))[0] == "snapshot_expired"
        assert await failure(it, suspended.run_id, OTHER, **options) == unknown


async def test_another_owner_cannot_end_or_disturb_a_run(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow) as it:
        suspended = await it.execute("await yield_control(); return unwrap(await MCP.slow.work({}))")
        for options in ({"cancel": True}, {"from_start": True}, {}):
            await failure(it, suspended.run_id, OTHER, **options)
        assert slow.cancelled == 0
        slow.release.set()
        assert (await it.observe(suspended.run_id)).value == "done"


async def test_a_stored_run_that_says_another_owner_is_not_given(engine: Engine) -> None:
    """Check that the store itself compares the owner, for every caller."""
    async with bench(engine) as it:
        suspended = await it.execute("await yield_control(); return 1")
        kept = await it.store.claim(suspended.run_id, OWNER)
        assert isinstance(kept, Claim)
        await it.store.release(suspended.run_id, OWNER)
        await it.store.suspend(replace(kept.run, owner=OTHER))
        assert (await failure(it, suspended.run_id, OWNER))[0] == "invalid_input"


async def test_the_quota_of_one_owner_is_not_used_up_by_another(engine: Engine) -> None:
    async with bench(engine, max_suspended_runs_per_owner=1) as it:
        assert (await it.execute("await yield_control(); return 1")).status == "waiting"
        assert (await it.execute("await yield_control(); return 1")).code == "too_many_pending_tool_calls"
        assert (await execute_as(it, OTHER, "await yield_control(); return 1")).status == "waiting"


async def test_results_of_calls_go_to_the_run_that_made_them(engine: Engine) -> None:
    upstream = ScriptedSource("s", {"echo": lambda arguments: text_result(arguments["n"])})
    async with bench(engine, upstream) as it:
        suspended = [
            await execute_as(it, owner, f"await yield_control(); return unwrap(await MCP.s.echo({{ n: '{n}' }}))")
            for n, owner in enumerate((OWNER, OTHER) * 3)
        ]
        answers = [
            (await it.observe(each.run_id, owner=owner)).value
            for each, owner in reversed(list(zip(suspended, (OWNER, OTHER) * 3, strict=True)))
        ]
    assert answers == [5, 4, 3, 2, 1, 0]
