"""Promise 8: a snapshot is restored into what it was taken from, for whom it was taken, or not at all.

The stored form itself is tested in `tests/sandbox/test_snapshot.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from guest_harness import MANIFEST, MIB, ok

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.sandbox import boot, snapshot
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.images import Image
from tests.runs.bench import OWNER, Bench, bench
from tests.sandbox.conftest import OpenCell
from tests.values import replace
from upstream_clients.testing import ScriptedSource, text_result

HEADER = 136
"""Bytes before the body."""

PROGRAM = "const kept = { a: [1, 2, { b: 'c' }] }; const got = await MCP.files.readFile({}); return [kept, got]"


@pytest.fixture(scope="module")
def image(engine: Engine) -> Image:
    made: Image = engine.threads.submit(engine.image, MANIFEST).result()
    return made


@pytest.fixture
def suspended(cell: OpenCell) -> bytes:
    guest = cell()
    guest.start(PROGRAM)
    return guest.snapshot()


def refusals(engine: Engine, image: Image, forms: list[bytes]) -> list[str]:
    """Return the messages with which these forms are refused; a form that is accepted has none."""

    def work() -> list[str]:
        said = []
        for form in forms:
            try:
                Guest(engine, image, memory_limit=64 * MIB, suspended=form).close()
            except ProgramError as error:
                said.append(f"{error.code}: {error.message}")
        return said

    told: list[str] = engine.threads.submit(work).result(timeout=120)
    assert all(each.startswith("snapshot_restore_failed: ") for each in told)
    return told


def test_a_thousand_flipped_bits_are_a_thousand_refusals(engine: Engine, image: Image, suspended: bytes) -> None:
    """Check that each change is noticed, since the digest covers the whole stored form."""
    rng = random.Random(4711)
    forms = []
    for _ in range(1000):
        damaged = bytearray(suspended)
        damaged[rng.randrange(len(suspended))] ^= 1 << rng.randrange(8)
        forms.append(bytes(damaged))
    assert len(refusals(engine, image, forms)) == 1000


def test_every_bit_of_the_header_counts(engine: Engine, image: Image, suspended: bytes) -> None:
    forms = []
    for bit in range(HEADER * 8):
        damaged = bytearray(suspended)
        damaged[bit // 8] ^= 1 << bit % 8
        forms.append(bytes(damaged))
    assert len(refusals(engine, image, forms)) == HEADER * 8


def test_parts_of_two_snapshots_are_no_snapshot(cell: OpenCell, engine: Engine, image: Image, suspended: bytes) -> None:
    guest = cell()
    guest.start(PROGRAM.replace("'c'", "'another'"))
    other = guest.snapshot()
    rng = random.Random(3)
    cuts = [4, 36, 68, 100, 132, HEADER, *(rng.randrange(len(suspended)) for _ in range(45))]
    forms = [form for cut in cuts for form in (suspended[:cut] + other[cut:], other[:cut] + suspended[cut:])]
    mixed = [form for form in forms if form not in (suspended, other)]
    assert len(mixed) > 90
    assert len(refusals(engine, image, mixed)) == len(mixed)


def test_lengths_that_are_not_its_own_are_refused(engine: Engine, image: Image, suspended: bytes) -> None:
    rng = random.Random(5)
    forms = [
        suspended[:size] for size in (0, 1, HEADER - 1, HEADER, *(rng.randrange(len(suspended)) for _ in range(200)))
    ]
    forms += [suspended + tail for tail in (b"\0", b"\0" * 4096, suspended, suspended[HEADER:])]
    forms += [
        b"\0" + suspended,
        suspended[1:],
        suspended[::-1],
        suspended[:200] + suspended[201:],
        suspended[:200] + b"x" + suspended[200:],
    ]
    assert len(refusals(engine, image, forms)) == len(forms)


def resigned(data: bytes) -> bytes:
    return data[:4] + hashlib.sha256(data[36:]).digest() + data[36:]


def test_a_snapshot_that_an_attacker_wrote_with_a_right_digest_stays_in_its_own_memory(
    cell: OpenCell, engine: Engine, image: Image, suspended: bytes
) -> None:
    """Check that an attacker who can write snapshots controls only their guest."""
    patches = snapshot.decode(suspended, image, max_bytes=72 * MIB)
    memory = bytearray(image.memory) + bytes(max(0, patches.pages * 65536 - len(image.memory)))
    for at, block in patches.blocks:
        memory[at : at + len(block)] = block
    rng = random.Random(11)
    for _ in range(60):
        broken = bytearray(memory)
        for _ in range(40):
            at, _ = patches.blocks[rng.randrange(len(patches.blocks))]
            broken[at + rng.randrange(4096)] ^= 1 << rng.randrange(8)
        guest = cell(suspended=snapshot.encode(bytes(broken), image))
        # However it ends, it is one of the ways in which a guest ends, and this process continues.
        with suppress(CodeModeError):
            guest.on_thread(lambda guest=guest: guest.guest.deliver('{"elapsed":0,"completions":[]}', 0.2))
        guest.close()
    healthy = cell(suspended=suspended)
    assert healthy.deliver(ok(1, "got")).value == [{"a": [1, 2, {"b": "c"}]}, "got"]


# of something else


@pytest.fixture(scope="module")
def other_prelude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield an engine whose prelude differs in one byte that is data."""
    with pytest.MonkeyPatch.context() as patch:
        source = boot.prelude_source()
        assert "a timer takes a function to call" in source
        changed = source.replace("a timer takes a function to call", "a timer takes a function to cull")
        patch.setattr(boot, "prelude_source", lambda: changed)
        with open_engine(tmp_path_factory.mktemp("other"), max_threads=1) as opened:
            yield opened


