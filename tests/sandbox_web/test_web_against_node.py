# ruff: noqa: E501, RUF001 - the tables of JavaScript and of foreign scripts read better unbroken
"""The same generated inputs through the prelude and through Node's own classes.

Node itself is the oracle for most. Its URL parser has faults of its own (`_node_is_known_to_differ`; some setters even
abort the process), so the full range of URLs and all setters are compared with npm's whatwg-url, when that is installed.
"""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import pytest
from engine_harness import Engine
from node_harness import Node

FIELDS = [
    "href",
    "origin",
    "protocol",
    "username",
    "password",
    "host",
    "hostname",
    "port",
    "pathname",
    "search",
    "hash",
]
SHOW_URL = f"(u) => Object.fromEntries({FIELDS}.map((k) => [k, u[k]]))"

SCHEMES = [
    "http",
    "https",
    "HTTP",
    "ws",
    "wss",
    "ftp",
    "file",
    "foo",
    "a+b.c-d",
    "data",
    "javascript",
    "mailto",
    "blob",
    "1x",
    "",
]
HOSTS = """
    example.com EXAMPLE.com. localhost a a.b.c a..b .a 127.0.0.1 127.1 0x7f.0.0.1 0x 1 1.2 1.2.3.4.5 256 4294967295 4294967296
    0300.1 09 1.0x a.1 a.0x1f a.0xg [::1] [::] [1:2:3:4:5:6:7:8] [1::8] [::1.2.3.4] [1:2:3:4:5:6:1.2.3.4] [::1.2.3] [::01.2.3.4]
    [1::2::3] [:1] [1:] [g::] [::1 ::1] [0:0:1:0:0:0:1:0] [FFFF::ABCD] [12345::] a%20b a%41b %41 %zz a%00b ex%61mple.com %EF%BC%A5.com
    faß.de bücher.de BÜCHER.DE 日本語.jp 例え。テスト ＧＯ.com ☃.net xn--bcher-kva.de xn--a xn-- xn--zn7c.com a_b a-b -a a- a<b a|b a^b a`b
    a{b a}b a~b a!b a"b a'b a\\b Σίσυφος.gr straße.de İ.tr K.com ½.com ﬁ.com ⅷ.com a\u00adb \u00ad \u200b.com é.com e\u0301.com
    \u0301a.com xn--e28h.com 💩.la xn--ls8h.la 한국.kr русский.рф
""".split()  # noqa: SIM905
SEGMENTS = [
    "",
    "a",
    "b c",
    ".",
    "..",
    "%2e",
    ".%2E",
    "%2e%2e",
    "C:",
    "c|",
    "C:x",
    "é",
    "漢",
    "😀",
    "%41",
    "%",
    "%g1",
    '"<>`',
    "{|}",
    "\\",
    ";=@:",
    "\x00\x1f\x7f",
    "\ud800",
]
QUERIES = ["", "a=b", "x y", "'\"<>", "é&%zz", "a=1&a=2", "?", "\\{}|^`", "\udfff", "+%20"]
SPACES = ["", "", "", "", "", "", " ", "\t", "\n", "\x00", "\x1f "]


def _one_in(rng: random.Random, n: int) -> bool:
    return rng.randrange(n) == 0


def _authority(rng: random.Random) -> str:
    text = ""
    if _one_in(rng, 4):
        text += rng.choice(["u", "u:p", ":p", "u:", ":", "", "a@b", "a:b:c", "é:ü", "u%40", "|;=["]) + "@"
    text += rng.choice(HOSTS) if not _one_in(rng, 12) else ""
    if _one_in(rng, 3):
        text += ":" + rng.choice(["80", "443", "21", "8080", "0", "00080", "65535", "65536", "", "x", "8x", "-1"])
    return text


def _path(rng: random.Random) -> str:
    separator = "\\" if _one_in(rng, 8) else "/"
    return separator.join(rng.choice(SEGMENTS) for _ in range(rng.randrange(5)))


def _url(rng: random.Random) -> str:
    shape = rng.randrange(10)
    text = ""
    if shape < 7:
        text += rng.choice(SCHEMES) + ":"
    if shape < 8:
        text += rng.choice(["//", "//", "//", "//", "/", "", "///", "\\\\", "/\\"])
        if not _one_in(rng, 6):
            text += _authority(rng)
            text += rng.choice(["/", "/", ""])
    text += _path(rng)
    if _one_in(rng, 3):
        text += "?" + rng.choice(QUERIES)
    if _one_in(rng, 3):
        text += "#" + rng.choice(QUERIES + SEGMENTS)
    text = rng.choice(SPACES) + text + rng.choice(SPACES)
    if _one_in(rng, 15) and text:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("\t\n\r @:/?#[]%\\.") + text[at:]
    return text


