"""Records of the real server: who may see them, what they hold, what none of them holds, and their end."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.integration.harness import counting, handshaken, http_server, parse_message, raw, serve, until

pytestmark = pytest.mark.anyio

CANARIES = {
    "environment": "canary-environment-91",
    "server": "canary-server-92",
    "header": "canary-header-93",
    "expanded": "canary-expanded-94",
    "command": "canary-command-95",
    "query": "canary-query-96",
}
"""Secrets of the configuration: in no output, except where a server itself says them."""

IN_ARGUMENTS = {
    "named": "canary-argument-31",
    "bearer": "Bearer canary-argument-32-long-enough",
    "github": "ghp_canaryargument33aaaaaaaaaaaaaaaaaaaa",
    "url": "https://me:canary-argument-34@host.example/",
    "plain": "canary-argument-35",
    "key": "canary-argument-36@host.example",
}
"""Secrets of a program: in its client's messages, of course."""

SITE = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
if any("codemode" in each for each in sys.argv) or "serve" in sys.orig_argv:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=open({path!r}, "a", buffering=1))))
    trace.set_tracer_provider(provider)
"""

PROGRAM = f"""
const seen = [];
const note = async (call) => {{ try {{ seen.push(await call()) }} catch (error) {{ seen.push(error.message) }} }};
await note(() => MCP.good.count({{ name: "{IN_ARGUMENTS["plain"]}" }}));
await note(() => MCP.good.count({{ name: "x", password: "{IN_ARGUMENTS["named"]}" }}));
await note(() => MCP.good.count({{ name: "{IN_ARGUMENTS["bearer"]} {IN_ARGUMENTS["github"]} {IN_ARGUMENTS["url"]}" }}));
await note(() => MCP.good.count({{ name: {{ "{IN_ARGUMENTS["key"]}": 1 }} }}));
await note(() => MCP.good.reject({{}}));
await note(() => MCP.good.refuse({{}}));
await note(() => MCP.remote.echo({{}}));
await note(() => MCP.wrong.echo({{}}));
await note(() => tools.call("{IN_ARGUMENTS["github"]}", {{}}));
await yield_control("{IN_ARGUMENTS["plain"]}");
throw new Error("{IN_ARGUMENTS["plain"]}");
"""


def write(folder: Path, servers: dict[str, Any], *, name: str = "config.json", **sections: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"mcpServers": servers, **sections}), "utf-8")
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def command(*arguments: str) -> Result:
    """Return a command in this process."""

    def run() -> Result:
        return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp", catch_exceptions=False)

    return await anyio.to_thread.run_sync(run)


async def test_no_secret_is_in_any_log_span_trajectory_or_message_and_nothing_until_the_end_is_missing(
    tmp_path: Path,
) -> None:
    spans = tmp_path / "spans"
    spans.touch()
    site = tmp_path / "site"
    site.mkdir()
    if importlib.util.find_spec("opentelemetry.sdk") is not None:
        (site / "sitecustomize.py").write_text(SITE.format(path=str(spans)), "utf-8")
    environment = {
        "CANARY": CANARIES["environment"],
        "EXPANDED": CANARIES["expanded"],
        "PYTHONPATH": str(site),
    }
    printing = [sys.executable, "-c", f"print({CANARIES['command']!r})"]
    async with http_server("--token", CANARIES["header"]) as url:
        servers: dict[str, Any] = {
            "good": counting(
                tmp_path / "log", env={"SECRET": CANARIES["server"], "TOKEN": "${EXPANDED}", "P": {"command": printing}}
            ),
            "remote": {
                "url": f"{url}?key={CANARIES['query']}",
                "headers": {"Authorization": f"Bearer {CANARIES['header']}"},
            },
            "wrong": {"url": url, "headers": {"Authorization": f"Bearer {CANARIES['header']}-not", "X": "${EXPANDED}"}},
        }
        audit = {"trajectory": "runs.jsonl", "includeInputs": True}
        config = write(tmp_path, servers, audit=audit)
        async with raw(config, "--log-level", "debug", env=environment) as client:
            await client.initialize("2025-11-25")
            await client.request("tools/list")
            answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": PROGRAM}})
            suspended = answer["result"]["structuredContent"]
            assert suspended["status"] == "waiting", suspended
            wait = {"name": "wait", "arguments": {"runId": suspended["runId"]}}
            answer = await client.request("tools/call", wait)
            assert answer["result"]["structuredContent"]["status"] == "failed"
            code = "await yield_control(); return 1"
            answer = await client.request("tools/call", {"name": "exec", "arguments": {"code": code}})
            left = answer["result"]["structuredContent"]["runId"]
            hold = {"name": "exec", "arguments": {"code": "await MCP.good.hold({name: 'a'})"}}
            await client.send(id=100, method="tools/call", params=hold)
            await until(lambda: "call a" in (tmp_path / "log").read_text("utf-8"))
            assert await client.end() == 0
    trajectory = (tmp_path / "runs.jsonl").read_text("utf-8")
    ends = {event["id"]: event["status"] for event in lines(tmp_path / "runs.jsonl") if event["kind"] == "run_ended"}
    assert ends[suspended["runId"]] == "failed"
    assert sorted(ends.values()) == ["aborted", "failed"]
    kept = [event["id"] for event in lines(tmp_path / "runs.jsonl") if event["kind"] == "left"]
    assert kept == [left], "the next process may take it over"
    kinds = {event["kind"] for event in lines(tmp_path / "runs.jsonl")}
    told = ["exec", "wait", "run_started", "call_started", "call_ended", "parked", "restored", "run_ended", "answered"]
    assert kinds == {*told, "left"}
    spanned = spans.read_text("utf-8")
    if importlib.util.find_spec("opentelemetry.sdk") is not None:
        assert "execute_tool mcp:good:count" in spanned
        assert "tools/call exec" in spanned
    recorded = {"log": client.stderr, "trajectory": trajectory, "spans": spanned}
    for where, text in {**recorded, "messages": client.received.decode()}.items():
        for name, canary in CANARIES.items():
            assert canary not in text, f"{name} is in the {where}"
    for where, text in recorded.items():
        for name, secret in IN_ARGUMENTS.items():
            if where == "trajectory" and name in ("plain", "key"):
                assert secret in text
                continue
            for part in re.findall(r"canary-?argument-?\d+", secret):
                assert part not in text, f"{name} is in the {where}"
    assert suspended["runId"] not in client.stderr
    assert suspended["runId"] not in spanned


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_what_happened_until_a_signal_is_in_the_file(tmp_path: Path) -> None:
    config = write(tmp_path, {"good": counting(tmp_path / "log")}, audit={"trajectory": "runs.jsonl"})
    async with handshaken(config) as client:
        answer = await client.call("exec", {"code": "await yield_control(); return 1"})
        suspended = answer["result"]["structuredContent"]
        await client.send_call(7, "exec", {"code": "await MCP.good.hold({name: 'a'})"})
        await until(lambda: "call a" in (tmp_path / "log").read_text("utf-8") if (tmp_path / "log").exists() else 0)
        client.process.send_signal(signal.SIGTERM)
        assert await client.exit_code() == 0
    found = lines(tmp_path / "runs.jsonl")
    begun = [event["id"] for event in found if event["kind"] == "run_started"]
    assert begun[0] == suspended["runId"]
    assert len(begun) == 2
    for kind in ("parked", "left"):
        assert [event["id"] for event in found if event["kind"] == kind] == begun, "they are kept"
    assert not [event for event in found if event["kind"] == "run_ended"]
    assert [event["code"] for event in found if event["kind"] == "call_ended"] == ["aborted"]
    assert stat.S_IMODE((tmp_path / "runs.jsonl").stat().st_mode) == 0o600


async def test_requests_of_two_servers_are_in_one_file_without_inputs_and_trace_draws_each_run(tmp_path: Path) -> None:
    config = write(tmp_path, {"good": counting(tmp_path / "log")}, audit={"trajectory": "runs.jsonl"})
    async with serve(config) as one, serve(config) as other:
        first = await one.exec("await MCP.good.count({name: 'a'}); await yield_control('alert(1)'); return 1")
        await other.value("return await MCP.good.count({name: '<script>alert(1)</script>'})")
        refused = await other.exec("await MCP.good.count({ name: { 'alert(1)': 1 } })")
        assert "alert(1)" in (await other.exec("throw new Error('alert(1)')")).error
        await one.wait(first.run_id)
    assert refused.code == "nested_tool_failed"
    assert "alert" not in (tmp_path / "runs.jsonl").read_text("utf-8")
    listed = await command("trace", "--config", str(config), "--json")
    traces = json.loads(listed.stdout)
    assert [trace["status"] for trace in traces] == ["failed", "failed", "completed", "completed"]
    assert traces[3]["id"] == first.run_id
    shown = await command("trace", first.run_id[:12], "--config", str(config))
    assert shown.exit_code == 0, shown.stderr
    assert "mcp:good:count" in shown.stdout
    assert "suspended 1 time" in shown.stdout
    assert re.search(r"^exec .*waiting", shown.stdout, re.MULTILINE)
    assert re.search(r"^wait .*completed", shown.stdout, re.MULTILINE)
    page = tmp_path / "page.html"
    assert (await command("trace", first.run_id, "--config", str(config), "--html", str(page))).exit_code == 0
    assert "mcp:good:count" in page.read_text("utf-8")
    wrong = await command("trace", "run_", "--config", str(config))
    assert wrong.exit_code == 1
    assert "several runs" in wrong.stderr


async def test_calls_in_pass_through_mode_are_recorded_and_traced(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        {"good": counting(tmp_path / "log")},
        audit={"trajectory": "runs.jsonl"},
        tools={"codeMode": False},
    )
    async with raw(config) as client:
        answer = await client.call("good__count", {"name": "confidential"})
        assert "result" in answer
        assert await client.end() == 0
        assert parse_message(json.dumps({"jsonrpc": "2.0", **answer}).encode())
    begun, ended = lines(tmp_path / "runs.jsonl")
    assert (begun["kind"], ended["kind"], ended["status"]) == ("call_started", "call_ended", "completed")
    assert begun["tool"] == "mcp:good:count"
    assert "confidential" not in (tmp_path / "runs.jsonl").read_text("utf-8")
    shown = await command("trace", begun["id"][:10], "--config", str(config))
    assert re.search(r"^mcp:good:count .*█", shown.stdout, re.MULTILINE) or "#" in shown.stdout, shown


async def test_doctor_says_that_the_folder_of_the_trajectory_is_not_there(tmp_path: Path) -> None:
    config = write(tmp_path, {}, audit={"trajectory": "no/such/folder/runs.jsonl"})
    checks = json.loads((await command("doctor", "--config", str(config), "--json")).stdout)
    (check,) = [each for each in checks if each["name"] == "trajectory"]
    assert check["status"] == "fail"
    assert "No such file" in check["detail"]
