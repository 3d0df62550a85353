# ruff: noqa: E501 - the tables of JavaScript and of foreign scripts read better unbroken
from __future__ import annotations

import pytest
from engine_harness import Engine, GuestFailure

R = "\ufffd"


def _decode(engine: Engine, label: str, data: list[int], options: str = "{}") -> str:
    return engine.call_json(f"(data) => new TextDecoder('{label}', {options}).decode(new Uint8Array(data))", data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([0x61, 0xC3, 0xA9, 0xE6, 0xBC, 0xA2, 0xF0, 0x9F, 0x98, 0x80], "aé漢😀"),
        ([0x80], R),
        ([0xC0, 0x80], R * 2),
        ([0xC3], R),
        ([0xC3, 0x61], R + "a"),
        ([0xE0, 0x80, 0x80], R * 3),
        ([0xE6, 0xBC], R),
        ([0xE6, 0xBC, 0x61], R + "a"),
        ([0xED, 0xA0, 0x80], R * 3),
        ([0xF0, 0x9F, 0x98], R),
        ([0xF0, 0x9F, 0x98, 0xF0, 0x9F, 0x98, 0x80], R + "😀"),
        ([0xF0, 0x8F, 0xBF, 0xBF], R * 4),
        ([0xF4, 0x90, 0x80, 0x80], R * 4),
        ([0xF5, 0xFF], R * 2),
        ([0xEF, 0xBB, 0xBF, 0x61], "a"),
        ([0xEF, 0xBB, 0xBF, 0xEF, 0xBB, 0xBF], "\ufeff"),
        ([0xEF, 0xBB], R),
    ],
)
def test_utf8_replaces_each_maximal_subpart_once(engine: Engine, data: list[int], text: str) -> None:
    assert _decode(engine, "utf-8", data) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([0x61, 0, 0x22, 0x6F], "a漢"),
        ([0x3D, 0xD8, 0x00, 0xDE], "😀"),
        ([0x00, 0xDE], R),
        ([0x3D, 0xD8, 0x61, 0x00], R + "a"),
        ([0x3D, 0xD8], R),
        ([0x3D, 0xD8, 0x61], R),
        ([0x61, 0x00, 0x62], "a" + R),
        ([0xFF, 0xFE, 0x61, 0x00], "a"),
    ],
)
def test_utf16_replaces_lone_surrogates_and_odd_bytes(engine: Engine, data: list[int], text: str) -> None:
    assert _decode(engine, "utf-16", data) == text
    swapped = [byte for i in range(0, len(data) - 1, 2) for byte in (data[i + 1], data[i])]
    if len(data) % 2 == 0:
        assert _decode(engine, "utf-16be", swapped) == text


def test_latin1_is_windows_1252_and_fails_on_no_byte(engine: Engine) -> None:
    data = list(range(256))
    expected = bytes(data).decode("cp1252", errors="surrogateescape")
    expected = "".join(chr(ord(c) - 0xDC00) if "\udc80" <= c <= "\udcff" else c for c in expected)
    assert _decode(engine, "latin1", data, "{ fatal: true }") == expected
    assert engine.eval("new TextDecoder(' ASCII\\n').encoding") == "windows-1252"


@pytest.mark.parametrize("label", ["UTF8", " utf-8\t", "unicode-1-1-utf-8"])
def test_labels_are_trimmed_and_ignore_case(engine: Engine, label: str) -> None:
    assert engine.call_json("(label) => new TextDecoder(label).encoding", label) == "utf-8"


@pytest.mark.parametrize("label", ["", "utf-7", "shift_jis", "\u00a0utf-8", "__proto__", "constructor"])
def test_an_unknown_label_is_a_range_error(engine: Engine, label: str) -> None:
    assert engine.call_json("(l) => { try { new TextDecoder(l) } catch (e) { return e.name } }", label) == "RangeError"


@pytest.mark.parametrize("data", [[0xFF], [0xC3], [0xED, 0xA0, 0x80]])
def test_fatal_throws_a_type_error_and_the_decoder_can_continue(engine: Engine, data: list[int]) -> None:
    probe = """(data) => {
        const d = new TextDecoder('utf-8', { fatal: true });
        try { d.decode(new Uint8Array(data)); } catch (e) { return [e.name, d.decode(new Uint8Array([0x61]))]; }
    }"""
    assert engine.call_json(probe, data) == ["TypeError", "a"]


