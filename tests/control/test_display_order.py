"""Arguments that a person decides about are displayed in the order in which they are sent."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from typing import Any

import pytest

from codemode_mcp.base.display import plain, wrapped
from codemode_mcp.base.json_text import json_text
from codemode_mcp.rules.policy.approval import ApprovalRequest, ask_for, visible
from codemode_mcp.rules.policy.rules import Effects
from tests.bidi import displayed

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
    for _ in range(2000):
        arguments = {name: generated(rng) for name in ("a", "".join(rng.choices(PARTS, k=3)))}
        tool = "mcp:s:" + "".join(rng.choices(PARTS, k=4))
        effects = Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        request = ApprovalRequest(1, tool, "MCP.s.t", arguments, effects, "rule " + "".join(rng.choices(PARTS, k=3)))
        question, _ = ask_for([request])
        raw = json_text(arguments)
        moved += displayed(raw) != raw
        for line in question.message.split("\n"):
            assert displayed(line) == line
        for line in wrapped(raw, 80, "  │ "):
            assert displayed(line) == line
        name = plain(f"call 1: {tool}")
        assert displayed(name) == name
    assert moved > 1000, "the arguments have nothing in them that a display reorders"


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