def _assert_equal(cases: list[Any], ours: list[Any], theirs: list[Any]) -> None:
    bad = [
        "\n".join(f"{who:5}{ascii(what)[:500]}" for who, what in (("for", case), ("here", mine), ("node", other)))
        for case, mine, other in zip(cases, ours, theirs, strict=True)
        if mine != other
    ]
    if bad:
        pytest.fail(f"{len(bad)} of {len(cases)} differ\n" + "\n".join(bad[:10]), pytrace=False)


PROBE_PARSING = f"""(cases) => cases.map(([input, base]) => {{
    try {{ return ({SHOW_URL})(new URL(input, base ?? undefined)); }}
    catch (e) {{ return e instanceof TypeError ? 'refused' : String(e); }}
}})"""
BASES = [None, "http://h/a/b?q#f", "https://u:p@h:8/", "file:///C:/x/y", "file://host/p", "foo://h/a/b", "foo:/a/b"]


def test_parsing_agrees_with_the_reference_on_generated_urls(engine: Engine, reference: Node) -> None:
    rng = random.Random(20)
    cases = [[_url(rng), rng.choice([*BASES, "data:opaque?q#f"])] for _ in range(6000)]
    _assert_equal(cases, engine.call_json(PROBE_PARSING, cases), reference(PROBE_PARSING, cases))


def test_parsing_agrees_with_node_on_generated_urls(engine: Engine, node: Node) -> None:
    rng = random.Random(19)
    cases = [[_url(rng), rng.choice(BASES)] for _ in range(6000)]
    ours, theirs = engine.call_json(PROBE_PARSING, cases), node(PROBE_PARSING, cases)
    kept = [i for i, mine in enumerate(ours) if mine == "refused" or not _node_is_known_to_differ(cases[i][0], mine)]
    assert len(kept) > 0.9 * len(cases), "too few cases are left to compare"
    _assert_equal(*([values[i] for i in kept] for values in (cases, ours, theirs)))


def _node_is_known_to_differ(text: str, answer: dict[str, str]) -> bool:
    path = answer["pathname"]
    return (
        # "^" and the last space of an opaque path have been percent-encoded since 2025.
        "%5E" in path
        or path.endswith("%20")
        # Node 20 loses the "/" that dot segments leave behind, and takes "C:x" for a drive letter.
        or (path == "/" and answer["protocol"] not in {"http:", "https:", "ws:", "wss:", "ftp:"})
        or (answer["protocol"] == "file:" and "C:x" in text)
    )


def test_every_left_to_right_character_of_a_domain_maps_as_in_the_reference(engine: Engine, reference: Node) -> None:
    # Not right-to-left ones, because the bidi rule is not covered, nor what Python's Unicode version leaves unassigned.
    cases = [
        f"a{character}b"
        for character in map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x20000, 3)])
        if not {"", "R", "AL", "AN"} & {unicodedata.bidirectional(c) for c in unicodedata.normalize("NFKC", character)}
    ]
    probe = "(cases) => cases.map((host) => { try { return new URL('http://' + host).host } catch { return null } })"
    _assert_equal(cases, engine.call_json(probe, cases), reference(probe, cases))


SETTER_STARTS = ["http://u:p@h:8080/a/b?q#f", "https://h/", "file:///C:/a", "file://host/a", "foo://h/a", "foo://h", "foo:/a", "foo:///a", "data:x", "mailto:a", "ws://h:81", "foo:/.//p"]  # fmt: skip


def _setter_value(rng: random.Random, field: str) -> str:
    pools = {
        "protocol": [*SCHEMES, "https:", "foo:bar", "http://x", "fi\tle", ":"],
        "username": ["", "a", "é:@/", "a\tb", "\ud800", "%41"],
        "port": ["", "80", "443", "8080", "65535", "65536", "9x", "x9", "\t9", " 9", "9/", "9?", "00090", "-1"],
        "pathname": ["", "a", "/a/../b", "?x", "#x", "\\a", "//x", "/..//x", "a b", "\x00", "/C|/", "..", "é"],
        "search": [*QUERIES, "#", "?a", "??a", "a#b", "\t"],
        "hash": [*QUERIES, "#a", "##a", "`", "\t"],
    }
    pools["password"] = pools["username"]
    pools["host"] = pools["hostname"] = [
        *HOSTS,
        "",
        "a:80",
        "a:",
        ":80",
        "a:x",
        "a/b",
        "a?b",
        "a#b",
        "a\\b",
        "a@b",
        "a:8x",
        "\t",
    ]
    pools["href"] = SETTER_STARTS
    return rng.choice(pools[field])


