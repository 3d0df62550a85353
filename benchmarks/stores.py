"""Cost of suspended programs that outlive the process: in time, in memory, and while nothing happens.

Over SQLite and over a PostgreSQL of its own (skipped where none is installed), both in a temporary folder and both
waiting for the disk. "Another process" is a second manager with its own connection, id and caches, in this process.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import anyio
from harness import ECHO, configured, cpu_seconds, ours, report, resident, server_process
from mcp.client.client import Client

from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.stores.postgres import open_postgres
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from codemode_mcp.stores.work import Database, Query, Work
from tests.runs.bench import Bench, bench
from tests.stores.postgres_server import NoServer, PostgresServer, postgres_server
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

Kind = Literal["memory", "sqlite", "postgres"]

ROUNDS = 200
CALLS = 30
SUSPENDED = 10_000
WAITS = 200
EXPIRED = 1000
IDLE_SECONDS = 10
BAR = {"memory": 10.0, "sqlite": 10.0, "postgres": 15.0}

READ = Tool("read", annotations=Annotations(read_only=True))
WRITE = Tool("write", annotations=Annotations(read_only=False, idempotent=False))
ANSWERS = {"read": text_result("read"), "write": text_result("written")}
MANY = 300
"""Tools of a larger catalog."""

SMALL = "const r = await MCP.files.read({ n: 1 }); text('before'); await yield_control(); return r.content[0].text"
BARE = "await yield_control(); return 1"
IN_FLIGHT = "const call = MCP.files.write({{ n: {0} }}); await yield_control(); return unwrap(await call).text"
WITH_TIMER = "setTimeout(() => text('late'), 3_600_000 + {0}); " + IN_FLIGHT
IN_TURN = f"await yield_control(); for (let n = 0; n < {CALLS}; n++) await MCP.files.%s({{ n }}); return 1"
CONCURRENT = (
    f"await yield_control(); await Promise.all(Array.from({{ length: {CALLS} }}, (_, n) => MCP.files.%s({{ n }})));"
    "return 1"
)

SETTINGS = CodeModeSettings(
    timeout_ms=60_000,
    max_suspended_runs=3 * SUSPENDED,
    max_suspended_runs_per_owner=3 * SUSPENDED,
    snapshot_ttl_seconds=24 * 3600,
)


class Steps:
    """Milliseconds that each step took, and the time at which the latest snapshot began."""

    def __init__(self) -> None:
        self.ms: defaultdict[str, list[float]] = defaultdict(list)
        self.snapshot_began = 0.0

    def timed(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(method)
        async def measured(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return await method(*given, **named)
            finally:
                self.ms[name].append((time.perf_counter() - began) * 1000)

        return measured

    def on_thread(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def measured(engine: Engine, work: Callable[..., Any], *given: Any) -> Any:
            name = {"snapshot": "snapshot", "_restore": "restore"}.get(work.__name__, "launch")
            began = time.perf_counter()
            if name == "snapshot":
                self.snapshot_began = began
            try:
                return await method(engine, work, *given)
            finally:
                self.ms[name].append((time.perf_counter() - began) * 1000)

        return measured


def files() -> ScriptedSource:
    return ScriptedSource("files", ANSWERS, tools=[READ, WRITE])


def many() -> ScriptedSource:
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
    more = [Tool(f"tool_{n}", description=f"Does the thing of number {n}.", input_schema=schema) for n in range(MANY)]
    return ScriptedSource("files", ANSWERS, tools=[READ, WRITE, *more])


@asynccontextmanager
async def opened_database(kind: Kind, place: str) -> AsyncIterator[Database]:
    if kind == "sqlite":
        async with open_sqlite(Path(place)) as database:
            yield database
    else:
        async with open_postgres(place) as database:
            yield database


@asynccontextmanager
async def process(
    engine: Engine, kind: Kind, place: str, source: ScriptedSource, steps: Steps | None = None
) -> AsyncIterator[Bench]:
    """Yield one process, as far as others can tell: a manager over `source` and the store at `place`."""
    async with AsyncExitStack() as stack:
        kept: dict[str, Any] = {}
        if kind != "memory":
            database = await stack.enter_async_context(opened_database(kind, place))
            seal = Seal()
            kept["store"] = DurableStore(database, seal, SETTINGS, clock=time.monotonic, kind=kind)
            kept["values"] = StoredValues(database, seal, SETTINGS.store_max_bytes)
        it = await stack.enter_async_context(bench(engine, source, **kept, **_fields()))
        catalog = it.catalog()
        # As a server does, which builds it again when a list of tools has changed.
        setattr(it, "catalog", lambda: catalog)  # noqa: B010
        if steps is not None:
            for name in ("suspend", "claim", "checkpoint", "dispatching", "settle", "end"):
                setattr(it.store, name, steps.timed(name, getattr(it.store, name)))
            guests: Any = it.manager._driver._guests
            guests.on_thread = steps.on_thread(guests.on_thread)
            guests._compute = steps.timed("deliver", guests._compute)
        yield it


def _fields() -> dict[str, Any]:
    return {name: getattr(SETTINGS, name) for name in SETTINGS.__dataclass_fields__}


def forget_catalogs(it: Bench) -> None:
    """Forget the catalogs, as in a process that has never taken over a run."""
    it.manager._takeover._restoring._catalogs.clear()
    store: Any = it.store
    store._manifests.clear()


async def done(it: Bench, run_id: str) -> float:
    """Milliseconds of the `wait` in which a run ends."""
    began = time.perf_counter()
    outcome = await it.observe(run_id)
    assert outcome.status == "completed", outcome
    return (time.perf_counter() - began) * 1000


def figures(times: list[float]) -> str:
    times = sorted(times)
    return f"p50 {statistics.median(times):5.2f}  p95 {times[int(len(times) * 0.95)]:5.2f} ms"


# the disk


def disk(folder: Path) -> None:
    """Print the cost of one write that outlives a loss of power: nothing that is stored can take less."""
    kind = "unknown"
    for line in sorted(Path("/proc/mounts").read_text().splitlines(), key=lambda each: len(each.split()[1])):
        _, at, filesystem, *_ = line.split()
        if folder.resolve().is_relative_to(at):
            kind = filesystem
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with (folder / "disk").open("wb") as file:
        for _ in range(200):
            file.write(os.urandom(3 * 4096))
            file.flush()
            began = time.perf_counter()
            sync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    print(f"      the disk ({kind}): 12 KiB and fdatasync                    {figures(times)}", flush=True)
    load = os.getloadavg()[0]
    print(f"      {os.cpu_count()} cores, load average {load:.1f}", flush=True)


# one run


async def steps_of(engine: Engine, kind: Kind, place: str, source: Callable[[], ScriptedSource], what: str) -> None:
    """Suspend, store, load and resume a small program: in the same process, and in another."""
    here, there = Steps(), Steps()
    async with (
        process(engine, kind, place, source(), here) as first,
        process(engine, kind, place, source(), there) as second,
    ):

        async def once(resuming: Bench, steps: Steps) -> tuple[float, float, float]:
            waiting = await first.execute(SMALL)
            suspend = (time.perf_counter() - here.snapshot_began) * 1000
            wait = await done(resuming, waiting.run_id)
            return suspend, wait, steps.ms["end"][-1]

        cases: list[tuple[str, Bench, Steps, bool]] = [
            ("the same process", first, here, False),
            ("another process", second, there, False),
            ("another, its first run", second, there, True),
        ]
        if kind == "memory":
            del cases[1:]
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name, *_ in cases}
        split: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name, *_ in cases}
        for number in range(ROUNDS + 10):
            for name, it, steps, forgets in cases:
                if forgets:
                    forget_catalogs(it)
                one = await once(it, steps)
                if number < 10:
                    continue
                found[name].append(one)
                for step in ("snapshot", "suspend"):
                    split[name][step].append(here.ms[step][-1])
                split[name]["claim"].append(steps.ms["claim"][-1])
                split[name]["restore + deliver"].append(steps.ms["restore"][-1] + steps.ms["deliver"][-1])
                split[name]["end"].append(steps.ms["end"][-1])
    for name, *_ in cases:
        whole = [suspend + wait - end for suspend, wait, end in found[name]]
        p50 = statistics.median(whole)
        bar = BAR[kind]
        report(f"{kind}: suspend to resumed, {name}{what}", figures(whole), f"p50 < {bar:g} ms", p50 < bar)
        for step, times in split[name].items():
            print(f"        {step:<56} {figures(times)}")
        print(
            f"        {'all, the end written down':<56} {figures([suspend + wait for suspend, wait, _ in found[name]])}"
        )


async def calls(engine: Engine, kind: Kind, place: str) -> None:
    """Calls of a program that was suspended once: each is written down before it is sent, and when it has ended."""
    steps = Steps()

    async def each(it: Bench, code: str) -> float:
        """Milliseconds a call."""
        times = []
        for _ in range(7):
            bare = await done(it, (await it.execute(BARE)).run_id)
            times.append((await done(it, (await it.execute(code)).run_id) - bare) / CALLS)
        return statistics.median(times)

    async with process(engine, kind, place, files(), steps) as it, process(engine, "memory", "", files()) as memory:
        for name, code in ((f"{CALLS} in turn", IN_TURN), (f"{CALLS} concurrent", CONCURRENT)):
            for tool in ("write", "read"):
                stored, kept = await each(it, code % tool), await each(memory, code % tool)
                what = "not repeatable" if tool == "write" else "repeatable"
                figure = f"{stored:5.2f} ms a call (memory: {kept:.2f} ms)"
                print(f"      {kind}: {name}, {what:<40} {figure}", flush=True)
    for step in ("checkpoint", "dispatching", "settle"):
        print(f"        {step:<56} {figures(steps.ms[step])}")


# ten thousand


async def ten_thousand(engine: Engine, kind: Kind, large: str, small: str, size: Callable[[], int]) -> None:
    """Measure many suspended programs that wait for a call in flight, half of them with a timer as well.

    Args:
        large, small: where they are, and where ten are.
    """
    source = SlowSource("files", ANSWERS, tools=[READ, WRITE])
    few = SlowSource("files", ANSWERS, tools=[READ, WRITE])
    async with process(engine, kind, large, source) as it, process(engine, kind, small, few) as ten:
        await suspend(ten, 10)
        await suspend(it, 10)
        await waits([it, ten], [it, ten])  # what is loaded late is
        before, bytes_before = _settled(), size()
        began = time.perf_counter()
        await suspend(it, SUSPENDED - 10)
        seconds = time.perf_counter() - began
        await source.wait_pending(SUSPENDED)
        grown, grown_bytes = _settled() - before, (size() - bytes_before) / 1e6
        total = grown + grown_bytes
        figure = f"{grown:.0f} MB + {grown_bytes:.0f} MB stored"
        report(f"{kind}: {SUSPENDED} suspended programs", figure, "< 1,000 MB", total < 1000)
        print(f"        {'suspending one, its call sent and written down':<56} {seconds / SUSPENDED * 1000:.1f} ms")
        _compare(f"{kind}: wait with {SUSPENDED} to 10", *await waits([it, ten], [it, ten]))
        async with process(engine, kind, large, files()) as fresh, process(engine, kind, small, files()) as fresh_ten:
            times = await waits([it, ten], [fresh, fresh_ten])
            _compare(f"{kind}: wait with {SUSPENDED} to 10, fresh process", *times)
            took: dict[str, list[float]] = defaultdict(list)
            for _ in range(5):
                await _timed(took["sweep that finds nothing"], it.manager.sweep)
                await _timed(took["totals"], it.store.totals)
                await _timed(took["runs list"], it.manager.operator.stored_views)
                await _timed(took["runs list, of another process"], fresh.manager.operator.stored_views)
        durable: Any = it.store
        await durable._database.execute(_expire)
        await _timed(took[f"sweep that drops {EXPIRED}"], it.manager.sweep)
        for name, each in took.items():
            print(f"        {name:<56} {statistics.median(each):.1f} ms", flush=True)


async def suspend(it: Bench, count: int) -> None:
    for number in range(count):
        code = WITH_TIMER if number % 2 else IN_FLIGHT
        waiting = await it.execute(code.format(number))
        assert waiting.status == "waiting", waiting


async def waits(suspending: list[Bench], waiting: list[Bench]) -> list[list[float]]:
    """Milliseconds of each `wait`, by who waits, in turn."""
    times: list[list[float]] = [[] for _ in waiting]
    for number in range(WAITS + 10):
        for found, first, second in zip(times, suspending, waiting, strict=True):
            took = await done(second, (await first.execute(BARE)).run_id)
            if number >= 10:
                found.append(took)
    return times


def _compare(name: str, many: list[float], few: list[float]) -> None:
    ratio = statistics.median(many) / statistics.median(few)
    figure = f"{ratio:.2f}x ({statistics.median(few):.2f} to {statistics.median(many):.2f} ms)"
    report(name, figure, "<= 1.20x", ratio <= 1.2)


def _settled() -> float:
    gc.collect()
    return resident(os.getpid())


async def _timed(times: list[float], work: Callable[[], Awaitable[Any]]) -> None:
    began = time.perf_counter()
    await work()
    times.append((time.perf_counter() - began) * 1000)


def _expire() -> Work[None]:
    yield Query(
        "UPDATE runs SET expires = 1 WHERE id IN (SELECT id FROM runs WHERE state = 'waiting' ORDER BY id LIMIT ?)",
        (EXPIRED,),
    )


# nothing happens


async def idle() -> None:
    """`serve`, with nothing to do: how much of a core it takes."""
    for kind, suspended in (("memory", 1), ("sqlite", 0), ("sqlite", 1)):
        with tempfile.TemporaryDirectory() as folder:
            path = {} if kind == "memory" else {"path": f"{folder}/store/runs.sqlite3"}
            config = configured(Path(folder), {"echo": ECHO}, store={"kind": kind, **path})
            async with Client(ours(config)) as client:
                for _ in range(suspended):
                    await client.call_tool("exec", {"code": BARE})
                pid = server_process()
                await anyio.sleep(2)
                before, switches = cpu_seconds(pid), _switches(pid)
                await anyio.sleep(IDLE_SECONDS)
                share = (cpu_seconds(pid) - before) / IDLE_SECONDS
                woken = (_switches(pid) - switches) / IDLE_SECONDS
        figure = f"{share:.2%} of a core, {woken:.0f} wakes a second"
        report(f"idle server, {kind}, {suspended} suspended", figure, "<= 0.3%", share <= 0.003)


def _switches(pid: int) -> int:
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return found


# all


def stores() -> None:
    with tempfile.TemporaryDirectory() as cache, open_engine(Path(cache), max_threads=1) as engine:
        anyio.run(_stores, engine)
    anyio.run(idle)


async def _stores(engine: Engine) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        disk(folder)
        place = str(folder / "one" / "runs.sqlite3")
        await steps_of(engine, "memory", "", files, "")
        await steps_of(engine, "sqlite", place, files, "")
        await steps_of(engine, "sqlite", place, many, f", {MANY} tools")
        await calls(engine, "sqlite", place)
        large, small = (folder / name / "runs.sqlite3" for name in ("many", "few"))
        await ten_thousand(engine, "sqlite", str(large), str(small), lambda: _sqlite_bytes(large))
    with _server() as server:
        if server is None:
            return
        await steps_of(engine, "postgres", server.url("one"), files, "")
        await steps_of(engine, "postgres", server.url("one"), many, f", {MANY} tools")
        await calls(engine, "postgres", server.url("one"))
        sql = "SELECT pg_database_size(current_database())"
        large_url, small_url = server.url("many"), server.url("few")
        await ten_thousand(engine, "postgres", large_url, small_url, lambda: int(server.sql(sql)))


@contextmanager
def _server() -> Iterator[PostgresServer | None]:
    try:
        with postgres_server(safe=True) as server:
            yield server
    except NoServer as error:
        print(f"      postgres: skipped: {error}")
        yield None


def _sqlite_bytes(path: Path) -> int:
    """Return the size of a database with its write-ahead log."""
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*") if each.is_file())
