"""The glue's natives, as programs get to see them: random numbers, UUIDs, UTF-8 in and out, JSON of plain data."""

from __future__ import annotations

import decimal
import json
import math
import statistics
import struct
import time
import uuid
from decimal import Decimal
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from guest_harness import MIB, Cell, Told, ok
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.sandbox.engine import Engine
from tests.sandbox.conftest import OpenCell, RunCode

SEED = bytes(range(32))


def key_stream(seed: bytes, size: int) -> bytes:
    """Return the first bytes of ChaCha20 with a key, with counter and nonce from zero."""
    cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None)
    return cipher.encryptor().update(bytes(size))


# randomness


def test_random_numbers_are_the_key_stream_of_chacha20(run: RunCode) -> None:
    count = 1000
    words = struct.unpack(f"<{count}Q", key_stream(SEED, 8 * count))
    drawn = run(f"return Array.from({{ length: {count} }}, () => Math.random())", seed=SEED).value
    assert drawn == [(word >> 11) / 2**53 for word in words]


def test_random_bytes_and_uuids_are_the_key_stream_in_turn(run: RunCode) -> None:
    stream = key_stream(SEED, 8 + 8 + 16 + 65536)
    first, uuid_text, rest = run(
        "const first = crypto.getRandomValues(new Uint8Array(3)), uuid = crypto.randomUUID(); Math.random();"
        "return [[...first], uuid, [...crypto.getRandomValues(new Uint8Array(20))]]",
        seed=SEED,
    ).value
    assert bytes(first) == stream[:3]
    assert bytes(rest) == stream[32:52]
    digits = uuid_text.replace("-", "")
    # A word gives its digits from the lowest on.
    expected = [f"{word:016x}"[::-1] for word in struct.unpack("<2Q", stream[8:24])]
    assert all(a == b for i, (a, b) in enumerate(zip(digits, "".join(expected), strict=True)) if i not in (12, 16))
    parsed = uuid.UUID(uuid_text)
    assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, uuid_text)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 4096, 65536])
def test_any_number_of_random_bytes_can_be_drawn(run: RunCode, size: int) -> None:
    code = f"return crypto.getRandomValues(new Uint8Array({size})).toHex()"
    assert bytes.fromhex(run(code, seed=SEED).value) == key_stream(SEED, size)


def test_random_bytes_fill_a_view_and_nothing_beside_it(run: RunCode) -> None:
    code = (
        "const all = new Uint8Array(32), view = new Uint32Array(all.buffer, 8, 4);"
        "return [crypto.getRandomValues(view) === view, all.toHex()]"
    )
    same, text = run(code, seed=SEED).value
    assert same
    assert bytes.fromhex(text) == bytes(8) + key_stream(SEED, 16) + bytes(8)


def test_random_numbers_are_spread_evenly(run: RunCode) -> None:
    code = (
        "const bins = new Array(64).fill(0); let same = 0, last = -1;"
        "for (let i = 0; i < 64000; i++) {"
        "  const r = Math.random(); bins[Math.floor(r * 64)] += 1; if (r === last) same += 1; last = r"
        "} return [bins, same]"
    )
    bins, same = run(code, seed=SEED).value
    assert same == 0
    assert sum((each - 1000) ** 2 / 1000 for each in bins) < 120  # chi squared, 63 degrees of freedom: p < 0.0001
    assert statistics.mean(i for i, each in enumerate(bins) for _ in range(each)) == pytest.approx(31.5, abs=0.5)


DRAW = "[Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(5)).toHex()]"


@pytest.mark.parametrize("drawn", range(10))
def test_a_restored_program_continues_in_the_key_stream_where_it_was(cell: OpenCell, drawn: int) -> None:
    code = f"for (let i = 0; i < {drawn}; i++) Math.random(); await MCP.files.readFile({{}}); return {DRAW}"
    first, other = cell(), cell()
    first.start(code, seed=SEED)
    other.start(code, seed=bytes(32))
    suspended, strange = first.snapshot(), other.snapshot()
    straight = first.deliver(ok(1)).value
    assert straight[0] == (struct.unpack_from("<Q", key_stream(SEED, 8 * drawn + 8), 8 * drawn)[0] >> 11) / 2**53
    assert cell(suspended=suspended).deliver(ok(1)).value == straight
    resumed = cell(suspended=strange).deliver(ok(1)).value
    assert all(a != b for a, b in zip(resumed, straight, strict=True))


