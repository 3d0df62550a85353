"""Notes for the reader of an answer: what the program has not handled, not checked and not seen. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.strict_json import json_text
from codemode_mcp.runs.rendering import RETURNED
from codemode_mcp.runs.verdicts import SEARCHED_IN_LOOP, Failed
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.run import Run
    from codemode_mcp.sandbox.messages import LeftOut, Thrown, TurnReport, UncheckedError


SHOWN_UNCHECKED = 3
"""Maximum number of unchecked results with `isError` that an answer lists."""

SHOWN_LEFT_OUT = 5
SHOWN_PARTS = 1000
"""Maximum number of tools of which an answer names what `unwrap` has left out, and of characters for each."""

SHOWN_UNREAD = 3
"""Maximum number of reads of absent members that an answer explains."""

MAX_HOLLOW = 1000
"""A text with more characters, and a value or output with more members, says something."""

SHOWN_TEXT = 300
"""Maximum characters that are shown of a result with `isError` that its program did not check."""

MAX_UNCHECKED = 32
"""Maximum number of results with `isError` that the guest remembers; see `30_bridge.js`."""

RESERVED_KEYS = "codemode-mcp "
"""Prefix of the keys under which this product itself stores values, such as those of `repl`."""


def program_notes(
    positions: Positions | None, tools: Mapping[int, str], catalog: Catalog, found: TurnReport | Failed
) -> tuple[str, ...]:
    """Return the notes about what a program has not handled, not checked, and not seen.

    Args:
        tools: the tools of the latest calls, by the number of the call.
        found: the last turn of the program, or the verdict on it.
    """
    notes = rejection_notes(positions, found.rejections) if found.rejections else ()
    return notes + unchecked_notes(tools, found.unchecked) + left_out_notes(catalog, found.left_out)


def rejection_notes(positions: Positions | None, rejections: Sequence[Thrown]) -> tuple[str, ...]:
    assert positions is not None
    short = len(positions.code) <= SEARCHED_IN_LOOP
    return tuple(
        f"Unhandled rejection: {positions.describe(each, search=short and number == 0)}"
        for number, each in enumerate(rejections)
    )


def unchecked_notes(tools: Mapping[int, str], unchecked: Sequence[UncheckedError]) -> tuple[str, ...]:
    """Return notes about results with `isError` that the program did not check.

    Args:
        tools: the tools of the latest calls, by the number of the call.
    """
    notes = []
    for each in unchecked[-SHOWN_UNCHECKED:]:
        text = f": {quoted_start(each.text, SHOWN_TEXT)}" if each.text else ""
        tool = escape_line(tools.get(each.call, f"call {each.call}"))
        notes.append(
            f"{tool} returned isError, and the program did not check it{text}. unwrap(result) throws on isError."
        )
    if len(unchecked) > SHOWN_UNCHECKED:
        least = "At least " if len(unchecked) >= MAX_UNCHECKED else ""
        notes.append(f"{least}{len(unchecked) - SHOWN_UNCHECKED} more results with isError were not checked.")
    return tuple(notes)


def error_text_note(path: str, text: str) -> str:
    """Return a note about a result that reads like an error without being one."""
    whose = f"{escape_line(path)} returned a text that reads like an error, without isError"
    return f"{whose}, so unwrap does not throw: {quoted_start(text, SHOWN_TEXT)}"


def left_out_notes(catalog: Catalog, left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    notes = []
    for each in left_out[:SHOWN_LEFT_OUT]:
        entry = catalog.get(each.tool)
        whose = escape_line(entry.path if entry is not None else each.tool or "a result")
        value = f"; its value is {escape_line(each.taken, SHOWN_PARTS)}" if each.taken else ""
        more = f"; {each.count - 1} more of its results had such parts" if each.count > 1 else ""
        notes.append(f"unwrap left out {escape_line(each.parts, SHOWN_PARTS)} of {whose}{value}{more}.")
    if len(left_out) > SHOWN_LEFT_OUT:
        notes.append(f"unwrap left out parts of the results of {len(left_out) - SHOWN_LEFT_OUT} more tools.")
    return tuple(notes)


def absent_value_notes(key: str | None) -> tuple[str, ...]:
    """Return a note that explains an empty result.

    Args:
        key: the latest key that the program has loaded without finding a value; None if there is none.
    """
    if key is None or key.startswith(RESERVED_KEYS):
        return ()
    return (f"load({json_text(key[:100])}) returned undefined: no value is stored under this key.",)


def unread_notes(positions: Positions | None, results: Sequence[Result], *, nothing: bool) -> tuple[str, ...]:
    """Return notes about reads of members that results of calls do not have, for a program without a result.

    Args:
        nothing: True if the program has neither a value nor output.
    """
    if positions is None or "MCP" not in positions.code:
        return ()
    from codemode_mcp.program.expression_values import unread_results  # imported late: few programs need it

    why = "The program returned undefined" if nothing else "The result may be empty for this reason"
    found = unread_results(positions.code, results)[:SHOWN_UNREAD]
    return tuple(f"{why}: {escape_line(each, SHOWN_PARTS)}." for each in found)


def needs_explanation(value: Any, outputs: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a program has ended with a value and outputs that say nothing, as those from undefined do."""
    left: list[Any] = [value, *outputs[:MAX_HOLLOW]]
    for number, each in enumerate(left):
        if number >= MAX_HOLLOW:
            return False
        match each:
            case {"type": "text", "text": str(text)} | str(text):
                if text and (len(text) > MAX_HOLLOW or _HOLLOW.search(text) is None):
                    return False
            case {"type": "json", "value": inner}:
                left.append(inner)
            case list():
                left += each[:MAX_HOLLOW]
            case dict():
                left += list(each.values())[:MAX_HOLLOW]
            case _ if each:
                return False
    return True


_HOLLOW: Final = re.compile(r"\b(?:undefined|null|NaN)\b")


def lost_value_notes(lost: str) -> tuple[str, ...]:
    """Return a note about a part of a value that JSON has no form for. `lost`: as in `TurnReport`."""
    if not lost:
        return ()
    if " is " not in lost:
        return (f"{RETURNED} {escape_line(lost)}, which JSON has no form for; the value is null.",)
    place, _, what = escape_line(lost).rpartition(" is ")
    return (f"{place} is {what} in the program. JSON has no form for that, so it is null here, as others may be.",)


_FOR_EACH: Final = re.compile(r"\.forEach\(\s*async\b")


def how_to_await(run: Run) -> str:
    if run.positions is not None and _FOR_EACH.search(run.positions.code):
        return "forEach does not wait for async functions: write `for (const x of list)` with await inside"
    return "await such calls"


def quoted_start(text: str, limit: int) -> str:
    """Return the start of a server's text in quotation marks, with hidden characters escaped."""
    quoted = json_text(text if len(text) <= limit else text[:limit] + "...")
    return escape_line(quoted, len(quoted))
