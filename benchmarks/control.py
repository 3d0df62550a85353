"""Cost of rules, hooks, middleware and the trajectory in a hundred nested calls."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp.client.client import Client
from measure import ECHO, ours, report

from codemode_mcp.calls.dispatch import Dispatcher
from codemode_mcp.calls.outcome import Calling, CallRecord
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.plugins.interception import Interceptors, Registered
from codemode_mcp.policy.policy import Caller, Policy
from codemode_mcp.sandbox.messages import ToolCall
from codemode_mcp.settings import PolicyRules, ToolSettings
from upstream_clients.testing import ScriptedSource, text_result

CALLS = 100
RULES = 1_000
ROUNDS = 60
SEQUENTIAL = f"for (let i = 0; i < {CALLS}; i++) await MCP.echo.echo({{ text: 'x' + i }})"

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

def register(api):
    for hook in HOOKS:
        api.before_tool_call(hook, tools=["mcp:*"])
    for middleware in MIDDLEWARE:
        api.tool_result_middleware(middleware, tools=["mcp:*"])
"""


def rules() -> dict[str, list[str]]:
    """Return a thousand, of all kinds; of the tool that is called none says anything but the last one of `allow`."""
    kinds = ("mcp:server{}:delete_*", "mcp:*:drop{}_?", "mcp:s{}:exact", "plugin:p{}:*", "mcp:e?ho{}:*")
    some = [kind.format(number) for number in range(RULES // len(kinds)) for kind in kinds]
    quarter = len(some) // 4
    return {
        "deny": some[:quarter],
        "approved": some[quarter : 2 * quarter],
        "ask": some[2 * quarter : 3 * quarter],
        "allow": [*some[3 * quarter : -1], "mcp:echo:*"],
    }


# in one process


def dispatchers() -> dict[str, Dispatcher]:
    """Return the one road over an upstream that costs nothing, with and without all that may stand on it."""

    async def look(event: Any) -> None:
        pass

    async def middle(event: Any, result: Any) -> Any:
        return {**result}

    source = ScriptedSource("echo", {"echo": text_result("x")})
    source.calls = _Forgotten()
    full = Interceptors()
    full.apply([Registered("guard", look, ("*",), ("*",))] * 2, [Registered("guard", middle, ("*",), ("*",))])
    some = PolicyRules(**{key: tuple(value) for key, value in rules().items()})
    return {
        name: Dispatcher(lambda entry, _: source, ToolSettings(policy=policy), interception=interception)
        for name, policy, interception in (
            ("none", PolicyRules(), None),
            ("rules", some, None),
            ("all", some, full),
        )
    }


class _Forgotten(list[Any]):
    def append(self, _: Any) -> None:
        pass


async def in_process() -> dict[str, float]:
    """Microseconds of one call, by what stands on the road."""
    source = ScriptedSource("echo", {"echo": text_result("x")})
    catalog = build([source.view()], Policy(PolicyRules()))
    found = dispatchers()
    contexts = {name: each.context("run_1", "me", Caller("me"), catalog) for name, each in found.items()}
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(ROUNDS):
        for name, dispatcher in found.items():
            began = time.perf_counter()
            for number in range(CALLS):
                call = ToolCall(number, "mcp:echo:echo", '{"text":"x"}')
                done = await dispatcher.call(Calling(call, contexts[name], CallRecord(number, call.target, 0.0)))
                assert done.error is None, done.error
            times[name].append(time.perf_counter() - began)
    return {name: 1e6 * statistics.median(each) / CALLS for name, each in times.items()}


# over stdio


@asynccontextmanager
async def served(**more: Any) -> AsyncIterator[Client]:
    """Yield one of codemode-mcp with the echo server behind it; warm. `more` are sections of the configuration."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "codemode-mcp.json"
        plugin = more.pop("plugin", None)
        if plugin is not None:
            (Path(folder) / "guard.py").write_text(PLUGIN + plugin)
            more["plugins"] = {"guard": {"module": "guard.py:register", "hooks": ["*"], "middleware": ["*"]}}
        servers = {"echo": {"command": sys.executable, "args": [str(ECHO)]}}
        config.write_text(json.dumps({"mcpServers": servers, **more}))
        async with Client(ours(config)) as client:
            for _ in range(5):
                result = await client.call_tool("exec", {"code": SEQUENTIAL})
                assert not result.is_error, result
            yield client
        trajectory = Path(folder) / "runs.jsonl"
        assert "audit" not in more or trajectory.stat().st_size > 1000


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


ASYNC = "HOOKS, MIDDLEWARE = (look, count), (middle,)\n"
SYNC = "HOOKS, MIDDLEWARE = (look, wait), (middle,)\n"
AUDIT = {"trajectory": "runs.jsonl"}
OFF = {"duplicates": {"action": "off"}}


def sections() -> dict[str, dict[str, Any]]:
    """Return the configurations to compare, by name."""
    return {
        "none": {"tools": OFF},
        "again": {"tools": OFF},
        "rules": {"tools": {**rules(), **OFF}},
        "all": {"tools": rules(), "plugin": ASYNC, "audit": AUDIT},
        "sync": {"tools": rules(), "plugin": SYNC, "audit": AUDIT},
    }


async def over_stdio() -> dict[str, tuple[float, float]]:
    """Return, by configuration, milliseconds of a hundred calls and their ratio to the plain one in the same round."""

    async def hundred_calls(client: Client) -> None:
        result = await client.call_tool("exec", {"code": SEQUENTIAL})
        assert not result.is_error, result

    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(served(**each)) for name, each in sections().items()}
        times: dict[str, list[float]] = {name: [] for name in clients}
        names = list(clients)
        for number in range(ROUNDS):
            # Each comes first, and after each other, equally often.
            turn = names[number % len(names) :] + names[: number % len(names)]
            for name in turn if number % 2 else reversed(turn):
                times[name].append(await timed(partial(hundred_calls, clients[name])))
    return {
        name: (
            1000 * statistics.median(each),
            statistics.median(mine / none for mine, none in zip(each, times["none"], strict=True)),
        )
        for name, each in times.items()
    }


async def control() -> None:
    """Rules, two hooks, a middleware, the guard against repeated calls and the trajectory, against none of them."""
    us = await in_process()
    report(
        f"{RULES} rules, for each call",
        f"{us['rules'] - us['none']:+.1f} us ({us['none']:.1f} us to {us['rules']:.1f} us)",
        "< 2 us",
        us["rules"] - us["none"] < 2,
    )
    report(
        "  and two hooks and a middleware", f"{us['all'] - us['none']:+.1f} us", "< 50 us", us["all"] - us["none"] < 50
    )
    found = await over_stdio()
    report(f"{CALLS} calls over stdio with nothing configured, twice", f"{found['again'][1]:.3f}x", "the noise", True)
    for name, what, bar in (
        ("rules", f"  with {RULES} rules", 1.02),
        ("all", "  and two hooks, a middleware and the trajectory", 1.05),
        ("sync", "  the same where one hook is not async", None),
    ):
        ms, ratio = found[name]
        figure = f"{ratio:.3f}x ({ms:.1f} ms to {found['none'][0]:.1f} ms)"
        report(what, figure, "none" if bar is None else f"<= {bar}x", bar is None or ratio <= bar)


if __name__ == "__main__":
    anyio.run(control)
