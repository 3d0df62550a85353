"""Growth of cost with the size of things: .venv/bin/python benchmarks/scale.py [NAME ...] [--quick] [--update]

Each curve is measured with real processes: `serve` over standard streams, and over HTTP for many clients. Beside each
row is the exponent of its growth: the slope in a drawing where both axes are logarithmic. 1 is linear, 0 is no growth,
2 is quadratic. What is constant hides growth where sizes are small, so the slope between the two largest sizes is given
apart: that one shows what comes. Figures are minima of several rounds, which a busy machine distorts least;
suspending and resuming are medians. `--update` writes tables and drawings into docs. Needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import harness
from harness import (
    PAGE,
    ServerClient,
    address,
    configured,
    connected,
    machine,
    markdown,
    of_tree,
    own_home,
    resident,
    serve,
    short,
    timed,
    update,
    upstream,
)

sys.path.insert(0, str(harness.ROOT))
from scripts.diagrams import QUIET, Drawing

PICTURES = harness.ROOT / "docs" / "pictures"
ONE_GIB = 1 << 30
ECHO = 'return unwrap(await MCP.up.echo({ text: "a" })).text'
SUSPENDING = f"const before = 1; await yield_control(); {ECHO}"


SETTLE_SECONDS = 7
"""Seconds before the memory of a server is measured, which gives freed memory back every five."""
MOST_RETURNED = 20_000_000
"""Bytes. A program cannot return more than 24 MiB."""


@dataclass(slots=True)
class Curve:
    """One figure over growing sizes."""

    name: str
    unit: str
    points: dict[int, float] = field(default_factory=dict)

    @property
    def slope(self) -> float:
        """The exponent that fits all points best."""
        return slope(list(self.points.items()))

    @property
    def last_slope(self) -> float:
        """The exponent between the two largest sizes."""
        return slope(list(self.points.items())[-2:])


@dataclass(slots=True)
class Family:
    """The curves over one kind of size."""

    name: str
    title: str
    size: str
    sizes: Sequence[int]
    curves: list[Curve] = field(default_factory=list)

    def add(self, name: str, unit: str, size: int, value: float) -> None:
        for curve in self.curves:
            if curve.name == name:
                break
        else:
            curve = Curve(name, unit)
            self.curves.append(curve)
        curve.points[size] = value


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line through the logarithms of points, by least squares; `nan` for fewer than two."""
    if len(points) < 2:
        return math.nan
    logs = [(math.log(size), math.log(max(value, 1e-6))) for size, value in points]
    middle, level = (statistics.fmean(values) for values in zip(*logs, strict=True))
    return sum((x - middle) * (y - level) for x, y in logs) / sum((x - middle) ** 2 for x, _ in logs)


class Place:
    """A home for servers, where the engine is compiled once, and their configuration."""

    def __init__(self, folder: Path, settle: float) -> None:
        self.folder = folder
        self.settle = settle
        self.home = folder / "home"
        self.environ = own_home(self.home)
        self.config = folder / "codemode-mcp.json"
        self.configure({"up": upstream()})
        with self.server() as client:
            run(client, "return 1")

    def configure(self, servers: Mapping[str, Any], **code_mode: Any) -> None:
        limits = {"timeoutMs": 60_000, "maxRequestMs": 120_000, **code_mode}
        configured(self.folder, servers, tools={"codeMode": limits})

    def forget(self) -> None:
        """Remove what is known of upstream servers."""
        shutil.rmtree(self.home / "cache" / "codemode-mcp" / "listings", ignore_errors=True)

    def memory(self, pid: int) -> float:
        """Return the memory of a server at rest, in MB."""
        time.sleep(self.settle)  # it gives freed memory back by the clock
        return of_tree(pid).pss

    @contextmanager
    def server(self) -> Iterator[ServerClient]:
        with connected(serve(self.config), self.environ, self.folder) as client:
            yield client