def test_natives_of_other_kinds_cannot_be_reached_by_what_programs_overwrite(run: RunCode) -> None:
    code = """
    const seen = [];
    const note = (name) => function () { seen.push(name); throw new Error(name) };
    const TypedArray = Object.getPrototypeOf(Uint8Array);
    for (const C of [Uint8Array, TypedArray, String, ArrayBuffer, TextEncoder, TextDecoder]) {
        for (const key of ["set", "slice", "subarray", "toWellFormed", "constructor", "at"]) {
            if (!(key in C.prototype)) continue;
            Object.defineProperty(C.prototype, key, { value: note(C.name + key), configurable: true });
        }
        Object.defineProperty(C, Symbol.species, { get: note(C.name), configurable: true });
    }
    Uint8Array.fromHex = note("fromHex");
    const encoder = new TextEncoder(), decoder = new TextDecoder(), small = new Uint8Array(3);
    const { read, written } = encoder.encodeInto("aé€", small);
    const text = decoder.decode(encoder.encode("aé€𝄞\\ud800"));
    const begun = decoder.decode(new Uint8Array([0xe2, 0x82]), { stream: true });
    const streamed = begun + decoder.decode(new Uint8Array([0xac]));
    crypto.getRandomValues(small);
    return [read, written, text, streamed, crypto.randomUUID().length, seen];
    """
    assert run(code).value == [2, 3, "aé€𝄞\ufffd", "€", 36, []]


# UTF-8, as Python's codecs have it


@pytest.fixture(scope="module")
def told_by_guest(engine: Engine) -> Any:
    """Return a function that returns the turn of a program, which has a value as `given`."""

    def run_with(code: str, value: Any) -> Told:
        cell = Cell(engine, memory_limit=64 * MIB)
        try:
            return cell.start(f"const given = JSON.parse({json.dumps(json.dumps(value))}); {code}")
        finally:
            cell.close()

    return run_with


@pytest.fixture(scope="module")
def in_guest(told_by_guest: Any) -> Any:
    """Return a function that returns the result of a program, which has a value as `given`."""
    return lambda code, value: told_by_guest(code, value).value


def well_formed(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(codec=None, exclude_categories=())),
        st.sampled_from(["\ud800", "\udfff", "a", "\0", "é", "€", "𝄞", "\ufeff", "\ufffd", "x" * 70]),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(text=TEXTS)
def test_text_is_encoded_as_python_does(in_guest: Any, text: str) -> None:
    found = in_guest("const b = new TextEncoder().encode(given); return [b.toHex(), b.buffer.byteLength]", text)
    expected = well_formed(text).encode()
    assert found == [expected.hex(), len(expected)]


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(text=TEXTS, room=st.integers(0, 40))
def test_text_is_encoded_into_what_room_there_is(in_guest: Any, text: str, room: int) -> None:
    code = (
        "const all = new Uint8Array(given[1] + 4).fill(255), into = all.subarray(2, given[1] + 2);"
        "const { read, written } = new TextEncoder().encodeInto(given[0], into); return [read, written, all.toHex()]"
    )
    kept, read = b"", 0
    for character in well_formed(text):
        encoded = character.encode()
        if len(kept) + len(encoded) > room:
            break
        kept += encoded
        read += 1 + (character > "\uffff")
    whole = b"\xff\xff" + kept + b"\xff" * (room - len(kept) + 2)
    assert in_guest(code, [text, room]) == [read, len(kept), whole.hex()]


