"""`serve --transport http`: both eras, several clients, how it begins and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from click.testing import Result
from typer.testing import CliRunner

from codemode_mcp.cli import app
from tests.integration.harness import (
    DOWN,
    ENDS_WITHIN,
    MODERN,
    SECONDS,
    Answer,
    Session,
    cli,
    counting,
    events,
    is_running,
    other,
    pids,
    until,
)
from tests.integration.http_harness import ERAS, IN_MEMORY, Served, opened_session, serve_http, write_http_config

pytestmark = pytest.mark.anyio

NEVER = "await new Promise(done => setTimeout(done, 3600000))"


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    """Return the log of the upstream of `served`."""
    return folder / "log"


@pytest.fixture(scope="module")
async def served(folder: Path, log: Path) -> AsyncIterator[Served]:
    """Yield a server that tests share which neither end nor change it."""
    async with serve_http(write_http_config(folder, {"counting": counting(log)})) as served:
        yield served


async def test_the_path_can_be_chosen_and_nothing_else_is_there(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path), "--path", "/deep/mcp/") as served:
        assert served.url.endswith("/deep/mcp")
        assert (await served.request(path="/deep/mcp")).status_code == 200
        for path in ("/", "/mcp", "/deep/mcp/", "/deep/mcp/x", "/docs", "/.well-known/oauth-protected-resource"):
            answer = await served.request(path=path)
            assert answer.status_code == 404
            assert "/deep/mcp" in answer.json()["error"]["message"]


async def test_readiness_waits_for_upstreams_but_not_for_ever(tmp_path: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import time; time.sleep(3600)"]}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"mcpServers": {"silent": silent}, "tools": {"codeMode": {"connectWaitMs": 600}}}), "utf-8"
    )
    async with serve_http(path) as served:
        early = await served.request("GET", "/readyz")
        assert (early.status_code, early.json()) == (503, {"status": "starting"})
        assert (await served.request()).status_code == 200, "tools are listed all the same"
        await served.ready()


def refused(*arguments: str) -> Result:
    """Return a `serve` that does not start, in this process: another one would import the HTTP server first."""
    return CliRunner().invoke(app, ["serve", *arguments], prog_name="codemode-mcp", catch_exceptions=False)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            ["--transport", "http", "--host", "192.0.2.7"],
            1,
            "cannot listen on 192.0.2.7:8808: this machine has no",
        ),
        (["--transport", "http", "--host", "nosuch.invalid"], 1, "nosuch.invalid:8808: this name cannot be resolved"),
        (["--transport", "carrier-pigeon"], 2, "it is stdio or http"),
        (["--port", "1"], 2, "--port is for --transport http"),
        (["--transport", "http", "--path", "mcp"], 2, "must begin with /"),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path: Path, flags: list[str], code: int, message: str) -> None:
    done = refused(*flags, "--config", str(write_http_config(tmp_path, allowUnauthenticated=True)))
    assert done.exit_code == code
    assert message in done.stderr


def test_a_port_in_use_is_said_in_a_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = cli("serve", "--transport", "http", "--port", port, "--config", str(write_http_config(tmp_path)))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: another program uses this port; choose another one" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "nosuch.invalid"])
def test_an_address_that_others_reach_is_refused_without_authentication(tmp_path: Path, host: str) -> None:
    done = refused("--transport", "http", "--host", host, "--config", str(write_http_config(tmp_path)))
    assert done.exit_code == 2
    if host == "nosuch.invalid":
        assert done.stderr.startswith("--host nosuch.invalid: this name cannot be resolved")
    else:
        assert "there is no authentication" in done.stderr
        assert "--allow-unauthenticated" in done.stderr


async def test_it_listens_there_when_told_so_in_words(tmp_path: Path) -> None:
    config = write_http_config(tmp_path)
    async with serve_http(config, "--host", "0.0.0.0", "--allow-unauthenticated") as served:
        # It is written after the line that says where it listens.
        await until(lambda: "warning: every client that reaches 0.0.0.0 can run programs" in served.stderr)
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{served.port}/healthz")).status_code == 200


def test_serving_stdio_imports_nothing_of_the_http_server() -> None:
    program = (
        "import sys\nimport codemode_mcp.cli, codemode_mcp.process.app.app, codemode_mcp.server.code_mode\n"
        "from codemode_mcp import config\n"
        "print([name for name in sys.modules if name.startswith(('codemode_mcp.server.http', 'jwt'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# the end


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_a_signal_ends_it_with_its_children_and_exit_code_0(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with (
        serve_http(write_http_config(tmp_path, {"counting": counting(log)}), own_process=True) as served,
        served.client() as session,
    ):
        await session.value("return (await MCP.counting.$api()).kind")
        await until(lambda: pids(log))
        served.process.send_signal(signal.SIGINT)
        with anyio.fail_after(SECONDS):
            assert await served.process.wait() == 0
        assert not any(map(is_running, pids(log)))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_open_calls_of_both_eras_may_end_within_the_grace(tmp_path: Path) -> None:
    log, last = tmp_path / "log", tmp_path / "last"
    servers = {"counting": counting(log, f"release={last}")}
    config = write_http_config(tmp_path, servers, store=IN_MEMORY, shutdownGraceMs=60_000)
    program = "await MCP.counting.hold({ name: 'x' }); return 'in time'"
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve_http(config, own_process=True))
        sessions = [await stack.enter_async_context(served.client(mode)) for mode in ERAS]
        group = await stack.enter_async_context(anyio.create_task_group())
        values = []

        async def call(session: Session) -> None:
            values.append(await session.value(program))

        for session in sessions:
            await session.client.list_tools()
            group.start_soon(call, session)
        await until(lambda: len(events(log)) == len(ERAS))
        served.process.terminate()
        await until(lambda: "no new calls" in served.stderr)
        refused = await served.request("GET", "/readyz")
        assert (refused.status_code, refused.json()) == (503, {"status": "ending"})
        assert (await served.request("GET", "/healthz")).status_code == 200
        late = await served.call("exec", {"code": "return 1"})
        assert "shutting down" in late["error"]["message"]
        assert (await served.request()).status_code == 200, "what open calls may need is answered"
        last.touch()
        with anyio.fail_after(SECONDS):
            assert await served.process.wait() == 0
    assert values == ["in time"] * len(ERAS)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_where_a_store_keeps_them_open_programs_are_suspended_and_the_next_process_resumes_them(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    store = {"kind": "sqlite", "path": str(tmp_path / "runs.sqlite3")}
    config = write_http_config(tmp_path, {"counting": counting(log)}, store=store, shutdownGraceMs=20_000)
    program = (
        "await MCP.counting.count({ name: 'once' }); await new Promise(done => setTimeout(done, 3000)); return 'there'"
    )
    answers: list[Answer] = []
    async with serve_http(config, own_process=True) as served, served.client() as session:
        suspended = await session.exec(f"await yield_control(); {program}")

        async def call(answer: Callable[[], Awaitable[Answer]]) -> None:
            answers.append(await answer())

        async with anyio.create_task_group() as group:
            group.start_soon(call, lambda: session.exec(program))
            group.start_soon(call, lambda: session.wait(suspended.run_id))
            await until(lambda: events(log) == ["call once"] * 2)
            with anyio.fail_after(ENDS_WITHIN):
                assert await served.end() == 0
    assert [answer.status for answer in answers] == ["waiting"] * 2, "it does not wait for what programs wait for"
    async with serve_http(config, own_process=True) as served, served.client() as session:
        assert [(await session.finish(answer)).value for answer in answers] == ["there"] * 2
    assert events(log) == ["call once"] * 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_signals_that_come_together_are_one_and_a_later_one_means_now(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_http_config(tmp_path, {"counting": counting(log)}, store=IN_MEMORY, shutdownGraceMs=600_000)
    async with serve_http(config, own_process=True) as served, anyio.create_task_group() as group:

        async def call() -> None:
            with suppress(httpx2.TransportError):
                await served.call("exec", {"code": f"await MCP.counting.count({{ name: 'x' }}); {NEVER}"})

        group.start_soon(call)
        await until(lambda: "x" in " ".join(events(log)))
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            served.process.send_signal(number)
        await until(lambda: "no new calls" in served.stderr)
        await anyio.sleep(1.2)  # the time after which another one is one of its own
        assert served.process.returncode is None, "it gives the open call its time"
        served.process.terminate()
        with anyio.fail_after(SECONDS):
            assert await served.process.wait() == -signal.SIGTERM


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_an_open_call_to_a_server_that_ignores_everything_does_not_keep_it_from_ending_in_time(
    tmp_path: Path,
) -> None:
    log, pid_file = tmp_path / "log", tmp_path / "pid"
    servers = {"counting": counting(log), "stubborn": other("raw_server.py", "stubborn", f"pid={pid_file}")}
    program = "const open = MCP.stubborn.hang({}); await MCP.counting.count({ name: 'x' }); await open"
    config = write_http_config(tmp_path, servers, store=IN_MEMORY)
    async with (
        serve_http(config, own_process=True) as served,
        served.client() as session,
        anyio.create_task_group() as group,
    ):
        codes = []

        async def call() -> None:
            codes.append((await session.exec(program)).code)

        group.start_soon(call)
        await until(lambda: "call x" in events(log))
        with anyio.fail_after(ENDS_WITHIN):
            assert await served.end() == 0
    assert codes == ["aborted"]
    assert not any(map(is_running, [*pids(log), int(pid_file.read_text("utf-8"))]))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to catch")
async def test_idle_connections_and_streams_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    async with serve_http(write_http_config(tmp_path), own_process=True) as served, served.client("legacy") as session:
        await session.value("return 1")
        with served.connect() as idle, served.connect() as half:
            half.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1")
            with anyio.fail_after(ENDS_WITHIN):
                assert await served.end() == 0
            assert idle.recv(10) == b""


# stdio


PRINTS = """
import atexit, os, sys
import codemode_mcp.__main__ as main
import codemode_mcp.server.code_mode as server

