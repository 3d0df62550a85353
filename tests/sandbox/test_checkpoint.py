"""Snapshots of guests that continue afterwards, and what is the same in those that are restored from them.

A run is written down in mid-flight so that another process can resume from there, while this one continues itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from guest_harness import MANIFEST, MIB, READ, Cell, Told, called, ok
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Turn
from codemode_mcp.sandbox.images import SCRATCH, Image
from codemode_mcp.sandbox.messages import Completion, GuestError, Timer, ToolCall
from tests.properties import examples
from tests.sandbox.conftest import OpenCell

STEPS = [
    "kept.push((await MCP.files.readFile({ n: kept.length })).n)",
    "kept.push(await MCP.files.readFile({ fails: true }).catch((error) => error.code + ':' + error.message))",
    "kept.push(...(await Promise.all([1, 2, 3].map((n) => MCP.files.readFile({ n })))).map((each) => each.n))",
    "kept.push((await Promise.race([MCP.files.readFile({ n: 'a' }), MCP.files.readFile({ n: 'b' })])).n)",
    "await new Promise((done) => setTimeout(done, 10)); kept.push('timer')",
    "kept.push(Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(3))].join())",
    "text('said ' + kept.length)",
    "seen.set({ at: kept.length }, new Array(2000).fill(kept.length)); kept.push(seen.size)",
    "for await (const each of walk(2)) kept.push(each)",
    "Promise.reject(new Error('lost ' + kept.length))",
    "weak.add(kept); kept.push(weak.has(kept)); { let a = []; for (let i = 0; i < 500; i++) a.push({ i, a }); }",
    "kept.push('x'.repeat(20000).length, /(a+)+b/.exec('aab')[0], new URL('http://a/b?c=d').search)",
]
BEFORE = """
const kept = [], seen = new Map(), weak = new WeakSet();
async function* walk(n) { for (let i = 0; i < n; i++) yield (await MCP.files.readFile({ n: i })).n }
"""
PROGRAMS = st.lists(st.sampled_from(STEPS), min_size=1, max_size=8)


def answers(told: Told, reverse: bool) -> list[Completion]:
    """Return the completions of all requests of a turn: an echo of the arguments, an error, or a fired timer."""
    ends = []
    for request in told.requests:
        if isinstance(request, ToolCall):
            what = json.loads(request.input)
            error = GuestError("broken", code="E_CODE") if "fails" in what else None
            ends.append(Completion(request.id, error=error) if error else ok(request.id, what))
        elif isinstance(request, Timer):
            ends.append(ok(request.id))
    return ends[::-1] if reverse else ends


def turns(guest: Cell, program: str, reverse: bool) -> Iterator[tuple[Told, list[Completion]]]:
    """Yield each turn of a program with the completions that the next turn will get."""
    told = guest.start(program, seed=bytes(range(32)))
    while told.report is not None and told.report.state == "pending":
        batch = answers(told, reverse)
        yield told, batch
        told = guest.deliver(*batch, elapsed_ms=1.0)
    yield told, []


def memory(data: bytes, image: Image) -> bytes:
    patches = snapshot.decode(data, image, max_bytes=72 * MIB)
    whole = bytearray(image.memory) + bytes(max(0, patches.pages * 65536 - len(image.memory)))
    for at, block in patches.blocks:
        whole[at : at + len(block)] = block
    return bytes(whole)


def differing(a: bytes, b: bytes) -> int:
    """Return the number of words that differ."""
    assert len(a) == len(b)
    blocks = [at for at in range(0, len(a), 4096) if a[at : at + 4096] != b[at : at + 4096]]
    return sum(a[at : at + 8] != b[at : at + 8] for block in blocks for at in range(block, block + 4096, 8))


@settings(max_examples=examples(12), deadline=None, derandomize=True, database=None)
@given(steps=PROGRAMS, reverse=st.booleans())
def test_a_guest_saved_at_every_turn_continues_as_one_that_never_was_and_as_those_restored(
    engine: Engine, steps: list[str], reverse: bool
) -> None:
    program = BEFORE + ";\n".join(steps) + ";\nreturn kept"
    image = engine.threads.submit(engine.image, MANIFEST).result()
    straight, saved = Cell(engine), Cell(engine)
    restored: tuple[Turn, bytes] | None = None
    with closing(straight), closing(saved):
        both = zip(turns(straight, program, reverse), turns(saved, program, reverse), strict=True)
        for (expected, batch), (told, _) in both:
            assert told.turn == expected.turn
            data = saved.snapshot()
            assert saved.snapshot() == data
            if restored is not None:
                assert restored[0] == told.turn
                # All that is not the same is the time, by the clock of the machine, at which the last turn began.
                assert differing(memory(restored[1], image), memory(data, image)) <= 1
            with closing(Cell(engine, suspended=data)) as other:
                assert other.snapshot() == data
                restored = other.deliver(*batch, elapsed_ms=1.0).turn, other.snapshot()
        assert expected.report is not None
        assert expected.report.state == "done"


CHANCE = """
const drawn = () => [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint32Array(4))]];
const first = drawn();
const inLoop = [];
for (let i = 0; i < 3; i++) { await MCP.files.readFile({}); inLoop.push(drawn()); }
return [first, inLoop, Array.from({ length: 40 }, () => Math.random())];
"""


def test_chance_is_the_same_whenever_a_snapshot_is_resumed_and_so_are_calls(cell: OpenCell) -> None:
    guest = cell()
    guest.start(CHANCE)
    data = guest.snapshot()
    values = []
    for each in (guest, cell(suspended=data), cell(suspended=data)):
        assert each.deliver(ok(1)).requests == [called(2, READ, {})]
        assert each.deliver(ok(2)).requests == [called(3, READ, {})]
        values.append(each.deliver(ok(3)).value)
    assert values[0] == values[1] == values[2]
    assert len({json.dumps(each) for each in values[0][1]}) == 3


def test_the_wall_clock_is_not_part_of_a_snapshot_and_the_time_since_the_start_is_what_it_is_told(
    cell: OpenCell,
) -> None:
    guest = cell()
    before = time.time() * 1000
    guest.start("await MCP.files.readFile({}); return [Date.now(), performance.now()]")
    told = [each.deliver(ok(1), elapsed_ms=7e9).value for each in (cell(suspended=guest.snapshot()), guest)]
    after = time.time() * 1000
    for wall, elapsed in told:
        assert before - 1 <= wall <= after + 1
        assert 7e9 <= elapsed < 7e9 + 60_000


def test_an_interruption_stays_with_the_guest_that_it_is_for(cell: OpenCell) -> None:
    guest = cell()
    guest.start("await MCP.files.readFile({}); let n = 0; while (n < 2e6) n++; return n")
    guest.guest.interrupt()
    data = guest.snapshot()
    stopped = guest.deliver(ok(1), seconds=20)
    # Stopped by the engine's own check, with its state intact; the epoch would have torn it out of its loop.
    assert (stopped.stopped, stopped.turn.detail) == ("time", "")
    assert cell(suspended=data).deliver(ok(1)).value == 2_000_000


def test_what_was_printed_before_a_snapshot_is_told_once(cell: OpenCell) -> None:
    guest = cell()
    assert guest.start("text('one'); await MCP.files.readFile({}); text('two'); return 1").texts == ["one"]
    data = guest.snapshot()
    assert guest.deliver(ok(1)).texts == ["two"]
    assert cell(suspended=data).deliver(ok(1)).texts == ["two"]


def test_a_snapshot_does_not_hold_the_last_message(cell: OpenCell, engine: Engine) -> None:
    """Check that no message keeps values that the program has dropped."""
    guest = cell()
    guest.start("for (;;) await MCP.files.readFile({})")
    image = engine.threads.submit(engine.image, MANIFEST).result()
    at = image.entries.scratch
    guest.deliver(ok(1, "x" * 1000))
    assert memory(guest.snapshot(), image)[at : at + SCRATCH] == bytes(SCRATCH)


@pytest.mark.parametrize("size", [10, 100_000], ids=["a short message", "a long message"])
def test_many_snapshots_take_no_memory(size: int, cell: OpenCell) -> None:
    guest = cell()
    guest.start("for (;;) await MCP.files.readFile({})")
    sizes = []
    for request in range(1, 60):
        guest.deliver(ok(request, "x" * size))
        sizes.append(len(guest.snapshot()))
        guest.snapshot()
    assert max(sizes[30:]) < 1.1 * max(sizes[:10]) + 1000
