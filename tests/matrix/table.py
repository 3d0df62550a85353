"""The table of all features and servers: `python -m tests.matrix.table [--update] [SERVER...]`.

It prints what is lost, and the table, which `--update` writes into `docs/matrix.md`. Servers of one group are behind us
together, as servers of a user are. Servers with the same resources are in groups of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.paths import cache_dir
from codemode_mcp.sandbox.compiled import compiled_path
from tests.integration.harness import COMMAND, REPOSITORY, SECONDS
from tests.matrix.probes import FEATURES, Probe, compare
from tests.matrix.subjects import SUBJECTS, Subject
from tests.matrix.wire import VERSIONS, Era, Json, connected

PAGE = REPOSITORY / "docs" / "matrix.md"
ERAS: tuple[Era, ...] = ("legacy", "modern")
MAX_DIRECT = 2
"""Servers to which clients are connected directly at the same time."""

Observations = dict[str, dict[str, "Json | None"]]
"""Observations of each feature, by server."""
Column = dict[str, tuple[str, str]]
"""The cells by feature, each with the observations of a lost one."""


def groups() -> dict[str, list[Subject]]:
    return {name: [*subjects] for name, subjects in groupby(SUBJECTS, lambda subject: subject.group)}


async def observe_direct(subjects: Sequence[Subject], folder: Path) -> Observations:
    found: Observations = {}
    limit = anyio.CapacityLimiter(MAX_DIRECT)

    async def observe(subject: Subject) -> None:
        async with limit:
            own = _folder(folder, "direct")
            entry = subject.entry(own)
            command = [entry["command"], *entry["args"]]
            async with connected(command, subject.era, own, **entry.get("env", {})) as wire:
                found[subject.name] = await Probe(wire, subject, own, through=False).observe()

    async with anyio.create_task_group() as tasks:
        for subject in subjects:
            tasks.start_soon(observe, subject)
    return found


async def observe_through(subjects: Sequence[Subject], era: Era, folder: Path) -> Observations:
    own = _folder(folder, era)
    config = own / "config.json"
    # With other values of `trust`, new items of a list wait for a person.
    servers = {subject.name: {**subject.entry(own), "trust": "follow"} for subject in subjects}
    expose = {"mode": "direct", "direct": ["*", "ui"]}
    tools = {"codeMode": {"connectWaitMs": 1000 * SECONDS}}
    config.write_text(json.dumps({"mcpServers": servers, "expose": expose, "tools": tools}), "utf-8")
    command = [*COMMAND, "serve", "--private", "--config", str(config)]
    cache = own / "cache" / "codemode-mcp"
    cache.mkdir(parents=True)
    if (compiled := compiled_path(cache_dir())) is not None and compiled.exists():
        shutil.copy(compiled, cache)  # compiling takes 3 s of processor time
    env = {"PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(own / "cache"), "XDG_STATE_HOME": str(own / "state")}
    async with connected(command, era, own, **env) as wire:
        probes = [Probe(wire, subject, own, through=True) for subject in subjects]
        with anyio.move_on_after(SECONDS):
            while not all([await probe.is_ready() for probe in probes]):  # noqa: ASYNC110 - another process
                await anyio.sleep(0.2)
        return {probe.server: await probe.observe() for probe in probes}


def _folder(folder: Path, kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=folder)).resolve()


async def columns(subjects: Sequence[Subject], folder: Path) -> dict[str, dict[Era, Column]]:
    """Return the cells of servers, for clients of both eras."""
    for subject in subjects:
        subject.entry(_folder(folder, "installed"))  # skips a test before anything is started
    direct: Observations = {}
    through: dict[Era, Observations] = {}

    async def see_directly() -> None:
        direct.update(await observe_direct(subjects, folder))

    async def see_through(era: Era) -> None:
        through[era] = await observe_through(subjects, era, folder)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(see_directly)
        for era in ERAS:
            tasks.start_soon(see_through, era)
    return {
        name: {
            era: {feature: compare(name, seen[feature], through[era][name][feature]) for feature in FEATURES}
            for era in ERAS
        }
        for name, seen in direct.items()
    }


def tables(found: dict[str, dict[Era, Column]]) -> str:
    """Return the tables of both eras in Markdown."""
    lines: list[str] = []
    names = [subject.name for subject in SUBJECTS if subject.name in found]
    for era in ERAS:
        lines += ["", f"### Clients of {VERSIONS[era]}", "", f"| feature | {' | '.join(names)} |"]
        lines.append(f"|{'---|' * (len(names) + 1)}")
        for feature in FEATURES:
            lines.append(f"| {feature} | {' | '.join(found[name][era][feature][0] for name in names)} |")
    return "\n".join(lines) + "\n"


MARK = "<!-- The tables are written by `python -m tests.matrix.table --update`. -->\n"


def page_cells() -> dict[tuple[str, Era, str], str]:
    """Return the cells of the page by server, era and feature."""
    cells = {}
    text = PAGE.read_text("utf-8").partition(MARK)[2]
    for era in ERAS:
        table = text.partition(f"### Clients of {VERSIONS[era]}\n")[2].partition("###")[0]
        lines = re.findall(r"^\|(.*)\|$", table, re.MULTILINE)
        (_, *names), _, *rows = ([each.strip() for each in line.split("|")] for line in lines)
        for feature, *row in rows:
            cells |= {(name, era, feature): cell for name, cell in zip(names, row, strict=True)}
    return cells


async def main() -> int:
    found: dict[str, dict[Era, Column]] = {}
    only: Any = {each for each in sys.argv[1:] if not each.startswith("-")}
    for subjects in groups().values():
        chosen = [subject for subject in subjects if not only or subject.name in only]
        with tempfile.TemporaryDirectory() as folder:
            try:
                found |= await columns(chosen, Path(folder)) if chosen else {}
            except pytest.skip.Exception as missing:
                print(missing, file=sys.stderr)
                return 1
    for name, by_era in found.items():
        for era in ERAS:
            for feature, (cell, seen) in by_era[era].items():
                if cell == "lost":
                    print(f"lost: {feature}, {name}, {VERSIONS[era]}\n{seen}\n", file=sys.stderr)
    if "--update" in sys.argv:
        head, mark, _ = PAGE.read_text("utf-8").partition(MARK)
        PAGE.write_text(head + mark + tables(found), "utf-8")
    else:
        print(tables(found))
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