def test_setters_agree_with_the_reference_on_generated_sequences(engine: Engine, reference: Node) -> None:
    rng = random.Random(21)
    settable = [field for field in FIELDS if field != "origin"]
    cases = []
    for _ in range(3000):
        fields = [rng.choice(settable) for _ in range(3)]
        cases.append([rng.choice(SETTER_STARTS), [[field, _setter_value(rng, field)] for field in fields]])
    probe = (
        "(cases) => cases.map(([start, steps]) => { const u = new URL(start); const p = u.searchParams;"
        " for (const [k, v] of steps) u[k] = v;"
        f" return {{ ...({SHOW_URL})(u), params: [...p] }}; }})"
    )
    _assert_equal(cases, engine.call_json(probe, cases), reference(probe, cases))


COMMON_PARTS = [
    "a",
    "b",
    "",
    " ",
    "+",
    "%20",
    "&",
    "=",
    "==",
    "%C3%A9",
    "%F0%9F%98%80",
    "%EF%BB%BF",
    "\x00",
    "*-._~!'()",
]
# Never both in one string: Node garbles non-ASCII text around a malformed escape.
ESCAPE_PARTS = [*COMMON_PARTS, "%", "%zz", "%E4%BD", "%ff", "%ED%A0%80", "%F0%9Fa"]
UNICODE_PARTS = [*COMMON_PARTS, "é", "漢", "😀", "\ud800", "\ufeff"]


def test_search_params_agree_on_generated_queries(engine: Engine, node: Node) -> None:
    rng = random.Random(22)
    cases = []

    def text(size: int) -> str:
        parts = rng.choice([ESCAPE_PARTS, UNICODE_PARTS])
        return "".join(rng.choice(parts) for _ in range(rng.randrange(size)))

    for _ in range(3000):
        steps = [
            [rng.choice(["append", "set", "delete", "delete2", "sort", "has"]), text(3), text(3)]
            for _ in range(rng.randrange(4))
        ]
        cases.append([rng.choice(["", "?"]) + text(9), steps])
    probe = """(cases) => cases.map(([init, steps]) => {
        const p = new URLSearchParams(init);
        const results = steps.map(([op, a, b]) => {
            switch (op) {
                case 'append': return p.append(a, b);
                case 'set': return p.set(a, b);
                case 'delete': return p.delete(a);
                case 'delete2': return p.delete(a, b);
                case 'sort': return p.sort();
                case 'has': return [p.has(a), p.has(a, b), p.get(a), p.getAll(a)];
            }
        }).map((r) => r ?? null);
        return [p.toString(), [...p], [...p.keys()], p.size, results];
    })"""
    _assert_equal(cases, engine.call_json(probe, cases), node(probe, cases))


# Pieces that begin, continue, complete and break sequences.
BYTES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0xBB, 0xBF, 0xD8, 0xDC, 0xFE]  # fmt: skip


@pytest.mark.parametrize("label", ["utf-8", "utf-16le", "utf-16be"])
def test_decoding_agrees_on_generated_bytes(engine: Engine, node: Node, label: str) -> None:
    rng = random.Random(23)
    cases = []
    for _ in range(3000):
        data: list[int] = []
        while len(data) < 12 and not _one_in(rng, 8):
            whole = rng.choice(["é", "漢", "😀", "\ufeff", "a", None, None])
            codec = "utf-8" if label == "utf-8" else label
            data += [rng.choice(BYTES)] if whole is None else whole.encode(codec)
        cases.append([data, rng.random() < 0.3, rng.random() < 0.5])
    probe = f"""(cases) => cases.map(([data, fatal, ignoreBOM]) => {{
        try {{ return new TextDecoder({label!r}, {{ fatal, ignoreBOM }}).decode(new Uint8Array(data)); }}
        catch (e) {{ return e instanceof TypeError ? ['refused'] : String(e); }}
    }})"""
    _assert_equal(cases, engine.call_json(probe, cases), node(probe, cases))


def test_encoding_agrees_on_generated_strings(engine: Engine, node: Node) -> None:
    rng = random.Random(24)
    units = [
        "a",
        "\x00",
        "\x7f",
        "\x80",
        "é",
        "\u07ff",
        "\u0800",
        "漢",
        "\uffff",
        "\ud800",
        "\udbff",
        "\udc00",
        "\udfff",
    ]
    cases = [["".join(rng.choice(units) for _ in range(rng.randrange(9))), rng.randrange(12)] for _ in range(3000)]
    probe = """(cases) => cases.map(([text, room]) => {
        const e = new TextEncoder(), into = new Uint8Array(room), { read, written } = e.encodeInto(text, into);
        return [[...e.encode(text)], read, written, [...into]];
    })"""
    _assert_equal(cases, engine.call_json(probe, cases), node(probe, cases))