BYTES = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from([
            "e282", "f09d84", "f09d", "f0", "c3", "eda080", "edbfbf", "c080", "e08080", "f0808080", "f48fbfbf",
            "f4908080", "f5808080", "fe", "ff", "80", "bf", "efbbbf", "61" * 17, "efbfbd",
        ]).map(bytes.fromhex),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(parts=BYTES)
def test_bytes_are_decoded_as_python_does(in_guest: Any, parts: list[bytes]) -> None:
    code = """
    const bytes = Uint8Array.fromHex(given[0]), options = [{}, { ignoreBOM: true }, { fatal: true }];
    const parts = given[1].map((part) => Uint8Array.fromHex(part));
    const attempt = (f) => { try { return f() } catch (e) { return e.name } };
    return options.map((option) => {
        const decoder = new TextDecoder("utf-8", option), stream = true;
        return [attempt(() => decoder.decode(bytes)), attempt(() => {
            const texts = parts.map((part) => decoder.decode(part, { stream }));
            return texts.join("") + decoder.decode();
        })];
    });
    """
    data = b"".join(parts)
    whole = data.decode("utf-8", "replace")
    fatal = whole
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        fatal = "TypeError"
    found = in_guest(code, [data.hex(), [part.hex() for part in parts]])
    marked = whole.removeprefix("\ufeff")
    assert found == [[marked] * 2, [whole] * 2, [fatal if fatal == "TypeError" else marked] * 2]


def test_large_texts_go_in_and_out_unchanged(run: RunCode) -> None:
    code = (
        "const text = 'aé€𝄞\\0'.repeat(200_000), bytes = new TextEncoder().encode(text);"
        "const broken = bytes.slice(0, -2); broken[0] = 255;"
        "return [bytes.length, new TextDecoder().decode(bytes) === text,"
        "  new TextDecoder().decode(broken) === '\\ufffd' + text.slice(1, -3) + '\\ufffd']"
    )
    assert run(code).value == [2_200_000, True, True]


@pytest.mark.parametrize(
    "given",
    [
        "new Uint8Array(0)", "new ArrayBuffer(0)", "undefined", "new Uint8Array(new ArrayBuffer(4)).subarray(4)",
        "(() => { const b = new Uint8Array(4); b.buffer.transfer(); return b })()",
        "(() => { const b = new ArrayBuffer(4); b.transfer(); return b })()",
        "(() => { const b = new ArrayBuffer(8, { maxByteLength: 8 }), v = new Uint8Array(b, 4);"
        "b.resize(2); return v })()",
    ],
)  # fmt: skip
def test_no_bytes_are_an_empty_text(run: RunCode, given: str) -> None:
    told = run(
        f"const d = new TextDecoder(); return [d.decode({given}), d.decode({given}, {{ stream: true }}), d.decode()]"
    )
    assert told.value == ["", "", ""]


@pytest.mark.parametrize(
    "given",
    [
        "new Uint8Array([0, 97, 98, 0]).subarray(1, 3)", "new Uint8Array([97, 98]).buffer",
        "new DataView(new Uint8Array([0, 97, 98]).buffer, 1)", "new Uint16Array([0x6261])",
        "new (class extends Uint8Array {})([97, 98])",
        "(() => { const b = new SharedArrayBuffer(2); new Uint8Array(b).set([97, 98]); return b })()",
        "(() => { const b = new ArrayBuffer(9, { maxByteLength: 9 }), v = new Uint8Array(b); v.set([97, 98]);"
        "b.resize(2); return v })()",
    ],
)  # fmt: skip
def test_bytes_are_taken_from_every_kind_of_source(run: RunCode, given: str) -> None:
    assert run(f"return new TextDecoder().decode({given})").value == "ab"


def test_a_program_without_memory_for_it_gets_an_error(run: RunCode) -> None:
    code = (
        "const told = [], large = 'é'.repeat(9_000_000), encoder = new TextEncoder();"
        "for (const f of [() => encoder.encode(large), () => encoder.encodeInto(large, new Uint8Array(9_000_000))])"
        "  try { told.push(typeof f()) } catch (e) { told.push(e.message) }"
        "return told"
    )
    assert run(code, memory_limit=24 * MIB).value == ["out of memory", "out of memory"]


