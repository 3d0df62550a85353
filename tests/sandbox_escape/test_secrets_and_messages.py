"""Promises 9 and 10: no secret of the configuration reaches a program, and nothing of the host's inside is in what a
program or a client is told. `tests/integration/test_serve_upstreams.py` has what is said of servers that are down.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit import RedactingFormatter
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.sandbox.engine import Engine
from tests.integration.harness import REPOSITORY, counting, http_server, raw, write_config
from tests.runs.bench import FakeClient, bench
from tests.sandbox_escape.reach import WALK
from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.testing import FailingSource, ScriptedSource, text_result
from upstream_clients.tools import Tool

pytestmark = pytest.mark.anyio

CANARIES = {
    "environment": "canary-environment-91",
    "server": "canary-server-92",
    "header": "canary-header-93",
    "expanded": "canary-expanded-94",
}

EVERYTHING = (
    WALK
    + r"""
const seen = [];
const tell = (v) => { try { seen.push(String(v)) } catch (e) { seen.push(e.stack) } };
const roots = { ...ROOTS, mcp: MCP, servers: { ...MCP }, all: ALL_TOOLS, files: (await API.list()).files };
for (const path of roots.files) roots[path.path] = await API.read(path.path);
roots.root = await MCP.$api();
for (const name of Object.keys(MCP)) roots["$" + name] = await MCP[name].$api().catch((error) => error);
roots.found = [await API.search("canary"), await API.search("key token secret environment header authorization")];
roots.errors = [];
const { good, remote, wrong } = MCP;
for (const call of [good.count, good.refuse, good.reject, good.environment, remote.none, remote.echo, wrong.none])
  for (const given of [{}, 1, { name: 1 }])
    try { roots.errors.push(await call(given)) } catch (error) { roots.errors.push(error) }
