"""Generated programs have the same values and outputs in Node and in a guest; this is a short run of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.differential.accepted import ACCEPTED
from tests.differential.comparison import FAMILIES, chosen, compare, generate
from tests.differential.sides import Guests, Node, Outcome, missing_node

PROGRAMS = 12
"""Programs of each family: a short run."""
SEED = 20

PAGE = Path(__file__).parents[2] / "docs" / "differences-from-node.md"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    if why := missing_node():
        pytest.skip(why)
    with Node() as running:
        yield running


@pytest.fixture(scope="module")
def guests(engine: Engine) -> Guests:
    return Guests(engine)


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_a_family_do_the_same_in_node_and_in_a_guest(
    family: str, node: Node, guests: Guests, request: pytest.FixtureRequest
) -> None:
    if generate(family, SEED, 0).language == "typescript":
        request.getfixturevalue("esbuild")
    if family.startswith("locale"):
        request.getfixturevalue("intl")
    found = compare(chosen([family], SEED, PROGRAMS), node, guests)
    assert [str(each) for each in found if each.reason is None] == []


def test_a_program_is_the_same_for_the_same_seed_and_number() -> None:
    for family in FAMILIES:
        assert generate(family, 1, 2) == generate(family, 1, 2)
        assert len({generate(family, 1, number).source for number in range(5)}) > 1


SIDES = {
    "a value": ("return [1, 'a', null]", [1, "a", None], None, ()),
    "no value": ("const a = 1;", None, None, ()),
    "output": ("console.log('a', 1); console.error('b\\nc'); return 2", 2, None, ("a 1", "b\nc")),
    "an error of its own": ("throw new Error('no')", None, "Error: no", ()),
    "an error of the engine": ("return undefined.x", None, "TypeError", ()),
    "a syntax error": ("return (", None, "SyntaxError", ()),
    "timers": ("return new Promise((r) => { setTimeout(r, 50, 'b'); setTimeout(r, 9, 'a') })", "a", None, ()),
    "an end that never comes": ("await new Promise(() => {})", None, "pending: ", ()),
}


@pytest.mark.parametrize(("source", "value", "error", "outputs"), SIDES.values(), ids=SIDES)
def test_both_sides_report_the_end_of_a_program_alike(
    source: str, value: object, error: str | None, outputs: tuple[str, ...], node: Node, guests: Guests
) -> None:
    expected = Outcome(value, error, outputs)
    [there] = node.run([source])
    assert (there, guests.run(source) if error != "SyntaxError" else expected) == (expected, expected)


# the page of accepted differences

ROWS = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| `")
]


def told(outcome: Outcome) -> str:
    """Return an outcome as a cell of the page."""
    shown = outcome.error or json.dumps(outcome.value, ensure_ascii=False).replace("\ud83d", "\\ud83d")
    return "`" + "; ".join((*outcome.outputs, *([] if shown == "null" and outcome.outputs else [shown]))) + "`"


@pytest.mark.parametrize(("program", "there", "here", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_a_program_of_the_page_does_what_the_page_says(
    program: str, there: str, here: str, why: str, node: Node, guests: Guests
) -> None:
    source = program.strip("`")
    [expected] = node.run([source])
    found = guests.run(source)
    assert (told(expected), told(found)) == (there, here)


def test_each_reason_for_which_a_difference_is_accepted_is_on_the_page() -> None:
    assert {each.reason for each in ACCEPTED} <= {why for *_, why in ROWS}