# JSON of plain data, which is what the prelude's own encoder makes

BOTH_WAYS = """
const shown = () => { try { text(value()) } catch (e) { text(String(e)) } };
shown();
Object.defineProperty(Object.prototype, "toJSON", { value: undefined, writable: true, configurable: true });
shown();
delete Object.prototype.toJSON;
try { text(JSON.stringify(value()) ?? "null") } catch (e) { text(String(e)) }
"""
"""Prints a value by the glue, by the prelude alone (which has to ask for that toJSON), and by the engine."""


def printed(run: RunCode, value: str) -> tuple[str, str, str]:
    told = run(f"const value = () => {{ {value} }}; {BOTH_WAYS}", output_limit=8 * MIB)
    first, second, third = told.texts
    return first, second, third


PLAIN = [
    "return {}",
    "return []",
    "return [[], {}, [{}]]",
    "return Object.create(null)",
    "return [0, -0, 1, -1, 2147483647, -2147483648, 2147483648, 1e21, 1e-7, 0.1, 5e-324, 1.7976931348623157e308]",
    "return [NaN, Infinity, -Infinity, null, true, false, undefined, new Array(1)[0]]",
    "return { a: undefined, b: null, c: undefined }",
    "return { a: undefined }",
    "return { 2: 'b', x: 1, 1: 'a', '-1': 0 }",
    "return { ['__proto__']: 1, constructor: 2, '': 3, 'a\"b': 4, 'é€𝄞\ud800': 5 }",
    r"return ['', '\\ \" \u0000 \b\t\n\v\f\r \x1f \x7f \u2028 é € 𝄞', '\ud800']",
    r"return ['\udfff!', '\udc00\ud800', '\ud7ff\ue000']",
    r"return Array.from({ length: 40 }, (_, i) => 'x'.repeat(i) + '\"é'.repeat(i) + '\n' + '\ud834'.repeat(i % 3))",
    "return Object.freeze({ a: Object.freeze([1]) })",
    "const shared = { a: 1 }; return [shared, shared, { shared }]",
    "let v = [1]; for (let i = 0; i < 98; i++) v = i % 2 ? [v] : { v }; return v",
    "const v = { a: 1 }; Object.defineProperty(v, 'b', { value: 2 }); return v",
    "return { [Symbol('s')]: 1, a: 2 }",
    "const v = { a: 1, b: 2 }; delete v.a; v.a = 3; return v",
    "const v = [1, 2]; v.extra = 3; v[Symbol.toStringTag] = 'Error'; return [v]",
    "const v = { toJSON: 1, a: 2 }; return [v]",
    "return Array.from({ length: 3000 }, (_, i) => i * i - 5000)",
    "return Object.fromEntries(Array.from({ length: 500 }, (_, i) => ['key' + i, i / 7]))",
    "return ('ab' + String(1 / 3)).repeat(3) + ['c'].join()",
    "return { a: 'x' + { toString() { return 'y' } } }",
]


@pytest.mark.parametrize("value", PLAIN)
def test_plain_data_is_told_as_the_engine_tells_it(run: RunCode, value: str) -> None:
    by_glue, by_prelude, by_engine = printed(run, value)
    if not value.startswith("return ("):
        assert by_glue == by_engine
    assert by_glue == by_prelude


