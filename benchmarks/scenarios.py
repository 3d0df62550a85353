"""The scenarios of `run.py`: variants of one work, and bars for the ratio of each to the first one.

A scenario starts its processes in a stack of contexts, and yields comparisons, whose variants alternate.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import harness
import httpx2
from harness import ECHO, configured, ours, upstream
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from codemode_mcp.base.paths import cache_dir
from codemode_mcp.extensions.type_check.compiler import find_compiler

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Variants of one work.

    Attributes:
        variants: the first one is the base of the ratios.
        rounds: rounds that count.
        bars: the maximum of the ratio, by variant. A variant without a bar is reported alone.
        added: True if bars are milliseconds that a variant takes more than the base, in the median.
    """

    title: str
    variants: Mapping[str, Work]
    rounds: int
    bars: Mapping[str, float] = field(default_factory=dict)
    warm: int = 5
    added: bool = False

    async def report(self, rounds: int | None) -> None:
        times = await harness.alternate_async(self.variants, rounds or self.rounds, warm=min(self.warm, rounds or 99))
        base, *others = times
        for name in others:
            bar = self.bars.get(name)
            if self.added:
                more = statistics.median(a - b for a, b in zip(times[name], times[base], strict=True))
                shown, ok = ("none", True) if bar is None else (f"< {bar:g} ms", more < bar)
                figure = f"{more:+.1f} ms ({statistics.median(times[name]):.1f} ms)"
                harness.report(f"{self.title}: {name} to {base}", figure, shown, ok)
            else:
                harness.report_ratio(f"{self.title}: {name} to {base}", times[name], times[base], bar)


Scenario = Callable[[AsyncExitStack, Path], AsyncIterator[Comparison]]


async def program(client: Client, code: str) -> Any:
    """Run a program that succeeds, and return its value."""
    result = await client.call_tool("exec", {"code": code})
    assert not result.is_error, result
    return (result.structured_content or {}).get("value")


