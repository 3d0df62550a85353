"""The parts of all benchmarks: processes and clients, rounds that alternate, and tables.

The client blocks: it sends one line, reads lines up to the answer, and adds almost nothing to what is measured. Costs
of processes are read from `/proc`, so most benchmarks need Linux.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from mcp.client.stdio import StdioServerParameters

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
PAGE = ROOT / "docs" / "performance.md"
UPSTREAM = FOLDER / "upstream.py"
ECHO = {"command": sys.executable, "args": [str(FOLDER / "echo_server.py")]}
"""A server that is made with the SDK."""
TICK = os.sysconf("SC_CLK_TCK")
SECONDS = 300
"""Limit of one request. A server that takes longer is killed, which ends the benchmark."""


# processes and clients


class Refused(Exception):
    """An answer that is an error."""


class LineClient:
    """A client that sends lines and reads lines: to a process that it starts, or on a connection."""

    def __init__(self, writer: Any, reader: Any, end: Callable[[], object]) -> None:
        """Take two files. `end` ends a server that does not answer in time."""
        self._writer, self._reader, self._end = writer, reader, end
        self._ids = 0

    def initialize(self) -> None:
        info = {"name": "bench", "version": "0"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            Refused: the answer is an error, or the server ended.
        """
        self._ids += 1
        self._send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}})
        timer = threading.Timer(SECONDS, self._end)
        timer.daemon = True
        timer.start()
        try:
            return self._answer(self._ids)
        finally:
            timer.cancel()

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool.

        Raises:
            Refused: it is an error.
        """
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise Refused(json.dumps(result)[:500])
        return result

    def _send(self, message: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self._writer.flush()

    def _answer(self, wanted: int) -> dict[str, Any]:
        for line in self._reader:
            text = line.lstrip(b"\x01")  # what the shared instance sends first on a connection
            if not text.startswith(b"{"):
                continue
            message = json.loads(text)
            if "method" in message and "id" in message:
                error = {"code": -32601, "message": "Method not found"}
                body = {"result": {}} if message["method"] == "ping" else {"error": error}
                self._send({"jsonrpc": "2.0", "id": message["id"], **body})
            elif message.get("id") == wanted:
                if "error" in message:
                    raise Refused(json.dumps(message["error"])[:500])
                return dict(message["result"])
        raise Refused("the server ended; its words are in stderr.log")


class ServerClient(LineClient):
    """A server on standard streams, and the client that talks to it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.began = perf_counter()
        self.process = _started(command, environ, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        super().__init__(self.process.stdin, self.process.stdout, self.process.kill)

    def since_start(self) -> float:
        """Return the milliseconds since the process was started."""
        return (perf_counter() - self.began) * 1000

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.close()


def _started(command: Sequence[str], environ: Mapping[str, str], folder: Path, **streams: int) -> Any:
    with (folder / "stderr.log").open("ab") as log:
        return subprocess.Popen(command, **streams, stderr=log, env=clean(environ), cwd=folder, bufsize=-1)


@contextmanager
def connected(command: Sequence[str], environ: Mapping[str, str], folder: Path) -> Iterator[ServerClient]:
    """Start a server and initialize it; end it on leaving."""
    client = ServerClient(command, environ, folder)
    try:
        client.initialize()
        yield client
    finally:
        client.close()


@contextmanager
def address(
    command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[int, str]]:
    """Start a process that prints a URL when it listens. Yield its id and that URL; end it on leaving.

    Raises:
        RuntimeError: it ended, or printed none within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, until = folder / "stderr.log", time.monotonic() + 60
    log.unlink(missing_ok=True)
    process = _started([*command], environ or {}, folder, stdin=subprocess.DEVNULL)
    try:
        while (found := re.search(r"(http://\S+)\n", log.read_text("utf-8"))) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[:4]} does not listen: {log.read_text('utf-8')[-500:]}")
            time.sleep(0.01)
        yield process.pid, found[1]
    finally:
        process.terminate()
        process.wait()


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this environment with `environ`, where bytecode is kept as it is for users."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | dict(environ)


def own_home(folder: Path) -> dict[str, str]:
    """Return variables that keep a server's files in `folder`, away from the user's, all but the compiled engine."""
    places = {"HOME": folder}
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        places[f"XDG_{name}_HOME"] = folder / name.lower()
    cache = folder / "cache" / "codemode-mcp"
    for place in (*places.values(), cache):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for engine in (users / "codemode-mcp").glob("engine-*"):
        shutil.copy2(engine, cache)
    return {name: str(place) for name, place in places.items()}


def upstream(*options: str, tools: int = 0) -> dict[str, Any]:
    """Return the configuration of a server with that many synthetic tools."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), "--tools", str(tools), *options]}


def configured(folder: Path, servers: Mapping[str, Any], name: str = "codemode-mcp", **more: Any) -> Path:
    """Write a configuration. `more` are its other sections."""
    config = folder / f"{name}.json"
    config.write_text(json.dumps({"mcpServers": servers, **more}), "utf-8")
    return config


def serve(config: Path, *options: str, private: bool = True) -> list[str]:
    """Return the command of our own server, or of a relay to the shared instance."""
    words = ("serve", *(["--private"] if private else ()), "--config", str(config), "--log-level", "error")
    return [sys.executable, "-m", "codemode_mcp", *words, *options]


def ours(config: Path) -> StdioServerParameters:
    """Return our own server for a client of the SDK. It keeps its files beside the configuration."""
    command, *arguments = serve(config)
    return StdioServerParameters(
        command=command, args=arguments, env={"XDG_STATE_HOME": str(config.parent / f"{config.stem}-state")}
    )


# what processes cost


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of some processes so far.

    Attributes:
        pss: memory in MB; shared pages are divided among those that share them.
        rss: memory in MB.
        processor_ms: processor time in ms, with that of children that have ended.
    """

    pss: float
    rss: float
    processor_ms: float


def costs(pids: Iterable[int]) -> Costs:
    sums = {"pss": 0, "rss": 0}
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            for name in sums:
                sums[name] += int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE | re.IGNORECASE)[1])  # type: ignore[index]
    pss, rss = (size * 1024 / 1e6 for size in sums.values())
    return Costs(pss, rss, ticks / TICK * 1000)


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def is_upstream(pid: int) -> bool:
    """Return True if this is an upstream server of a benchmark."""
    with suppress(OSError):
        return os.fsencode(UPSTREAM) in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def of_tree(pid: int) -> Costs:
    """Return the costs of a process and all below it, without upstream servers of the benchmark."""
    return costs([pid, *(each for each in descendants(pid) if not is_upstream(each))])


def server_process() -> int:
    """Return the one `serve` that this process has started."""
    for pid in descendants(os.getpid()):
        if b"codemode_mcp\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise RuntimeError("the server was not found")


def resident(pid: int, name: str = "VmRSS") -> float:
    """Return a size of a process in MB; `VmHWM` is its largest `VmRSS`."""
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process of Linux, also of its threads that have ended, in seconds."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock of the scheduler for this process


# rounds that alternate

Times = dict[str, list[float]]
"""Milliseconds of each round, by variant."""


def timed(work: Callable[..., object], *given: object) -> float:
    """Return the milliseconds that a call takes."""
    began = perf_counter()
    work(*given)
    return (perf_counter() - began) * 1000


def alternate(variants: Mapping[str, Callable[[], object]], rounds: int, *, each: int = 1, warm: int = 1) -> Times:
    """Measure variants in turn, so that a machine whose speed drifts favours none.

    Args:
        each: runs of a variant in a round.
        warm: rounds before those that count.
    """
    times: Times = {name: [] for name in variants}
    for number in range(rounds + warm):
        for name in _turn(list(variants), number):
            took = [timed(variants[name]) for _ in range(each)]
            times[name] += took if number >= warm else []
    return times


async def alternate_async(variants: Mapping[str, Callable[[], Awaitable[object]]], rounds: int, *, warm: int) -> Times:
    """Do the same with coroutines."""
    times: Times = {name: [] for name in variants}
    for number in range(rounds + warm):
        for name in _turn(list(variants), number):
            began = perf_counter()
            await variants[name]()
            times[name] += [(perf_counter() - began) * 1000] if number >= warm else []
    return times


def _turn(names: list[str], number: int) -> list[str]:
    """Return the order of a round: each variant comes first, and after each other, equally often."""
    first = number // 2 % len(names)
    order = names[first:] + names[:first]
    return order if number % 2 else order[::-1]


def ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of the same rounds."""
    return statistics.median(a / b for a, b in zip(times, base, strict=True))


# tables


def report(name: str, figure: str, bar: str, ok: bool) -> None:
    print(f"{'ok  ' if ok else 'MISS'}  {name:<58} {figure:<34} bar: {bar}", flush=True)


def report_ratio(name: str, times: Sequence[float], base: Sequence[float], bar: float | None) -> None:
    """Report the ratio of two variants; no bar is the figure alone."""
    found, own, other = ratio(times, base), statistics.median(times), statistics.median(base)
    shown = "none" if bar is None else f"<= {bar}x"
    report(name, f"{found:.3f}x ({own:.2f} ms to {other:.2f} ms)", shown, bar is None or found <= bar)


def machine() -> str:
    """Return this machine in one line, without its name."""
    model = "an unknown processor"
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found[1].strip() if found else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, {memory:.0f} GiB, Linux, Python {platform.python_version()}"


def update(page: Path, name: str, text: str) -> None:
    """Replace the part of a page between the markers of `name`.

    Raises:
        ValueError: the page does not have them.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page.name} has no part {name!r} between two markers")
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}", "utf-8")


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns but the first are aligned to the right."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(value: float) -> str:
    """Return a figure with three significant digits at most."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
