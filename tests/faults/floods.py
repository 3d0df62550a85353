"""Floods by one principal of an HTTP server, or by one client of the shared instance, and what they cost another one.

`python -m tests.faults.floods KIND TARGET` is the process that floods, until it is killed. It prints a line when it has
begun. A principal's target is a URL, a client's is the configuration of the instance.

The delays of small requests are measured meanwhile. Of a flooded HTTP server, they are compared with those of another
server that is asked the same at the same time and is not flooded: these are what the machine costs. Seconds in which
the main thread of a server was ready to run and had no processor are no delay: a machine with other work has many.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.text import TextReceiveStream

from codemode_mcp.process.instance import attaching, registry
from tests.faults.client import LEGACY
from tests.faults.rig import ledger_server, without_processor
from tests.integration.attached import attached, instance
from tests.integration.harness import MODERN, REPOSITORY, SECONDS
from tests.integration.http_harness import ALICE, BOB, MODERN_HEADERS, TWO_TOKENS, Served, serve_http

Step = Callable[["Wire"], Awaitable[Any]]
Ask = Callable[[str], Awaitable[None]]

PROBES: Final = {
    "ping": "",
    "program": "return 1",
    "call": "return (await MCP.calm.read({ key: 'probe' })).content.length",
}
"""Small requests: a ping; a program that returns; one that makes a call to a server at rest."""

_BETWEEN_PROBES = 0.03
_AFTER_REFUSAL = 0.02
_READY_SECONDS = 3.0
"""A flood counts as begun after that, though some first steps have not ended: many of them are meant to hang."""

_ADDRESS: Final = "127.0.0.2" if sys.platform == "linux" else None
"""Address that the flood comes from: another address than that of the principal who is measured."""

_INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "floods", "version": "1"}}


@dataclass(slots=True)
class Wire:
    """A principal that asks: bare JSON over HTTP, in a legacy session or without one.

    Attributes:
        session: of the legacy era, once `open` has got one.
    """

    http: httpx2.AsyncClient
    url: str
    token: str
    session: str | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        """Open a session, in place of the one there is."""
        self.session = None
        answer = await self.post(self._message("initialize", _INITIALIZE))
        self.session = answer.headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _message(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}

    async def post(self, message: dict[str, Any] | str, **headers: str) -> httpx2.Response:
        given = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "authorization": f"Bearer {self.token}",
            "mcp-protocol-version": LEGACY,
            **({} if self.session is None else {"mcp-session-id": self.session}),
            **headers,
        }
        content = message if isinstance(message, str) else json.dumps(message)
        return await self.http.post(self.url, content=content, headers=given)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask in the session; the result or error."""
        return _answer(await self.post(self._message(method, params)))

    async def exec(self, code: str, **more: Any) -> dict[str, Any]:
        """Run a program in the session."""
        return await self.ask("tools/call", {"name": "exec", "arguments": {"code": code}, **more})

    async def exec_alone(self, code: str) -> dict[str, Any]:
        """Run a program without a session, as clients of the modern era do."""
        message = self._message("tools/call", {"name": "exec", "arguments": {"code": code}, **MODERN})
        headers = {**MODERN_HEADERS, "authorization": f"Bearer {self.token}"}
        headers |= {"mcp-method": "tools/call", "mcp-name": "exec"}
        return _answer(await self.http.post(self.url, content=json.dumps(message), headers=headers))

    @asynccontextmanager
    async def connection(self, *sent: bytes) -> AsyncIterator[None]:
        """Send bytes over a bare connection, and wait until the server closes it."""
        url = httpx2.URL(self.url)
        async with await anyio.connect_tcp(url.host, url.port or 80, local_host=_ADDRESS) as connection:
            for each in sent:
                await connection.send(each)
            with suppress(anyio.EndOfStream):
                await connection.receive()
            yield


def _answer(response: httpx2.Response) -> dict[str, Any]:
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = text.rpartition("data: ")[2]
    found: dict[str, Any] = json.loads(text)
    return found


# Floods by one principal.


def _program(code: str, **arguments: Any) -> Step:
    async def step(wire: Wire) -> None:
        answer = await wire.ask("tools/call", {"name": "exec", "arguments": {"code": code, **arguments}})
        if "error" in answer:
            await anyio.sleep(_AFTER_REFUSAL)

    return step


