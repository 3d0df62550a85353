"""The life of the shared instance: sleep, log-out, a full disk, a changed configuration, and kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from attached import greeted, instance, killed_in_the_end
from harness import DOWN, Raw, cli, counting, handshaken, is_running, pids, until, write_config

from codemode_mcp.process.instance import attaching, registry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the processes are controlled by signals of Unix"),
]

CALL = 'return unwrap(await MCP.a.count({ name: "hello" }))'
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "life", "version": "1"}}
TIMER = "await new Promise((done) => setTimeout(done, 1500)); return 'awake'"


def record_of(config: Path) -> registry.Record:
    record = registry.read_record(registry.key_of(config))
    assert record is not None
    return record


def exists(path: str) -> bool:
    return os.path.lexists(path)


async def value(client: Raw, code: str) -> Any:
    """Run a program and return its value."""
    answer = await client.call("exec", {"code": code})
    return answer["result"]["structuredContent"]["value"]


async def has_server(client: Raw, name: str) -> None:
    """Wait until programs of a client see a server."""
    with anyio.fail_after(30):
        while not await value(client, f"return typeof MCP.{name} === 'object'"):
            pass


@asynccontextmanager
async def relayed(config: Path, **environ: str) -> AsyncIterator[Raw]:
    """Yield a client that the shared instance serves through the real relay."""
    async with handshaken(config, env=environ, serve=()) as client:
        yield client


# sleep


async def test_calls_continue_after_the_sleep_of_the_machine(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with killed_in_the_end(config):
        async with relayed(config) as client, relayed(config) as other:
            assert await value(client, CALL) == "hello"
            processes = [client.process.pid, other.process.pid, record_of(config).pid, *pids(tmp_path / "log")]
            await client.send_call(50, "exec", {"code": TIMER})
            await anyio.sleep(0.3)
            for pid in processes:
                os.kill(pid, signal.SIGSTOP)
            await anyio.sleep(3)
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
            assert (await client.answer_to(50))["result"]["structuredContent"]["value"] == "awake"
            assert await value(other, CALL) == "hello"
            assert [client.process.pid, other.process.pid, record_of(config).pid] == processes[:3]
        assert len(pids(tmp_path / "log")) == 1


async def test_an_instance_that_is_stopped_alone_is_named_to_a_new_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "ATTACH_SECONDS", 1.0)
    config = write_config(tmp_path, {})
    new = attaching.Client(str(config), found=False, folder=str(tmp_path), options={})
    async with instance(config) as process, greeted(config) as client:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(attaching.NoInstance) as refused:
            await anyio.to_thread.run_sync(attaching.attach, registry.key_of(config), new, dict(os.environ))
        os.kill(process.pid, signal.SIGCONT)
        assert f"process {process.pid}, the shared instance, does not answer" in str(refused.value)
        assert "codemode-mcp instance stop --kill ends it" in str(refused.value)
        assert await client.request("ping") == {}


# log-out


async def test_a_log_out_suspends_runs_and_leaves_no_record_and_no_socket(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config) as process, greeted(config) as client:
        endpoint = record_of(config).endpoint
        number = await client.start("tools/call", {"name": "exec", "arguments": {"code": TIMER}})
        with anyio.fail_after(30):
            while not any(note.get("progress") == number for note in client.notes):
                await client.request("ping")
        os.kill(process.pid, signal.SIGTERM)
        outcome = (await client.answer(number))["result"]["structuredContent"]
        assert outcome["status"] == "waiting"
        await process.wait()
        assert registry.read_record(registry.key_of(config)) is None
        assert not exists(endpoint)
    with killed_in_the_end(config):
        async with relayed(config) as next_client:
            answer = await next_client.call("wait", {"runId": outcome["runId"]})
            assert answer["result"]["structuredContent"]["value"] == "awake"


async def test_an_instance_whose_runtime_folder_is_removed_ends_and_its_clients_move_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime, killed_in_the_end(config):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        async with relayed(config) as client:
            first = record_of(config)
            assert first.endpoint.startswith(runtime)
            shutil.rmtree(Path(runtime) / "codemode-mcp")
            await until(lambda: not is_running(first.pid))
            assert await value(client, CALL) == "hello"
            assert record_of(config).pid != first.pid


# a full disk


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a running process can be changed on Linux")
async def test_an_instance_that_cannot_write_its_log_serves(tmp_path: Path) -> None:
    import resource

    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config) as process, greeted(config) as client:
        assert (await client.exec(CALL))["value"] == "hello"
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
        async with greeted(config) as other:
            for each in (client, other):
                assert (await each.exec("console.log('a'); return 1"))["value"] == 1
        assert is_running(process.pid)


async def test_where_no_record_can_be_written_a_client_has_a_private_server(tmp_path: Path) -> None:
    # Standard error is a pipe, because the limit is for files.
    config = write_config(tmp_path, DOWN)
    serve = [sys.executable, "-m", "codemode_mcp", "serve", "--config", str(config)]
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *serve]
    lines = [
        {"id": 1, "method": "initialize", "params": GREETING},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    async with await anyio.open_process(limited) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in lines:
            await process.stdin.send(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        received = b""
        with anyio.fail_after(60):
            while b'"id":2' not in received:
                received += await process.stdout.receive()
            await process.stdin.aclose()
            said = b"".join([chunk async for chunk in process.stderr])
    assert [tool["name"] for tool in json.loads(received.splitlines()[-1])["result"]["tools"]] == ["exec", "wait"]
    assert b"no shared instance can be used, so this process serves its client" in said
    assert not registry.is_running(registry.key_of(config))


# a changed configuration


async def test_clients_see_the_tools_of_a_changed_configuration(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with killed_in_the_end(config):
        async with relayed(config) as client, relayed(config) as other:
            assert await value(client, CALL) == "hello"
            pid = record_of(config).pid
            write_config(tmp_path, {"a": counting(tmp_path / "log"), "b": counting(tmp_path / "b")})
            for each in (client, other):
                await has_server(each, "b")
            async with relayed(config) as late:
                await has_server(late, "b")
            assert record_of(config).pid == pid
        assert len(pids(tmp_path / "log")) == 1
        assert len(pids(tmp_path / "b")) <= 1


async def test_an_invalid_configuration_changes_nothing_for_clients_and_is_named_to_new_ones(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with killed_in_the_end(config):
        async with relayed(config) as client:
            assert await value(client, CALL) == "hello"
            good = config.read_text("utf-8")
            config.write_text('{"mcpServers": 1}', "utf-8")
            late = await anyio.to_thread.run_sync(lambda: cli("serve", "--config", str(config)))
            assert late.returncode == 2
            assert "mcpServers" in late.stderr
            await anyio.sleep(1)
            assert await value(client, CALL) == "hello"
            config.write_text(good, "utf-8")
            async with relayed(config) as again:
                assert await value(again, CALL) == "hello"
        assert len(pids(tmp_path / "log")) == 1


async def test_sharing_that_is_switched_off_counts_for_new_clients(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with killed_in_the_end(config):
        async with relayed(config) as client:
            assert await value(client, CALL) == "hello"
            text = json.loads(config.read_text("utf-8"))
            config.write_text(json.dumps({**text, "instance": {"shared": False}}), "utf-8")
            async with relayed(config) as private:
                assert await value(private, CALL) == "hello"
                assert len(pids(tmp_path / "log")) == 2
            assert await value(client, CALL) == "hello"


async def test_a_changed_idle_time_counts_without_a_restart(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    with killed_in_the_end(config):
        async with relayed(config) as client:
            pid = record_of(config).pid
            config.write_text(json.dumps({"mcpServers": {}, "instance": {"idleSeconds": 1}}), "utf-8")
            await anyio.sleep(3)
            assert await value(client, "return 1") == 1
        await until(lambda: not is_running(pid))


# kill -9


async def test_after_a_kill_the_next_client_replaces_record_and_socket(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config) as process:
        left = record_of(config)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    assert record_of(config) == left
    assert exists(left.endpoint)
    with killed_in_the_end(config):
        async with relayed(config) as client:
            assert await value(client, "return 1") == 1
            assert record_of(config).pid != left.pid
            assert not exists(left.endpoint)


async def test_upstream_servers_end_with_an_instance_that_was_killed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config) as process, greeted(config) as client:
        assert (await client.exec(CALL))["value"] == "hello"
        (server,) = pids(tmp_path / "log")
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: not is_running(server))


async def test_a_socket_that_only_looks_like_the_instance_is_not_believed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    key = registry.key_of(config)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        path = Path(place) / "squatter.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter:
            squatter.bind(str(path))
        registry.write_record(key, registry.Record(os.getpid(), "0.1.0", str(path)))
        with killed_in_the_end(config):
            async with relayed(config) as client:  # nothing listens there
                assert await value(client, "return 1") == 1
                assert record_of(config).pid != os.getpid()