OTHER = [
    "return { get a() { return 1 } }",
    "return [1, , 3]",
    "return [function f() {}, class A {}, Symbol('x'), 10n]",
    "return { f() {}, a: 1 }",
    "return new (class A { a = 1 })()",
    "return new Date(0)",
    "return [new Date(0), new Date(NaN)]",
    "return new Map([['a', [1]]])",
    "return new Set([1])",
    "return { a: Object('b'), c: Object(1) }",
    "return new Error('e')",
    "return [{ toJSON() { return 'j' } }]",
    "const v = {}; Object.defineProperty(v, 'toJSON', { value: () => 'k' }); return v",
    "return { [Symbol.toStringTag]: 'Error', name: 'n', message: 'm' }",
    "return [{ get [Symbol.toStringTag]() { return 'Map' } }]",
    "const v = []; v.toJSON = () => 'arr'; return [v]",
    "return new (class extends Array {})(1, 2, 3)",
    "return Object.create({ toJSON: () => 'inherited' })",
    "return Object.create({ a: 1 }, { b: { value: 2, enumerable: true } })",
    "return Object.setPrototypeOf([1], null)",
    "const v = { a: 1 }; v.v = v; return v",
    "const v = [1]; v.push([v]); return v",
    "let v = [1]; for (let i = 0; i < 99; i++) v = [v]; return v",
    "let v = [1]; for (let i = 0; i < 100; i++) v = { v }; return v",
    "let v = [() => 1]; for (let i = 0; i < 120; i++) v = [v, [1]]; return v",
    "return new Uint8Array(3)",
    "return /a/g",
    "return new Proxy({ a: 1 }, {})",
    "return new Proxy([1], { get: () => 2 })",
    "return (function () { return arguments })(1, 2)",
    "return { type: 'image', mimeType: 'a/b', data: 'QUJD'.repeat(50) }",
    "return [{ uri: 'x:1', blob: 'QUJD'.repeat(50) }]",
    "return [{ a: [{ type: 'image', mimeType: 'a/b', data: 'QUJD'.repeat(50) }, { data: 'x'.repeat(500) }] }]",
    "return { a: Object.prototype, b: Array.prototype, c: Map.prototype }",
    "return [Promise.resolve(1), { then: 1 }, globalThis.x]",
    "return Array(3)",
    "const v = []; v[5] = 1; return v",
    "const v = [1]; Object.defineProperty(v, 0, { get: () => 7 }); return v",
    "const v = [1, 2]; v.length = 5; return v",
    "return new Array(50).fill(() => 1)",
]


@pytest.mark.parametrize("value", OTHER)
def test_what_is_more_than_plain_data_is_told_as_before(run: RunCode, value: str) -> None:
    by_glue, by_prelude, _ = printed(run, value)
    assert by_glue == by_prelude


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e300, 1e300) | TEXTS,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
        max_leaves=25,
    )
)
def test_any_plain_data_is_told_as_the_engine_tells_it(told_by_guest: Any, value: Any) -> None:
    by_glue, by_engine = told_by_guest("text([given]); text(JSON.stringify([given]))", value).texts
    assert by_glue == by_engine


PLAINLY = '{"a":[1,2.5,"s"],"b":{"c":[[{}]]}}'


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        ("Array.prototype.toJSON = () => 'x'", '{"a":"x","b":{"c":"x"}}'),
        ("Object.prototype.toJSON = () => 'x'", '"x"'),
        ("Object.setPrototypeOf(Array.prototype, { toJSON: () => 'x' })", '{"a":"x","b":{"c":"x"}}'),
        ("Object.prototype[Symbol.toStringTag] = 'Error'", "undefined: undefined"),
        ("String.prototype.toJSON = () => touched++", PLAINLY),
        ("Number.prototype.toString = () => touched++", PLAINLY),
        ("JSON.stringify = () => touched++", PLAINLY),
        ("Object.keys = () => touched++", PLAINLY),
        ("Object.defineProperty(Object.prototype, 'a', { set() { touched++ } })", PLAINLY),
        ("for (let i = 0; i < 9; i++) Object.defineProperty(Array.prototype, i, { set() { touched++ } })", PLAINLY),
    ],
)
def test_what_programs_put_on_prototypes_is_asked_as_before_and_no_more(
    run: RunCode, attack: str, expected: str
) -> None:
    code = "let touched = 0; const value = { a: [1, 2.5, 's'], b: { c: [[{}]] } };"
    assert run(f"{code} {attack}; text(value); text(touched)").texts == [expected, "0"]


