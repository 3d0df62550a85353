"""All conversations of a run: their order, their files, and how a stopped run continues.

The folder of a run has `run.json` (the settings), `results.jsonl` (one line for each conversation that has ended) and
`transcripts/`. A conversation that was interrupted leaves no line, and is had again. The order is fixed: in each round
of repetitions, each task is done in all arms, and the first arm changes, so that no arm has the better hours.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.agents import page
from benchmarks.agents.arms import ARMS, connected, opened
from benchmarks.agents.conversation import SYSTEM, Limits, Outcome, converse
from benchmarks.agents.endpoint import Endpoint, EndpointError
from benchmarks.agents.prices import Prices
from benchmarks.agents.statistics import read_thresholds
from benchmarks.agents.task import Task
from benchmarks.agents.wire_forms import Settings, Usage, WireForm
from codemode_mcp import __version__


@dataclass(frozen=True)
class Budget:
    """Limits of a whole run; None is no limit.

    Attributes:
        money: in the currency of the prices, as billed. The conversation that exceeds it is finished first.
    """

    money: float | None = None
    minutes: float | None = None


class RunStopped(Exception):
    """A run that has ended before its last conversation; the text says why, and how it continues."""


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        base: address of the endpoint, without the path of its form.
        which: the servers that are connected, one of `CONNECTED`.
    """

    folder: Path
    tasks: Sequence[Task]
    form_name: str
    form: WireForm
    base: str
    settings: Settings
    repetitions: int
    limits: Limits
    arms: Sequence[str] = ARMS
    which: str = "needed"

    def described(self) -> dict[str, Any]:
        """Return the settings that must be the same when the run continues."""
        return {
            "codemode_mcp": __version__,
            "thresholds": read_thresholds().digest,
            "tasks": page.sources(),
            "names": [task.name for task in self.tasks],
            "arms": list(self.arms),
            "connected": self.which,
            "form": self.form_name,
            "endpoint": self.base,
            "settings": asdict(self.settings),
            "repetitions": self.repetitions,
            "limits": asdict(self.limits),
            "system": SYSTEM,
        }

    def conversations(self) -> Iterator[tuple[Task, str, int]]:
        """Yield all conversations in their order."""
        for repetition in range(self.repetitions):
            for number, task in enumerate(self.tasks):
                first = (number + repetition) % len(self.arms)
                for arm in (*self.arms[first:], *self.arms[:first]):
                    yield task, arm, repetition


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results so far. The end of a line that was not written whole is dropped from the file."""
    path = folder / "results.jsonl"
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]


def write_settings(plan: Plan) -> None:
    """Write the settings of a new run, or compare them with those of a run that continues.

    Raises:
        RunStopped: the run in this folder has other settings.
    """
    path, described = plan.folder / "run.json", plan.described()
    if path.exists():
        known = json.loads(path.read_text("utf-8"))["plan"]
        if other := sorted(name for name in described if known.get(name) != json.loads(json.dumps(described[name]))):
            raise RunStopped(f"{path} has another value of {', '.join(other)}. Name another folder with --out.")
        return
    (plan.folder / "transcripts").mkdir(parents=True, exist_ok=True)
    facts = {"began": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "python": platform.python_version()}
    path.write_text(json.dumps({"plan": described, **facts}, indent=1) + "\n", "utf-8")


async def run(
    plan: Plan, endpoint: Endpoint, prices: Prices | None, budget: Budget, progress: Callable[[str], None]
) -> None:
    """Have all conversations that have not ended yet.

    Raises:
        RunStopped: a limit of the budget is reached, or the endpoint fails.
    """
    write_settings(plan)
    done = read_results(plan.folder)
    known = {(each["task"], each["arm"], each["repetition"]) for each in done}
    spent = sum(prices.billed(Usage(**each["usage"])) for each in done) if prices else 0.0
    began = time.monotonic()
    todo = [each for each in plan.conversations() if (each[0].name, each[1], each[2]) not in known]
    for number, (task, arm, repetition) in enumerate(todo, 1):
        if budget.money is not None and spent >= budget.money:
            raise RunStopped(f"{spent:.2f} is spent, the limit is {budget.money:.2f}. {_again(todo, number)}")
        if budget.minutes is not None and time.monotonic() - began >= budget.minutes * 60:
            raise RunStopped(f"{budget.minutes:g} minutes are over. {_again(todo, number)}")
        try:
            outcome = await _one(plan, endpoint, task, arm, repetition)
        except EndpointError as error:
            raise RunStopped(f"{error}\n{_again(todo, number)}") from error
        spent += prices.billed(outcome.usage) if prices else 0.0
        progress(
            f"{number}/{len(todo)} {task.name} {arm} {repetition}: {outcome.grade} {outcome.detail[:100]}".rstrip()
        )


def _again(todo: Sequence[Any], number: int) -> str:
    return f"{len(todo) - number + 1} conversations are left; the same command continues."


async def _one(plan: Plan, endpoint: Endpoint, task: Task, arm: str, repetition: int) -> Outcome:
    settings = plan.settings
    if settings.seed is not None:
        settings = Settings(**{**asdict(settings), "seed": settings.seed + repetition})
    name = f"{task.name}.{arm}.{repetition}.jsonl"
    failure: EndpointError | None = None
    outcome = Outcome()
    with (
        tempfile.TemporaryDirectory() as folder,
        (plan.folder / "transcripts" / name).open("w", encoding="utf-8") as transcript,
    ):

        def note(entry: dict[str, Any]) -> None:
            transcript.write(endpoint.masked(json.dumps(entry, ensure_ascii=False)) + "\n")

        async with opened(arm, connected(task.servers, plan.which), Path(folder)) as box:
            try:
                outcome = await converse(task, box, endpoint, plan.form, settings, plan.limits, note)
            except EndpointError as error:  # raised outside of the groups of tasks that the servers run in
                failure = error
        note(
            {"kind": "end", "grade": outcome.grade or "endpoint failed", "detail": outcome.detail or str(failure or "")}
        )
    if failure is not None:
        raise failure
    entry = {"task": task.name, "arm": arm, "repetition": repetition, "servers": len(task.servers), **asdict(outcome)}
    with (plan.folder / "results.jsonl").open("a", encoding="utf-8") as results:
        results.write(endpoint.masked(json.dumps(entry, ensure_ascii=False)) + "\n")
        results.flush()
        os.fsync(results.fileno())
    return outcome
