"""Figures of the type check over all wrong and right programs: `python -m tests.extensions.type_check.score`.

Programs go through `exec` of a real server with `codeMode.check: "note"`. A mistake is found if the note of the type
check, or the refusal of a program that was not run, names a line that is wrong. The right programs are those of `right`
and of `tests/programs`. The latter use the servers of the quick start.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from mcp_types import ElicitResult

from tests.extensions.type_check.sets import (
    KINDS,
    RightProgram,
    WrongProgram,
    blind_programs,
    blind_right_programs,
    older_programs,
    right_programs,
    wrong_programs,
)
from tests.extensions.type_check.tool_lists import SERVERS
from tests.integration.harness import Answer, Session, quickstart, serve, write_config

FAKE_SERVER: Final = Path(__file__).with_name("fake_server.py")

_POSITION: Final = re.compile(r"cell\.[jt]s:(\d+):\d+")


@dataclass(frozen=True)
class Verdict:
    """The answer to one program.

    Attributes:
        lines: the lines that the note or the refusal names.
        message: the words of the note, or of a failure; empty if there was none.
    """

    program: RightProgram | WrongProgram
    lines: frozenset[int]
    message: str

    @property
    def found(self) -> bool:
        """True if a line on which the program is wrong is named."""
        return not self.lines.isdisjoint(getattr(self.program, "lines", ()))


def fake_servers() -> dict[str, Any]:
    """Return the entries of the servers for a configuration."""
    return {name: {"command": sys.executable, "args": [str(FAKE_SERVER), name]} for name in SERVERS}


async def verdicts(session: Session, programs: Iterable[RightProgram | WrongProgram]) -> list[Verdict]:
    """Run programs one after the other, until their first answers: some wait for what never comes."""
    return [_verdict(each, await session.exec(each.code, language=each.language)) for each in programs]


def _verdict(program: RightProgram | WrongProgram, answer: Answer) -> Verdict:
    named = next((note for note in answer.structured.get("notes", ()) if note.startswith("The type check")), "")
    failure = answer.error if answer.status == "failed" else ""
    if failure and answer.code == "invalid_input" and answer.telemetry["counts"]["call"] == 0:
        named = failure
    return Verdict(program, frozenset(int(line) for line in _POSITION.findall(named)), named or failure)


def table(own: Sequence[Verdict], blind: Sequence[Verdict]) -> str:
    """Return the number of mistakes that are found, by kind, as lines."""
    rows = [("kind", "own", "blind")]
    rows += [(kind, _share(own, kind), _share(blind, kind)) for kind in KINDS]
    rows.append(("all", _share(own), _share(blind)))
    return "\n".join(f"{kind:20} {of_own:>8} {of_blind:>8}" for kind, of_own, of_blind in rows)


def _kind(verdict: Verdict) -> str:
    return getattr(verdict.program, "kind", "")


def _share(some: Sequence[Verdict], kind: str | None = None) -> str:
    some = [each for each in some if kind in (None, _kind(each))]
    return f"{sum(each.found for each in some)}/{len(some)}" if some else "-"


async def decline(context: object, params: object) -> ElicitResult:
    """Decline a question: with this, clients can be asked, and programs have `tools.elicit`."""
    return ElicitResult(action="decline")


async def _run(servers: dict[str, Any], *sets: Sequence[RightProgram | WrongProgram]) -> list[list[Verdict]]:
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder), servers, codeMode={"check": "note"})
        async with serve(config, elicitation_callback=decline) as session:
            return [await verdicts(session, programs) for programs in sets]


async def _print_score() -> None:
    right = [*right_programs(), *blind_right_programs()]
    own, blind, of_fakes = await _run(fake_servers(), wrong_programs(), blind_programs(), right)
    [of_quickstart] = await _run({**quickstart(), "scratch": quickstart()["tracker"]}, older_programs())
    right_verdicts = of_fakes + of_quickstart
    print(table(own, blind))
    for each in (*own, *blind):
        if not each.found:
            print(f"\nnot found: {_kind(each)}: {each.program.name} ({each.program.language})\n  {each.message}")
    noted = [each for each in right_verdicts if each.lines]
    print(f"\nright programs with a note or a refusal: {len(noted)} of {len(right_verdicts)}")
    for each in noted:
        print(f"  {each.program.name} ({each.program.language}): {each.message}")
    others = [each for each in right_verdicts if each.message and not each.lines]
    print(f"right programs that fail otherwise: {len(others)}")
    for each in others:
        print(f"  {each.program.name} ({each.program.language}): {each.message}")


if __name__ == "__main__":
    anyio.run(_print_score)
