# ruff: noqa: E501, RUF001 - the tables of JavaScript and of foreign scripts read better unbroken
from __future__ import annotations

import pytest
from engine_harness import Engine, GuestFailure


def _href(engine: Engine, text: str, base: str | None = None) -> str:
    probe = (
        "([text, base]) => { try { return new URL(text, base ?? undefined).href } catch (e) { return String(e.name) } }"
    )
    return engine.call_json(probe, [text, base])


@pytest.mark.parametrize(
    ("text", "href"),
    [
        ("HTTP://User:Pass@EXAMPLE.com:80/a/./b/../c?x=1#y", "http://User:Pass@example.com/a/c?x=1#y"),
        ("  https://h/\tp\na\r ", "https://h/pa"),
        ("https:h", "https://h/"),
        ("http:\\\\h\\a\\b", "http://h/a/b"),
        ("http://h", "http://h/"),
        ("http://h:443", "http://h:443/"),
        ("https://h:443", "https://h/"),
        ("http://h:00080", "http://h/"),
        ("http://a@b@c/", "http://a%40b@c/"),
        ("http://:@c/", "http://c/"),
        ("http://u:@c/", "http://u@c/"),
        ("http://h/%2E%2e/a/%2e", "http://h/a/"),
        ("http://h/a b\"<>`{}^|", "http://h/a%20b%22%3C%3E%60%7B%7D%5E|"),
        ("http://h/é漢😀", "http://h/%C3%A9%E6%BC%A2%F0%9F%98%80"),
        ("http://h/\ud800", "http://h/%EF%BF%BD"),
        ("http://h/?'", "http://h/?%27"),
        ("x://h/?'", "x://h/?'"),
        ("http://h/#`", "http://h/#%60"),
        ("http://h/?", "http://h/?"),
        ("http://h/#", "http://h/#"),
        ("file:c|/a", "file:///c:/a"),
        ("file:///C:/../..", "file:///C:/"),
        ("file://localhost/a", "file:///a"),
        ("file://host/a", "file://host/a"),
        ("file:\\a", "file:///a"),
        ("mailto:a b@c", "mailto:a b@c"),
        ("data:text/plain,é#f", "data:text/plain,%C3%A9#f"),
        ("data:x  ", "data:x"),
        ("data:x  ?q", "data:x %20?q"),
        ("foo:/a/../b", "foo:/b"),
        ("foo:/.//p", "foo:/.//p"),
        ("foo://h:80", "foo://h:80"),
        ("foo://%48 ".strip(), "foo://%48"),
        ("foo://", "foo://"),
        ("foo:", "foo:"),
    ],
)  # fmt: skip
def test_a_valid_url_serializes_as_the_standard_says(engine: Engine, text: str, href: str) -> None:
    assert _href(engine, text) == href


@pytest.mark.parametrize(
    "text",
    ["", "a", "/a", "http:", "http://", "http:///", "http://h:x", "http://h:65536", "http://u@", "http://:80", "1a:b", "http://a b",
     "http://a<b", "http://a%00b", "http://%", "foo://a b", "foo://a^b", "http://\u00ad/", "http://a\ufffd/"],
)  # fmt: skip
def test_an_invalid_url_is_a_type_error(engine: Engine, text: str) -> None:
    assert _href(engine, text) == "TypeError"


