"""Fuzzing for as long as one likes: `python -m tests.faults fuzz --cases 100000 [--seed N] [--level ...] [--jobs N]`.

A case is its seed: `--seed N --cases 1 --show` runs one again and prints its program. Each job is a process of its own,
so that one that dies or hangs is a finding, and the next case continues in another. Exits with 1 when there was any.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from codemode_mcp.sandbox.engine import open_engine
from tests.faults.fuzz.cases import case
from tests.faults.fuzz.levels import Level, open_level

ROOT = Path(__file__).resolve().parents[3]

LEVELS = ("engine", "driver", "serve")
CANARY_EVERY = {"engine": 50, "driver": 20, "serve": 5}
WARM_UP = 300
"""Cases after which a process has what it keeps anyway."""
MAX_GROWTH = 300 * 1024 * 1024
"""Bytes that a process may grow after that."""
HANG_SECONDS = 180.0
"""Seconds without a sign of life, on a machine that does other things too."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    parser.add_argument("--level", choices=LEVELS, default="engine")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--step", type=int, default=0, help=argparse.SUPPRESS)


def main(given: argparse.Namespace) -> int:
    seeds = range(given.seed, given.seed + given.cases)
    if given.step:  # one job of many
        anyio.run(work, given.level, seeds[:: given.step], _tell_lines)
        return 0
    if given.show:
        for seed in seeds:
            print(f"--- {case(seed)}\n{case(seed).source}\n")
    summary = Summary(given.level, given.cases)
    jobs = max(1, min(given.jobs, given.cases))
    threads = [threading.Thread(target=_supervise, args=(summary, seeds[job::jobs])) for job in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(10.0)
            summary.progress()
    summary.print()
    return 1 if summary.violations else 0


# one job


async def work(name: str, seeds: range, tell: Callable[..., None]) -> None:
    """Run these cases in this process and tell of each."""
    with open_engine(ROOT / ".cache" / "fuzz", max_threads=2) as engine:
        async with open_level(name, engine) as level:
            await _work(name, level, seeds, tell)


async def _work(name: str, level: Level, seeds: range, tell: Callable[..., None]) -> None:
    start = None
    for number, seed in enumerate(seeds):
        tell(begin=seed)
        each = case(seed)
        began = time.monotonic()
        play = await level.run_case(each)
        violations = list(play.violations)
        if number % CANARY_EVERY[name] == CANARY_EVERY[name] - 1 or seed == seeds[-1]:
            violations += [f"after it, {problem}" for problem in await level.canary()]
        memory = None
        if number % WARM_UP == WARM_UP - 1 or seed == seeds[-1]:
            gc.collect()
            memory = resident()
            start = memory if start is None else start
            if memory - start > MAX_GROWTH:
                violations.append(f"the process has grown from {_mib(start)} to {_mib(memory)}")
        tell(
            seed=seed,
            kind=each.kind,
            ended=play.ended,
            turns=play.turns,
            seconds=time.monotonic() - began,
            slowest=play.slowest,
            violations=violations,
            traps=play.traps,
            memory=memory,
        )


def resident() -> int:
    """Bytes that this process holds; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _tell_lines(**said: Any) -> None:
    print(json.dumps(said), flush=True)


# all jobs


@dataclass
class Summary:
    """Results so far."""

    level: str
    cases: int
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    violations: list[int] = field(default_factory=list)
    traps: dict[str, int] = field(default_factory=dict)
    slowest_turn: tuple[float, int] = (0.0, -1)
    slowest_case: tuple[float, int] = (0.0, -1)
    memory: dict[int, tuple[int, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, job: int, said: dict[str, Any]) -> None:
        with self._lock:
            seed = said["seed"]
            self.done += 1
            self.ends[said["ended"], said["kind"]] += 1
            self.turns[min(said["turns"], 5)] += 1
            self.slowest_turn = max(self.slowest_turn, (said["slowest"], seed))
            self.slowest_case = max(self.slowest_case, (said["seconds"], seed))
            for trap in said["traps"]:
                if trap not in self.traps:
                    self._print_finding(seed, [f"a trap: {trap}"])
                self.traps.setdefault(trap, seed)
            if said["memory"]:
                self.memory[job] = (self.memory.get(job, (said["memory"], 0))[0], said["memory"])
            if said["violations"]:
                self.violations.append(seed)
                self._print_finding(seed, said["violations"])

    def broken(self, seed: int, how: str) -> None:
        """A job ended in a case."""
        with self._lock:
            self.violations.append(seed)
            self._print_finding(seed, [how])

    def progress(self) -> None:
        took = time.monotonic() - self.began
        share = f"{self.done}/{self.cases} cases, {self.done / took:.0f} a second"
        memory = ", ".join(_mib(last) for _, last in self.memory.values())
        print(f"[{took:.0f} s] {share}, {len(self.violations)} violations; {memory}", flush=True)

    def _print_finding(self, seed: int, problems: list[str]) -> None:
        print(f"\n!!! seed {seed}: {'; '.join(problems)[:4000]}")
        print(f"    again: python -m tests.faults fuzz --level {self.level} --seed {seed} --cases 1")
        print("    " + case(seed).source.replace("\n", "\n    ")[:4000] + "\n", flush=True)

    def print(self) -> None:
        took = time.monotonic() - self.began
        kinds = sorted({kind for _, kind in self.ends})
        print(f"\n{'ended as':32}{''.join(f'{kind:>12}' for kind in kinds)}{'all':>12}")
        for end in sorted({end for end, _ in self.ends}):
            counts = [self.ends[end, kind] for kind in kinds]
            print(f"{end:32}{''.join(f'{count:12}' for count in counts)}{sum(counts):12}")
        print(f"\n{self.done} cases in {took:.0f} s, {self.done / took:.1f} a second")
        print(f"turns (5 and more together): {dict(sorted(self.turns.items()))}")
        print(f"slowest turn {self.slowest_turn[0]:.2f} s (seed {self.slowest_turn[1]})", end="; ")
        print(f"slowest case {self.slowest_case[0]:.2f} s (seed {self.slowest_case[1]})")
        for job, (first, last) in sorted(self.memory.items()):
            print(f"job {job}: {_mib(first)} once warm, {_mib(last)} at the end")
        for trap, seed in self.traps.items():
            print(f"trap, first at seed {seed}: {trap}")
        print(f"{len(self.violations)} violations{': seeds ' if self.violations else ''}{self.violations or ''}")


def _supervise(summary: Summary, seeds: range) -> None:
    """Have these cases run in processes, one after the other ends."""
    while len(seeds):
        current, left = _one_process(summary, seeds)
        if current is None:
            return
        summary.broken(current, left)
        seeds = range(current + seeds.step, seeds.stop, seeds.step)


def _one_process(summary: Summary, seeds: range) -> tuple[int | None, str]:
    """Run until the process ends; the seed it ended in and how, if it did not come to the end of its work."""
    command = [sys.executable, "-m", "tests.faults", "fuzz", "--level", summary.level, "--seed", str(seeds.start)]
    command += ["--cases", str(seeds.stop - seeds.start), "--step", str(seeds.step)]
    current = seeds.start
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=ROOT) as process:
        hung = threading.Event()

        def kill() -> None:
            hung.set()
            process.kill()

        for line in _lines(process, kill):
            said = json.loads(line)
            current = said.get("begin", current)
            if "ended" in said:
                summary.add(seeds.start, said)
        code = process.wait()
    if code == 0:
        return None, ""
    return current, f"no sign of life for {HANG_SECONDS:g} s" if hung.is_set() else f"the process ended with {code}"


def _lines(process: subprocess.Popen[str], kill: Callable[[], None]) -> Iterator[str]:
    assert process.stdout is not None
    while True:
        watchdog = threading.Timer(HANG_SECONDS, kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            return
        yield line


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"
