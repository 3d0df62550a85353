"""The cost of a flood by one client of the shared instance for another one: `python -m tests.floods.clients`.

Prints the delays of small requests of a client that floods nothing, at rest and during each flood.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.streams.text import TextReceiveStream

from tests.floods.flooding_client import KINDS
from tests.integration.attached import attached, instance
from tests.integration.harness import REPOSITORY, SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.attached import Attached

PROBES: Final = {
    "program": "return 1",
    "call": "return (await MCP.calm.quick({})).content[0].text",
}
"""The requests of the other client: a ping, and these programs."""

_PAUSE = 0.02
"""Seconds between two requests."""


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of each request in seconds."""

    seconds: dict[str, list[float]]

    @property
    def count(self) -> int:
        """The requests of the kind that was answered least often."""
        return min(map(len, self.seconds.values()))

    def shown(self, name: str) -> str:
        """Return the median and the maximum."""
        found = self.seconds[name]
        return f"{1000 * statistics.median(found):.0f} / {1000 * max(found):.0f}"


@asynccontextmanager
async def probed(folder: Path) -> AsyncIterator[tuple[Path, Attached]]:
    """Run an instance with one attached client. Yield the path of its configuration, and the client."""
    upstream = {"command": sys.executable, "args": [str(Path(__file__).with_name("upstream.py"))]}
    config = folder / "config.json"
    store = {"kind": "sqlite", "path": str(folder / "runs.sqlite3")}
    code_mode = {"timeoutMs": 2000}
    document = {"mcpServers": {"calm": upstream}, "store": store, "tools": {"codeMode": code_mode}}
    config.write_text(json.dumps(document), "utf-8")
    async with instance(config), attached(config) as client:
        await client.greet()
        await measure(client, 1)
        yield config, client


async def measure(client: Attached, seconds: float, least: int = 3) -> Delays:
    """Make requests one after the other for some seconds, and at least so many of each."""
    delays = Delays({name: [] for name in ("ping", *PROBES)})
    end = time.monotonic() + seconds
    while time.monotonic() < end or delays.count < least:
        for name, found in delays.seconds.items():
            began = time.monotonic()
            if name == "ping":
                await client.request("ping")
            else:
                answer = await client.exec(PROBES[name])
                assert answer["status"] == "completed", answer
            found.append(time.monotonic() - began)
            await anyio.sleep(_PAUSE)
    return delays


@asynccontextmanager
async def flooding(kind: str, config: Path) -> AsyncIterator[None]:
    """Flood the instance from a process of its own for the duration of the context."""
    command = [sys.executable, "-m", "tests.floods.flooding_client", kind, str(config)]
    async with await anyio.open_process(command, cwd=REPOSITORY, stderr=None) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(4 * SECONDS):
                assert "flooding" in await TextReceiveStream(process.stdout).receive()
            yield
        finally:
            process.terminate()
            with anyio.move_on_after(SECONDS, shield=True):
                await process.wait()


async def floods(folder: Path, kinds: list[str], seconds: float) -> None:
    """Make each flood, and print its cost."""
    names = ("ping", *PROBES)
    print(f"{'median / maximum, in ms':24}{''.join(f'{name:>18}' for name in names)}{'requests':>10}")

    def show(title: str, found: Delays) -> None:
        print(f"{title:24}{''.join(f'{found.shown(name):>18}' for name in names)}{found.count:10}", flush=True)

    async with probed(folder) as (config, client):
        show("at rest", await measure(client, seconds))
        for kind in kinds:
            async with flooding(kind, config):
                show(kind, await measure(client, seconds))
            await anyio.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.floods.clients", description="Floods by one client.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    parser.add_argument("--kind", choices=KINDS, action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="floods-") as folder:
        anyio.run(floods, Path(folder), given.kind or list(KINDS), given.seconds)


if __name__ == "__main__":
    main()
