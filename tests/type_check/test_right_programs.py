"""The right programs run: none of them is in the set by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.type_check.sets import right_programs

if TYPE_CHECKING:
    from harness import Session

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("esbuild")
async def test_every_right_program_runs_to_its_end_and_shows_something(session: Session) -> None:
    failed = {}
    for program in right_programs():
        answer = await session.finish(await session.exec(program.code, language=program.language))
        if answer.status == "failed":
            failed[program.name] = answer.error
        elif answer.value is None and not answer.structured.get("output"):
            failed[program.name] = "it shows nothing"
    assert failed == {}