@pytest.mark.parametrize(
    ("base", "text", "href"),
    [
        ("http://h/a/b?q#f", "", "http://h/a/b?q"),
        ("http://h/a/b?q#f", "c", "http://h/a/c"),
        ("http://h/a/b", "/c", "http://h/c"),
        ("http://h/a/b", "//i/c", "http://i/c"),
        ("http://h/a/b", "?x", "http://h/a/b?x"),
        ("http://h/a/b?q", "#x", "http://h/a/b?q#x"),
        ("http://h/a/b", "../../../c", "http://h/c"),
        ("http://u:p@h:8/a", "b", "http://u:p@h:8/b"),
        ("http://h/a", "http:b", "http://h/b"),
        ("http://h/a", "https:b", "https://b/"),
        ("file:///C:/a/b", "/d", "file:///C:/d"),
        ("file:///C:/a/b", "D|/e", "file:///D:/e"),
        ("file:///C:/a/b", "..", "file:///C:/"),
        ("foo:/a/b", "c", "foo:/a/c"),
        ("data:opaque?q#f", "#g", "data:opaque?q#g"),
        ("data:opaque", "x", "TypeError"),
        ("nonsense", "http://h/", "TypeError"),
    ],
)
def test_a_relative_url_resolves_against_its_base(engine: Engine, base: str, text: str, href: str) -> None:
    assert _href(engine, text, base) == href


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.1", "127.0.0.1"), ("0x7F.0.0.01", "127.0.0.1"), ("4294967295", "255.255.255.255"), ("4294967296", None),
        ("1.2.3.256", None), ("1.2.3.4.5", None), ("1.2.3.4.", "1.2.3.4"), ("09.1", None), ("a.0x", None), ("0x.a", "0x.a"),
        ("[::1]", "[::1]"), ("[1:0:0:2:0:0:0:3]", "[1:0:0:2::3]"), ("[0:0:1:0:0:1:0:0]", "[::1:0:0:1:0:0]"),
        ("[1:2:3:4:5:6:7::]", "[1:2:3:4:5:6:7:0]"), ("[::255.0.0.1]", "[::ff00:1]"), ("[::FFFF:1]", "[::ffff:1]"),
        ("[::1.2.3]", None), ("[::1.2.3.04]", None), ("[1::2::3]", None), ("[1:2]", None), ("[::12345]", None), ("[::1", None),
        ("[::1%25eth0]", None), ("a%41b", "aab"), ("bücher.example", "xn--bcher-kva.example"), ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"), ("faß.de", "xn--fa-hia.de"), ("ΣΊΣΥΦΟΣ.gr", "xn--kxa6akbbkh.gr"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"), ("ＧＯ.com", "go.com"), ("a\u00adb.com", "ab.com"), ("xn--bcher-kva.de", "xn--bcher-kva.de"),
        ("XN--BCHER-KVA.de", "xn--bcher-kva.de"), ("xn--a", None), ("xn--.com", None), ("\u0301a.com", None), ("💩.la", "xn--ls8h.la"),
        ("a\u200cb.com", None), ("क्\u200dष.in", "xn--11b2ezcw70k.in"), ("نامه\u200cای.com", "xn--mgba3gch31f060k.com"),
    ],
)  # fmt: skip
def test_a_host_becomes_its_ascii_form_or_is_refused(engine: Engine, host: str, expected: str | None) -> None:
    assert engine.call_json("(h) => URL.parse(`https://${h}/`)?.hostname ?? null", host) == expected


@pytest.mark.parametrize(
    ("start", "field", "value", "href"),
    [
        ("http://h/", "protocol", "https", "https://h/"),
        ("http://h:443/", "protocol", "https:", "https://h/"),
        ("http://h/", "protocol", "foo", "http://h/"),
        ("http://u@h/", "protocol", "file", "http://u@h/"),
        ("http://h/", "username", "é:", "http://%C3%A9%3A@h/"),
        ("file:///a", "username", "u", "file:///a"),
        ("http://h/", "password", "p", "http://:p@h/"),
        ("http://h:8/", "host", "i:9", "http://i:9/"),
        ("http://h:8/", "host", "i", "http://i:8/"),
        ("http://h:8/", "hostname", "i:9", "http://h:8/"),
        ("http://h/", "hostname", "", "http://h/"),
        ("http://h/", "hostname", "a b", "http://h/"),
        ("data:x", "host", "h", "data:x"),
        ("http://h/", "port", "9x", "http://h:9/"),
        ("http://h:9/", "port", "", "http://h/"),
        ("http://h:9/", "port", "65536", "http://h:9/"),
        ("http://h/a?q", "pathname", "b?c#d", "http://h/b%3Fc%23d?q"),
        ("foo:/a", "pathname", "//b", "foo:/.//b"),
        ("data:x", "pathname", "y", "data:x"),
        ("http://h/?a", "search", "", "http://h/"),
        ("http://h/", "search", "a#b", "http://h/?a%23b"),
        ("http://h/", "search", "??", "http://h/??"),
        ("http://h/#a", "hash", "", "http://h/"),
        ("http://h/", "hash", "#b c", "http://h/#b%20c"),
        ("http://h/", "href", "foo:bar", "foo:bar"),
    ],
)
def test_a_setter_changes_only_what_the_standard_lets_it(
    engine: Engine, start: str, field: str, value: str, href: str
) -> None:
    assert (
        engine.call_json("([s, f, v]) => { const u = new URL(s); u[f] = v; return u.href }", [start, field, value])
        == href
    )


def test_setting_href_to_an_invalid_url_throws_and_changes_nothing(engine: Engine) -> None:
    source = "(() => { const u = new URL('http://h/'); try { u.href = 'x' } catch (e) { return [e.name, u.href] } })()"
    assert engine.json(source) == ["TypeError", "http://h/"]


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://u@h:8/a", "https://h:8"), ("ftp://h:21/", "ftp://h"), ("file:///a", "null"), ("data:x", "null"),
        ("blob:https://h/x", "https://h"), ("blob:ftp://h/x", "null"), ("blob:x", "null"), ("foo://h", "null"),
    ],
)  # fmt: skip
def test_the_origin_is_a_tuple_only_for_network_schemes(engine: Engine, text: str, origin: str) -> None:
    assert engine.call_json("(t) => new URL(t).origin", text) == origin


def test_can_parse_and_parse_report_failure_without_throwing(engine: Engine) -> None:
    source = "[URL.canParse('x'), URL.canParse('x', 'http://h'), URL.parse('x'), URL.parse('x', 'http://h').href]"
    assert engine.json(source) == [False, True, None, "http://h/x"]


