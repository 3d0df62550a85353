"""The shared instance beside private servers, in one run: .venv/bin/python benchmarks/shared.py [--rounds 7] [--update]

What a client waits for at its start and for a small program, through a relay and with `serve --private`; what a relay
adds to a message, compared with the same message on the instance's own socket; and the processes, memory and processor
time of many clients with the same servers. Rounds alternate. `--update` writes the table into docs/performance.md.
Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import wire
from wire import LineClient, connected, machine, markdown, own_home, serve, update, upstream

from codemode_mcp.instance import attaching, registry

PAGE = wire.ROOT / "docs" / "performance.md"
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
        shown = wire.short if self.unit else "{:.0f}".format
        private = "-" if self.private is None else shown(self.private)
        ratio = "-" if self.private is None else f"{self.judged:.2f}x"
        bar = "-" if self.bar is None else f"{self.bar:g}{'' if self.private is None else 'x'}"
        return [f"{self.name}, {self.unit}" if self.unit else self.name, shown(self.shared), private, ratio, bar]


@dataclass(frozen=True, slots=True)
class Usage:
    """The costs of all processes of some clients."""

    processes: int
    upstreams: int
    pss: float
    rss: float
    processor_ms: float


class User:
    """A user with folders of their own, a configuration and a mark on all processes."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.folder = folder
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.environ = own_home(folder / "home") | {"XDG_RUNTIME_DIR": str(runtime), MARK: self.mark}
        self.config = folder / "codemode-mcp.json"
        box = {**upstream(), "env": {MARK: self.mark}}
        self.config.write_text(json.dumps({"mcpServers": {f"up{number}": box for number in range(servers)}}))

    def relay(self) -> list[str]:
        return serve(self.config, private=False)

    def private(self) -> list[str]:
        return serve(self.config)

    def usage(self) -> Usage:
        """Return the costs of all processes of the user."""
        sizes, ticks, upstreams = {"pss": 0, "rss": 0}, 0, 0
        found = self._processes()
        for pid in found:
            with suppress(OSError):
                upstreams += os.fsencode(wire.UPSTREAM) in Path(f"/proc/{pid}/cmdline").read_bytes()
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for name in sizes:
                    sizes[name] += int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE | re.IGNORECASE)[1])  # type: ignore[index]
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        mb = {name: size * 1024 / 1e6 for name, size in sizes.items()}
        return Usage(len(found), upstreams, mb["pss"], mb["rss"], ticks / wire.TICK * 1000)

    def _processes(self) -> list[int]:
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
            for pid in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 8
            while self._processes() and time.monotonic() < deadline:
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
            took["shared"].append(start(who.relay(), who))
            took["private"].append(start(who.private(), who))
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
            took: dict[str, list[float]] = {"shared": [], "private": []}
            for number in range(rounds + 1):
                for name, client in clients.items():
                    for _ in range(each):
                        began = time.perf_counter()
                        client.call("exec", {"code": code})
                        if number:  # the first round warms up
                            took[name].append((time.perf_counter() - began) * 1000)
            title = f"`{TRIVIAL}`" if code == TRIVIAL else "1 call"
            yield Row(title, "ms", statistics.median(took["shared"]), statistics.median(took["private"]), bar)
        status = Path(f"/proc/{clients['shared'].process.pid}/status").read_text()
        peak = int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]
        yield Row("a relay, peak RSS", "MB", peak * 1024 / 1e6, bar=25)


def latency(who: User, rounds: int, each: int = 50) -> Iterator[Row]:
    """Measure what a relay adds to a message: half of what it adds to a request and its answer."""
    with ExitStack() as stack:
        relay = stack.enter_context(connected(who.relay(), who.environ, who.folder))
        direct = stack.enter_context(_direct(who))
        for size in MESSAGE_BYTES:
            params = {"_meta": {"filler": "x" * max(0, size - 80)}}
            took: dict[str, list[float]] = {"relay": [], "direct": []}
            for number in range(rounds + 1):
                for name, client in (("relay", relay), ("direct", direct)):
                    for _ in range(each):
                        began = time.perf_counter()
                        client.request("ping", params)
                        if number:
                            took[name].append((time.perf_counter() - began) * 1000)
            added = statistics.median(took["relay"]) - statistics.median(took["direct"])
            yield Row(f"added to a message of {size:,} bytes", "ms", max(0.0, added) / 2, bar=0.2)


class _Direct(LineClient):
    """A client on the socket of the instance, without a relay."""

    def __init__(self, connection: socket.socket) -> None:
        self._ids = 0
        self._file = connection.makefile("rwb")

    def request(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        self._file.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        while True:
            answer = json.loads(self._file.readline().lstrip(b"\x01"))
            if answer.get("id") == self._ids:
                return dict(answer["result"])

    def close(self) -> None:
        self._file.close()


@contextmanager
def _direct(who: User) -> Iterator[_Direct]:
    before = dict(os.environ)
    os.environ |= who.environ
    try:
        client = attaching.Client(str(who.config), found=False, folder=str(who.folder), options={"logLevel": "error"})
        attached = attaching.attach(registry.key_of(who.config), client, wire.clean(who.environ))
    finally:
        os.environ.clear()
        os.environ |= before
    with attached.connection:
        direct = _Direct(attached.connection)
        info = {"name": "bench", "version": "0"}
        direct.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        try:
            yield direct
        finally:
            direct.close()


def many(clients: int, servers: int, settle: float, runs: int) -> Iterator[Row]:
    """Measure many clients, each of which has called each server and run some programs."""
    found = {}
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
                found[name] = who.usage()
    shared, private = found["shared"], found["private"]
    them = f"{clients} clients with {servers} servers"
    yield Row(f"{them}: processes", "", shared.processes, private.processes)
    yield Row(f"{them}: processes of servers", "", shared.upstreams, bar=servers)
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