async def _post(wire: Wire, message: dict[str, Any] | str) -> None:
    if (await wire.post(message)).status_code != 200:
        await anyio.sleep(_AFTER_REFUSAL)


@functools.cache
def _many_values() -> str:
    """Return a large body that parses into many values."""
    values = [[number] for number in range(400_000)]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": values}}
    return json.dumps(message)


async def _half_body(wire: Wire) -> None:
    head = f"POST /mcp HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {wire.token}\r\ncontent-type: application/json\r\n"
    async with wire.connection(f"{head}content-length: {4 << 20}\r\n\r\n".encode(), b" " * (3 << 20)):
        pass


async def _connection(wire: Wire) -> None:
    async with wire.connection(b"POST /mcp HTTP/1.1\r\n"):
        pass


async def _cancelled(wire: Wire) -> None:
    with anyio.move_on_after(0.05):
        await wire.exec_alone(_CALL_MANY)


_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_CALL_MANY = "await Promise.all(Array.from({ length: 16 }, () => MCP.wild.read({ key: 'x', how: 'never' })))"
_FLOOD = "await MCP.wild.read({ key: 'x', how: 'flood' })"
_RESULT = "return (await MCP.wild.read({ key: 'x', size: 8_000_000 })).content.length"
_SUSPENDED = "const kept = 'x'.repeat(2e6); await yield_control(); return kept.length"
_MEMORY = "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1))"

PRINCIPALS: Final[dict[str, tuple[int, Step]]] = {
    "progress": (4, lambda wire: wire.exec(_FLOOD, _meta={"progressToken": "flood"})),
    "bodies": (8, lambda wire: _post(wire, _many_values())),
    "half bodies": (100, _half_body),
    "sessions": (16, lambda wire: _post(wire, {**_PING, "method": "initialize", "params": _INITIALIZE})),
    "connections": (2500, _connection),
    "logins": (64, lambda wire: wire.post(_PING, authorization="Bearer " + "wrong" * 8)),
    "computing": (40, _program("for (;;) {}", timeoutMs=5000)),
    "memory": (40, _program(_MEMORY, timeoutMs=5000)),
    "outputs": (40, _program("text('x'.repeat(900000))")),
    "programs": (8, _program("const text = '" + "x" * 900_000 + "'; return text.length")),
    "hanging": (40, _program(_CALL_MANY, timeoutMs=5000)),
    "suspended": (16, lambda wire: wire.exec_alone(_SUSPENDED)),
    "cancels": (40, _cancelled),
    "lists": (64, lambda wire: wire.ask("tools/list")),
    "results": (8, _program(_RESULT)),
}
"""The workers of each kind, and what each of them repeats."""

_WITHOUT_SESSION: Final = ("half bodies", "sessions", "connections", "logins")


async def flood_by_principal(kind: str, url: str) -> None:
    workers, step = PRINCIPALS[kind]
    begun, all_begun = 0, anyio.Event()

    async def repeat(wire: Wire) -> None:
        nonlocal begun
        for number in itertools.count():
            try:
                if wire.session is None and kind not in _WITHOUT_SESSION:
                    await wire.open()
                await step(wire)
            except (OSError, httpx2.HTTPError, anyio.BrokenResourceError, ValueError, KeyError):
                await anyio.sleep(_AFTER_REFUSAL)
            begun += number == 0
            if begun == workers:
                all_begun.set()

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    transport = httpx2.AsyncHTTPTransport(limits=limits, local_address=_ADDRESS)
    async with httpx2.AsyncClient(timeout=60, transport=transport) as http, anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(repeat, Wire(http, url, BOB))
        with anyio.move_on_after(_READY_SECONDS):
            await all_begun.wait()
        print("flooding", flush=True)


# Floods by one client of the shared instance.

_WINDOW: Final = 200
"""Requests without an answer at the same time."""
_LARGE: Final = "text('x'.repeat(30000))"
"""A program with a large answer."""
_CALLS: Final = "return (await Promise.all([...'0123456789'].map((key) => MCP.calm.read({ key })))).length"

