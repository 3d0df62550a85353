"""The generated parts of docs/evidence.md. Pure, but for reading and writing the page and the figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agents.arms import ARMS, ROOT
from benchmarks.agents.offline import Cost, from_json, to_json
from benchmarks.agents.task import Task

PAGE = ROOT / "docs" / "evidence.md"
FIGURES = Path(__file__).parent / "figures.json"
UPDATE = "python -m benchmarks.agents offline --update"

Costs = dict[str, dict[str, Cost]]


def once(cost: Cost) -> int:
    """Return the bytes into and out of the context, each once."""
    return cost.into + cost.written


def least(arms: dict[str, Cost], *, all_steps: bool) -> str:
    """Return the arm with the fewest bytes."""
    return min(ARMS, key=lambda arm: arms[arm].read if all_steps else once(arms[arm]))


def summary(tasks: Sequence[Task], costs: Costs) -> str:
    """Return the table of sums by number of servers."""
    lines = [
        "| servers | tasks | bytes read in all steps: direct | search | code | fewest in: direct | search | code |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for count in (1, 2, 3, 4, 5, None):
        chosen = [costs[task.name] for task in tasks if count in (None, len(task.servers))]
        if not chosen:
            continue
        sums = [sum(arms[arm].read for arms in chosen) for arm in ARMS]
        first = [least(arms, all_steps=True) for arms in chosen]
        cells = [str(count or "all"), str(len(chosen)), *(f"{each:,}" for each in sums)]
        lines.append(f"| {' | '.join([*cells, *(str(first.count(arm)) for arm in ARMS)])} |")
    return "\n".join(lines)


def by_task(tasks: Sequence[Task], costs: Costs) -> str:
    """Return the table of all tasks: bytes into and out of the context, and steps."""
    lines = [
        "| task | servers | direct: in / out / steps | search | code | fewest, each once | fewest, all steps |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for task in tasks:
        arms = costs[task.name]
        cells = [f"{arms[arm].into:,} / {arms[arm].written:,} / {arms[arm].steps}" for arm in ARMS]
        both = [least(arms, all_steps=each) for each in (False, True)]
        first = [f"**{each}**" if each != "code" else each for each in both]
        lines.append(f"| {' | '.join((task.name, str(len(task.servers)), *cells, *first))} |")
    return "\n".join(lines)


def filled(text: str, tasks: Sequence[Task], costs: Costs) -> str:
    """Return a page with its generated parts."""
    for name, part in (("summary", summary(tasks, costs)), ("tasks", by_task(tasks, costs))):
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
        text, count = pattern.subn(lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text)
        if count != 1:
            raise ValueError(f"{PAGE.name} has no part {name!r}")
    return text


def sources() -> str:
    """Return a digest of the tasks and their servers: figures are of one state of them."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("tasks/*.py"), *folder.glob("worlds/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in files)).hexdigest()[:16]


def read_figures() -> tuple[str, Costs]:
    """Return the digest of the sources that were measured, and the figures."""
    data = json.loads(FIGURES.read_text("utf-8"))
    return data["sources"], from_json(data["costs"])


def write(tasks: Sequence[Task], costs: Costs) -> None:
    """Write the figures of all tasks, and the page with them."""
    lines = [f"{json.dumps(name)}: {json.dumps(arms)}" for name, arms in to_json(costs).items()]
    text = f'{{"sources": "{sources()}", "costs": {{\n' + ",\n".join(lines) + "\n}}\n"
    FIGURES.write_text(text, "utf-8")
    PAGE.write_text(filled(PAGE.read_text("utf-8"), tasks, costs), "utf-8")
