"""An MCP client in a few lines, and what a process and its children cost: shared by `peers`, `scale` and `memory`.

The client blocks: it sends one line, reads lines up to the answer, and adds almost nothing to what is measured. Costs
are read from `/proc`, so these benchmarks need Linux.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
UPSTREAM = FOLDER / "upstream.py"
TICK = os.sysconf("SC_CLK_TCK")
SECONDS = 300
"""Limit of one request. A server that takes longer is killed, which ends the benchmark."""


class Refused(Exception):
    """An answer that is an error."""


class LineClient:
    """A server on standard streams, and the client that talks to it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.began = perf_counter()
        with (folder / "stderr.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean(environ),
                cwd=folder,
                bufsize=-1,
            )
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
        timer = threading.Timer(SECONDS, self.process.kill)
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

    def since_start(self) -> float:
        """Return the milliseconds since the process was started."""
        return (perf_counter() - self.began) * 1000

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self.process.stdin.flush()

    def _answer(self, wanted: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith(b"{"):
                continue
            message = json.loads(line)
            if "method" in message and "id" in message:
                error = {"code": -32601, "message": "Method not found"}
                body = {"result": {}} if message["method"] == "ping" else {"error": error}
                self._send({"jsonrpc": "2.0", "id": message["id"], **body})
            elif message.get("id") == wanted:
                if "error" in message:
                    raise Refused(json.dumps(message["error"])[:500])
                return dict(message["result"])
        raise Refused(f"the server ended with {self.process.wait()}; its words are in stderr.log")


@contextmanager
def connected(command: Sequence[str], environ: Mapping[str, str], folder: Path) -> Iterator[LineClient]:
    """Start a server and initialize it; end it on leaving."""
    client = LineClient(command, environ, folder)
    try:
        client.initialize()
        yield client
    finally:
        client.close()


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


def upstream(tools: int = 0) -> dict[str, Any]:
    """Return the configuration of a server with that many synthetic tools."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), "--tools", str(tools)]}


def serve(config: Path, *options: str, private: bool = True) -> list[str]:
    """Return the command of our own server, or of a relay to the shared instance."""
    words = ("serve", *(["--private"] if private else ()), "--config", str(config), "--log-level", "error")
    return [sys.executable, "-m", "codemode_mcp", *words, *options]


# what processes cost


def tree(pid: int) -> list[int]:
    """Return a process and all below it, without upstream servers of the benchmark."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        with suppress(OSError):
            if each != pid and os.fsencode(UPSTREAM) in Path(f"/proc/{each}/cmdline").read_bytes():
                continue
            found.append(each)
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def processor_ms(pid: int) -> float:
    """Return the processor time of a process tree so far, with that of children that have ended."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / TICK * 1000


def memory_mb(pid: int) -> dict[str, float]:
    """Return `pss` (shared pages are divided among those that share them) and `rss` of a process tree, in MB."""
    sums = {"pss": 0, "rss": 0}
    for each in tree(pid):
        with suppress(OSError):
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            for name in sums:
                sums[name] += int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE | re.IGNORECASE)[1])  # type: ignore[index]
    return {name: value * 1024 / 1e6 for name, value in sums.items()}


def machine() -> str:
    """Return this machine in one line, without its name."""
    model = "an unknown processor"
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found[1].strip() if found else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, {memory:.0f} GiB, Linux, Python {platform.python_version()}"


# what is written into the page


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
