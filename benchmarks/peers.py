"""codemode-mcp beside a compiled gateway, FastMCP's code mode and no gateway: .venv/bin/python benchmarks/peers.py

All of them call the same stdio server, and the same client talks to all of them. Rounds alternate, so that noise of
the machine hits all alike. The peers are installed in `.cache/peers` at the first run. `--update` writes the table into
docs/performance.md. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness import (
    PAGE,
    Refused,
    ServerClient,
    configured,
    connected,
    machine,
    markdown,
    of_tree,
    own_home,
    serve,
    short,
    timed,
    update,
    upstream,
)

GO_PIN = "perforce-agentic-gateway==2026.6"
FASTMCP_PINS = ("fastmcp[code-mode]==4.1.2", "pydantic-monty==1.4.0")
PEERS = harness.ROOT / ".cache" / "peers"
ALL = ("ours", "go", "fastmcp", "direct")

LIST, RESULT, CALL = "start to `tools/list`", "start to the first result", "start to the result of a call"
TRIVIAL, ONE, SEQUENCE = "`return 1`", "1 call", "{n} calls, one after the other"
CONCURRENT, LARGE = "{n} concurrent calls", "{n} results of 20 KB"
PSS, RSS = "memory at rest, MB (PSS)", "memory at rest, MB (RSS)"
STARTS = (LIST, RESULT, CALL)
PROGRAMS = (TRIVIAL, ONE, SEQUENCE, CONCURRENT, LARGE)
MEMORY = (PSS, RSS)
KB20 = 20_000
SLOW_MS = 2000
"""A program that takes longer is measured once, after the run that warms up."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One of those that are compared."""

    name: str
    title: str
    command: Sequence[str]
    environ: Mapping[str, str]
    folder: Path
    tool: str
    """The tool that runs a program."""
    programs: Mapping[str, str]
    """A program for each row; a row without one stays empty."""

    def run(self, client: ServerClient, row: str) -> None:
        client.call(self.tool, {"code": self.programs[row]})


@dataclass(slots=True)
class Cell:
    """The costs of one subject in one row."""

    wall: list[float] = field(default_factory=list)
    """Milliseconds of each run, or megabytes."""
    processor: float = 0.0
    """Milliseconds of all runs together."""
    runs: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def each(self) -> float | None:
        """Processor time of one run, where it was measured."""
        return self.processor / self.runs if self.runs else None


Table = dict[str, dict[str, Cell]]
"""Cells by row and subject."""


# who is compared


def ours(scratch: Path, calls: int) -> Subject:
    folder = scratch / "ours"
    environ = own_home(folder / "home")
    config = configured(folder, {"up": upstream()})
    programs = {
        TRIVIAL: "return 1",
        ONE: "return unwrap(await MCP.up.echo({ text: 'a' })).text",
        SEQUENCE: f"for (let i = 0; i < {calls}; i++) await MCP.up.echo({{ text: `${{i}}` }}); return 1",
        CONCURRENT: f"await Promise.all(Array.from({{ length: {calls} }}, (_, i) => "
        "MCP.up.echo({ text: `${i}` })));return 1",
        LARGE: f"let n = 0; for (let i = 0; i < {calls}; i++)"
        f"n += unwrap(await MCP.up.blob({{ bytes: {KB20} }})).text.length; return n",
    }
    return Subject("ours", "codemode-mcp", serve(config), environ, folder, "exec", programs)


def go(scratch: Path, calls: int) -> Subject:
    """Return the Go gateway, which has a JavaScript sandbox, with the upstream added as its own tool does it."""
    binary = environment("go", GO_PIN) / "pag"
    folder = scratch / "go"
    environ = own_home(folder / "home")
    echo, blob = 'callTool("up__echo", { text: `${i}` })', f'callTool("up__blob", {{ bytes: {KB20} }})'
    programs = {
        TRIVIAL: "return 1",
        ONE: 'return await callTool("up__echo", { text: "a" })',
        SEQUENCE: f"for (let i = 0; i < {calls}; i++) await {echo}; return 1",
        CONCURRENT: f"await Promise.all(Array.from({{ length: {calls} }}, (_, i) => {echo})); return 1",
        LARGE: f"let n = 0; for (let i = 0; i < {calls}; i++) n += JSON.stringify(await {blob}).length; return n",
    }
    command = (str(binary), "--working-directory", str(folder))
    subject = Subject("go", f"Go gateway ({GO_PIN.replace('==', ' ')})", command, environ, folder, EXECUTE, programs)
    entry = upstream()
    with connected(command, environ, folder) as client:
        client.call("pag__add_server", {"alias": "up", "command": entry["command"], "args": entry["args"]})
        until_it_calls(subject, client)
    return subject