def run(client: ServerClient, code: str) -> dict[str, Any]:
    """Run a program that succeeds, and return the structured answer.

    Raises:
        RuntimeError: it failed.
    """
    answer = client.call("exec", {"code": code})["structuredContent"]
    if answer["status"] not in ("completed", "waiting"):
        raise RuntimeError(json.dumps(answer)[:500])
    return dict(answer)


def unit_of(name: str) -> str:
    return "MB" if name == "memory" else "ms"


# tools


def tools(place: Place, sizes: Sequence[int], rounds: int) -> Family:
    """Measure one upstream with so many tools: starts without and with what is kept of it, and searches."""
    family = Family("tools", "Tools of one upstream server", "tools", sizes)
    for size in sizes:
        place.configure({"up": upstream(tools=max(0, size - 2))})
        took: dict[str, list[float]] = {}

        def note(name: str, value: float, took: dict[str, list[float]] = took) -> None:
            took.setdefault(name, []).append(value)

        for number in range(rounds):
            place.forget()
            with place.server() as client:
                client.request("tools/list")
                note("cold start to `tools/list`", client.since_start())
                run(client, ECHO)
                note("cold start to the first call's result", client.since_start())
            with place.server() as client:
                client.request("tools/list")
                note("start to `tools/list`", client.since_start())
                run(client, ECHO)
                note("start to the first call's result", client.since_start())
                note("first search", timed(run, client, "return (await API.search('open issues')).length"))
                for word in ("message", "file", "ticket", "invoice", "metric"):
                    note(
                        "later searches", timed(run, client, f"return (await API.search('archive the {word}')).length")
                    )
                note("later calls", min(timed(run, client, ECHO) for _ in range(10)))
                if number == rounds - 1:
                    note("memory", place.memory(client.process.pid))
        for name, values in took.items():
            family.add(name, unit_of(name), size, min(values))
    return family


# upstream servers


def upstreams(place: Place, sizes: Sequence[int], rounds: int) -> Family:
    """Measure so many upstream servers, each a process that is started when it is first called."""
    family = Family("upstreams", "Upstream servers", "servers", sizes)
    for size in sizes:
        names = ["up", *(f"up{number}" for number in range(1, size))]
        place.configure({name: upstream() for name in names})
        everywhere = f"return (await Promise.all({json.dumps(names)}.map((n) => MCP[n].echo({{ text: 'a' }})))).length"
        with place.server() as client:
            run(client, everywhere)
        rows: dict[str, list[float]] = {}
        for number in range(rounds):
            with place.server() as client:
                client.request("tools/list")
                rows.setdefault("start to `tools/list`", []).append(client.since_start())
                run(client, ECHO)
                rows.setdefault("start to one server's first result", []).append(client.since_start())
            with place.server() as client:
                run(client, "return 1")
                rows.setdefault("a call of each, which starts them", []).append(timed(run, client, everywhere))
                again = [timed(run, client, everywhere) for _ in range(5)]
                rows.setdefault("a call of each, once they run", []).append(min(again))
                if number == rounds - 1:
                    rows["memory"] = [place.memory(client.process.pid)]
        for name, values in rows.items():
            family.add(name, unit_of(name), size, min(values))
    return family


# suspended programs


