"""No text of a program moves a cursor, hides, or begins its own line on a terminal."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from typing import Any

import pytest

from codemode_mcp.base.display import columns, cut, exact, plain, wrapped
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.cli.saved_lookup import difference_lines, text_lines
from codemode_mcp.cli.serving_processes import approval_lines
from codemode_mcp.extensions.page.site import lines as page_lines
from codemode_mcp.extensions.page.site import pretty
from codemode_mcp.rules.policy.approval import ApprovalRequest, ask_for, visible
from codemode_mcp.rules.policy.rule_patterns import Effects
from codemode_mcp.server.control.protocol import digest_of
from tests.bidi import displayed
from tests.properties import examples


def test_text_that_prints_as_itself_is_left_alone() -> None:
    for text in ("mcp:github:create_issue", "Größe 12 µm", "漢字かな交じり文", "हिन्दी", "naïve 😀"):
        assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nb\tc", r"a\x0d\x0ab\x09c"),
        ("evil\u202egpj.exe", r"evil\u202egpj.exe"),
        ("zero\u200bwidth\u2060\ufeff", r"zero\u200bwidth\u2060\ufeff"),
        ("line\u2028para\u2029next\x85", r"line\u2028para\u2029next\x85"),
        ("blank\u3164\u2800\u00a0", r"blank\u3164\u2800\xa0"),
        ("two\ufe0f\u180b\U000e0100", r"two\ufe0f\u180b\u{e0100}"),
        ("\ud800 half", r"\ud800 half"),
        ("tag\U000e0041", r"tag\u{e0041}"),
        ("\u0301first", r"\u0301first"),
    ],
)
def test_what_does_not_print_as_itself_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_marks_are_not_piled_up_over_other_lines() -> None:
    assert plain("e" + "\u0301" * 20).count("\u0301") == 2


def test_no_character_at_all_gets_through_that_a_terminal_acts_on() -> None:
    every = "".join(f"a{chr(number)}" for number in range(sys.maxunicode + 1))
    for char in set(plain(every)):
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), hex(ord(char))


def test_a_line_that_is_too_wide_continues_behind_the_margin() -> None:
    text = "x" * 30 + " " * 50 + "approve everything? " + "漢" * 40
    lines = list(wrapped(text, 40, "  │ "))
    assert all(line.startswith("  │ ") for line in lines)
    assert all(columns(line) < 40 for line in lines)
    assert "".join(line.removeprefix("  │ ") for line in lines) == text


def test_every_line_of_a_text_is_behind_the_margin_whatever_separates_them() -> None:
    lines = list(wrapped("one\ntwo\rthree\u2028four\x85five\x0bsix", 80, "> "))
    assert lines == ["> one", r"> two\x0dthree\u2028four\x85five\x0bsix"]


def test_a_terminal_without_room_still_gets_lines_that_end() -> None:
    assert list(wrapped("漢" * 9, 1, "  "))
    assert list(wrapped("", 80, "  ")) == ["  "]


def test_what_is_cut_has_a_mark() -> None:
    assert cut("a" * 10, 10) == "a" * 10
    assert cut("a" * 11, 10) == "a" * 9 + "…"
    assert len(cut("\x1b" * 100_000, 10)) == 10


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://\u0430pple.com/mcp", "https://xn--pple-43d.com/mcp"),
        ("https://b\u00fccher.example:8443/", "https://xn--bcher-kva.example:8443/"),
        ("https://a.example\u3002evil.example/", r"https://a.example\u3002evil.example/"),
        ("https://" + "\u0430" * 64 + ".example/", "https://" + r"\u0430" * 64 + ".example/"),
        ("npx p\u0430ckage@1.0.0", r"npx p\u0430ckage@1.0.0"),
        ("npx \u2010\u2010registry=\u0445.example", r"npx \u2010\u2010registry=\u0445.example"),
        ("npx \u0441\u0443\u0440\u0435\u0440", r"npx \u0441\u0443\u0440\u0435\u0440"),
        ("a" + " " * 5000 + "--eval", r"a \x20{4998} --eval"),
        ("a" + "\u2003" * 20, "a" + r"\u2003" * 20),
        *[("/home/J\u00fcrgen/\u30b5\u30fc\u30d0.py /\u0434\u043e\u043c/x",) * 2],
    ],
)
def test_commands_and_addresses_are_shown_as_programs_read_them(text: str, shown: str) -> None:
    assert exact(text) == shown


def test_blanks_and_look_alikes_in_what_a_person_decides_about_are_shown() -> None:
    url = "https://\u0430pple.com/" + " " * 4000 + "?all=true"
    arguments = json.dumps({"url": url})
    call = {"call": 1, "tool": "t", "path": "MCP.s.t", "reason": "a rule", "effects": {}}
    call |= {"arguments": arguments, "characters": len(arguments), "digest": digest_of(arguments)}
    program = f"a();{' ' * 4000}b('https://\u0430pple.com');\n"
    for shown in (
        "".join(approval_lines([call], 80)),
        pretty(arguments, to_decide=True),
        "".join(text_lines(program)),
        "".join(difference_lines("", program)),
        page_lines(program, to_decide=True),
    ):
        assert r"\x20{3998}" in shown
        assert r"https://\u0430pple.com" in shown


# Arguments that a person decides about are displayed in the order in which they are sent.

DANA, GIL = "\u05d3\u05e0\u05d4", "\u05d2\u05d9\u05dc"
ALI, NUMBER = "\u0639\u0644\u064a", "\u0661\u0662"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("car 12", "car 12"),
        (f"{DANA} 12", f"12 {DANA[::-1]}"),
        (f'["{DANA}",90,10,"{GIL}"]', f'["{GIL[::-1]}",90,10,"{DANA[::-1]}"]'),
        (f"a {ALI} {NUMBER} b", f"a {NUMBER} {ALI[::-1]} b"),
    ],
    ids=["Latin", "Hebrew and a number", "the shares of an approval", "Arabic and its digits"],
)
def test_the_reference_reorders_as_displays_do(line: str, seen: str) -> None:
    assert displayed(line) == seen


PARTS = (
    *("a", "Z", "7", "90", " ", ",", ":", "/", "..", "(", "]", "-", "+", "%", "$", ".", "\u20ac", "\u4e2d", "\u0301"),
    *("\u05d0", "\u05ea", "\u0627", "\u064a", "\u0661", "\u06f1", "\u0710", "\u07c1", "\u0840", "\ufb4f", "\ufdfa"),
    *("\U00010800", "\U0001e900", "\U0001ee00", "\u200f", "\u202e", "\u2067", "\u061c", "\u0600", "\u2212"),
)


def generated(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 2 or kind < 0.5:
        return "".join(rng.choices(PARTS, k=rng.randrange(1, 12)))
    if kind < 0.7:
        return rng.choice([90, 10, -1, 3.5, True, None, 1e21])
    if kind < 0.85:
        return [generated(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {"".join(rng.choices(PARTS, k=3)): generated(rng, depth + 1) for _ in range(rng.randrange(4))}


def test_nothing_in_arguments_changes_the_order_in_which_an_approval_is_displayed() -> None:
    rng, moved = random.Random(9), 0
    for _ in range(examples(500)):
        arguments = {name: generated(rng) for name in ("a", "".join(rng.choices(PARTS, k=3)))}
        tool, why = "".join(rng.choices(PARTS, k=4)), "".join(rng.choices(PARTS, k=3))
        effects = Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        request = ApprovalRequest(1, f"mcp:s:{tool}", "MCP.s.t", arguments, effects, f"rule {why}")
        question, _ = ask_for([request])
        raw = json_text(arguments)
        moved += displayed(raw) != raw
        for line in (*question.message.split("\n"), *wrapped(raw, 80, "  │ "), plain(f"call 1: {tool}")):
            assert displayed(line) == line
    assert moved > examples(500) / 2, "the arguments have nothing in them that a display reorders"


def test_an_approval_shows_what_can_be_read_back() -> None:
    rng = random.Random(10)
    for _ in range(500):
        value = generated(rng)
        assert json.loads(visible(json_text(value))) == json.loads(json_text(value))


def test_no_character_that_has_text_reordered_is_shown() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.bidirectional(character) in ("R", "AL", "AN"):
            assert visible(character).isascii()
            assert plain(character).isascii()


def test_text_that_no_decision_rests_on_keeps_its_letters() -> None:
    assert plain(f"{DANA} {ALI}", right_to_left=True) == f"{DANA} {ALI}"