def test_a_value_that_is_shared_endlessly_often_is_stopped_in_time(run: RunCode) -> None:
    told = run("let v = [1]; for (let i = 0; i < 60; i++) v = [v, v]; return v", seconds=1.0)
    assert told.stopped == "time" or told.out_of_memory


def test_a_large_value_leaves_little_behind_in_memory(run: RunCode) -> None:
    code = (
        "const rows = Array.from({ length: 5000 }, (_, i) => ({ i, name: 'row ' + i, tags: ['a', 'b'] }));"
        "for (let i = 0; i < 60; i++) store('k', rows.slice(0, 1000)); return rows.length"
    )
    assert run(code, memory_limit=32 * MIB).value == 5000


# the order of texts

ORDERS = """
const alphabet = [..."abcABC019 -_.,'\\0", ..."éÉäÄßøŁæÆ…—€яйЙёΩώǖǘ中文國한국각が가カガ😀🎉𝄞ạệẞﬁ①",
    "\\u0301", "\\u0308", "\\u0316", "\\u3099", "\\u0483", "\\ud83d", "\\udc00", "\\u1100", "A\\u030a", "\\u2028"];
const pick = () => alphabet[Math.floor(Math.random() * alphabet.length)];
const word = () => { let s = ""; for (let i = Math.floor(Math.random() * 7); i > 0; i--) s += pick(); return s };
// A mark at the beginning counts for nothing, but makes a pair of texts one that the prelude alone compares.
const check = (one, other) => {
    const a = "x" + one, b = "x" + other;
    const fast = a.localeCompare(b), slow = ("\\u0301" + a).localeCompare("\\u0300" + b);
    if (fast !== slow || b.localeCompare(a) !== 0 - fast) wrong.push([a, b, fast, slow]);
};
const wrong = [];
"""


def test_texts_are_compared_alike_in_the_glue_and_in_the_prelude(run: RunCode) -> None:
    code = """
    for (let i = 0; i < 4000; i++) {
        const start = Math.random() < 0.5 ? word() : "";
        const a = start + word();
        check(a, start + (Math.random() < 0.3 ? a.slice(start.length).toUpperCase() : word()));
    }
    return wrong.slice(0, 5);
    """
    assert run(ORDERS + code, seed=SEED, seconds=30.0).value == []


def test_every_character_is_compared_alike_in_the_glue_and_in_the_prelude(run: RunCode) -> None:
    code = """
    for (let c = 1; c < 0x10000; c += c < 0x3200 ? 1 : 61) {
        check(String.fromCharCode(c), "b");
        check(String.fromCharCode(c), String.fromCharCode(c - 1));
    }
    return wrong.slice(0, 5);
    """
    assert run(ORDERS + code, seconds=30.0).value == []


def test_twenty_thousand_names_are_sorted_in_a_second(run: RunCode) -> None:
    code = (
        "const names = Array.from({ length: 20000 }, (_, i) => 'Name ' + (i * 7919 % 20011) + ' ü');"
        "names.sort((a, b) => a.localeCompare(b));"
        "return names.slice(0, 3)"
    )
    began = time.process_time()
    assert run(code, seconds=10.0).value == ["Name 0 ü", "Name 1 ü", "Name 10 ü"]
    assert time.process_time() - began < 2.5


# numbers and dates in words