def suspended(place: Place, sizes: Sequence[int], rounds: int) -> Family:
    """Measure what one more suspended program costs beside so many, in the default store."""
    family = Family("suspended", "Suspended programs", "suspended", sizes)
    most = 2 * max(sizes) + 100
    place.configure(
        {"up": upstream()}, maxSuspendedRuns=most, maxSuspendedRunsPerOwner=most, snapshotTtlSeconds=7 * 86_400
    )
    there = 0
    for size in sizes:
        with place.server() as client:
            while there < size:
                run(client, SUSPENDING)
                there += 1
        starts = []
        for _ in range(rounds):
            with place.server() as client:
                client.request("tools/list")
                starts.append(client.since_start())
        with place.server() as client:
            run(client, ECHO)
            memory = place.memory(client.process.pid)
            suspend, resume = [], []
            for _ in range(10 * rounds):
                began = time.perf_counter()
                run_id = run(client, SUSPENDING)["runId"]
                suspend.append((time.perf_counter() - began) * 1000)
                resume.append(timed(client.call, "wait", {"runId": run_id}))
        family.add("start to `tools/list`", "ms", size, min(starts))
        family.add("suspend one more", "ms", size, statistics.median(suspend))
        family.add("resume one", "ms", size, statistics.median(resume))
        family.add("memory", "MB", size, memory)
        disk = sum(path.stat().st_size for path in (place.home / "state").rglob("*") if path.is_file())
        family.add("store on disk", "MB", size, disk / 1e6)
    return family


# clients


def clients(place: Place, sizes: Sequence[int], rounds: int) -> Family:
    """Measure many HTTP clients of one process, each a principal of its own, that run a program concurrently."""
    family = Family("clients", "HTTP clients", "clients", sizes)
    tokens = [secrets.token_hex(16) for _ in range(max(sizes))]
    for size in sizes:
        known = [{"name": f"n{number}", "token": token} for number, token in enumerate(tokens[:size])]
        servers = {"up": {**upstream(), "maxConcurrentCalls": 128}}
        limits = {"codeMode": {"timeoutMs": 60_000, "maxRequestMs": 120_000}}
        configured(place.folder, servers, tools=limits, http={"auth": {"tokens": known}})
        command = serve(place.config, "--transport", "http", "--port", "0", private=False)
        with address(command, place.folder / "http", place.environ) as (pid, url):
            for name, values in asyncio.run(_clients(place, pid, url, tokens[:size], rounds)).items():
                family.add(name, unit_of(name), size, min(values))
    return family


async def _clients(place: Place, pid: int, url: str, tokens: Sequence[str], rounds: int) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}

    async def step(name: str, work: Iterable[Awaitable[None]]) -> None:
        before, began = of_tree(pid).processor_ms, time.perf_counter()
        await asyncio.gather(*work)
        rows.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        # What takes less than the clock can tell takes half a tick.
        processor = max(of_tree(pid).processor_ms - before, 500 / harness.TICK)
        rows.setdefault(f"{name}: processor time of the server", []).append(processor)

    for number in range(rounds):
        everyone = [HttpClient(url, token) for token in tokens]
        await step("all connect", (each.connect() for each in everyone))
        await asyncio.gather(*(each.run("return 1") for each in everyone))
        await step("all run a program with one call", (each.run(ECHO) for each in everyone))
        if number == rounds - 1:
            rows["memory"] = [await asyncio.to_thread(place.memory, pid)]
        for each in everyone:
            each.close()
    return rows


