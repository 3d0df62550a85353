"""The memory of `serve`: .venv/bin/python benchmarks/memory.py [--runs 10000] [--update]

At rest, after a thousand and after ten thousand mixed programs: values, calls, failures, programs that are suspended
and resumed, and programs that are suspended and cancelled. Then which imported modules are resident though a session
with the default configuration (a list of tools, programs, calls, a search, a suspended program) never calls into them.
Models and constants are used without a call, so not each of them could be left out. `--update` writes the tables into
docs/performance.md. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness import (
    PAGE,
    LineClient,
    Refused,
    configured,
    connected,
    machine,
    markdown,
    of_tree,
    own_home,
    serve,
    update,
    upstream,
)

SETTLE_SECONDS = 12
"""The server gives freed memory back every five seconds."""

MIXED: Sequence[tuple[int, str, str]] = (
    (300, "a value", "return [1, 2, 3].map((n) => n * 2)"),
    (150, "computing", "let n = 0; for (let i = 0; i < 20_000; i++) n += i; return { n }"),
    (200, "a call", 'return unwrap(await MCP.up.echo({ text: "x".repeat(1000) })).text.length'),
    (
        80,
        "ten concurrent calls",
        "return (await Promise.all([...'0123456789'].map((text) => MCP.up.echo({ text })))).length",
    ),
    (20, "a large result", "return unwrap(await MCP.up.blob({ bytes: 200_000 })).text.length"),
    (40, "a search", "return (await API.search('echo')).length"),
    (60, "an error", "throw new Error('on purpose')"),
    (30, "a syntax error", "return ]"),
    (30, "a refused call", "return await MCP.up.echo({ text: 1 })"),
    (10, "recursion without end", "const f = () => 1 + f(); return f()"),
    (40, "suspended and resumed", "await yield_control(); return unwrap(await MCP.up.echo({ text: 'a' })).text"),
    (40, "suspended and cancelled", "await yield_control(); return 1"),
)
"""Weight, name and program; of 1,000."""

SESSION = (
    "return 1",
    "return unwrap(await MCP.up.echo({ text: 'a' })).text",
    "return (await Promise.all([...'0123456789'].map((text) => MCP.up.echo({ text })))).length",
    "return (await API.search('echo')).length",
    "throw new Error('on purpose')",
    "await yield_control(); return 1",
)
"""Programs of a session with the default configuration."""


@dataclass(frozen=True, slots=True)
class Point:
    """The memory of the server after so many programs, in MB."""

    runs: int
    pss: float
    rss: float


def mixed(client: LineClient, name: str, code: str, ends: dict[str, int]) -> None:
    """Run one of the mixed programs to its end."""
    language = {"language": "javascript"} if name == "a syntax error" else {}
    answer = exec_(client, "exec", {"code": code, **language})
    if answer.get("status") == "waiting":
        arguments = {"runId": answer["runId"], **({"cancel": True} if name.endswith("cancelled") else {})}
        answer = exec_(client, "wait", arguments)
    end = f"{name}: {answer.get('code', answer['status'])}"
    ends[end] = ends.get(end, 0) + 1


def exec_(client: LineClient, tool: str, arguments: dict[str, object]) -> dict[str, str]:
    """Return the structured answer of a tool, also where the program failed."""
    result = client.request("tools/call", {"name": tool, "arguments": arguments})
    if "structuredContent" not in result:
        raise Refused(json.dumps(result)[:500])
    return dict(result["structuredContent"])


def grow(
    stops: Sequence[int], settle: float = SETTLE_SECONDS, *, each_once: bool = False
) -> tuple[list[Point], dict[str, int]]:
    """Measure the memory at rest and after so many mixed programs, and count how they ended.

    With `each_once` they are not drawn by chance: each is run once, in turn.
    """
    with tempfile.TemporaryDirectory(prefix="codemode-memory-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environ = own_home(folder / "home")
        config = configured(folder, {"up": upstream()})
        with connected(serve(config), environ, folder) as client:  # the engine is compiled, the listing kept
            client.call("exec", {"code": SESSION[1]})
        chance = random.Random(1)
        points: list[Point] = []
        ends: dict[str, int] = {}
        with connected(serve(config), environ, folder) as client:
            client.request("tools/list")
            client.call("exec", {"code": SESSION[1]})
            done = 0
            for stop in (0, *stops):
                drawn = chance.choices(MIXED, [weight for weight, _, _ in MIXED], k=stop - done)
                for _, title, code in MIXED if each_once and stop else drawn:
                    mixed(client, title, code, ends)
                done = stop
                time.sleep(settle)  # freed memory is given back by the clock
                found = of_tree(client.process.pid)
                points.append(Point(stop, found.pss, found.rss))
        return points, ends


# modules


@dataclass(frozen=True, slots=True)
class Module:
    """A module that is resident: how much memory grew with it, and whether a function of it was called."""

    package: str
    name: str
    mb: float
    called: bool


def modules(*, warm: bool = True) -> list[Module]:
    """Return what a session with the default configuration imports, the largest first."""
    with tempfile.TemporaryDirectory(prefix="codemode-memory-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environ = own_home(folder / "home")
        config = configured(folder, {"up": upstream()})
        if warm:  # the engine is compiled, the listing kept
            session(serve(config), environ, folder)
        written = folder / "modules.json"
        command = [sys.executable, str(harness.FOLDER / "imported.py"), str(written), *serve(config)[3:]]
        session(command, environ, folder)
        subprocess.run((*command[:2], "--sizes", str(written)), env=harness.clean(environ), check=True)
        return [Module(**each) for each in json.loads(written.read_text("utf-8"))]


def session(command: Sequence[str], environ: dict[str, str], folder: Path) -> None:
    with connected(command, environ, folder) as client:
        client.request("tools/list")
        for code in SESSION:
            answer = exec_(client, "exec", {"code": code})
            if answer.get("status") == "waiting":
                exec_(client, "wait", {"runId": answer["runId"]})


# printing


def growth_table(points: Sequence[Point]) -> str:
    first = points[0]
    rows = [
        [
            "at rest" if point.runs == 0 else f"after {point.runs:,} programs",
            f"{point.pss:.0f}",
            f"{point.rss:.0f}",
            "" if point is first else f"{point.pss - first.pss:+.1f}",
        ]
        for point in points
    ]
    return markdown(["memory of `serve`, MB", "PSS", "RSS", "more than at rest (PSS)"], rows)


def module_table(found: Sequence[Module], least_mb: float = 0.3) -> str:
    """Return the packages by the memory of modules that are never called, and one row for the small ones."""
    packages: dict[str, list[Module]] = {}
    for each in found:
        packages.setdefault(each.package, []).append(each)

    def size(some: Sequence[Module], *, idle: bool = False) -> float:
        return sum(each.mb for each in some if not (idle and each.called))

    def row(name: str, some: Sequence[Module]) -> list[str]:
        never = [each for each in some if not each.called]
        return [name, str(len(some)), f"{size(some):.1f}", str(len(never)), f"{size(never):.1f}"]

    ranked = sorted(packages.items(), key=lambda item: (-round(size(item[1], idle=True), 1), -size(item[1])))
    large = [(name, some) for name, some in ranked if size(some) >= least_mb]
    small = [each for _, some in ranked if size(some) < least_mb for each in some]
    rows = [row(f"`{name}`", some) for name, some in large]
    rows += [row("all smaller ones", small), row("sum", found)]
    return markdown(["package", "modules", "MB", "never called", "their MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000], help="measure after so many programs")
    parser.add_argument("--only", choices=("growth", "modules"))
    parser.add_argument("--update", action="store_true", help="write the tables into docs/performance.md")
    given = parser.parse_args()
    if given.only != "modules":
        points, ends = grow(given.runs)
        text = growth_table(points)
        print(text, "\n\nHow they ended: ", "; ".join(f"{end} {count}" for end, count in sorted(ends.items())), sep="")
        if given.update:
            update(PAGE, "memory", f"{text}\n\nMeasured on {machine()}.")
    if given.only != "growth":
        text = module_table(modules())
        print(text)
        if given.update:
            update(PAGE, "modules", text)


if __name__ == "__main__":
    main()