EXECUTE = "pag__execute"


def fastmcp(scratch: Path, calls: int) -> Subject:
    """Return FastMCP's proxy with its transform `CodeMode`, whose programs are Python in the Monty sandbox."""
    python = environment("fastmcp", *FASTMCP_PINS) / "python"
    folder = scratch / "fastmcp"
    environ = own_home(folder / "home")
    entry = upstream()
    script = str(harness.FOLDER / "fastmcp_server.py")
    echo, blob = 'call_tool("echo", {"text": str(i)})', f'call_tool("blob", {{"bytes": {KB20}}})'
    programs = {
        TRIVIAL: "return 1",
        ONE: 'return (await call_tool("echo", {"text": "a"}))["text"]',
        SEQUENCE: f"for i in range({calls}):\n    await {echo}\nreturn 1",
        CONCURRENT: f"import asyncio\nawait asyncio.gather(*[{echo} for i in range({calls})])\nreturn 1",
        LARGE: f'n = 0\nfor i in range({calls}):\n    n += len((await {blob})["text"])\nreturn n',
    }
    command = (str(python), script, entry["command"], *entry["args"])
    title = f"FastMCP code mode ({FASTMCP_PINS[0].partition('[')[0]} {FASTMCP_PINS[0].partition('==')[2]})"
    return Subject("fastmcp", title, command, environ, folder, "execute", programs)


def direct(scratch: Path, calls: int) -> Subject:
    """Return a client of the SDK that calls the upstream itself: what the same costs without any gateway."""
    folder = scratch / "direct"
    folder.mkdir()
    entry = upstream()
    command = (sys.executable, str(harness.FOLDER / "direct_client.py"), entry["command"], *entry["args"])
    programs = {
        ONE: "sequence 1",
        SEQUENCE: f"sequence {calls}",
        CONCURRENT: f"concurrent {calls}",
        LARGE: f"large {calls}",
    }
    return Subject("direct", "SDK client, no gateway", command, {}, folder, "run", programs)


SUBJECTS: Mapping[str, Callable[[Path, int], Subject]] = {"ours": ours, "go": go, "fastmcp": fastmcp, "direct": direct}