class HttpClient:
    """A client of the legacy revision: one connection and one session.

    It is that small because the pools of HTTP libraries look at all their connections for each request, which would be
    measured as growth of ours.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._path = parts.path
        self._headers = {
            "Host": parts.netloc,
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        self._http = h11.Connection(h11.CLIENT)

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        info = {"name": "bench", "version": "0"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        headers, _ = await self._post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        self._headers |= {"Mcp-Session-Id": headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-06-18"}
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def run(self, code: str) -> None:
        """Run a program.

        Raises:
            RuntimeError: it did not complete.
        """
        params = {"name": "exec", "arguments": {"code": code}}
        headers, text = await self._post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        if headers["content-type"].startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data: {")][-1].removeprefix("data: ")
        if json.loads(text)["result"]["structuredContent"]["status"] != "completed":
            raise RuntimeError(text[:500])

    def close(self) -> None:
        self._writer.close()

    async def _post(self, message: Mapping[str, Any]) -> tuple[dict[str, str], str]:
        """Return the headers of the answer, and its body.

        Raises:
            RuntimeError: it is an error.
        """
        body = json.dumps(message).encode()
        headers = [*self._headers.items(), ("Content-Length", str(len(body)))]
        sent = (h11.Request(method="POST", target=self._path, headers=headers), h11.Data(body), h11.EndOfMessage())
        self._writer.write(b"".join(self._http.send(each) or b"" for each in sent))
        status, found, parts = 0, {}, []
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Response):
                status, found = event.status_code, {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                raise RuntimeError(f"the connection ended: {event}")
        self._http.start_next_cycle()
        text = b"".join(parts).decode()
        if status >= 300:
            raise RuntimeError(f"{status}: {text[:500]}")
        return found, text


# results


def results(place: Place, sizes: Sequence[int], rounds: int) -> Family:
    """Measure one call with a result of so many bytes, which the program reads, and one that it returns whole."""
    family = Family("results", "Bytes of one result", "bytes", sizes)
    place.configure(
        {"up": upstream()},
        maxToolResultBytes=ONE_GIB,
        memoryLimitBytes=ONE_GIB,
        maxSnapshotBytes=256 << 20,
        storeMaxBytes=4 * ONE_GIB,
    )
    for size in sizes:
        call = f"unwrap(await MCP.up.blob({{ bytes: {size} }})).text"
        read, keep = f"return {call}.length", f"return {call}"
        with place.server() as client:
            run(client, ECHO)
            times = [timed(run, client, read) for _ in range(3 * rounds + 1)][1:]
            peak = resident(client.process.pid, "VmHWM")
            kept = [timed(run, client, keep) for _ in range(rounds + 1)][1:] if size <= MOST_RETURNED else []
        family.add("a call, and its length returned", "ms", size, min(times))
        if kept:
            family.add("a call, and all of it returned", "ms", size, min(kept))
        family.add("peak memory of the first", "MB", size, peak)
    return family


# all of them

FULL: Mapping[str, tuple[int, ...]] = {
    "tools": (1, 10, 100, 1000, 10_000),
    "upstreams": (1, 3, 10, 30, 100),
    "suspended": (1, 10, 100, 1000, 10_000),
    "clients": (1, 5, 20, 100, 500),
    "results": (1000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000),
}
QUICK: Mapping[str, tuple[int, ...]] = {
    "tools": (1, 20),
    "upstreams": (1, 3),
    "suspended": (1, 5),
    "clients": (1, 4),
    "results": (1000, 50_000),
}
"""Sizes for a first look."""
MEASURES: Mapping[str, Callable[[Place, Sequence[int], int], Family]] = {
    "tools": tools,
    "upstreams": upstreams,
    "suspended": suspended,
    "clients": clients,
    "results": results,
}


def measure(
    names: Sequence[str], sizes: Mapping[str, Sequence[int]], rounds: int, settle: float = SETTLE_SECONDS
) -> Iterator[Family]:
    """Measure families by their names."""
    with tempfile.TemporaryDirectory(prefix="codemode-scale-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), settle)
        for name in names:
            yield MEASURES[name](place, sizes[name], rounds)


def table(family: Family) -> str:
    """Return the curves of a family as a Markdown table."""
    headings = [family.title, *(_size(family, size) for size in family.sizes), "exponent", "at the end"]
    rows = [
        [
            f"{curve.name}, {curve.unit}",
            *(short(curve.points[size]) if size in curve.points else "-" for size in family.sizes),
            f"{curve.slope:.2f}",
            f"{curve.last_slope:.2f}",
        ]
        for curve in family.curves
    ]
    return markdown(headings, rows)


def _size(family: Family, size: int) -> str:
    if family.size != "bytes":
        return f"{size:,}"
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} KB"


# drawing

COLOURS = ("#7aa7ff", "#6fcf97", "#e0a458", "#f07f8d", "#c39bff", "#5fd0d8", "#d8d36a", "#b0b8c8")
LEFT, TOP, WIDTH, HEIGHT, LEGEND = 70, 50, 500, 330, 24


def drawing(family: Family) -> str:
    """Return the curves as an SVG with two logarithmic axes; lines of growth by proportion are dashed."""
    rows = len(family.curves)
    picture = Drawing(LEFT + WIDTH + 30, TOP + HEIGHT + 60 + LEGEND * rows, f"{family.title}: how cost grows")
    values = [value for curve in family.curves for value in curve.points.values()]
    left, right = math.log10(min(family.sizes)), math.log10(max(family.sizes))
    bottom, top = math.floor(math.log10(max(min(values), 0.01))), math.ceil(math.log10(max(values)))

    def x(size: float) -> float:
        return LEFT + WIDTH * (math.log10(size) - left) / ((right - left) or 1)

    def y(value: float) -> float:
        share = (math.log10(max(value, 0.01)) - bottom) / ((top - bottom) or 1)
        return TOP + HEIGHT * (1 - share)

    picture.text(LEFT, 28, f"{family.title}: ms and MB, both axes logarithmic", anchor="start", size=15, weight=600)
    for power in range(bottom, top + 1):
        picture.parts.append(_path([(LEFT, y(10**power)), (LEFT + WIDTH, y(10**power))], "#3a4358", 1))
        picture.text(
            LEFT - 8,
            y(10**power) + 5,
            f"{10**power:,}" if power >= 0 else f"{10.0**power:g}",
            anchor="end",
            size=12,
            colour=QUIET,
        )
    for size in family.sizes:
        picture.text(x(size), TOP + HEIGHT + 20, _size(family, size), size=12, colour=QUIET)
    picture.parts.append(
        f'<clipPath id="area"><rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/></clipPath>'
    )
    for power in range(bottom - math.ceil(right - left), top):
        ends = [
            (LEFT, _raw(10.0**power, bottom, top)),
            (LEFT + WIDTH, _raw(10.0 ** (power + right - left), bottom, top)),
        ]
        picture.parts.append(_path(ends, "#4a546b", 1, ' stroke-dasharray="3 5" clip-path="url(#area)"'))
    for number, curve in enumerate(family.curves):
        colour = COLOURS[number % len(COLOURS)]
        points = [(x(size), y(value)) for size, value in curve.points.items()]
        picture.parts.append(_path(points, colour, 2.2))
        picture.parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" fill="{colour}"/>' for a, b in points]
        level = TOP + HEIGHT + 48 + LEGEND * number
        picture.parts.append(_path([(LEFT, level - 5), (LEFT + 26, level - 5)], colour, 3))
        name = f"{curve.name.replace('`', '')}, {curve.unit} (exponent at the end {curve.last_slope:.2f})"
        picture.text(LEFT + 36, level, name, anchor="start", size=13)
    return picture.done()


def _raw(value: float, bottom: int, top: int) -> float:
    return TOP + HEIGHT * (1 - (math.log10(value) - bottom) / ((top - bottom) or 1))


def _path(points: Sequence[tuple[float, float]], colour: str, width: float, more: str = "") -> str:
    way = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="{width}"{more}/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("name", nargs="*", help=f"{', '.join(MEASURES)}; all unless named")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--update", action="store_true", help="write tables and drawings into docs")
    given = parser.parse_args()
    for name in given.name:
        if name not in MEASURES:
            parser.error(f"there is no curve {name!r}")
    for family in measure(
        given.name or list(MEASURES), QUICK if given.quick else FULL, 1 if given.quick else given.rounds
    ):
        text = table(family)
        print(text, end="\n\n", flush=True)
        if given.update:
            picture = f"scale-{family.name}.svg"
            (PICTURES / picture).write_text(drawing(family), "utf-8")
            update(
                PAGE,
                f"scale {family.name}",
                f"![{family.title}](pictures/{picture})\n\n{text}\n\nMeasured on {machine()}.",
            )


if __name__ == "__main__":
    main()
