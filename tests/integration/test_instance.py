"""One process serves all clients of a configuration: each has its own session, and servers run once."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import anyio
import pytest
from attached import attached, connect, instance
from harness import SERVERS, cli, counting, pids, write_config

from codemode_mcp.process.instance import registry

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

CALL = 'return unwrap(await MCP.a.count({ name: "hello" }))'


async def test_clients_share_one_process_of_each_server(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config), attached(config) as first, attached(config) as second:
        await first.greet()
        await second.greet()
        for client in (first, second):
            assert (await client.exec(CALL))["value"] == "hello"
    assert len(pids(tmp_path / "log")) == 1


async def test_a_client_with_another_variable_gets_a_process_of_its_own(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log") | {"env": {"WHO": "${WHO}"}}})
    async with (
        instance(config),
        attached(config, environ={"WHO": "one"}) as first,
        attached(config, environ={"WHO": "two"}) as second,
        attached(config, environ={"WHO": "one"}) as third,
    ):
        for client in (first, second, third):
            await client.greet()
            assert (await client.exec(CALL))["value"] == "hello"
    assert len(pids(tmp_path / "log")) == 2


async def test_a_client_without_a_variable_lacks_its_server_alone(tmp_path: Path) -> None:
    keyed = counting(tmp_path / "keyed") | {"env": {"KEY": "${KEY}"}}
    config = write_config(tmp_path, {"a": counting(tmp_path / "log"), "keyed": keyed})
    calls = (
        'return (await Promise.allSettled([MCP.a, MCP.keyed].map((s) => s.count({ name: "x" })))).map((s) => s.status)'
    )
    async with (
        instance(config),
        attached(config) as without,
        attached(config, environ={"KEY": "open sesame"}) as having,
    ):
        for client, statuses in ((without, ["fulfilled", "rejected"]), (having, ["fulfilled", "fulfilled"])):
            await client.greet()
            assert (await client.exec(calls))["value"] == statuses
    assert (len(pids(tmp_path / "log")), len(pids(tmp_path / "keyed"))) == (1, 1)


@pytest.mark.parametrize(("share", "folders"), [("user", ["."]), ("client", ["one", "two"])])
async def test_a_server_without_a_folder_starts_beside_the_configuration_or_in_the_folder_of_its_only_client(
    tmp_path: Path, share: str, folders: list[str]
) -> None:
    script = tmp_path / "where.py"
    log = tmp_path / "log"
    script.write_text(
        f"import os, runpy, sys\nopen({str(log)!r}, 'a').write(os.getcwd() + chr(10))\n"
        f"sys.argv = ['counting.py', {str(tmp_path / 'counted')!r}]\nsys.path.insert(0, {str(SERVERS)!r})\n"
        f"runpy.run_path({str(SERVERS / 'counting.py')!r}, run_name='__main__')\n",
        "utf-8",
    )
    config = write_config(tmp_path, {"a": {"command": sys.executable, "args": [str(script)], "share": share}})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        instance(config),
        attached(config, hello={"folder": str(tmp_path / "one")}) as first,
        attached(config, hello={"folder": str(tmp_path / "two")}) as second,
    ):
        for client in (first, second):
            await client.greet()
            assert (await client.exec(CALL))["value"] == "hello"
    assert {*log.read_text("utf-8").split()} == {str((tmp_path / name).resolve()) for name in folders}


async def test_a_client_that_leaves_does_not_disturb_the_others(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config), attached(config) as first:
        await first.greet()
        for _ in range(3):
            async with attached(config) as killed, attached(config) as leaving:
                await killed.greet()
                await killed.start("tools/call", {"name": "exec", "arguments": {"code": "while (true) {}"}})
                killed.kill()
                await leaving.greet()
                assert (await leaving.exec(CALL))["value"] == "hello"
                await leaving.leave()
            assert (await first.exec(CALL))["value"] == "hello"
    assert len(pids(tmp_path / "log")) == 1


async def test_stop_suspends_runs_and_the_next_instance_continues_them(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config) as process, attached(config) as client:
        await client.greet()
        number = await client.start(
            "tools/call",
            {
                "name": "exec",
                "arguments": {"code": "await new Promise(done => setTimeout(done, 12000)); return 'later'"},
            },
        )
        with anyio.fail_after(20):
            while not any(note.get("progress") == number for note in client.notes):
                await client.request("ping")
        stopped = await anyio.to_thread.run_sync(lambda: cli("instance", "stop", "--config", str(config)))
        assert stopped.returncode == 0, stopped.stderr
        answer = await client.answer(number)
        outcome = answer["result"]["structuredContent"]
        assert outcome["status"] == "waiting"
        assert {"leaving"} <= {key for note in client.notes for key in note}
        assert await client.line() is None
        await process.wait()
    assert registry.read_record(registry.key_of(config)) is None
    async with instance(config), attached(config) as client:
        await client.greet()
        while outcome["status"] == "waiting":
            result = await client.request("tools/call", {"name": "wait", "arguments": {"runId": outcome["runId"]}})
            outcome = result["structuredContent"]
        assert outcome["value"] == "later"


@pytest.mark.parametrize(
    ("hello", "code", "words"),
    [
        ({"product": "99.0.0"}, "leaving", "99.0.0"),
        ({"product": "0.0.1"}, "version", "0.0.1"),
        ({"config": "/nowhere.json"}, "failed", "nowhere.json"),
        ({"pid": "one"}, "failed", "pid"),
        ({"options": {"context": "absent"}}, "failed", "absent"),
    ],
)
async def test_a_relay_that_cannot_be_served_is_told_why(
    tmp_path: Path, hello: dict[str, object], code: str, words: str
) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config):
        with pytest.raises(AssertionError) as refused:
            async with attached(config, hello=hello):
                pass
    assert f"'code': '{code}'" in str(refused.value)
    assert words in str(refused.value)


async def test_there_is_one_instance_at_most(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config) as first, instance(config) as second:
        assert second.pid == first.pid


@pytest.mark.parametrize("instead", ["nothing", "a link"])
async def test_an_instance_ends_when_its_record_is_removed_or_replaced(tmp_path: Path, instead: str) -> None:
    config = write_config(tmp_path, {})
    async with instance(config) as process:
        record = registry.folder() / f"{registry.key_of(config)}.json"
        record.unlink()
        if instead == "a link":
            record.symlink_to(tmp_path / "elsewhere")
        with anyio.fail_after(20):
            await process.wait()
        log = registry.log_path(registry.key_of(config)).read_text("utf-8")
    record.unlink(missing_ok=True)
    assert "its record or its socket was removed" in log
    assert "Traceback" not in log


async def test_a_log_that_is_no_file_of_the_client_is_refused_and_delays_no_client(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    os.mkfifo(tmp_path / "pipe")
    async with instance(config), attached(config) as first:
        await first.greet()
        for file in ("pipe", "/dev/zero"):
            with pytest.raises(AssertionError, match=r"cannot log to .*/(pipe|zero): "):
                async with attached(config, options={"logFile": file}):
                    pass
        async with attached(config, options={"logFile": os.devnull}) as second:
            await second.greet()
        assert await first.request("ping") == {}


@pytest.mark.skipif(not os.path.exists("/dev/stderr"), reason="this system has no such file")
async def test_a_client_does_not_log_to_the_standard_error_of_the_instance(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config), attached(config) as first:
        await first.greet()
        with pytest.raises(AssertionError) as refused:
            async with attached(config, options={"logFile": "/dev/stderr"}):
                pass
        assert "the standard error of the shared instance" in str(refused.value)


async def test_an_instance_ends_after_its_last_client_and_the_idle_time(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"instance": {"idleSeconds": 1}}))
    async with instance(config) as process:
        async with attached(config) as client:
            await client.greet()
            await anyio.sleep(2)  # longer than the idle time
            assert await client.request("ping") == {}
            await client.leave()
        with anyio.fail_after(20):
            await process.wait()


async def test_terminals_see_the_instance_and_its_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with instance(config) as process, attached(config) as client:
        await client.greet()
        await client.exec(CALL)
        status = await anyio.to_thread.run_sync(lambda: cli("instance", "status", "--json", "--config", str(config)))
        facts = json.loads(status.stdout)["instance"]
        assert (facts["pid"], len(facts["clients"])) == (process.pid, 1)
        assert facts["clients"][0]["pid"] == os.getpid()
        assert [server["name"] for server in facts["servers"]] == ["a"]
        runs = await anyio.to_thread.run_sync(lambda: cli("runs", "list", "--json", "--config", str(config)))
        assert '"completed"' in runs.stdout, runs.stdout


async def test_a_terminal_can_connect_while_a_client_floods(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config), attached(config) as client:
        await client.greet()
        for number in range(1000, 1500):
            await client.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
        _, writer = await connect(config)
        writer.close()
        status = await anyio.to_thread.run_sync(lambda: cli("instance", "status", "--config", str(config)))
        assert status.returncode == 0


async def test_the_demo_leaves_no_instance_behind() -> None:
    before = {path.name for path in registry.folder().glob("*.json")}
    done = await anyio.to_thread.run_sync(lambda: cli("demo"))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in registry.folder().glob("*.json")} <= before
