"""Calls of saved programs that do not exist are refused before a program has side effects."""

from __future__ import annotations

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program.global_uses import check_programs
from codemode_mcp.program.preflight import inspect

NAMES = ("report", "weeklyTotals")


def check(source: str, names: tuple[str, ...] = NAMES) -> None:
    check_programs(inspect(source, "javascript").program_calls, names, "javascript")


@pytest.mark.parametrize(
    "source",
    [
        "await programs.report({})",
        'await programs["report"]({})',
        "if (programs.other) await programs.other()",
        "await programs.other?.()",
        "await programs?.other()",
        "try { await programs.other() } catch {}",
        "if ('other' in programs) await programs.other()",
        "for (const name of Object.keys(programs)) await programs.other()",
        "const programs = { other() {} }; programs.other()",
        "function f(programs) { return programs.other() }",
        "a.programs.other()",
        "programs[name]()",
        "'programs.other()'",
        "programs.toString()",
    ],
)
def test_what_may_be_right_is_not_refused(source: str) -> None:
    check(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\nawait programs.reprot({})", "programs.reprot does not exist (cell.js:2:7). Nearest: programs.report."),
        (
            "await programs.weekly_totals()",
            "programs.weekly_totals does not exist (cell.js:1:7). Nearest: programs.weeklyTotals.",
        ),
        (
            "await programs.xyz()",
            "programs.xyz does not exist (cell.js:1:7). Saved programs: report, weeklyTotals. "
            'Read API.list("programs/").',
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(source: str, message: str) -> None:
    with pytest.raises(ProgramError) as refused:
        check(source)
    assert refused.value.message == message


def test_without_saved_programs_the_message_says_so() -> None:
    with pytest.raises(ProgramError, match="There are no saved programs; call tools with MCP"):
        check("await programs.report()", ())


def test_at_most_five_names_are_reported() -> None:
    with pytest.raises(ProgramError) as refused:
        check("".join(f"programs.a{number}();" for number in range(9)))
    assert refused.value.message.count("\n") == 4