def test_a_snapshot_of_another_prelude_is_refused(other_prelude: Engine, suspended: bytes) -> None:
    image = other_prelude.threads.submit(other_prelude.image, MANIFEST).result()
    [message] = refusals(other_prelude, image, [suspended])
    assert "made with prelude" in message


CATALOGS = {
    "without servers": {"servers": [], "tools": [], "named": []},
    "with another name": json.loads(MANIFEST.replace("read_file", "read_fule")),
    "with a tool less": json.loads(MANIFEST.replace(', ["remove", null, "mcp:my-files:remove"]', "")),
    "with another id": json.loads(MANIFEST.replace("mcp:my-files:remove", "mcp:my-files:remake")),
}


@pytest.mark.parametrize("kind", CATALOGS)
def test_a_snapshot_of_another_catalog_is_refused(engine: Engine, suspended: bytes, kind: str) -> None:
    manifest = json.dumps(CATALOGS[kind])
    assert manifest != MANIFEST
    image = engine.threads.submit(engine.image, manifest).result()
    [message] = refusals(engine, image, [suspended])
    assert "made from catalog" in message


# of another one


async def two_suspended(it: Bench) -> tuple[Any, Any]:
    first = await it.execute("await yield_control(); return 'first'")
    second = await it.execute("await yield_control(); return 'second'")
    first_claim = await it.store.claim(first.run_id, OWNER)
    second_claim = await it.store.claim(second.run_id, OWNER)
    return first_claim.run, second_claim.run


@pytest.mark.anyio
async def test_a_snapshot_is_not_restored_for_another_owner(engine: Engine) -> None:
    async with bench(engine) as it:
        first, _ = await two_suspended(it)
        await it.store.suspend(first)
        with pytest.raises(ProgramError) as refused:
            await it.observe(first.id, owner="another owner")
        assert refused.value.code == "invalid_input"
        assert (await it.observe(first.id)).value == "first"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"", lambda data: data + b"x", lambda data: data[:90] + b"\0" + data[91:]],
    ids=["too short", "nothing", "too long", "a byte"],
)
async def test_a_run_whose_snapshot_was_damaged_ends_with_its_code_and_nothing_else_does(
    engine: Engine, damage: Any
) -> None:
    async with bench(engine, ScriptedSource("s", {"work": text_result("done")})) as it:
        first, second = await two_suspended(it)
        await it.store.suspend(replace(first, snapshot=damage(first.snapshot)))
        await it.store.suspend(second)
        ended = await it.observe(first.id)
        assert (ended.status, ended.code) == ("failed", "snapshot_restore_failed")
        assert ended.error.startswith("the suspended program cannot be restored: it is ")
        assert (await it.observe(second.id)).value == "second"
        assert (await it.execute("return unwrap(await MCP.s.work({}))")).value == "done"


@pytest.mark.anyio
async def test_a_snapshot_holds_no_random_numbers_of_another_run(engine: Engine) -> None:
    async with bench(engine) as it:
        code = "const a = Math.random(); await yield_control(); return [a, Math.random(), crypto.randomUUID()]"
        runs = [await it.execute(code) for _ in range(6)]
        drawn = [(await it.observe(run.run_id)).value for run in runs]
    assert len({str(number) for numbers in drawn for number in numbers}) == 18


@pytest.mark.anyio
async def test_a_snapshot_does_not_leave_the_server(engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    """Check that no answer and no file has any part of it."""
    monkeypatch.chdir(tmp_path)
    async with bench(engine) as it:
        suspended = await it.execute("await yield_control(); return 1")
        kept = (await it.store.claim(suspended.run_id, OWNER)).run
        await it.store.release(suspended.run_id, OWNER)
        shown = repr(suspended) + repr(it.store) + repr(it.manager)
        assert snapshot.MAGIC.decode() not in shown
        assert kept.snapshot[HEADER : HEADER + 16].hex() not in shown
        assert (await it.observe(suspended.run_id)).value == 1
    assert os.listdir(tmp_path) == []