ANSWERED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "pings": ("ping", {}),
    "programs": ("tools/call", {"name": "exec", "arguments": {"code": "return 1"}}),
    "computing": ("tools/call", {"name": "exec", "arguments": {"code": "for (;;) {}"}}),
    "calls": ("tools/call", {"name": "exec", "arguments": {"code": _CALLS}}),
    "lines": ("ping", {"_meta": {"filler": "x" * 100_000_000}}),
}
"""Requests of the floods by a client that reads its answers, with at most `_WINDOW` requests at the same time."""

CLIENTS: Final = (*ANSWERED, "unread", "stopped relay")
"""All floods. Two clients do not read their answers: one has no relay, and the relay of the other one is stopped."""


def _lines(method: str, params: dict[str, Any]) -> Iterator[bytes]:
    """Write a greeting, and the same request again and again."""
    yield json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _INITIALIZE}).encode() + b"\n"
    yield b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    rest = json.dumps({"method": method, "params": params})[1:].encode()
    for number in itertools.count(1):
        yield b'{"jsonrpc": "2.0", "id": %d, %b\n' % (number, rest)


def _attach(config: Path) -> socket.socket:
    client = attaching.Client(str(config), found=False, folder=str(config.parent), options={"logLevel": "error"})
    return attaching.attach(registry.key_of(config), client, dict(os.environ)).connection


def _flood_and_read(kind: str, config: Path) -> None:
    connection = _attach(config)
    places = threading.Semaphore((2 if kind == "lines" else _WINDOW) + 1)  # one is kept by the notification

    def read() -> None:
        for line in connection.makefile("rb"):
            if b'"id":' in line and b'"method"' not in line[:60] and not line.startswith(b"\x01"):
                places.release()

    threading.Thread(target=read, daemon=True).start()
    print("flooding", flush=True)
    for line in _lines(*ANSWERED[kind]):
        places.acquire()
        connection.sendall(line)


def _flood_unread(config: Path) -> None:
    connection = _attach(config)
    print("flooding", flush=True)
    for line in _lines("tools/call", {"name": "exec", "arguments": {"code": _LARGE}}):
        connection.sendall(line)  # blocks, once the instance reads no more of them


def _flood_by_stopped_relay(config: Path) -> None:
    command = [sys.executable, "-m", "codemode_mcp", "serve", "--config", str(config)]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert relay.stdin is not None
        assert relay.stdout is not None
        for number, line in enumerate(_lines("tools/call", {"name": "exec", "arguments": {"code": _LARGE}})):
            relay.stdin.write(line)
            relay.stdin.flush()
            if number == 0:
                relay.stdout.readline()
            if number == _WINDOW:
                break
        relay.send_signal(signal.SIGSTOP)
        print("flooding", flush=True)
        signal.pause()
    finally:
        relay.kill()
        relay.wait()


def main() -> None:
    import resource

    kind, target = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if target.startswith("http"):
        anyio.run(flood_by_principal, kind, target)
    elif kind == "unread":
        _flood_unread(Path(target))
    elif kind == "stopped relay":
        _flood_by_stopped_relay(Path(target))
    else:
        _flood_and_read(kind, Path(target))


@asynccontextmanager
async def flooding(kind: str, target: str) -> AsyncIterator[None]:
    """Flood from a process of its own for the duration of the context."""
    command = [sys.executable, "-m", "tests.faults.floods", kind, target]
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


# What they cost.


@dataclass(frozen=True, slots=True)
class Delays:
    """The seconds of each probe."""

    seconds: dict[str, list[float]]

    @property
    def count(self) -> int:
        """The requests of the kind that was answered least often."""
        return min(map(len, self.seconds.values()))

    def added(self, other: Delays) -> float:
        """Return the seconds by which the worst probe was later than its like."""
        return max(max(found) - max(other.seconds[name]) for name, found in self.seconds.items())

    def __str__(self) -> str:
        """Return the median and the maximum of each."""
        shown = (
            f"{name} {1000 * statistics.median(found):.0f} / {1000 * max(found):.0f}"
            for name, found in self.seconds.items()
        )
        return f"{', '.join(shown)} ms of {self.count}"