inner = server.Surface.list_tools

async def noisy(self, *arguments):
    print("printed by a library")
    sys.stdout.write("kept back until the end")
    os.write(1, b"written to the descriptor\\n")
    os.system("echo printed by a child; cat")
    return await inner(self, *arguments)

server.Surface.list_tools = noisy
print("printed before anything began")
atexit.register(print, "printed at the end")
main.main()
"""


def start_printing(script: Path, config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(script), "serve", "--private", "--config", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the child is a shell")
@pytest.mark.parametrize("end", ["input", "signal"])
async def test_nothing_but_messages_is_on_stdout_whatever_is_printed(tmp_path: Path, end: str) -> None:
    script = tmp_path / "prints.py"
    script.write_text(PRINTS, "utf-8")
    config = write_http_config(tmp_path, DOWN)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN}
    process = await anyio.to_thread.run_sync(start_printing, script, config)
    with process:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        first = await anyio.to_thread.run_sync(process.stdout.readline)
        assert [tool["name"] for tool in json.loads(first)["result"]["tools"]] == ["exec", "wait"]
        if end == "signal":
            process.terminate()
        rest, stderr = await anyio.to_thread.run_sync(process.communicate)
    assert rest == b""
    assert process.returncode == 0
    for text in (b"printed by a library", b"written to the descriptor", b"printed by a child"):
        assert text in stderr
    if end == "input":
        assert b"printed at the end" in stderr


# clients that go


async def test_a_modern_client_that_goes_away_ends_its_program_and_its_calls(served: Served, log: Path) -> None:
    await gone_during_a_call(served, log, "modern")
    await until(lambda: "cancelled modern" in events(log))
    assert (await served.request()).status_code == 200


async def gone_during_a_call(served: Served, log: Path, name: str, **headers: str) -> None:
    """Call a tool that holds, and drop the connection while it does."""
    arguments = {"code": f"return await MCP.counting.hold({{ name: '{name}' }})"}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: served.call("exec", arguments, **headers))
        await until(lambda: f"call {name}" in events(log))
        group.cancel_scope.cancel()


async def test_a_legacy_client_may_lose_its_connection_and_come_back_for_its_run(served: Served, log: Path) -> None:
    headers = {"mcp-session-id": await opened_session(served), "mcp-protocol-version": "2025-11-25"}
    suspended = await served.call("exec", {"code": "await yield_control(); return 'kept'"}, **headers)
    await gone_during_a_call(served, log, "legacy", **headers)
    run_id = suspended["result"]["structuredContent"]["runId"]
    ended = await served.call("wait", {"runId": run_id}, **headers)
    assert ended["result"]["structuredContent"]["value"] == "kept"
