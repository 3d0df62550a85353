"""The share of mistakes that are named, and right programs, which get no note."""

from __future__ import annotations

import pytest

from tests.extensions.type_check.checks import installed_compiler
from tests.extensions.type_check.score import table, verdicts
from tests.extensions.type_check.sets import KINDS, blind_programs, blind_right_programs, right_programs, wrong_programs
from tests.integration.harness import Session

pytestmark = pytest.mark.anyio


def test_every_wrong_program_has_a_kind_and_a_line() -> None:
    programs = [*wrong_programs(), *blind_programs()]
    assert {each.kind for each in programs} == set(KINDS)
    for each in programs:
        assert each.lines, each.name
        assert max(each.lines) <= each.code.count("\n") + 1, each.name


async def test_nine_of_ten_mistakes_are_named(session: Session) -> None:
    installed_compiler()
    own = await verdicts(session, wrong_programs())
    blind = await verdicts(session, blind_programs())
    every = [*own, *blind]
    assert sum(each.found for each in every) >= 0.9 * len(every), table(own, blind)


@pytest.mark.usefixtures("esbuild")
async def test_every_right_program_runs_to_its_end_and_shows_something(session: Session) -> None:
    failed = {}
    for each in right_programs():
        answer = await session.exec(each.code, language=each.language)
        answer = await session.finish(answer)
        notes = [note for note in answer.structured.get("notes", ()) if note.startswith("The type check")]
        if notes:
            failed[each.name] = notes[0]
        elif answer.status == "failed":
            failed[each.name] = answer.error
        elif answer.value is None and not answer.structured.get("output"):
            failed[each.name] = "it shows nothing"
    assert failed == {}


@pytest.mark.usefixtures("esbuild")
async def test_no_right_program_of_another_person_gets_a_note(session: Session) -> None:
    noted = {each.program.name: each.message for each in await verdicts(session, blind_right_programs()) if each.lines}
    assert noted == {}