def environment(name: str, *pins: str) -> Path:
    """Return the programs of a virtual environment with these packages, made where it is not there yet."""
    folder, wanted = PEERS / name, "\n".join(pins)
    done = folder / "pins"
    if not done.exists() or done.read_text() != wanted:
        print(f"installing {', '.join(pins)} in {folder.relative_to(harness.ROOT)}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run((folder / "bin" / "pip", "install", "--quiet", "--no-input", *pins), check=True)
        done.write_text(wanted)
    return folder / "bin"


# measuring


def until_it_calls(subject: Subject, client: ServerClient) -> None:
    """Call the upstream until that succeeds: a gateway may connect to it only after its own start.

    Raises:
        Refused: it did not within a minute.
    """
    began = time.perf_counter()
    while True:
        try:
            subject.run(client, ONE)
        except Refused:
            if time.perf_counter() - began > 60:
                raise
            time.sleep(0.005)
        else:
            return


def start(subject: Subject) -> dict[str, float]:
    """Start it, run `return 1` and then make a call; return the milliseconds since the start at each row."""
    took = {}
    with connected(subject.command, subject.environ, subject.folder) as client:
        client.request("tools/list")
        took[LIST] = client.since_start()
        if TRIVIAL in subject.programs:
            subject.run(client, TRIVIAL)
            took[RESULT] = client.since_start()
        until_it_calls(subject, client)
        took[CALL] = client.since_start()
    return took


def measure_starts(subjects: Sequence[Subject], rounds: int, table: Table) -> None:
    for _ in range(rounds):
        for subject in subjects:
            for row, ms in start(subject).items():
                table[row].setdefault(subject.name, Cell()).wall.append(ms)


def measure_programs(subjects: Sequence[Subject], rounds: int, settle: float, table: Table) -> None:
    """Measure rows with one process of each subject, and their memory first."""
    with ExitStack() as stack:
        clients = {
            each.name: stack.enter_context(connected(each.command, each.environ, each.folder)) for each in subjects
        }
        for subject in subjects:
            clients[subject.name].request("tools/list")
            until_it_calls(subject, clients[subject.name])
        time.sleep(settle)  # servers work behind their start, and ours gives freed memory back every five seconds
        for subject in subjects:
            found = of_tree(clients[subject.name].process.pid)
            for row, size in zip(MEMORY, (found.pss, found.rss), strict=True):
                table[row][subject.name] = Cell([size])
        for row in PROGRAMS:
            able = [subject for subject in subjects if row in subject.programs]
            many = {subject.name: repetitions(subject, clients[subject.name], row) for subject in able}
            for number in range(rounds):
                for subject in able:
                    if number == 0 or many[subject.name] > 1:
                        run_often(subject, clients[subject.name], row, many[subject.name], table)


def repetitions(subject: Subject, client: ServerClient, row: str) -> int:
    """Run a program once to warm up; return how often it is run in a round."""
    if timed(subject.run, client, row) > SLOW_MS:
        return 1
    return 20 if row in (TRIVIAL, ONE) else 4


def run_often(subject: Subject, client: ServerClient, row: str, times: int, table: Table) -> None:
    cell = table[row].setdefault(subject.name, Cell())
    before = of_tree(client.process.pid).processor_ms
    cell.wall += [timed(subject.run, client, row) for _ in range(times)]
    cell.processor += of_tree(client.process.pid).processor_ms - before
    cell.runs += times


def compare(
    names: Sequence[str], rounds: int, calls: int, settle: float = 7, *, warm: bool = True
) -> tuple[list[Subject], Table]:
    """Measure all rows for these subjects in one run."""
    scratch = Path(tempfile.mkdtemp(prefix="codemode-peers-"))
    table: Table = {row: {} for row in (*STARTS, *PROGRAMS, *MEMORY)}
    try:
        subjects = [SUBJECTS[name](scratch, calls) for name in names]
        for subject in subjects if warm else ():
            start(subject)  # what is compiled and kept at the first start is there then
        measure_starts(subjects, rounds, table)
        measure_programs(subjects, rounds, settle, table)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return subjects, table


# printing


def lines(subjects: Sequence[Subject], table: Table, calls: int) -> list[list[str]]:
    """Return rows of text: of each subject its median and processor time, and how it stands to the first subject."""
    rows = []
    for row, cells in table.items():
        first = cells.get(subjects[0].name)
        rows.append([row.format(n=calls), *(shown(cells.get(subject.name), first) for subject in subjects)])
    return rows


def shown(cell: Cell | None, first: Cell | None) -> str:
    if cell is None:
        return "-"
    processor = "" if cell.each is None else f" ({short(cell.each)})"
    ratio = "" if first is None or cell is first else f", {cell.median / first.median:.2f}x"
    return f"{short(cell.median)}{processor}{ratio}"


def as_json(subjects: Sequence[Subject], table: Table) -> dict[str, Any]:
    return {
        row: {
            each.name: {"median": cells[each.name].median, "processor": cells[each.name].each}
            for each in subjects
            if each.name in cells
        }
        for row, cells in table.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL, metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=100, help="calls of the larger programs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--update", action="store_true", help="write the table into docs/performance.md")
    given = parser.parse_args()
    subjects, table = compare(given.only, given.rounds, given.calls)
    text = markdown(["ms", *(subject.title for subject in subjects)], lines(subjects, table, given.calls))
    text += f"\n\nMeasured on {machine()}, in {given.rounds} rounds."
    print(text)
    if given.json:
        given.json.write_text(json.dumps(as_json(subjects, table), indent=1))
    if given.update:
        update(PAGE, "peers", text)


if __name__ == "__main__":
    main()
