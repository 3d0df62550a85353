"""The shared instance beside private servers, in one run: .venv/bin/python benchmarks/shared.py [--rounds 7] [--update]

What a client waits for at its start and for a small program, through a relay and with `serve --private`; what a relay
adds to a message, compared with the same message on the instance's own socket; and the processes, memory and processor
time of many clients with the same servers. Rounds alternate. `--update` writes the table into docs/performance.md.
Needs Linux.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import harness
from harness import (
    PAGE,
    Costs,
    LineClient,
    alternate,
    configured,
    connected,
    costs,
    is_upstream,
    machine,
    markdown,
    own_home,
    resident,
    serve,
    update,
    upstream,
)

from codemode_mcp.process.instance import attaching, registry

MARK = "CODEMODE_BENCH"
TRIVIAL = "return 1"
SETTLE_SECONDS = 16
"""A server gives freed memory back every five seconds."""

MESSAGE_BYTES = (200, 100_000)
"""Sizes of the messages whose added latency is measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the shared instance beside that of private servers, and its bar.

    Attributes:
        private: None if private servers have no such figure.
        bar: the maximum of the ratio, or of the figure if there is no private one; None if there is no bar.
    """

    name: str
    unit: str
    shared: float
    private: float | None = None
    bar: float | None = None

    @property
    def judged(self) -> float:
        """The figure to compare with the bar."""
        return self.shared if self.private is None else self.shared / self.private

    @property
    def cells(self) -> list[str]:
        shown = harness.short if self.unit else "{:.0f}".format
        private = "-" if self.private is None else shown(self.private)
        ratio = "-" if self.private is None else f"{self.judged:.2f}x"
        bar = "-" if self.bar is None else f"{self.bar:g}{'' if self.private is None else 'x'}"
        return [f"{self.name}, {self.unit}" if self.unit else self.name, shown(self.shared), private, ratio, bar]


class User:
    """A user with folders of their own, a configuration and a mark on all processes."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.folder = folder
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.environ = own_home(folder / "home") | {"XDG_RUNTIME_DIR": str(runtime), MARK: self.mark}
        box = {**upstream(), "env": {MARK: self.mark}}
        self.config = configured(folder, {f"up{number}": box for number in range(servers)})

    def relay(self) -> list[str]:
        return serve(self.config, private=False)

    def private(self) -> list[str]:
        return serve(self.config)

    def processes(self) -> list[int]:
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        """End the instance, and whatever is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 8
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.05)


@contextmanager
def user(servers: int) -> Iterator[User]:
    folder = Path(tempfile.mkdtemp(prefix="cm-"))  # the path of a socket has to be short
    found = User(folder, servers)
    try:
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


def start(command: Sequence[str], who: User) -> float:
    """Return the milliseconds from the start of a process to the answer to `tools/list`."""
    with connected(command, who.environ, who.folder) as client:
        client.request("tools/list")
        return client.since_start()


def starts(who: User, rounds: int) -> Iterator[Row]:
    """Measure starts while an instance runs."""
    took: dict[str, list[float]] = {"shared": [], "private": []}
    with connected(who.relay(), who.environ, who.folder) as first:
        first.request("tools/list")
        start(who.private(), who)  # the engine is compiled, the listings are kept
        for _ in range(rounds):
            for name, command in (("shared", who.relay()), ("private", who.private())):
                took[name].append(start(command, who))
    yield Row("start to `tools/list`", "ms", statistics.median(took["shared"]), statistics.median(took["private"]))


def programs(who: User, rounds: int, each: int = 20) -> Iterator[Row]:
    """Measure small programs, and the memory of the relay."""
    programs = {TRIVIAL: 1.2, 'return unwrap(await MCP.up0.echo({ text: "a" })).text': None}
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(connected(command, who.environ, who.folder))
            for name, command in (("shared", who.relay()), ("private", who.private()))
        }
        for client in clients.values():
            client.request("tools/list")
        for code, bar in programs.items():
            arguments = {"code": code}
            variants = {name: partial(client.call, "exec", arguments) for name, client in clients.items()}
            took = alternate(variants, rounds, each=each)
            title = f"`{TRIVIAL}`" if code == TRIVIAL else "1 call"
            yield Row(title, "ms", statistics.median(took["shared"]), statistics.median(took["private"]), bar)
        yield Row("a relay, peak RSS", "MB", resident(clients["shared"].process.pid, "VmHWM"), bar=25)


def latency(who: User, rounds: int, each: int = 50) -> Iterator[Row]:
    """Measure what a relay adds to a message: half of what it adds to a request and its answer."""
    with ExitStack() as stack:
        relay = stack.enter_context(connected(who.relay(), who.environ, who.folder))
        direct = stack.enter_context(_direct(who))
        for size in MESSAGE_BYTES:
            params = {"_meta": {"filler": "x" * max(0, size - 80)}}
            both = {"relay": partial(relay.request, "ping", params), "direct": partial(direct.request, "ping", params)}
            took = alternate(both, rounds, each=each)
            added = statistics.median(took["relay"]) - statistics.median(took["direct"])
            yield Row(f"added to a message of {size:,} bytes", "ms", max(0.0, added) / 2, bar=0.2)


@contextmanager
def _direct(who: User) -> Iterator[LineClient]:
    """Yield a client on the socket of the instance, without a relay."""
    with patch.dict(os.environ, who.environ):
        client = attaching.Client(str(who.config), found=False, folder=str(who.folder), options={"logLevel": "error"})
        attached = attaching.attach(registry.key_of(who.config), client, harness.clean(who.environ))
    with attached.connection as connection, connection.makefile("rwb") as file:
        direct = LineClient(file, file, connection.close)
        direct.initialize()
        yield direct


def many(clients: int, servers: int, settle: float, runs: int) -> Iterator[Row]:
    """Measure many clients, each of which has called each server and run some programs."""
    found: dict[str, Costs] = {}
    counts: dict[str, tuple[int, int]] = {}
    for name in ("shared", "private"):
        with user(servers) as who:
            command = who.relay() if name == "shared" else who.private()
            start(command, who)  # the engine is compiled, the listings are kept
            who.end()
            with ExitStack() as stack:
                opened = [stack.enter_context(connected(command, who.environ, who.folder)) for _ in range(clients)]
                for client in opened:
                    client.request("tools/list")
                    for number in range(servers):
                        client.call("exec", {"code": f'return unwrap(await MCP.up{number}.echo({{ text: "a" }})).text'})
                for _ in range(runs):
                    for client in opened:
                        client.call("exec", {"code": TRIVIAL})
                time.sleep(settle)
                pids = who.processes()
                found[name] = costs(pids)
                counts[name] = len(pids), sum(map(is_upstream, pids))
    shared, private = found["shared"], found["private"]
    them = f"{clients} clients with {servers} servers"
    yield Row(f"{them}: processes", "", counts["shared"][0], counts["private"][0])
    yield Row(f"{them}: processes of servers", "", counts["shared"][1], bar=servers)
    yield Row(f"{them}: memory (PSS)", "MB", shared.pss, private.pss, 0.2)
    yield Row(f"{them}: memory (RSS)", "MB", shared.rss, private.rss, 0.2)
    yield Row(f"{them}: processor time, {runs} programs each", "ms", shared.processor_ms, private.processor_ms)


def measure(
    *, rounds: int = 7, clients: int = 10, servers: int = 8, settle: float = SETTLE_SECONDS, runs: int = 20
) -> list[Row]:
    """Measure all rows in one run."""
    with user(1) as who:
        rows = [*starts(who, rounds), *programs(who, rounds), *latency(who, rounds)]
    return [*rows, *many(clients, servers, settle, runs)]


def table(rows: Sequence[Row]) -> str:
    return markdown(["", "shared instance", "private servers", "ratio", "bar"], [row.cells for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--update", action="store_true", help="write the table into docs/performance.md")
    given = parser.parse_args()
    rows = measure(rounds=given.rounds, clients=given.clients, servers=given.servers)
    text = f"{table(rows)}\n\nMeasured on {machine()}, in {given.rounds} rounds."
    print(text)
    for row in rows:
        if row.bar is not None and row.judged > row.bar:
            print(f"MISS: {row.name}: {row.judged:.3g}, bar {row.bar:g}")
    if given.update:
        update(PAGE, "shared", text)


if __name__ == "__main__":
    main()
