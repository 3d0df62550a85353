"""`codemode-mcp instance`, `runs` and `clients` with a shared instance."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from attached import attached, greeted, instance, killed_in_the_end
from harness import COMMAND, SECONDS, cli, command, counting, events, write_config
from mcp.client.client import Client
from terminal import terminal

from codemode_mcp.config import load_config
from codemode_mcp.extensions.setup.doctor import machine as instance_check
from codemode_mcp.process.instance import registry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the processes are controlled by signals of Unix"),
]

CALL = 'return unwrap(await MCP.a.count({ name: "hello" }))'


async def report(config: Path) -> dict[str, Any]:
    """Return the facts of `instance status --json`."""
    done = await command("instance", "status", "--json", "--config", str(config))
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_status_names_clients_servers_and_what_they_save(tmp_path: Path) -> None:
    servers = {
        "a": counting(tmp_path / "log"),
        "idle": counting(tmp_path / "b", start="lazy"),
        "own": counting(tmp_path / "own", env={"WHO": "${WHO}"}),
        "down": {"command": "no-such-command"},
    }
    config = write_config(tmp_path, servers)
    async with (
        instance(config) as process,
        attached(config, environ={"WHO": "one"}) as first,
        attached(config, environ={"WHO": "two"}, options={"readOnly": True}) as second,
    ):
        assert [each["name"] for each in (await report(config))["instance"]["clients"]] == [None, None]
        for client in (first, second):
            await client.greet()
            await client.exec("await MCP.own.$api()")
        await first.exec(CALL)
        facts = (await report(config))["instance"]
        names = [each["name"] for each in facts["servers"]]
        assert (names.count("own"), names.count("down")) == (2, 1), "a server that is down for both is listed once"
        assert (facts["pid"], facts["leaving"], facts["http"]) == (process.pid, None, None)
        assert [(each["name"], each["clientVersion"]) for each in facts["clients"]] == [("attached", "1")] * 2
        assert [each["readOnly"] for each in facts["clients"]] == [False, True]
        server = facts["servers"][names.index("a")]
        assert server["state"] == "ready"
        assert len(server["pids"]) == 1
        assert facts["saved"]["processes"] >= 0
        if sys.platform == "linux":
            assert facts["memoryBytes"] > 20e6
            assert server["memoryBytes"] > 1e6
        text = (await command("instance", "status", "--config", str(config))).stdout
        assert f"process {process.pid}, version " in text
        assert "2 clients:" in text
        assert re.search(r"attached 1, relay \d+, in .*\(read-only\)", text.replace("\n", " ")), text
        assert f"a: ready, process {server['pids'][0]}" in text
        assert "Estimate: a private server for each client would take" in text
        every = json.loads((await command("instance", "status", "--all", "--json")).stdout)
        assert process.pid in [each["pid"] for each in every["instances"]]


async def test_without_an_instance_status_and_stop_say_so(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    assert await report(config) == {"running": False, "instance": None}
    done = await command("instance", "stop", "--config", str(config))
    assert (done.exit_code, done.stderr) == (0, "No shared instance runs for this configuration.\n")


async def test_an_instance_that_does_not_answer_is_named_and_can_be_killed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config) as process:
        os.kill(process.pid, signal.SIGSTOP)
        answers = []

        async def ask(verb: str) -> None:
            answers.append(await anyio.to_thread.run_sync(lambda: cli("instance", verb, "--config", str(config))))

        async with anyio.create_task_group() as group:
            for verb in ("status", "stop"):
                group.start_soon(ask, verb)
        assert len(answers) == 2
        for done in answers:
            assert done.returncode == 1
            text = " ".join(done.stderr.split())
            assert f"process {process.pid} has not answered within 5 s" in text
            assert f"kill -CONT {process.pid}" in text
            assert "codemode-mcp instance stop --kill" in text
        done = await command("instance", "stop", "--kill", "--config", str(config))
        assert done.exit_code == 0, done.stderr
        await process.wait()


async def test_an_instance_is_started_and_restarted_and_its_log_followed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    with killed_in_the_end(config):
        started = await command("instance", "start", "--config", str(config))
        assert started.exit_code == 0, started.stderr
        first = (await report(config))["instance"]["pid"]
        assert started.stderr == f"The shared instance runs: process {first}.\n"
        again = await command("instance", "start", "--config", str(config))
        assert again.stderr == f"The shared instance runs already: process {first}.\n"
        restarted = await command("instance", "restart", "--config", str(config))
        assert restarted.exit_code == 0, restarted.stderr
        assert (await report(config))["instance"]["pid"] != first
        follow = [*COMMAND, "instance", "logs", "--follow", "--config", str(config)]
        async with await anyio.open_process(follow) as follower:
            assert follower.stdout is not None
            seen = (await follower.stdout.receive()).decode()
            stopped = await command("instance", "stop", "--config", str(config))
            assert stopped.exit_code == 0, stopped.stderr
            with anyio.fail_after(SECONDS):
                while "the shared instance ends" not in seen:
                    seen += (await follower.stdout.receive()).decode()
            follower.kill()
        log = await command("instance", "logs", "--lines", "3", "--config", str(config))
        assert "the shared instance ends: a terminal has stopped it" in log.stdout


async def test_an_instance_serves_over_http_until_it_ends(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    with killed_in_the_end(config):
        started = await command("instance", "start", "--http", "--port", "0", "--config", str(config))
        assert started.exit_code == 0, started.stderr
        found = re.search(r"serves MCP at (http://127\.0\.0\.1:(\d+)/mcp)", started.stderr)
        assert found is not None, started.stderr
        assert (await report(config))["instance"]["http"] == found[1]
        again = await command("instance", "start", "--http", "--port", "0", "--config", str(config))
        assert again.exit_code == 1
        assert found[1] in again.stderr
        async with Client(found[1]) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["exec", "wait"]
        assert (await command("instance", "stop", "--config", str(config))).exit_code == 0
        with pytest.raises(OSError, match="connect"):
            await anyio.connect_tcp("127.0.0.1", int(found[2]))


async def test_an_address_that_others_reach_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    with killed_in_the_end(config):
        done = await command("instance", "start", "--http", "--host", "0.0.0.0", "--config", str(config))
        assert done.exit_code == 1
        assert "--allow-unauthenticated" in done.stderr


async def test_a_terminal_lists_shows_approves_and_cancels_runs_of_the_instance(tmp_path: Path) -> None:
    settings = {"timeoutMs": 500}
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")}, ask=["mcp:a:count"], codeMode=settings)
    async with instance(config), greeted(config) as client:
        waiting = await client.exec(CALL)
        run = waiting["runId"]
        listed = await command("runs", "list", "--config", str(config))
        assert run[:8] in listed.stdout
        shown = json.loads((await command("runs", "show", run, "--json")).stdout)
        assert [call["tool"] for call in shown["waiting"]] == ["mcp:a:count"]
        assert "attached" in (await command("clients", "--config", str(config))).stdout
        async with terminal("runs", "approve", run) as person:
            await person.confirm()
            assert await person.end() == 0
        result = await client.request("tools/call", {"name": "wait", "arguments": {"runId": run}})
        assert result["structuredContent"]["value"] == "hello"
        assert events(tmp_path / "log") == ["call hello"]
        other = (await client.exec(CALL))["runId"]
        async with terminal("runs", "cancel", other) as person:
            await person.confirm()
            assert await person.end() == 0
        result = await client.request("tools/call", {"name": "wait", "arguments": {"runId": other}})
        assert result["isError"]


async def doctor(config: Path) -> list[tuple[str, str, str]]:
    """Return status, detail and advice of the lines of `doctor` about the instance."""
    return [
        (each.status, each.detail, each.advice)
        for each in await instance_check.check_instance(load_config(config, environ=os.environ))
    ]


async def test_doctor_says_what_runs_and_what_is_wrong(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    ((status, detail, _),) = await doctor(config)
    assert (status, detail) == ("ok", "none runs for this configuration; the first client starts it")
    key = registry.key_of(config)
    async with instance(config) as process, greeted(config) as first, greeted(config):
        await first.exec(CALL)
        ((status, detail, _),) = await doctor(config)
        assert status == "ok"
        assert f"process {process.pid}, version " in detail
        assert "2 clients: attached (2); 1 server, 1 of them as processes" in detail
        assert "Estimate" in detail
        record = registry.read_record(key)
        assert record is not None
        registry.write_record(key, record._replace(version="0.0.1"))
        _, (status, detail, advice) = await doctor(config)
        assert status == "warn"
        assert "version 0.0.1" in detail
        assert "codemode-mcp instance restart" in advice
        registry.write_record(key, record)
        os.kill(process.pid, signal.SIGSTOP)
        ((status, detail, advice),) = await doctor(config)
        assert (status, f"process {process.pid} has not answered" in detail) == ("warn", True)
        assert f"kill -CONT {process.pid}" in advice
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    ((status, detail, _),) = await doctor(config)
    assert status == "ok", detail
    assert f"process {process.pid} was killed and has left its record" in detail


async def test_doctor_names_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "codemode-mcp" / "instance"
    place.parent.mkdir()
    place.symlink_to(tmp_path)
    ((status, detail, _),) = await doctor(config)
    assert status == "warn"
    assert str(place) in detail
    assert "each client has a server process of its own" in detail
    done = await command("instance", "status", "--config", str(config))
    assert done.exit_code == 1
    assert "move it away" in done.stderr


async def test_doctor_says_that_nothing_is_shared(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"instance": {"shared": false}}')
    ((status, detail, _),) = await doctor(config)
    assert (status, "instance.shared is false" in detail) == ("ok", True)
    for options in ((), ("--http", "--port", "0")):
        done = await command("instance", "start", *options, "--config", str(config))
        assert done.exit_code == 1
        assert "instance.shared: false" in " ".join(done.stderr.split())
    assert not registry.is_running(registry.key_of(config))
