"""Programs that are suspended as bytes and continue in another instance, and bytes that are refused."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib

import pytest
from guest_harness import MANIFEST, MIB, READ, called, ok
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.binary import DIGEST, PAGE, STACK_END, STACK_START
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.images import Entries, Image
from codemode_mcp.sandbox.messages import Completion, GuestError, Timer
from tests.sandbox.conftest import OpenCell

DEEP = """
const seen = new Map([["start", 1]]);
class Walker {
  #steps = [];
  async *walk(n) {
    for (let i = 0; i < n; i++) {
      const got = await this.step(i, 30);
      this.#steps.push(got);
      yield got;
    }
  }
  async step(i, depth) {
    if (depth > 0) return await this.step(i, depth - 1);
    try {
      return (await MCP.files.readFile({ i })).text;
    } catch (error) {
      return error.message + "/" + error.code;
    } finally {
      seen.set("step" + i, Math.random());
    }
  }
  get steps() { return this.#steps.join(); }
}
const walker = new Walker();
const texts = [];
for await (const text of walker.walk(3)) texts.push(text);
return [texts, walker.steps, [...seen.keys()], [...seen.values()].every((v) => v > 0)];
"""
DEEP_VALUE = [["one", "broken/E_CODE", "three"], "one,broken/E_CODE,three", ["start", "step0", "step1", "step2"], True]


@pytest.fixture
def suspended(cell: OpenCell) -> bytes:
    """Return a small program that waits for a call."""
    guest = cell()
    guest.start("const got = await MCP.files.readFile({ path: 'x' }); return { got }")
    return guest.snapshot()


@pytest.fixture
def image(engine: Engine) -> Image:
    made: Image = engine.threads.submit(engine.image, MANIFEST).result()
    return made


def resigned(data: bytes) -> bytes:
    """Return `data` with a valid digest."""
    return data[:4] + hashlib.sha256(data[36:]).digest() + data[36:]


def sealed(image: Image, pages: int, body: bytes) -> bytes:
    """Return a snapshot with a valid head for `image`."""
    head = b"".join(bytes.fromhex(each) for each in (DIGEST, image.prelude, image.digest))
    return resigned(snapshot.MAGIC + bytes(32) + head + struct.pack("<I", pages) + body)


def refusal(data: bytes, image: Image, *, max_bytes: int = 72 * MIB) -> ProgramError:
    with pytest.raises(ProgramError) as refused:
        snapshot.decode(data, image, max_bytes=max_bytes)
    assert refused.value.code == "snapshot_restore_failed"
    return refused.value


# in progress


def test_a_program_deep_in_async_calls_is_restored_twice_in_a_row_and_finishes_right(cell: OpenCell) -> None:
    first = cell()
    assert first.start(DEEP).requests == [called(1, READ, {"i": 0})]
    data = first.snapshot()
    first.close()

    second = cell(suspended=data)
    assert second.deliver(ok(1, {"text": "one"})).requests == [called(2, READ, {"i": 1})]
    data = second.snapshot()
    second.close()

    third = cell(suspended=data)
    error = GuestError("broken", code="E_CODE")
    assert third.deliver(Completion(2, error=error)).requests == [called(3, READ, {"i": 2})]
    assert third.deliver(ok(3, {"text": "three"})).value == DEEP_VALUE


def test_one_snapshot_can_be_restored_more_than_once_with_different_endings(cell: OpenCell, suspended: bytes) -> None:
    assert cell(suspended=suspended).deliver(ok(1, "a")).value == {"got": "a"}
    assert cell(suspended=suspended).deliver(ok(1, "b")).value == {"got": "b"}


def test_taking_a_snapshot_does_not_disturb_the_guest(cell: OpenCell) -> None:
    guest = cell()
    guest.start(DEEP)
    assert guest.snapshot() == guest.snapshot()
    guest.deliver(ok(1, {"text": "one"}))
    guest.snapshot()
    guest.deliver(Completion(2, error=GuestError("broken", code="E_CODE")))
    assert guest.deliver(ok(3, {"text": "three"})).value == DEEP_VALUE


def test_a_restored_guest_gives_the_same_snapshot(cell: OpenCell, suspended: bytes) -> None:
    assert cell(suspended=suspended).snapshot() == suspended


def test_two_guests_with_the_same_program_and_seed_continue_alike(cell: OpenCell) -> None:
    code = "const a = Math.random(); await MCP.files.readFile({}); return [a, Math.random(), crypto.randomUUID()]"
    straight, stopped = cell(), cell()
    for guest in (straight, stopped):
        guest.start(code, seed=bytes(range(32)))
    assert cell(suspended=stopped.snapshot()).deliver(ok(1)).value == straight.deliver(ok(1)).value


def test_timers_and_unhandled_rejections_outlast_a_snapshot(cell: OpenCell) -> None:
    guest = cell()
    told = guest.start(
        "Promise.reject(new Error('lost')); const order = [];"
        "await new Promise((done) => { setTimeout(() => { order.push('timer'); done() }, 50) }); return order"
    )
    assert told.requests == [Timer(1, 50)]
    told = cell(suspended=guest.snapshot()).deliver(ok(1))
    assert told.value == ["timer"]
    assert told.report is not None
    assert [each.message for each in told.report.rejections] == ["lost"]


def test_elapsed_time_continues_in_the_restored_guest(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const a = performance.now(); await MCP.files.readFile({}); return [a, performance.now()]", elapsed_ms=5
    )
    before, after = cell(suspended=guest.snapshot()).deliver(ok(1), elapsed_ms=60_000).value
    assert 5 <= before < 5_000
    assert 60_000 <= after < 65_000


def test_a_program_with_much_memory_is_restored_whole(cell: OpenCell) -> None:
    guest = cell()
    guest.start(
        "const big = Array.from({ length: 200000 }, (_, i) => 'item ' + i); await MCP.files.readFile({});"
        "let sum = 0; for (let i = 0; i < big.length; i++) sum += +big[i].slice(5); return [big.length, sum]"
    )
    assert cell(suspended=guest.snapshot()).deliver(ok(1)).value == [200_000, 199_999 * 200_000 // 2]


def test_the_memory_limit_holds_in_a_restored_guest(cell: OpenCell, suspended: bytes) -> None:
    guest = cell(memory_limit=16 * MIB)
    guest.start("await MCP.files.readFile({}); const a = []; for (;;) a.push(new Array(1000).fill(1))")
    told = cell(memory_limit=16 * MIB, suspended=guest.snapshot()).deliver(ok(1), seconds=20)
    assert told.out_of_memory


def test_the_time_limit_holds_in_a_restored_guest(cell: OpenCell) -> None:
    guest = cell()
    guest.start("await MCP.files.readFile({}); for (;;);")
    assert cell(suspended=guest.snapshot()).deliver(ok(1), seconds=0.1).stopped == "time"


def test_the_stack_limit_holds_in_a_restored_guest(cell: OpenCell) -> None:
    guest = cell()
    guest.start("await MCP.files.readFile({}); try { (function f() { f() })() } catch (e) { return e.name }")
    restored = cell(suspended=guest.snapshot())
    assert restored.guest.stack_pointer() == STACK_END
    assert restored.deliver(ok(1)).value == "RangeError"
    assert restored.guest.stack_pointer() == STACK_END


def test_the_snapshot_of_a_small_program_is_small(suspended: bytes) -> None:
    assert len(suspended) < 64 * 1024


# refusals


def test_a_bit_flip_anywhere_is_refused_and_never_a_crash(suspended: bytes, image: Image) -> None:
    rng = random.Random(20240)
    assert snapshot.decode(suspended, image, max_bytes=72 * MIB).blocks
    for _ in range(300):
        damaged = bytearray(suspended)
        damaged[rng.randrange(len(suspended))] ^= 1 << rng.randrange(8)
        refusal(bytes(damaged), image)


def test_a_damaged_body_with_a_digest_that_fits_is_refused_or_decoded_but_never_a_crash(
    suspended: bytes, image: Image
) -> None:
    rng = random.Random(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(suspended)
        damaged[rng.randrange(36, len(suspended))] ^= 1 << rng.randrange(8)
        try:
            patches = snapshot.decode(resigned(bytes(damaged)), image, max_bytes=72 * MIB)
        except ProgramError:
            refusal(resigned(bytes(damaged)), image)
            refused += 1
        else:
            assert all(at + len(block) <= patches.pages * PAGE for at, block in patches.blocks)
    assert refused > 200


def test_a_guest_is_not_opened_from_damaged_bytes(cell: OpenCell, suspended: bytes) -> None:
    for damaged in (suspended[:-1], suspended[:200] + bytes([suspended[200] ^ 4]) + suspended[201:], b""):
        with pytest.raises(ProgramError) as refused:
            cell(suspended=damaged)
        assert refused.value.code == "snapshot_restore_failed"


@pytest.mark.parametrize("size", [0, 1, 4, 35, 36, 135, 136, 137, 1000, -1])
def test_truncated_bytes_are_refused(suspended: bytes, image: Image, size: int) -> None:
    refusal(suspended[:size], image)


@pytest.mark.parametrize("size", [0, 136, 137, 142, 1000, -10])
def test_truncated_bytes_with_a_digest_that_fits_are_refused(suspended: bytes, image: Image, size: int) -> None:
    refusal(resigned(suspended[:size]), image)


def test_bytes_with_something_after_them_are_refused(suspended: bytes, image: Image) -> None:
    refusal(suspended + b"x", image)


def test_a_snapshot_from_another_catalog_is_refused(cell: OpenCell, engine: Engine, suspended: bytes) -> None:
    other = '{"servers":[],"tools":[],"named":[]}'
    image = engine.threads.submit(engine.image, other).result()
    made = snapshot.about(suspended)
    assert (
        f"made from catalog {made.image[:8]}…, and this one is {image.digest[:8]}…" in refusal(suspended, image).message
    )
    assert snapshot.why_not(made, prelude=image.prelude) is None
    with pytest.raises(ProgramError) as refused:
        cell(manifest=other, suspended=suspended)
    assert refused.value.code == "snapshot_restore_failed"


def test_a_snapshot_from_another_engine_is_refused(suspended: bytes, image: Image) -> None:
    foreign = resigned(suspended[:36] + bytes(32) + suspended[68:])
    said = f"it was made by engine 00000000…, and this one is {DIGEST[:8]}…"
    assert refusal(foreign, image).message.endswith(said)
    assert snapshot.why_not(snapshot.about(foreign), prelude=image.prelude) == said


def test_a_snapshot_made_with_another_prelude_is_refused(suspended: bytes, image: Image) -> None:
    foreign = resigned(suspended[:68] + bytes(32) + suspended[100:])
    said = f"it was made with prelude 00000000…, and this one is {image.prelude[:8]}…"
    assert refusal(foreign, image).message.endswith(said)
    assert snapshot.why_not(snapshot.about(foreign), prelude=image.prelude) == said


def test_a_snapshot_says_what_made_it_and_damaged_ones_say_nothing(suspended: bytes, image: Image) -> None:
    made = snapshot.about(suspended)
    assert (made.format, made.engine, made.prelude, made.image) == (2, DIGEST, image.prelude, image.digest)
    assert made.pages * PAGE >= len(image.memory)
    for damaged in (suspended[:-1], suspended[:50], b"", b"CMS1" + suspended[4:], b"CMSX" + suspended[4:]):
        with pytest.raises(ProgramError) as refused:
            snapshot.about(damaged)
        assert refused.value.code == "snapshot_restore_failed"


def test_guests_of_two_catalogs_have_one_prelude(engine: Engine, image: Image) -> None:
    other = engine.threads.submit(engine.image, '{"servers":[],"tools":[],"named":[]}').result()
    assert other.digest != image.digest
    assert other.prelude == image.prelude == engine.base.prelude


@pytest.mark.parametrize(
    ("magic", "why"),
    [
        (b"CMS1", "it has format 1, and this version reads format 2"),
        (b"CMS3", "it has format 3, and this version reads format 2"),
        (b"GIF8", "not a snapshot"),
        (b"CMSX", "not a snapshot"),
    ],
)
def test_bytes_with_another_magic_are_refused(suspended: bytes, image: Image, magic: bytes, why: str) -> None:
    assert why in refusal(magic + suspended[4:], image).message


def test_a_snapshot_over_the_memory_limit_is_refused(suspended: bytes, image: Image) -> None:
    [pages] = struct.unpack_from("<I", suspended, 132)
    assert snapshot.decode(suspended, image, max_bytes=pages * PAGE).pages == pages
    assert "more than the limit" in refusal(suspended, image, max_bytes=pages * PAGE - 1).message


def test_a_guest_with_a_smaller_limit_does_not_take_the_snapshot(cell: OpenCell) -> None:
    guest = cell()
    guest.start("const a = new Uint8Array(30e6).fill(1); await MCP.files.readFile({}); return a.length")
    data = guest.snapshot()
    with pytest.raises(ProgramError) as refused:
        cell(memory_limit=16 * MIB, suspended=data)
    assert refused.value.code == "snapshot_restore_failed"


def test_a_snapshot_that_claims_many_pages_is_refused_before_anything_is_unpacked(image: Image) -> None:
    body = zlib.compress(struct.pack("<I", 0))
    assert "more than the limit" in refusal(sealed(image, 2**32 - 1, body), image).message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"junk",
        zlib.compress(b""),
        zlib.compress(b"\1\0"),
        zlib.compress(struct.pack("<I", 1)),
        zlib.compress(struct.pack("<II", 1, 32) + bytes(4096)),
        zlib.compress(struct.pack("<II", 1, 2**32 - 1) + bytes(4096)),
        zlib.compress(struct.pack("<II", 1, 0) + bytes(4097)),
        zlib.compress(struct.pack("<I", 2**32 - 1)),
        zlib.compress(bytes(50 * MIB)),
    ],
    ids=[
        "empty", "no zlib", "nothing packed", "half a count", "no block", "block outside", "block far outside",
        "too long", "huge count", "bomb",
    ],
)  # fmt: skip
def test_a_body_of_the_wrong_form_is_refused(body: bytes) -> None:
    image = fake_image(bytes(2 * PAGE))
    refusal(sealed(image, 2, body), image)


# the form, over any memory


def fake_image(memory: bytes) -> Image:
    return Image(memory, Entries(*range(12)), hashlib.sha256(memory).hexdigest(), hashlib.sha256(b"p").hexdigest())


def applied(patches: snapshot.Patches, image: Image) -> bytes:
    memory = bytearray(image.memory) + bytes(max(0, patches.pages * PAGE - len(image.memory)))
    for at, block in patches.blocks:
        memory[at : at + len(block)] = block
    return bytes(memory)


BASE_PAGES = STACK_END // PAGE + 2
BASE = random.Random(1).randbytes(PAGE) * (BASE_PAGES - 1) + bytes(PAGE)
FAKE = fake_image(BASE)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    grown=st.integers(0, 3),
    changes=st.lists(
        st.tuples(st.integers(0, (BASE_PAGES + 3) * PAGE - 1), st.binary(min_size=1, max_size=9000)), max_size=12
    ),
)
def test_any_change_of_memory_comes_back_except_in_the_stack(grown: int, changes: list[tuple[int, bytes]]) -> None:
    memory = bytearray(BASE) + bytes(grown * PAGE)
    size = len(memory)
    for at, data in changes:
        place = at % size
        data = data[: size - place]
        memory[place : place + len(data)] = data
    told = snapshot.decode(snapshot.encode(bytes(memory), FAKE), FAKE, max_bytes=size)
    back = applied(told, FAKE)
    memory[STACK_START:STACK_END] = BASE[STACK_START:STACK_END]
    assert told.pages == size // PAGE
    assert back == bytes(memory)


def test_memory_that_is_the_image_has_no_blocks() -> None:
    data = snapshot.encode(BASE, FAKE)
    assert snapshot.decode(data, FAKE, max_bytes=len(BASE)).blocks == ()
    assert len(data) < 150


def test_what_the_stack_holds_is_not_stored() -> None:
    memory = bytearray(BASE)
    memory[STACK_START:STACK_END] = b"\xff" * (STACK_END - STACK_START)
    assert snapshot.encode(bytes(memory), FAKE) == snapshot.encode(BASE, FAKE)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    refusal(data, FAKE)
    refusal(resigned(snapshot.MAGIC + data), FAKE)
