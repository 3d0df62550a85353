"""One process serves all clients of a configuration: each has its own session, and servers run once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from attached import attached, connect, greeted, instance
from harness import SERVERS, command, counting, pids, write_config

from codemode_mcp.process.instance import registry

pytestmark = pytest.mark.anyio

CALL = 'return unwrap(await MCP.a.count({ name: "hello" }))'

NO_LOGS = {"pipe": r"cannot log to .*/pipe: ", "/dev/zero": r"cannot log to .*/zero: "}
if os.path.exists("/dev/stderr"):
    NO_LOGS["/dev/stderr"] = "the standard error of the shared instance"


@pytest.fixture(scope="module")
async def shared(folder: Path) -> AsyncIterator[Path]:
    """Yield a configuration with a running instance. Two of its servers need variables of the client."""
    servers = {
        "a": counting(folder / "a"),
        "who": counting(folder / "who", env={"WHO": "${WHO}"}),
        "keyed": counting(folder / "keyed", env={"KEY": "${KEY}"}),
    }
    config = write_config(folder, servers)
    async with instance(config):
        yield config


async def test_clients_share_one_process_of_each_server(shared: Path, folder: Path) -> None:
    async with greeted(shared) as first, greeted(shared) as second:
        for client in (first, second):
            assert (await client.exec(CALL))["value"] == "hello"
    assert len(pids(folder / "a")) == 1


async def test_a_client_with_another_variable_gets_a_process_of_its_own(shared: Path, folder: Path) -> None:
    async with (
        greeted(shared, environ={"WHO": "one"}) as first,
        greeted(shared, environ={"WHO": "two"}) as second,
        greeted(shared, environ={"WHO": "one"}) as third,
    ):
        for client in (first, second, third):
            assert (await client.exec(CALL.replace("MCP.a", "MCP.who")))["value"] == "hello"
    assert len(pids(folder / "who")) == 2


async def test_a_client_without_a_variable_lacks_its_server_alone(shared: Path, folder: Path) -> None:
    calls = (
        'return (await Promise.allSettled([MCP.a, MCP.keyed].map((s) => s.count({ name: "x" })))).map((s) => s.status)'
    )
    async with greeted(shared) as without, greeted(shared, environ={"KEY": "open sesame"}) as having:
        for client, statuses in ((without, ["fulfilled", "rejected"]), (having, ["fulfilled", "fulfilled"])):
            assert (await client.exec(calls))["value"] == statuses
    assert (len(pids(folder / "a")), len(pids(folder / "keyed"))) == (1, 1)


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
        greeted(config, hello={"folder": str(tmp_path / "one")}) as first,
        greeted(config, hello={"folder": str(tmp_path / "two")}) as second,
    ):
        for client in (first, second):
            assert (await client.exec(CALL))["value"] == "hello"
    assert {*log.read_text("utf-8").split()} == {str((tmp_path / name).resolve()) for name in folders}


async def test_a_client_that_leaves_does_not_disturb_the_others(shared: Path, folder: Path) -> None:
    async with greeted(shared) as first:
        for _ in range(3):
            async with greeted(shared) as killed, greeted(shared) as leaving:
                await killed.start("tools/call", {"name": "exec", "arguments": {"code": "while (true) {}"}})
                killed.kill()
                assert (await leaving.exec(CALL))["value"] == "hello"
                await leaving.leave()
            assert (await first.exec(CALL))["value"] == "hello"
    assert len(pids(folder / "a")) == 1


async def test_stop_suspends_runs_and_the_next_instance_continues_them(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    code = "await new Promise(done => setTimeout(done, 12000)); return 'later'"
    async with instance(config) as process, greeted(config) as client:
        number = await client.start("tools/call", {"name": "exec", "arguments": {"code": code}})
        with anyio.fail_after(20):
            while not any(note.get("progress") == number for note in client.notes):
                await client.request("ping")
        stopped = await command("instance", "stop", "--config", str(config))
        assert stopped.exit_code == 0, stopped.stderr
        answer = await client.answer(number)
        outcome = answer["result"]["structuredContent"]
        assert outcome["status"] == "waiting"
        assert {"leaving"} <= {key for note in client.notes for key in note}
        assert await client.line() is None
        await process.wait()
    assert registry.read_record(registry.key_of(config)) is None
    async with instance(config), greeted(config) as client:
        while outcome["status"] == "waiting":
            result = await client.request("tools/call", {"name": "wait", "arguments": {"runId": outcome["runId"]}})
            outcome = result["structuredContent"]
        assert outcome["value"] == "later"


@pytest.mark.parametrize(
    ("hello", "code", "words"),
    [
        ({"product": "0.0.1"}, "version", "0.0.1"),
        ({"config": "/nowhere.json"}, "failed", "nowhere.json"),
        ({"pid": "one"}, "failed", "pid"),
        ({"options": {"context": "absent"}}, "failed", "absent"),
    ],
)
async def test_a_relay_that_cannot_be_served_is_told_why(
    shared: Path, hello: dict[str, object], code: str, words: str
) -> None:
    await _refused(shared, hello, code, words)


async def test_an_instance_leaves_for_a_newer_version(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config):
        await _refused(config, {"product": "99.0.0"}, "leaving", "99.0.0")


async def _refused(config: Path, hello: dict[str, object], code: str, words: str) -> None:
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


async def test_a_log_that_is_no_file_of_the_client_is_refused_and_delays_no_client(shared: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    async with greeted(shared) as first:
        for file, refusal in NO_LOGS.items():
            with pytest.raises(AssertionError, match=refusal):
                async with attached(shared, options={"logFile": file}):
                    pass
        async with greeted(shared, options={"logFile": os.devnull}):
            pass
        assert await first.request("ping") == {}


async def test_an_instance_ends_after_its_last_client_and_the_idle_time(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"instance": {"idleSeconds": 1}}))
    async with instance(config) as process:
        async with greeted(config) as client:
            await anyio.sleep(2)  # longer than the idle time
            assert await client.request("ping") == {}
            await client.leave()
        with anyio.fail_after(20):
            await process.wait()


async def test_terminals_see_the_instance_and_its_runs_while_a_client_floods(shared: Path) -> None:
    async with greeted(shared) as client:
        await client.exec(CALL)
        for number in range(1000, 1500):
            await client.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
        _, writer = await connect(shared)
        writer.close()
        status = await command("instance", "status", "--json", "--config", str(shared))
        facts = json.loads(status.stdout)["instance"]
        record = registry.read_record(registry.key_of(shared))
        assert record is not None
        assert facts["pid"] == record.pid
        assert os.getpid() in {each["pid"] for each in facts["clients"]}
        assert "a" in [server["name"] for server in facts["servers"]]
        runs = await command("runs", "list", "--json", "--config", str(shared))
        assert '"completed"' in runs.stdout, runs.stdout


async def test_the_demo_leaves_no_instance_behind() -> None:
    before = {path.name for path in registry.folder().glob("*.json")}
    done = await command("demo")
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in registry.folder().glob("*.json")} <= before