def test_base64_agrees_on_generated_strings(engine: Engine, node: Node) -> None:
    rng = random.Random(25)
    units = [*"AZaz09+/=-_ \t\n\f\r\v\xff\x00é", "\u0100", "QUJD", "=="]
    cases = ["".join(rng.choice(units) for _ in range(rng.randrange(8))) for _ in range(3000)]
    probe = """(cases) => cases.map((text) => [atob, btoa].map((f) => {
        try { return f(text); } catch (e) { return [e.name, e instanceof DOMException]; }
    }))"""
    _assert_equal(cases, engine.call_json(probe, cases), node(probe, cases))


# Walks both graphs in the same order and names objects seen before, so identity and cycles become visible.
DESCRIBE = """(root) => {
    const seen = new Map();
    const show = (v) => {
        if (typeof v === 'bigint') return `${v}n`;
        if (Object.is(v, -0)) return '-0';
        if (v === null || typeof v !== 'object') return String(v) + ':' + typeof v;
        if (seen.has(v)) return `#${seen.get(v)}`;
        seen.set(v, seen.size);
        const tag = Object.prototype.toString.call(v).slice(8, -1);
        const out = { tag, plain: Object.getPrototypeOf(v)?.constructor.name };
        if (tag === 'Date') out.time = v.getTime();
        if (tag === 'RegExp') Object.assign(out, { source: v.source, flags: v.flags, lastIndex: v.lastIndex });
        if (tag === 'Map') out.entries = [...v].map(([k, w]) => [show(k), show(w)]);
        if (tag === 'Set') out.items = [...v].map(show);
        if (tag === 'Error') out.error = [v.name, v.message, Object.hasOwn(v, 'message'), show(v.cause)];
        if (tag === 'ArrayBuffer') out.bytes = [...new Uint8Array(v)].join();
        if (ArrayBuffer.isView(v)) return { ...out, at: [v.byteOffset, v.byteLength], buffer: show(v.buffer) };
        if (['Number', 'String', 'Boolean', 'BigInt'].includes(tag)) out.primitive = show(v.valueOf());
        if (Array.isArray(v)) out.length = v.length;
        if (tag !== 'String') out.own = Object.keys(v).map((k) => [k, show(v[k])]);
        return out;
    };
    return show(root);
}"""

LEAVES = """
    1 -0 NaN 'x' '' true null undefined 5n new(Date)(7) new(Date)(NaN) /a+/giu new(Number)(-0) new(String)('ab') new(Boolean)(false) Object(7n)
    new(ArrayBuffer)(3) new(Uint8Array)([1,2,3]).subarray(1) new(DataView)(shared,1,2) new(Float64Array)(shared) shared
    new(RangeError)('r') new(TypeError)() Object.assign(new(Error)('e'),{name:'Custom',x:1}) new(Error)('c',{cause:[1]}) new(AggregateError)([],'agg')
    new(class/**/A{b=1;get/**/c(){return/**/2}})() Object.create({inherited:1}) Object.create(null) {get:1,set:2} {get/**/g(){return[3]}} [1,,3] Object.assign([1],{extra:2})
    JSON.parse('{"__proto__":1}') ()=>1 Symbol() new(WeakMap)() Promise.resolve() (function(){return/**/arguments})(1,2) root root.first
""".split()  # noqa: SIM905


def _value(rng: random.Random, depth: int) -> str:
    if depth == 0 or _one_in(rng, 3):
        weights = [1 if leaf.startswith(("()", "Symbol", "new(Weak", "Promise")) else 6 for leaf in LEAVES]
        leaf = rng.choices(LEAVES, weights)[0]
        return f"({leaf})"
    children = [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    keys = rng.sample(["a", "b", "1", "0", "first", "'x y'"], len(children))
    match rng.randrange(4):
        case 0:
            return "[" + ",".join(children) + "]"
        case 1:
            return "new Map([" + ",".join(f"[{child},{rng.choice(children)}]" for child in children) + "])"
        case 2:
            return "new Set([" + ",".join(children) + "])"
        case _:
            return "({" + ",".join(f"{key}:{child}" for key, child in zip(keys, children, strict=True)) + "})"


def test_structured_clone_agrees_on_generated_values(engine: Engine, node: Node) -> None:
    rng = random.Random(26)
    cases = [[f"root.v{i}=({_value(rng, 3)})" for i in range(3)] for _ in range(2000)]
    probe = f"""(cases) => cases.map((lines) => {{
        const shared = new Uint8Array([1,2,3,4,5,6,7,8]).buffer, root = {{ first: {{ a: 1 }} }};
        for (const line of lines) new Function('root', 'shared', line)(root, shared);
        const describe = {DESCRIBE};
        try {{ const copy = structuredClone(root); return [copy !== root, describe(copy)]; }}
        catch (e) {{ return [e.name, e instanceof DOMException]; }}
    }})"""
    _assert_equal(cases, engine.call_json(probe, cases), node(probe, cases))
