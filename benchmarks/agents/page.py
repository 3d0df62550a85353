"""The generated parts of docs/evidence.md. Pure, but for reading and writing the page and the figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agents.arms import ARMS, CONNECTED, ROOT
from benchmarks.agents.offline import Cost, from_json, to_json
from benchmarks.agents.task import Task

PAGE = ROOT / "docs" / "evidence.md"
FIGURES = Path(__file__).parent / "figures.json"
UPDATE = "python -m benchmarks.agents offline --update"

Costs = dict[str, dict[str, Cost]]
Figures = dict[str, Costs]
"""Costs with the servers that a task needs, and with all servers, as `CONNECTED` names them."""


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


def filled(text: str, tasks: Sequence[Task], figures: Figures) -> str:
    """Return a page with its generated parts."""
    parts = {
        "summary": summary(tasks, figures["needed"]),
        "tasks": by_task(tasks, figures["needed"]),
        "all servers": summary(tasks, figures["all"]),
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
    files = sorted([*folder.glob("tasks/*.py"), *folder.glob("worlds/*.py")])
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
