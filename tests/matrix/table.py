"""The table of `docs/matrix.md`: `python -m tests.matrix.table` makes it anew from all servers that are installed."""

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

PAGE = REPOSITORY / "docs" / "matrix.md"
ERAS: tuple[Era, ...] = ("legacy", "modern")
Column = dict[str, tuple[str, str]]
"""By feature, the cell and what was seen of a lost one."""


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


def begin(era: Era) -> str:
    return f"<!-- matrix {VERSIONS[era]}: begin -->"


def end(era: Era) -> str:
    return f"<!-- matrix {VERSIONS[era]}: end -->"


def written(era: Era) -> dict[str, dict[str, str]]:
    """Return the cells of the page, by server and feature."""
    lines = PAGE.read_text("utf-8").partition(begin(era))[2].partition(end(era))[0].strip().splitlines()
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        server: {row[0].strip("`"): row[index] for row in rows} for index, server in enumerate(heading) if index > 0
    }


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
    if only:
        return 0
    page = PAGE.read_text("utf-8")
    for era in ERAS:
        lines = [f"| feature | {' | '.join(found)} |", "|" + "---|" * (len(found) + 1)]
        for feature in FEATURES:
            shown = f"`{feature}`" if feature == "_meta" else feature
            lines.append(f"| {shown} | {' | '.join(each[era][feature][0] for each in found.values())} |")
        before, opened, rest = page.partition(begin(era))
        _, closed, after = rest.partition(end(era))
        assert opened and closed, f"{PAGE} has no lines {begin(era)} and {end(era)} to put the table between"
        page = f"{before}{opened}\n" + "\n".join(lines) + f"\n{closed}{after}"
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
