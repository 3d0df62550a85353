"""A bounded share of the fuzzing, for every build; `python -m tests.faults fuzz` resumes from there."""

from __future__ import annotations

from collections import Counter

import pytest

from codemode_mcp.sandbox.engine import Engine
from tests.faults.fuzz.cases import Case, case
from tests.faults.fuzz.levels import Play, open_level, run_case
from tests.faults.fuzz.mutation import CORPUS, SEEDS, mutate, typescript_seeds
from tests.faults.fuzz.run import Summary
from tests.values import replace

ENGINE_CHUNK = 100
DRIVER_CASES = range(2000, 2030)
SERVE_CASES = range(3000, 3020)


def finding(level: str, each: Case, play: Play) -> str:
    """Return what a failure says: the program, what is wrong and how to see it again; empty when nothing is."""
    problems = [*play.violations, *(f"a trap: {trap}" for trap in play.traps)]
    again = f"python -m tests.faults fuzz --level {level} --seed {each.seed} --cases 1"
    return "\n".join([*problems, again, each.source]) if problems else ""


async def run_all(level: str, engine: Engine, seeds: range) -> None:
    async with open_level(level, engine) as opened:
        for seed in seeds:
            each = case(seed)
            assert not finding(level, each, await opened.run_case(each))
        assert await opened.canary() == []


@pytest.mark.anyio
@pytest.mark.parametrize("first", range(1000, 1400, ENGINE_CHUNK))
async def test_every_program_ends_as_documented_in_a_bare_guest(engine: Engine, first: int) -> None:
    await run_all("engine", engine, range(first, first + ENGINE_CHUNK))


@pytest.mark.anyio
async def test_every_program_ends_as_documented_in_the_manager(engine: Engine) -> None:
    await run_all("driver", engine, DRIVER_CASES)


@pytest.mark.anyio
async def test_every_program_ends_as_documented_in_the_server(engine: Engine) -> None:
    await run_all("serve", engine, SERVE_CASES)


def test_most_programs_are_no_syntax_errors_and_many_do_something(engine: Engine) -> None:
    ends = Counter(
        engine.threads.submit(run_case, engine, each).result().ended
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
    play = engine.threads.submit(run_case, engine, wrong).result()
    assert [violation[:8] for violation in play.violations] == ["ended as"]


def test_a_finding_names_its_seed_its_program_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("engine", 1)
    summary.broken(5, "the process ended with -11")
    told = capsys.readouterr().out
    assert "the process ended with -11" in told
    assert "python -m tests.faults fuzz --level engine --seed 5 --cases 1" in told
    assert case(5).source.splitlines()[0] in told
    assert summary.violations == [5]


@pytest.mark.parametrize("name", [path.name for path in sorted(SEEDS.glob("*.js"))])
def test_every_program_to_start_from_runs(engine: Engine, name: str) -> None:
    source = (SEEDS / name).read_text("utf-8")
    each = Case(seed=1, kind="mutation", source=source, memory_limit=64 * 2**20, seconds=20.0, repeatable=False)
    play = engine.threads.submit(run_case, engine, each).result()
    assert play.violations == []
    assert play.ended != "invalid_input", play.message


def test_programs_with_types_are_taken_where_they_are() -> None:
    if not CORPUS.is_file():
        pytest.skip("the corpus of TypeScript cells is not beside the repository")
    assert len(typescript_seeds()) > 10
    random = case(0).random("types")
    assert mutate(random, typescript_seeds()[0])
