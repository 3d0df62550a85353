"""The table of all features and servers: `python -m tests.matrix.table [SERVER...]` prints it, and what is lost."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.integration.harness import COMMAND, REPOSITORY
from tests.matrix.probes import FEATURES, SERVER, Probe, compare
from tests.matrix.subjects import SUBJECTS
from tests.matrix.wire import VERSIONS, connected

if TYPE_CHECKING:
    from tests.matrix.subjects import Subject
    from tests.matrix.wire import Era, Json

ERAS: tuple[Era, ...] = ("legacy", "modern")
Column = dict[str, tuple[str, str]]
"""The cells by feature, each with the observations of a lost one."""


async def observe_direct(subject: Subject, folder: Path) -> dict[str, Json | None]:
    entry = subject.entry(folder)
    command = [entry["command"], *entry["args"]]
    async with connected(command, subject.era, folder, **entry.get("env", {})) as wire:
        return await Probe(wire, subject, folder, through=False).observe()


async def observe_through(subject: Subject, era: Era, folder: Path) -> dict[str, Json | None]:
    config = folder / "config.json"
    servers = {SERVER: subject.entry(folder)}
    config.write_text(json.dumps({"mcpServers": servers, "expose": {"mode": "direct", "direct": ["*", "ui"]}}), "utf-8")
    command = [*COMMAND, "serve", "--private", "--config", str(config)]
    async with connected(command, era, folder, PYTHONPATH=str(REPOSITORY)) as wire:
        return await Probe(wire, subject, folder, through=True).observe()


async def columns(subject: Subject, folder: Path) -> dict[Era, Column]:
    """Return the cells of one server for clients of both eras."""
    direct = await observe_direct(subject, folder)
    found: dict[Era, Column] = {}
    for era in ERAS:
        through = await observe_through(subject, era, folder)
        found[era] = {feature: compare(direct[feature], through[feature]) for feature in FEATURES}
    return found


async def main() -> int:
    found: dict[str, dict[Era, Column]] = {}
    only: Any = set(sys.argv[1:])
    for subject in SUBJECTS:
        if only and subject.name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[subject.name] = await columns(subject, Path(folder))
            except pytest.skip.Exception as missing:
                print(missing, file=sys.stderr)
                return 1
    for era in ERAS:
        for name, by_era in found.items():
            for feature, (cell, seen) in by_era[era].items():
                if cell == "lost":
                    print(f"lost: {feature}, {name}, {VERSIONS[era]}\n{seen}\n", file=sys.stderr)
    for era in ERAS:
        print(f"\n{VERSIONS[era]}\n")
        print(f"| feature | {' | '.join(found)} |\n|{'---|' * (len(found) + 1)}")
        for feature in FEATURES:
            print(f"| {feature} | {' | '.join(each[era][feature][0] for each in found.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