def test_dates_are_told_by_their_parts_in_utc(run: RunCode) -> None:
    code = """
    const two = (n) => (n < 10 ? "0" : "") + n, wrong = [];
    const day = (d) => {
        const year = d.getUTCFullYear();
        return `${d.getUTCMonth() + 1}/${d.getUTCDate()}/${year > 0 ? year : 1 - year}`;
    };
    const clock = (d) => {
        const hours = d.getUTCHours();
        return `${hours % 12 || 12}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())} ${hours < 12 ? "AM" : "PM"}`;
    };
    const check = (time) => {
        const d = new Date(time);
        const found = [d.toLocaleDateString(), d.toLocaleTimeString(), d.toLocaleString()];
        const expected = [day(d), clock(d), `${day(d)}, ${clock(d)}`];
        if (found.join("|") !== expected.join("|")) wrong.push([time, ...found]);
    };
    for (const span of [1e9, 1e12, 1e14, 8.64e15]) {
        for (let i = 0; i < 500; i++) check(Math.floor((2 * Math.random() - 1) * span));
    }
    for (let i = -800; i < 800; i++) check(i * 86400000 * 365.2425);
    for (const time of [0, -1, 999, 1000, -86400000, 951782400000, 951868800000, 8.64e15, -8.64e15]) check(time);
    return [wrong.slice(0, 5), new Date(NaN).toLocaleString()];
    """
    assert run(code, seed=SEED, seconds=30.0).value == [[], "Invalid Date"]


@pytest.mark.parametrize("number", [0, 1, 12, 123, 1234, 12345, 123456, 1234567, 2**53, 10**20, 999, 1000])
def test_whole_numbers_are_told_in_groups_of_three(run: RunCode, number: int) -> None:
    code = f"return [({number}).toLocaleString(), (-{number}).toLocaleString(), ({number}n).toLocaleString()]"
    expected = f"{number:,}"
    assert run(code).value == [expected, f"-{expected}", expected]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("-0", "-0"), ("0.5", "0.5"), ("-1234.5", "-1,234.5"), ("1234567.891", "1,234,567.891"), ("0.0004", "0"),
        ("0.0005", "0.001"), ("999.9996", "1,000"), ("-0.0001", "-0"), ("1e21", "1,000,000,000,000,000,000,000"),
        ("1e-7", "0"), ("NaN", "NaN"), ("-Infinity", "-∞"), ("new Number(1234)", "1,234"), ("999999.9999", "1,000,000"),
    ],
)  # fmt: skip
def test_fractions_are_told_with_three_digits(run: RunCode, number: str, expected: str) -> None:
    assert run(f"return ({number}).toLocaleString()").value == expected


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e7, 1e7), min_size=1))
@settings(max_examples=200, deadline=None)
def test_any_number_is_told_rounded_to_three_digits_in_groups(in_guest: Any, numbers: list[float]) -> None:
    """Round the shortest decimals half up, as the locale does, with and without naming it."""

    def told(number: float) -> str:
        with decimal.localcontext(prec=400):
            rounded = abs(Decimal(repr(number))).quantize(Decimal("0.001"), rounding=decimal.ROUND_HALF_UP)
        sign = "-" if math.copysign(1, number) < 0 else ""
        return sign + f"{rounded:,f}".rstrip("0").rstrip(".")

    code = "return given.flatMap((n) => [n.toLocaleString(), n.toLocaleString('en-US')])"
    assert in_guest(code, numbers) == [each for number in numbers for each in [told(number)] * 2]


@pytest.mark.parametrize("many", ["new Array(3e7)", "new Uint8Array(3e7)"])
def test_telling_a_long_list_is_interrupted_with_the_program_intact(run: RunCode, many: str) -> None:
    told = run(f"text('begun'); const list = {many}; list.toLocaleString(); text('over')", seconds=0.2)
    assert (told.stopped, told.turn.detail, told.texts) == ("time", "", ["begun"])


@pytest.mark.parametrize("given", ["[1234, 'a', null, [0.5, 2n]]", "new Float64Array([1234, 0.5])", "Object('ab')"])
def test_short_and_long_lists_are_told_alike(run: RunCode, given: str) -> None:
    code = (
        f"const list = {given}, tell = Array.isArray(list) || typeof list.length !== 'number' || !list.buffer"
        "  ? Array.prototype.toLocaleString : list.toLocaleString;"
        "return [tell.call(list), tell.call(list, 'en-US')]"
    )
    short, long = run(code).value
    assert short == long