def test_ignore_bom_keeps_the_mark(engine: Engine) -> None:
    assert _decode(engine, "utf-8", [0xEF, 0xBB, 0xBF, 0x61], "{ ignoreBOM: true }") == "\ufeffa"


@pytest.mark.parametrize("label", ["utf-8", "utf-16le", "utf-16be"])
@pytest.mark.parametrize("text", ["\ufeffa漢😀é", "😀\ufeff"])
def test_a_stream_of_single_bytes_gives_the_same_text(engine: Engine, label: str, text: str) -> None:
    probe = f"""(data) => {{
        const d = new TextDecoder('{label}'); let text = '';
        for (const byte of data) text += d.decode(new Uint8Array([byte]), {{ stream: true }});
        return [text + d.decode(), d.decode(new Uint8Array(data))];
    }}"""
    expected = text.removeprefix("\ufeff")
    assert engine.call_json(probe, list(text.encode(label))) == [expected, expected]


def test_a_stream_that_ends_in_mid_sequence_gives_one_replacement(engine: Engine) -> None:
    source = "(() => { const d = new TextDecoder(); return d.decode(new Uint8Array([97, 0xE6, 0xBC]), { stream: true }) + d.decode() })()"
    assert engine.eval(source) == "a" + R


@pytest.mark.parametrize(
    "source",
    ["new Uint8Array([97, 98]).buffer", "new DataView(new Uint8Array([0, 97, 98, 0]).buffer, 1, 2)", "new Uint16Array([0x6261])",
     "new Int8Array([97, 98])", "(() => { const s = new SharedArrayBuffer(2); new Uint8Array(s).set([97, 98]); return s })()"],
)  # fmt: skip
def test_any_buffer_or_view_can_be_decoded(engine: Engine, source: str) -> None:
    assert engine.eval(f"new TextDecoder().decode({source})") == "ab"


def test_a_detached_buffer_decodes_to_nothing(engine: Engine) -> None:
    assert (
        engine.eval(
            "(() => { const b = new ArrayBuffer(3); b.transfer(); return new TextDecoder().decode(b) + '.' })()"
        )
        == "."
    )


def test_encoding_replaces_lone_surrogates(engine: Engine) -> None:
    assert engine.json("[...new TextEncoder().encode('a\\ud800b\\udc00')]") == list(f"a{R}b{R}".encode())
    assert engine.json("[...new TextEncoder().encode()]") == []


def test_encode_into_stops_before_a_character_that_does_not_fit(engine: Engine) -> None:
    probe = "(n) => { const { read, written } = new TextEncoder().encodeInto('aé😀', new Uint8Array(n)); return [read, written] }"
    assert [engine.call_json(probe, n) for n in range(8)] == [
        [0, 0],
        [1, 1],
        [1, 1],
        [2, 3],
        [2, 3],
        [2, 3],
        [2, 3],
        [4, 7],
    ]


def test_a_large_text_survives_the_round_trip(engine: Engine) -> None:
    source = "(() => { const s = 'aé漢😀'.repeat(50000); return new TextDecoder().decode(new TextEncoder().encode(s)) === s })()"
    assert engine.eval(source) == "true"


def test_the_engines_own_base64_follows_the_forgiving_rules(engine: Engine) -> None:
    assert engine.json("[atob(' YWI= \\n'), atob('YWI'), btoa('\\xff\\0')]") == ["ab", "ab", "/wA="]
    for call in ["atob('a')", "atob('YW=I')", "btoa('\\u0100')"]:
        with pytest.raises(GuestFailure, match="InvalidCharacterError"):
            engine.eval(call)


def test_encoding_runs_on_what_it_took_before_the_guest_broke_the_built_ins(fresh_engine: Engine) -> None:
    fresh_engine.break_prototypes("Object.getPrototypeOf(Uint8Array)", "String", "Array", "Function")
    fresh_engine.eval("String.fromCharCode = Uint8Array = Uint16Array = null")
    assert fresh_engine.eval("new TextDecoder('UTF-8').decode(new TextEncoder().encode('aé😀'))") == "aé😀"