async def one_exec(stack: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """Programs over stdio beside plain calls of the same server: one call, and a hundred in both ways."""
    plain = await stack.enter_async_context(Client(StdioServerParameters(**ECHO)))
    client = await stack.enter_async_context(Client(ours(configured(folder, {"echo": ECHO}))))
    say = partial(plain.call_tool, "echo", {"text": "x"})
    yield Comparison("`return 1`", {"an echo": say, "exec": partial(program, client, "return 1")}, 200, {"exec": 2.5})
    for each in _hundred("echo", "MCP.echo.echo({ text: 'x' })", client, say, 15, {"sequence": 1.3, "parallel": 1.2}):
        yield each


def _hundred(
    name: str, call: str, client: Client, one: Work, rounds: int, bars: Mapping[str, float], count: int = 100
) -> list[Comparison]:
    """Compare calls of a program with the same ones made directly."""

    async def in_turn() -> None:
        for _ in range(count):
            await one()

    async def together() -> None:
        await asyncio.gather(*[one() for _ in range(count)])

    loop = f"for (let i = 0; i < {count}; i++) await {call}; return 1"
    every = f"await Promise.all(Array.from({{ length: {count} }}, () => {call})); return 1"
    return [
        Comparison(
            f"{count} calls of {name} in {way}",
            {"direct": direct, "exec": partial(program, client, code)},
            rounds,
            {"exec": bars[way]},
            warm=1,
        )
        for way, direct, code in (("sequence", in_turn, loop), ("parallel", together, every))
    ]


async def first_list(parameters: StdioServerParameters, code: str | None = None) -> None:
    async with Client(parameters) as client:
        await client.list_tools()
        if code is not None:
            await program(client, code)


async def startup(_: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """The start of a process to the answer to its first `tools/list`."""
    config = configured(folder, {f"echo{number}": ECHO for number in range(3)})
    both = {"an SDK server": StdioServerParameters(**ECHO), "serve": ours(config)}
    variants = {name: partial(first_list, parameters) for name, parameters in both.items()}
    yield Comparison("start to tools/list", variants, 9, {"serve": 1.3}, warm=1)


RULES = 1_000
PLUGIN = """
import json

async def look(event):
    if event.input.get("text") == "never":
        raise AssertionError

async def count(event):
    len(json.dumps(event.input))

def wait(event):
    return None

async def middle(event, result):
    return {**result}

def register(api, hooks=(look, count)):
    for hook in hooks:
        api.before_tool_call(hook, tools=["mcp:*"])
    api.tool_result_middleware(middle, tools=["mcp:*"])

def register_sync(api):
    register(api, (look, wait))
"""


async def control(stack: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """A thousand rules, two hooks, a middleware and the trajectory, in a hundred calls over stdio."""
    (folder / "guard.py").write_text(PLUGIN, "utf-8")
    kinds = ("mcp:server{}:delete_*", "mcp:*:drop{}_?", "mcp:s{}:exact", "plugin:p{}:*", "mcp:e?ho{}:*")
    some = [kind.format(number) for number in range(RULES // len(kinds)) for kind in kinds]
    parts = {name: some[number::4] for number, name in enumerate(("deny", "approved", "ask", "allow"))}
    rules = {**parts, "allow": [*parts["allow"][:-1], "mcp:echo:*"]}
    off = {"duplicates": {"action": "off"}}

    def everything(register: str) -> dict[str, Any]:
        plugin = {"module": f"guard.py:{register}", "hooks": ["*"], "middleware": ["*"]}
        return {"tools": rules, "plugins": {"guard": plugin}, "audit": {"trajectory": f"{register}.jsonl"}}

    code = "for (let i = 0; i < 100; i++) await MCP.echo.echo({ text: 'x' + i })"
    variants: dict[str, Work] = {}
    for name, more in {
        "nothing": {"tools": off},
        "nothing again": {"tools": off},
        f"{RULES} rules": {"tools": {**rules, **off}},
        "rules, hooks, middleware, trajectory": everything("register"),
        "the same, a hook is not async": everything("register_sync"),
    }.items():
        config = configured(folder, {"echo": ECHO}, name.replace(" ", "-").replace(",", ""), **more)
        variants[name] = partial(program, await stack.enter_async_context(Client(ours(config))), code)
    bars = {f"{RULES} rules": 1.02, "rules, hooks, middleware, trajectory": 1.05}
    yield Comparison("100 calls", variants, 60, bars)


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address of loopback where packets vanish: its queue is full, and a connection gets no answer at all."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        filling = [socket.socket() for _ in range(4)]
        for each in filling:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        for each in filling:
            each.close()


async def dead(stack: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """Twenty healthy servers beside nineteen and a dead one. A second healthy one shows the noise of the machine."""
    healthy = upstream()
    last = {
        "healthy": healthy,
        "healthy again": healthy,
        "command missing": {"command": "no-such-command-anywhere"},
        "hangs at its start": {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]},
        "packets swallowed": {"type": "http", "url": stack.enter_context(black_hole())},
    }
    configs = {}
    for name, entry in last.items():
        servers = {f"s{number}": healthy for number in range(19)} | {"last": entry}
        configs[name] = ours(configured(folder, servers, name.replace(" ", "-")))
    bars = dict.fromkeys(list(last)[2:], 1.1)
    first = "return unwrap(await MCP.s0.echo({ text: 'x' })).text"
    starts = {name: partial(first_list, each, first) for name, each in configs.items()}
    yield Comparison("1 of 20 servers, start to a result", starts, 5, bars, warm=1)
    clients = {name: await stack.enter_async_context(Client(each)) for name, each in configs.items()}
    code = "for (let i = 0; i < 100; i++) await MCP.s0.echo({ text: 'x' })"
    calls = {name: partial(program, client, code) for name, client in clients.items()}
    yield Comparison("1 of 20 servers, 100 calls", calls, 15, bars, warm=1)
    lists = {name: client.list_tools for name, client in clients.items()}
    yield Comparison("1 of 20 servers, tools/list", lists, 300, bars)


SAVED = """async function report({ calls }) {
  const lines = [];
  for (let i = 0; i < calls; i++) {
    const { text } = unwrap(await MCP.up.echo({ text: `{"text": "line ${i}"}` }));
    lines.push(text);
  }
  const lengths = lines.map((line) => line.length);
  return { lines: lines.length, longest: Math.max(...lengths), sorted: lines.toSorted().slice(0, 3) };
}"""


async def saved(stack: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """A saved program beside the same text in a cell."""
    (folder / "programs").mkdir()
    text = f"/** @param {{{{ calls: number }}}} input */\nexport default {SAVED}\n"
    (folder / "programs" / "report.js").write_text(text, "utf-8")
    client = await stack.enter_async_context(Client(ours(configured(folder, {"up": upstream()}))))
    for calls, rounds in ((1, 136), (10, 75), (100, 20)):
        cell = f"{SAVED}\nreturn await report({{ calls: {calls} }})"
        name = f"return await programs.report({{ calls: {calls} }})"
        assert await program(client, cell) == await program(client, name), "both forms must have the same result"
        variants = {"a cell": partial(program, client, cell), "a saved program": partial(program, client, name)}
        bars = {"a saved program": 1.05} if calls == 10 else {}
        yield Comparison(f"a program with {calls} call{'s' * (calls > 1)}", variants, rounds, bars)


CHECKED = """\
const workspace_id = "w";
const open = [];
if (args.length > 0) {
  const found = unwrap(await MCP.up.listIssue({ workspace_id, state: "open", limit: 50 }));
  open.push(found.id, found.title);
  for (const label of ["bug", "docs"]) {
    const more = await MCP.up.searchIssue({ workspace_id, labels: [label] });
    if (!more.isError) open.push(more.structuredContent.id);
  }
  const files = await Promise.all(open.map((id) => MCP.up.getFile({ workspace_id, file_id: id })));
  open.push(...files.map((file) => unwrap(file).title ?? "none"));
}
"""


async def check(stack: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """The time that a type check adds. The compiler runs already, and no program calls a tool."""
    find_compiler(cache_dir())
    numbers = iter(range(1_000_000))  # no program is one that was checked already
    for tools, bar in ((145, 60.0), (1000, 150.0)):
        variants: dict[str, Work] = {}
        for mode in ("off", "note"):
            section = {"codeMode": {"check": mode}}
            config = configured(folder, {"up": upstream(tools=tools - 2)}, f"{mode}-{tools}", tools=section)
            parameters = ours(config)
            parameters.env = {**(parameters.env or {}), "XDG_CACHE_HOME": str(cache_dir().parent)}
            client = await stack.enter_async_context(Client(parameters))
            await program(client, 'await API.read("mcp/up.d.ts"); return 1')
            code = "if (args.length > 0) await MCP.up.echo({ text: 1 }); return 1"
            answer = str((await client.call_tool("exec", {"code": code})).content)
            assert ("The type check found" in answer) == (mode == "note"), answer
            variants[mode] = partial(_numbered, client, numbers)
        yield Comparison(f"type check, {tools} tools", variants, 100, {"note": bar}, added=True)


async def _numbered(client: Client, numbers: Iterator[int]) -> None:
    await program(client, f"{CHECKED}return open.length + {next(numbers)};")


PET = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
GET_PET = {
    "operationId": "getPet",
    "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
    "responses": {"200": {"description": "A pet.", "content": {"application/json": {"schema": PET}}}},
}
DOCUMENT = {"openapi": "3.0.3", "info": {"title": "Pets", "version": "1"}, "paths": {"/pets/{id}": {"get": GET_PET}}}
API = """
import asyncio, json, sys

body = json.dumps({"id": 7, "name": "Rex", "tags": ["dog", "small", "brown"]}).encode()
answer = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body

async def connected(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            writer.write(answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], file=sys.stderr, flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
"""A bare API, so that mostly the client's time is measured."""


async def openapi(stack: AsyncExitStack, folder: Path, count: int = 100) -> AsyncIterator[Comparison]:
    """Calls of an HTTP API by programs, beside the same requests by httpx2."""
    _, url = stack.enter_context(harness.address([sys.executable, "-c", API], folder / "api"))
    (folder / "pets.json").write_text(json.dumps(DOCUMENT), "utf-8")
    entry = {"openapi": str(folder / "pets.json"), "baseUrl": url, "maxConcurrentCalls": count}
    client = await stack.enter_async_context(Client(ours(configured(folder, {"pets": entry}))))
    http = await stack.enter_async_context(httpx2.AsyncClient())

    async def get() -> None:
        assert (await http.get(f"{url}/pets/7", headers={"Accept": "application/json"})).json()["id"] == 7

    call = "MCP.pets.getPet({ id: 7 })"
    one = {"httpx2": get, "exec": partial(program, client, f"return unwrap(await {call}).id")}
    bars = {"sequence": 1.3, "parallel": 1.3}
    for each in _hundred("an API", call, client, get, 50, bars, count):
        yield each
    yield Comparison("one call of an API", one, 50, warm=1)


RUN_CLIENT = """
import sys
import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    async with stdio_client(StdioServerParameters(command=sys.executable, args=sys.argv[1:])) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            await session.list_tools()
            await session.call_tool("list_people", {})
            print("done", flush=True)

anyio.run(main)
"""


async def first_output(_: AsyncExitStack, folder: Path) -> AsyncIterator[Comparison]:
    """The time of `codemode-mcp run`, beside a client of the SDK that makes the same call."""
    server = [str(harness.ROOT / "examples" / "quickstart" / "tracker.py")]
    config = configured(folder, {"one": {"command": sys.executable, "args": server}})
    environ = harness.clean(harness.own_home(folder / "home"))
    run = ["-m", "codemode_mcp", "run", "-q", "--config", str(config), "-e", "await MCP.one.listPeople({}); text('')"]

    async def output(arguments: Sequence[str]) -> None:
        await anyio.run_process([sys.executable, *arguments], env=environ)

    variants = {"an SDK client": partial(output, ["-c", RUN_CLIENT, *server]), "run": partial(output, run)}
    yield Comparison("output of one call", variants, 9, {"run": 1.0}, warm=1)


SCENARIOS: Mapping[str, Scenario] = {
    "startup": startup,
    "exec": one_exec,
    "openapi": openapi,
    "first-output": first_output,
    "control": control,
    "dead": dead,
    "saved": saved,
    "check": check,
}
