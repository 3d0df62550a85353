"""Chaos for as long as one likes: `python -m tests.chaos.soak --minutes 30 [--seed N]`.

Episodes of trouble, each followed by repair and a look at what the server still holds. Exits with 1 at the first
promise that is broken, and says which and what had been done before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio

from tests.chaos.storm import brewing

EPISODE = 20.0
"""Seconds."""
WARM_UP = 2
"""Episodes until the server has everything that it keeps permanently."""
MAX_GROWTH = 50 * 1024 * 1024
"""Bytes of resident memory."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description="Chaos, for a long time.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            anyio.run(soak, Path(folder), given.minutes * 60, given.seed)
        except (AssertionError, TimeoutError, ExceptionGroup) as error:
            print(f"\n!!! seed {given.seed}: {_first(error)}")
            return 1
    return 0


async def soak(folder: Path, seconds: float, seed: int) -> None:
    began = time.monotonic()
    async with brewing(folder, seed) as storm:
        rest = None
        number = 0
        while time.monotonic() - began < seconds or number <= WARM_UP:
            number += 1
            before, said = len(storm.chaos.jobs), len(storm.log)
            try:
                await storm.episode(EPISODE)
            except BaseException:
                print("troubles of this episode: " + "; ".join(storm.log[said:]))
                raise
            if number == WARM_UP:
                rest = await storm.chaos.footprint()
            now = await storm.chaos.footprint() if rest is None else await storm.at_rest(rest)
            ends: Counter[str] = Counter()
            for job in storm.chaos.jobs[before:]:
                if job.outcomes is not None:
                    ends += job.ends
            print(f"[{time.monotonic() - began:.0f} s] {dict(ends)} {now}", flush=True)
            if rest is not None:
                assert now.resident - rest.resident < MAX_GROWTH, f"memory grew from {rest} to {now}"
    print("every call had one outcome, true to what was done; nothing was left behind")


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    sys.exit(main())
