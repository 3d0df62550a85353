"""The generated parts of docs/evidence.md. Pure, but for reading and writing the page and the figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.agents.arms import ARMS, CONNECTED, ROOT
from benchmarks.agents.offline import Cost, from_json, to_json
from benchmarks.agents.task import Task

PAGE = ROOT / "docs" / "evidence.md"
FIGURES = Path(__file__).parent / "figures.json"
UPDATE = "python -m benchmarks.agents offline --update"

Costs = dict[str, dict[str, Cost]]
Measure = Callable[[Cost], float]
Figures = dict[str, Costs]
"""Costs with the servers that a task needs, and with all servers, as `CONNECTED` names them."""


WRITTEN_TO_CACHE, FROM_CACHE, OUTPUT = 1.25, 0.1, 5.0
"""Assumed prices of a byte, compared with a byte of input. A page with other assumptions has other winners."""


def read(cost: Cost) -> float:
    return cost.read


def weighed(cost: Cost) -> float:
    """Return the bytes by their price with a cache: each is put there once, and read from there by all later steps."""
    once = cost.into + cost.written
    return WRITTEN_TO_CACHE * once + FROM_CACHE * (cost.read - once) + OUTPUT * cost.written


def least(arms: dict[str, Cost], measure: Measure) -> str:
    """Return the arm in which a measure is the smallest."""
    return min(ARMS, key=lambda arm: measure(arms[arm]))


def summary(tasks: Sequence[Task], costs: Costs, measure: Measure) -> str:
    """Return the table of sums of a measure by number of servers."""
    lines = [
        "| servers | tasks | sum: direct | search | code | tasks with the least: direct | search | code |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for count in (*sorted({len(task.servers) for task in tasks}), None):
        chosen = [costs[task.name] for task in tasks if count in (None, len(task.servers))]
        sums = [sum(measure(arms[arm]) for arms in chosen) for arm in ARMS]
        first = [least(arms, measure) for arms in chosen]
        cells = [str(count or "all"), str(len(chosen)), *(f"{each:,.0f}" for each in sums)]
        lines.append(f"| {' | '.join([*cells, *(str(first.count(arm)) for arm in ARMS)])} |")
    return "\n".join(lines)


def by_task(tasks: Sequence[Task], costs: Costs) -> str:
    """Return the table of all tasks: bytes into and out of the context, and steps."""
    lines = [
        "| task | servers | direct: in / out / steps | search | code | least read | least weighed |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for task in tasks:
        arms = costs[task.name]
        cells = [f"{arms[arm].into:,} / {arms[arm].written:,} / {arms[arm].steps}" for arm in ARMS]
        first = [least(arms, measure) for measure in (read, weighed)]
        marked = [f"**{each}**" if each != "code" else each for each in first]
        lines.append(f"| {' | '.join((task.name, str(len(task.servers)), *cells, *marked))} |")
    return "\n".join(lines)


def filled(text: str, tasks: Sequence[Task], figures: Figures) -> str:
    """Return a page with its generated parts."""
    parts = {
        "read": summary(tasks, figures["needed"], read),
        "weighed": summary(tasks, figures["needed"], weighed),
        "tasks": by_task(tasks, figures["needed"]),
        "read with all servers": summary(tasks, figures["all"], read),
        "weighed with all servers": summary(tasks, figures["all"], weighed),
    }
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
        text, count = pattern.subn(lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text)
        if count != 1:
            raise ValueError(f"{PAGE.name} has no part {name!r}")
    return text


def sources() -> str:
    """Return a digest of the tasks and their servers: figures are of one state of them."""
    folder = Path(__file__).parent
    files = [folder / "tasks.json", *sorted(path for path in folder.glob("worlds/*") if path.is_file())]
    return hashlib.sha256(b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in files)).hexdigest()[:16]


def read_figures() -> tuple[str, Figures]:
    """Return the digest of the sources that were measured, and the figures."""
    data = json.loads(FIGURES.read_text("utf-8"))
    return data["sources"], {which: from_json(data[which]) for which in CONNECTED}


def write(tasks: Sequence[Task], figures: Figures) -> None:
    """Write the figures of all tasks, and the page with them."""
    text = f'{{"sources": "{sources()}"'
    for which in CONNECTED:
        lines = [f"{json.dumps(name)}: {json.dumps(arms)}" for name, arms in to_json(figures[which]).items()]
        text += f',\n"{which}": {{\n' + ",\n".join(lines) + "\n}"
    FIGURES.write_text(text + "}\n", "utf-8")
    PAGE.write_text(filled(PAGE.read_text("utf-8"), tasks, figures), "utf-8")


def differing(known: Figures, found: Figures) -> list[str]:
    """Return the tasks whose figures are not those that are known."""
    return [
        f"{task} ({which} servers, {arm}): {cost}, not {known[which].get(task, {}).get(arm)}"
        for which, costs in found.items()
        for task, arms in costs.items()
        for arm, cost in arms.items()
        if known[which].get(task, {}).get(arm) != cost
    ]