async def measure(ask: Ask, seconds: float, *, least: int = 3, clock: Callable[[], float] = time.monotonic) -> Delays:
    """Make each request again and again for some seconds, and at least so often."""
    delays = Delays({name: [] for name in PROBES})
    end = time.monotonic() + seconds

    async def repeat(name: str, found: list[float]) -> None:
        while time.monotonic() < end or len(found) < least:
            began = clock()
            await ask(name)
            found.append(clock() - began)
            await anyio.sleep(_BETWEEN_PROBES)

    async with anyio.create_task_group() as group:
        for name, found in delays.seconds.items():
            group.start_soon(repeat, name, found)
    return delays


def _config(folder: Path, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "config.json"
    servers = {name: ledger_server(Path(os.devnull), name) for name in ("calm", "wild")}
    store = {"kind": "sqlite", "path": str(folder / "runs" / "runs.sqlite3")}
    config.write_text(json.dumps({"mcpServers": servers, "store": store, **more}), "utf-8")
    return config


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers with the same configuration."""

    flooded: Served
    other: Served

    async def cost(self, kind: str, seconds: float) -> tuple[Delays, Delays]:
        """Measure for so many seconds of a flood, from its beginning on; the delays of the flooded server first."""
        found: dict[str, Delays] = {}

        async def probe(served: Served) -> None:
            async with httpx2.AsyncClient(timeout=4 * SECONDS) as http:
                wire = Wire(http, served.url, ALICE)
                await wire.open()

                async def ask(name: str) -> None:
                    answer = await (wire.exec(PROBES[name]) if PROBES[name] else wire.ask(name))
                    assert "result" in answer, answer
                    assert not answer["result"].get("isError"), answer

                def clock() -> float:
                    return time.monotonic() - without_processor(served.process.pid)

                found[served.url] = await measure(ask, seconds, least=1, clock=clock)

        async with flooding(kind, self.flooded.url), anyio.create_task_group() as group:
            group.start_soon(probe, self.flooded)
            group.start_soon(probe, self.other)
        return found[self.flooded.url], found[self.other.url]


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Yield two servers, each with a quiet upstream server and one for the flood."""
    configs = [_config(folder / name, http=TWO_TOKENS) for name in ("flooded", "other")]
    async with serve_http(configs[0], own_process=True) as flooded, serve_http(configs[1]) as other:
        await flooded.ready()
        await other.ready()
        yield Pair(flooded, other)


@asynccontextmanager
async def probed(folder: Path) -> AsyncIterator[tuple[str, Ask]]:
    """Run an instance with an attached client for each probe. Yield the configuration, and the clients' requests."""
    config = _config(folder, tools={"codeMode": {"timeoutMs": 2000}})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(instance(config))
        clients = {name: await stack.enter_async_context(attached(config)) for name in PROBES}
        for client in clients.values():
            await client.greet()

        async def ask(name: str) -> None:
            if PROBES[name]:
                answer = await clients[name].exec(PROBES[name])
                assert answer["status"] == "completed", answer
            else:
                await clients[name].request(name)

        await measure(ask, 1)
        yield str(config), ask


MOST = 1.0
"""Seconds by which the flood of one principal may delay another one."""

SETTLING = 3.0
"""Seconds between two floods, for what the first has left behind."""


async def floods_of_principals(folder: Path, kinds: list[str], seconds: float) -> list[str]:
    """Make each flood, and print its cost. Return the kinds that cost too much."""
    late = []
    print("median / worst on the flooded server, and on the other one")
    async with pair(folder) as servers:
        for kind in kinds:
            flooded, other = await servers.cost(kind, seconds)
            added = flooded.added(other)
            print(f"{kind:14} {flooded}; {other}; added {added:.2f} s", flush=True)
            if added > MOST:
                late.append(kind)
            await anyio.sleep(SETTLING)
    return late


async def floods_of_clients(folder: Path, kinds: list[str], seconds: float) -> list[str]:
    """Make each flood, and print its cost."""
    async with probed(folder) as (config, ask):
        print(f"{'at rest':14} {await measure(ask, seconds)}", flush=True)
        for kind in kinds:
            async with flooding(kind, config):
                print(f"{kind:14} {await measure(ask, seconds)}", flush=True)
            await anyio.sleep(1)
    return []


if __name__ == "__main__":
    main()
