"""A bounded share of the fuzzing, for every build; `python -m tests.fuzz.run` resumes from there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import driver_level, engine_level, serve_level
from tests.fuzz.cases import Case, case
from tests.fuzz.mutation import CORPUS, SEEDS, mutate, typescript_seeds
from tests.fuzz.run import Summary

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine
    from tests.fuzz.engine_level import Play

ENGINE_CHUNK = 100
DRIVER_CASES = range(2000, 2030)
SERVE_CASES = range(3000, 3020)


def finding(level: str, each: Case, play: Play) -> str:
    """Return what a failure says: the program, what is wrong and how to see it again; empty when nothing is."""
    problems = [*play.violations, *(f"a trap: {trap}" for trap in play.traps)]
    again = f"python -m tests.fuzz.run --level {level} --seed {each.seed} --cases 1"
    return "\n".join([*problems, again, each.source]) if problems else ""


@pytest.mark.parametrize("first", range(1000, 1400, ENGINE_CHUNK))
def test_every_program_ends_as_documented_in_a_bare_guest(engine: Engine, first: int) -> None:
    for seed in range(first, first + ENGINE_CHUNK):
        each = case(seed)
        play = engine.threads.submit(engine_level.run_case, engine, each).result()
        assert not finding("engine", each, play)
    assert engine.threads.submit(engine_level.canary, engine).result() == []


@pytest.mark.anyio
async def test_every_program_ends_as_documented_in_the_manager(engine: Engine) -> None:
    async with driver_level.subject(engine) as subject:
        for seed in DRIVER_CASES:
            each = case(seed)
            assert not finding("driver", each, await subject.run_case(each))
        assert await subject.canary() == []


@pytest.mark.anyio
async def test_every_program_ends_as_documented_in_the_server() -> None:
    async with serve_level.served() as client:
        for seed in SERVE_CASES:
            each = case(seed)
            assert not finding("serve", each, await client.run_case(each))
        assert await client.canary() == []


def test_most_programs_are_no_syntax_errors_and_many_do_something(engine: Engine) -> None:
    ends = Counter(
        engine.threads.submit(engine_level.run_case, engine, each).result().ended
        for each in map(case, range(500, 700))
        if each.kind != "known"
    )
    assert ends["invalid_input"] < 0.25 * ends.total()
    assert ends["completed"] > 0.3 * ends.total()


def test_a_seed_is_always_the_same_program() -> None:
    assert [case(seed) for seed in range(100)] == [case(seed) for seed in range(100)]
    assert len({case(seed).source for seed in range(100)}) > 90


def test_a_program_that_does_not_end_as_it_has_to_is_a_violation(engine: Engine) -> None:
    each = next(each for each in map(case, range(200)) if each.known is not None and each.known.codes == ("completed",))
    other = next(each for each in map(case, range(200)) if each.known is not None and each.known.codes == ("timeout",))
    wrong = replace(each, source=other.source, seconds=0.03)
    play = engine.threads.submit(engine_level.run_case, engine, wrong).result()
    assert [violation[:8] for violation in play.violations] == ["ended as"]


def test_a_finding_names_its_seed_its_program_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("engine", 1)
    summary.broken(5, "the process ended with -11")
    told = capsys.readouterr().out
    assert "the process ended with -11" in told
    assert "python -m tests.fuzz.run --level engine --seed 5 --cases 1" in told
    assert case(5).source.splitlines()[0] in told
    assert summary.violations == [5]


@pytest.mark.parametrize("name", [path.name for path in sorted(SEEDS.glob("*.js"))])
def test_every_program_to_start_from_runs(engine: Engine, name: str) -> None:
    source = (SEEDS / name).read_text("utf-8")
    each = Case(seed=1, kind="mutation", source=source, memory_limit=64 * 2**20, seconds=20.0, repeatable=False)
    play = engine.threads.submit(engine_level.run_case, engine, each).result()
    assert play.violations == []
    assert play.ended != "invalid_input", play.message


def test_programs_with_types_are_taken_where_they_are() -> None:
    if not CORPUS.is_file():
        pytest.skip("the corpus of TypeScript cells is not beside the repository")
    assert len(typescript_seeds()) > 10
    random = case(0).random("types")
    assert mutate(random, typescript_seeds()[0])