for (const [object, place] of walk(roots)) {
  tell(place);
  for (const key of Reflect.ownKeys(object)) {
    tell(key);
    const d = Object.getOwnPropertyDescriptor(object, key);
    if ("value" in d) tell(d.value);
    else if (d.get) try { tell(d.get.call(object)) } catch (e) { tell(e.stack) }
  }
}
json(seen.length);
text(new Error().stack);
return seen.filter((text) => /canary|Bearer/.test(text) && !text.includes("return seen"));
"""
)


async def test_a_program_that_searches_everything_finds_no_secret_and_a_client_sees_none(tmp_path: Path) -> None:
    environment = {"CANARY": CANARIES["environment"], "EXPANDED": CANARIES["expanded"]}
    async with http_server("--token", CANARIES["header"]) as url:
        servers: dict[str, Any] = {
            "good": counting(tmp_path / "log", env={"SECRET": CANARIES["server"], "TOKEN": "${EXPANDED}"}),
            "remote": {"url": url, "headers": {"Authorization": f"Bearer {CANARIES['header']}"}},
            "wrong": {"url": url, "headers": {"Authorization": f"Bearer {CANARIES['header']}-not", "X": "${EXPANDED}"}},
        }
        config = write_config(tmp_path, servers, codeMode={"maxOutputBytes": 60_000})
        async with raw(config, env=environment) as client:
            await client.initialize("2025-11-25")
            await client.request("tools/list")
            answers = []
            for code in (EVERYTHING, "throw await MCP.good.reject({}).catch((e) => e)", "return await MCP.wrong.x({})"):
                answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
                answers.append(answer["result"]["structuredContent"])
            assert await client.end() == 0
    assert answers[0]["status"] == "completed", answers[0]
    assert answers[0]["value"] == []
    assert answers[0]["output"][0]["value"] > 3000
    assert [answer["status"] for answer in answers[1:]] == ["failed", "failed"]
    traffic = client.received.decode()
    for canary in CANARIES.values():
        assert canary not in traffic
        assert canary not in client.stderr
    for revealing in ("Traceback", 'File "', str(REPOSITORY), sys.prefix, "site-packages", str(tmp_path)):
        assert revealing not in traffic


# what a program hears of failures of all kinds

FAULTS: dict[str, Exception] = {
    "a key error": KeyError("/srv/secret/path"),
    "a type error": TypeError("'NoneType' object has no attribute 'canary'"),
    "a file that is not there": FileNotFoundError(2, "No such file", "/home/somebody/canary.json"),
    "no permission": PermissionError(13, "Permission denied", "/root/canary"),
    "no connection": ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 8000)"),
    "a recursion": RecursionError("maximum recursion depth exceeded in canary"),
    "no memory": MemoryError("canary"),
    "an assertion": AssertionError("canary == 1"),
    "text that is none": UnicodeDecodeError("utf-8", b"canary", 0, 1, "invalid start byte"),
    "an exit": NotImplementedError("canary"),
    "a group": ExceptionGroup("canary", [ValueError("canary")]),
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_of_ours_tells_a_program_nothing_of_it(engine: Engine, kind: str) -> None:
    async with bench(engine, ScriptedSource("s", {"fail": FAULTS[kind]})) as it:
        caught = await it.execute(
            "return await MCP.s.fail({}).catch((e) => [e.name, e.message, e.code, e.data, e.stack])"
        )
        thrown = await it.execute("await MCP.s.fail({})")
    told = "mcp:s:fail: the call failed inside codemode-mcp; see its log"
    data = {"tool": "mcp:s:fail", "dispatched": True, "repeatable": False}
    assert caught.value[:4] == ["ToolCallError", told, "internal_error", data]
    assert (thrown.code, thrown.error.splitlines()[0]) == ("nested_tool_failed", f"ToolCallError: {told}")
    assert_nothing_of_the_host(json.dumps(caught.value) + thrown.error)


CLASSES = {each.__name__ for each in CodeModeError.__subclasses__()} - {"InternalError"} | {
    "KeyError", "ValueError", "AttributeError", "OSError", "FileNotFoundError", "UpstreamCallError", "ExceptionGroup",
    "ValidationError", "JSONDecodeError", "CancelledError", "UpstreamUnavailable", "GuestTrap", "wasmtime", "anyio",
}  # fmt: skip


def assert_nothing_of_the_host(text: str) -> None:
    assert "canary" not in text
    assert "Traceback" not in text
    assert 'File "' not in text
    assert ".py" not in text
    for name in CLASSES:
        assert name not in text
    assert re.search(r"(?<![\w.:/])/(?:home|root|usr|var|tmp|work|etc|proc|opt)\b", text) is None


PROVOKED = {
    "an unknown tool": "await MCP['s']['none' + '']?.({}); throw 1",
    "an unknown server": "const name = 'none'; await MCP[name].x({})",
    "no arguments": "await MCP.s.strict()",
    "an argument of a wrong type": "await MCP.s.strict({ name: 1 })",
    "a list for an object": "await MCP.s.strict([1])",
    "too many arguments": "await MCP.s.strict({ name: 'a' }, 2)",
    "arguments that are too deep": "let a = 1; for (let i = 0; i < 300; i++) a = { a }; await MCP.s.strict(a)",
    "arguments without a JSON form": "await MCP.s.strict(1n)",
    "a denied tool": "await tools.call('mcp:s:denied', {})",
    "a tool that is not approved": "await MCP.s.asks({})",
    "a tool that fails": "unwrap(await MCP.s.report({}))",
    "a server that fails": "await MCP.s.reject({})",
    "a server that is down": "await MCP.down.x({})",
    "a path that is none": "await API.read('../../etc/passwd')",
    "an empty path": "await API.read('')",
    "a search in nothing": "await API.search('x', { server: 'none' })",
    "an option of a wrong type": "await API.search('x', { limit: {} })",
    "a header of nothing": "await MCP.s.$api('none')",
    "a key of ours": "store('result:x', 1); await load('x'); throw 1",
    "a value that is too large": "store('x', 'x'.repeat(6e6)); await load('x'); throw 1",
    "modules": "await (0, eval)('import(\"fs\")')",
    "a syntax error in eval": "(0, eval)('const = 1')",
    "too deep": "(function f() { f() })()",
    "too much memory": "const a = []; for (;;) a.push(new Array(1e5).fill(1))",
    "too long": "for (;;);",
    "nothing to wait for": "await new Promise(() => {})",
    "a picture that is none": "image({ type: 'image' })",
    "unwrap of nothing": "unwrap(null)",
    "a clone of a function": "structuredClone(() => 1)",
    "a URL that is none": "new URL('::')",
    "text that is no base64": "atob('*')",
    "numbers for what has none": "crypto.getRandomValues([])",
    "a timer without a function": "setTimeout('text(1)')",
    "a constant": "MCP.s = 1; 'use strict'; (() => { 'use strict'; MCP.s = 1 })()",
}


@pytest.mark.parametrize("kind", PROVOKED)
async def test_no_failure_tells_of_the_hosts_inside(engine: Engine, kind: str) -> None:
    strict = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    source = ScriptedSource(
        "s",
        {
            "strict": text_result("1"), "denied": text_result("2"), "asks": text_result("3"),
            "report": text_result("the tool says no", isError=True),
            "reject": UpstreamCallError("s", "the server says no", dispatched=True, code=-32000),
        },
        tools=[Tool("strict", input_schema=strict), *map(Tool, ("denied", "asks", "report", "reject"))],
    )  # fmt: skip
    down = FailingSource("down", error=UpstreamUnavailable("down", "server 'down' ended with exit code 1"))
    rules = PolicyRules(deny=("mcp:s:denied",), ask=("mcp:s:asks",))
    options: dict[str, Any] = {"timeout_ms": 300} if kind == "too long" else {}
    async with bench(engine, source, down, rules=rules, memory_limit_bytes=24 * 2**20, **options) as it:
        declines = FakeClient("ask", replies=[{"action": "decline"}])
        outcome = await it.execute(PROVOKED[kind], client=declines)
    assert outcome.status == "failed", outcome
    assert outcome.error
    assert_nothing_of_the_host(outcome.error + " ".join(outcome.notes))


@pytest.mark.parametrize(
    "name",
    [
        "x\n2026-01-01 00:00:00 INFO codemode_mcp: forged",
        "x\r\x1b[2Jforged",
        "x\u2028forged",
        "x\U000e0041forged",
    ],
)
async def test_a_program_writes_no_line_of_the_log(engine: Engine, caplog: pytest.LogCaptureFixture, name: str) -> None:
    caplog.set_level("INFO", "codemode_mcp")
    async with bench(engine, ScriptedSource("s", {"work": text_result("done")})) as it:
        await it.execute(f"await tools.call({json.dumps(name)}, {{}}).catch(() => 1)")
    formatter = RedactingFormatter(lambda text: text)
    lines = [formatter.format(record) for record in caplog.records]
    assert any("forged" in line for line in lines)
    for line in lines:
        assert line.isprintable(), line