def test_a_microtask_that_throws_is_a_rejection_and_stops_no_other(run: RunCode) -> None:
    code = (
        "const order = []; queueMicrotask(() => { order.push(1); throw new Error('first') });"
        "Promise.resolve().then(() => order.push(2)); queueMicrotask(() => order.push(3)); order.push(0);"
        "await null; await null; return order"
    )
    told = run(code)
    assert told.value == [0, 1, 2, 3]
    assert told.report is not None
    assert [each.message for each in told.report.rejections] == ["first"]


@pytest.mark.parametrize("helper", ["map((v) => v)", "filter(() => true)", "take(5)", "drop(0)", "flatMap((v) => [v])"])
def test_a_long_chain_of_iterator_helpers_is_an_error_and_no_trap(run: RunCode, helper: str) -> None:
    code = (
        "const chain = () => { let it = [1, 2, 3].values();"
        f"  for (let i = 0; i < 50_000; i++) it = it.{helper}; return it }};"
        "const uses = [(it) => it.next(), (it) => it.toArray(), (it) => { for (const v of it); }, (it) => [...it],"
        "  (it) => it.return()];"
        "const told = []; for (const use of uses) {"
        "  try { use(chain()); told.push('went') } catch (e) { told.push(e.name) } } return told"
    )
    told = run(code, seconds=20.0)
    assert told.stopped is None
    assert told.value[:4] == ["RangeError"] * 4


def test_an_iterator_helper_keeps_its_place_and_refuses_what_is_none(run: RunCode) -> None:
    code = """
    const it = [1, 2, 3, 4].values().map((v, i) => v * 10 + i).filter((v) => v !== 21), seen = [it.next()];
    for (const v of it) seen.push(v);
    seen.push(it.next());
    const { next } = Object.getPrototypeOf(it);
    for (const wrong of [undefined, {}, [].values()]) try { next.call(wrong) } catch (e) { seen.push(e.name) }
    return [seen, next.name, next.length];
    """
    seen = [{"value": 10, "done": False}, 32, 43, {"done": True}, *["TypeError"] * 3]
    assert run(code).value == [seen, "next", 0]


@pytest.mark.parametrize(
    "helper", ["map((v) => v)", "filter(() => true)", "take(5)", "drop(0)", "flatMap((v) => [v, v])"]
)
@pytest.mark.parametrize(
    "source", ["[1, 2, 3].values()", "new Set([1, 2, 3]).values()", "[1, 2, 3].values().map((v) => v)"]
)
def test_a_helper_of_an_iterator_without_return_can_be_left(run: RunCode, source: str, helper: str) -> None:
    code = f"""
    const made = () => {source}.{helper}, seen = [];
    const it = made();
    for (const v of it) {{ seen.push(v); break; }}
    const [first] = made();
    return [seen, it.next(), first, made().take(1).toArray(), made().some((v) => v === 1), made().return()];
    """
    over = {"done": True}
    assert run(code).value == [[1], over, 1, [1], True, over]


def test_leaving_a_helper_calls_the_return_of_its_iterator_once(run: RunCode) -> None:
    code = """
    const seen = [];
    const source = (name) => ({
        __proto__: Iterator.prototype,
        next: () => ({ value: 1, done: false }),
        get return() { seen.push(name + " is read"); return () => { seen.push(name + " is called"); return {} } },
    });
    for (const v of source("outer").map((v) => v)) break;
    for (const v of [1].values().flatMap(() => source("inner"))) break;
    const failing = { __proto__: source("failing"), return() { throw new Error("from return") } };
    const it = [1].values().flatMap(() => failing);
    it.next();
    try { it.return() } catch (error) { seen.push(error.message) }
    const odd = [1].values().flatMap(() => ({ __proto__: failing, return() { return odd.return() } }));
    odd.next();
    try { odd.return() } catch (error) { seen.push(error.message) }
    return [seen, it.next(), odd.next()];
    """
    seen = ["outer is read", "outer is called", "inner is read", "inner is called", "from return"]
    over = {"done": True}
    assert run(code).value == [[*seen, "cannot invoke a running iterator"], over, over]