def test_a_url_turns_into_its_href_in_json_and_in_strings(engine: Engine) -> None:
    assert engine.eval("const u1 = new URL('http://h'); JSON.stringify([u1]) + u1") == '["http://h/"]http://h/'


def test_search_params_and_url_follow_each_other(engine: Engine) -> None:
    source = """(() => {
        const u = new URL('http://h/?a=1&b=2'), p = u.searchParams, seen = [];
        p.append('c', 'x y'); seen.push(u.search);
        p.delete('a'); p.delete('b'); p.delete('c'); seen.push(u.href);
        u.search = '?z=9'; seen.push(p.get('z'));
        u.href = 'http://i/?y=8'; seen.push(p.toString(), u.searchParams === p);
        return seen;
    })()"""
    assert engine.json(source) == ["?a=1&b=2&c=x+y", "http://h/", "9", "y=8", True]


@pytest.mark.parametrize(
    ("init", "text"),
    [
        ("'?a=1&b&=c&&a=2'", "a=1&b=&=c&a=2"),
        ("'??a=1'", "%3Fa=1"),
        ("{ a: 1, b: null }", "a=1&b=null"),
        ("[['a', 1], new Set(['b', 2])]", "a=1&b=2"),
        ("new Map([['a', 1]])", "a=1"),
        ("new URLSearchParams('a=1')", "a=1"),
        ("undefined", ""),
        ("null", "null="),
        ("'a=%ff%zz+%2B'", "a=%EF%BF%BD%25zz+%2B"),
        ("{ '\\ud800': 1, '\\udc00': 2 }", "%EF%BF%BD=2"),
        ('"*-._~!\'() "', "*-._%7E%21%27%28%29+="),
    ],
)
def test_search_params_take_strings_pairs_and_records(engine: Engine, init: str, text: str) -> None:
    assert engine.eval(f"new URLSearchParams({init}).toString()") == text


@pytest.mark.parametrize("init", ["[['a']]", "[1]", "['ab']", "[['a','b','c']]", "{ [Symbol()]: 1, ...{} }", "{ [Symbol.iterator]: 1 }", "{ a: Symbol() }"])  # fmt: skip
def test_search_params_refuse_what_is_no_list_of_pairs(engine: Engine, init: str) -> None:
    with pytest.raises(GuestFailure, match="TypeError"):
        engine.eval(f"new URLSearchParams({init})")


def test_search_params_sort_by_code_units_and_keep_equal_names_in_order(engine: Engine) -> None:
    source = "[...(() => { const p = new URLSearchParams('z=1&\\ufffd=2&😀=3&a=4&z=0'); p.sort(); return p })().values()].join('')"
    assert engine.eval(source) == "41032"


def test_set_replaces_the_first_and_drops_the_others(engine: Engine) -> None:
    assert (
        engine.eval("(() => { const p = new URLSearchParams('a=1&b=2&a=3'); p.set('a', 9); return p })()") == "a=9&b=2"
    )


def test_has_and_delete_can_name_the_value_too(engine: Engine) -> None:
    source = "(() => { const p = new URLSearchParams('a=1&a=2'); p.delete('a', 1); return [p.has('a', 1), p.has('a', '2'), p.size] })()"
    assert engine.json(source) == [False, True, 1]


def test_an_iterator_sees_changes_made_on_the_way(engine: Engine) -> None:
    source = """(() => {
        const p = new URLSearchParams('a=1&b=2&c=3'), seen = [];
        for (const [k] of p) { seen.push(k); if (k === 'a') { p.delete('b'); p.append('d', 4); } }
        p.forEach(function (v, k, self) { seen.push(k + v + (self === p) + this.t); }, { t: '!' });
        return seen;
    })()"""
    assert engine.json(source) == ["a", "c", "d", "a1true!", "c3true!", "d4true!"]


def test_url_runs_on_what_it_took_before_the_guest_broke_the_built_ins(fresh_engine: Engine) -> None:
    fresh_engine.eval("var expected = new URL('http://u:p@bücher.example:8/a/../é?x=1&y=%ff#f').href")
    fresh_engine.break_prototypes("Array", "String", "RegExp", "Map", "Uint8Array", "Function", "Number", "TextDecoder")
    fresh_engine.eval("Object.prototype.get = Object.prototype.value = 1; TextDecoder = String = RegExp = null")
    assert fresh_engine.eval("new URL('http://u:p@bücher.example:8/a/../é?x=1&y=%ff#f').href === expected") == "true"
    source = "var p = new URLSearchParams('b=2&a=1%20'); p.append('c', 'é'); p.sort(); p.set('b', '[]'); p + p.get('a') + p.has('z')"
    assert fresh_engine.eval(source) == "a=1+&b=%5B%5D&c=%C3%A91 false"
