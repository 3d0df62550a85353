"""Floods for as long as one likes: `python -m tests.floods [--seconds 10] [--kind KIND ...]`.

Prints for each kind what the flood of one principal costs another one. Exits with 1 when one delays the other by more
than a second.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import anyio

from tests.floods.kinds import KINDS
from tests.floods.measure import PROBES, pair

MOST = 1.0
"""Seconds by which the flood of one principal may delay another one."""

SETTLING = 3.0
"""Seconds between two floods, for what the first has left behind."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.floods", description="Floods by one principal.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    parser.add_argument("--kind", choices=tuple(KINDS), action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="floods-") as folder:
        late = anyio.run(floods, Path(folder), given.kind or list(KINDS), given.seconds)
    if late:
        print(f"more than {MOST:g} s: {', '.join(late)}")
    return bool(late)


async def floods(folder: Path, kinds: list[str], seconds: float) -> list[str]:
    """Make each flood; return the kinds that cost too much."""
    late = []
    print(f"{'':14}{'worst, in seconds; in parentheses on a server that is not flooded':>70}")
    print(f"{'flood':14}{''.join(f'{probe:>18}' for probe in PROBES)}{'probes':>8}{'added':>8}")
    async with pair(folder) as servers:
        for kind in kinds:
            cost = await servers.cost(kind, seconds)
            shown = (f"{cost.flooded.worst[probe]:.2f} ({cost.other.worst[probe]:.2f})" for probe in PROBES)
            figures = "".join(f"{each:>18}" for each in shown)
            print(f"{kind:14}{figures}{cost.flooded.count:8}{cost.added:8.2f}", flush=True)
            if cost.added > MOST:
                late.append(kind)
            await anyio.sleep(SETTLING)
    return late


if __name__ == "__main__":
    sys.exit(main())
