"""Engine stacks in the author's lines."""

from __future__ import annotations

from codemode_mcp.program.inspection import Insertion, SourceMap
from codemode_mcp.program.positions import MAX_FRAMES, Positions
from codemode_mcp.sandbox.messages import Thrown

STACK = """\
    at f (<input>:4:9)
    at map (native)
    at anonymous (<input>:3:1)
    at apply (native)
    at runCell (prelude:1577:27)
"""


def thrown(stack: str, message: str = "") -> Thrown:
    return Thrown("TypeError", message, stack, engine=False, code=None)


def test_frames_are_the_authors_own() -> None:
    assert Positions("javascript", 5, "", None, None).frames(thrown(STACK)) == ["at f (cell.js:2:9)", "at cell.js:1:1"]


def test_frames_outside_the_text_are_not_the_authors() -> None:
    assert Positions("javascript", 1, "", None, None).frames(thrown(STACK)) == ["at cell.js:1:1"]


def test_a_position_goes_back_through_both_rewritings() -> None:
    # The third line of what was run, column 4, is the sixth of what it was made from, column 10, of which one is ours.
    made = SourceMap(";;GAKS", 9, 1, ())
    positions = Positions("typescript", 9, "", made, Insertion(5, 3, 4))
    assert positions.frames(thrown("    at g (<input>:5:4)")) == ["at g (cell.ts:5:6)"]


def test_endless_stacks_are_cut() -> None:
    assert (
        len(Positions("javascript", 9, "", None, None).frames(thrown("    at f (<input>:4:9)\n" * 100))) == MAX_FRAMES
    )


def test_an_error_is_described_with_its_frames() -> None:
    assert Positions("javascript", 5, "", None, None).describe(thrown(STACK, "not a function")) == (
        "TypeError: not a function\n    at f (cell.js:2:9)\n    at cell.js:1:1"
    )


def test_advice_goes_by_the_name_that_the_text_has_and_the_engine_does_not_tell() -> None:
    positions = Positions("javascript", 1, "return await tools.createIssue({})", None, None)
    said = positions.describe(thrown("    at <anonymous> (<input>:3:20)\n", "not a function"))
    assert said.startswith("TypeError: tools.createIssue is not a function (")
    assert "ALL_TOOLS" in said


def test_the_guest_gets_the_line_of_each_line_and_of_its_parts() -> None:
    # Two lines of TypeScript become one, the third stays, and the wrapper has no line.
    made = SourceMap(";AAAA,IACA;AACA", 3, 0, ())
    positions = Positions("typescript", 3, "w\né = 1;\nx", made, None)
    assert positions.guest_lines == "[0,[0,1,5,2],3]"
    assert Positions("javascript", 1, "x", None, None).guest_lines == "null"
