"""A changed configuration file is taken while the server runs; what did not change is not disturbed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.announcements import Ear, listening
from tests.integration.harness import (
    DOWN,
    SECONDS,
    Raw,
    Session,
    counting,
    events,
    handshaken,
    is_running,
    pids,
    serve,
    until,
    write_config,
)
from tests.integration.http_harness import serve_http

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "legacy"])
TAKEN = "the configuration has changed"
REFUSED = "the changed configuration is invalid"


def lines(session: Any, words: str) -> list[str]:
    return [line for line in session.stderr.splitlines() if words in line]


async def taken(session: Any, change: Callable[[], object], words: str = TAKEN) -> None:
    """Change the configuration, and return when the log has one more such line."""
    before = len(lines(session, words))
    change()
    await until(lambda: len(lines(session, words)) > before)


async def description(session: Session) -> str:
    listed = await session.client.list_tools(cache_mode="refresh")
    return next(tool.description for tool in listed.tools if tool.name == "exec")


COUNT = "return unwrap(await MCP.{}.count({{ name: 'x' }}))"


IDENTIFIERS = "return (await MCP.$api()).servers.map((s) => s.identifier)"


@pytest.fixture(scope="module")
async def running(folder: Path) -> AsyncIterator[Session]:
    """Yield a server, and `folder / "config.json"` that it watches."""
    async with serve(write_config(folder, {})) as session:
        yield session


@pytest.fixture
def settle(
    running: Session, folder: Path, tmp_path: Path
) -> Callable[[dict[str, Any], dict[str, Any]], Awaitable[None]]:
    """Return a function with which a test begins: the server has another configuration, which is none that it had
    before."""

    async def settle(servers: dict[str, Any], tools: dict[str, Any]) -> None:
        own: dict[str, Any] = {"contexts": {tmp_path.name: {"for": ["principal:nobody"], "allow": []}}}
        await taken(running, lambda: write_config(folder, servers, **own, **tools))

    return settle


@ERAS
async def test_servers_are_added_and_removed_without_disturbing_others(mode: str, tmp_path: Path) -> None:
    one, two, three = (counting(tmp_path / name) for name in ("one", "two", "three"))
    config = write_config(tmp_path, {"one": one, "two": two})
    ear = Ear(mode)
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        before = await description(session)
        assert "three" not in before
        for name in ("one", "two"):
            assert await session.value(COUNT.format(name)) == "x"
        # Clients hear nothing of what does not change what they see: what is heard later is the first that is heard.
        deny = ["mcp:one:refuse"]
        await taken(session, lambda: write_config(tmp_path, {"one": one, "two": two}, deny=deny))
        assert await session.value("return MCP.one.refuse === undefined") is True
        assert await description(session) == before
        await taken(session, lambda: write_config(tmp_path, {"one": one, "three": three}, deny=deny))
        await ear.heard()
        assert "one, three" in await description(session)
        assert await session.value(COUNT.format("three")) == "x"
        assert await session.value(COUNT.format("one")) == "x"
        assert len(pids(tmp_path / "one")) == 1
        await until(lambda: not is_running(pids(tmp_path / "two")[0]))
        refused = await session.exec(COUNT.format("two"))
        assert refused.status == "failed"
        assert ear.count == 1


async def test_only_the_server_that_changed_is_restarted_and_calls_of_others_continue(
    running: Session, settle: Any, folder: Path, tmp_path: Path
) -> None:
    one, two = counting(tmp_path / "one"), counting(tmp_path / "two")
    limits: dict[str, Any] = {"codeMode": {"timeoutMs": 300}}
    await settle({"one": one, "two": two}, limits)
    code = "const a = MCP.one.hold({ name: 'a' }); const b = MCP.two.hold({ name: 'b' });"
    code += "return await Promise.allSettled([a, b])"
    waiting = await running.exec(code)
    await until(lambda: "call a" in events(tmp_path / "one") and "call b" in events(tmp_path / "two"))
    changed = {**two, "env": {"SECRET": "tell-nobody-this"}}
    await taken(running, lambda: write_config(folder, {"one": one, "two": changed}, **limits))
    await until(lambda: not is_running(pids(tmp_path / "two")[0]))
    await running.finish(await running.exec("return unwrap(await MCP.one.release({ name: 'a' }))"))
    mine, theirs = (await running.finish(waiting)).value
    assert mine["status"] == "fulfilled"
    assert theirs["status"] == "rejected"
    environment = await running.exec("return unwrap(await MCP.two.environment())")
    assert (await running.finish(environment)).value == "set"
    assert len(pids(tmp_path / "one")) == 1
    assert len(pids(tmp_path / "two")) == 2


async def test_a_broken_file_is_reported_and_the_one_before_stays(
    running: Session, settle: Any, folder: Path, tmp_path: Path
) -> None:
    config, one = folder / "config.json", counting(tmp_path / "one")
    await settle({"one": one}, {})
    assert await running.value(COUNT.format("one")) == "x"
    await taken(running, lambda: config.write_text('{"mcpServers": {', "utf-8"), REFUSED)
    assert "is not valid JSON" in lines(running, REFUSED)[-1]
    wrong = {"mcpServers": {"one": {"comand": "x"}, "two": {}}}
    await taken(running, lambda: config.write_text(json.dumps(wrong), "utf-8"), "mcpServers.two")
    assert "unknown key" in lines(running, "mcpServers.one.comand")[-1]
    assert await running.value(COUNT.format("one")) == "x"
    await taken(running, config.unlink, f"{config} was removed")
    assert await running.value(COUNT.format("one")) == "x"
    assert len(pids(tmp_path / "one")) == 1
    await taken(running, lambda: write_config(folder, {"one": one, "two": counting(tmp_path / "two")}))
    assert await running.value(COUNT.format("two")) == "x"
    assert len(pids(tmp_path / "one")) == 1


async def test_a_running_program_keeps_its_catalog_but_is_refused_a_tool_that_is_denied_meanwhile(
    running: Session, settle: Any, folder: Path, tmp_path: Path
) -> None:
    servers = {"one": counting(tmp_path / "one")}
    await settle(servers, {})
    waiting = await running.exec(f"await yield_control(); {IDENTIFIERS}")
    calling = await running.exec(f"await MCP.one.peek.name; await yield_control(); {COUNT.format('one')}")
    servers["two"] = counting(tmp_path / "two")
    await taken(running, lambda: write_config(folder, servers, deny=["mcp:one:count"]))
    assert (await running.wait(waiting.run_id)).value == ["one"]
    assert await running.value(IDENTIFIERS) == ["one", "two"]
    ended = await running.wait(calling.run_id)
    assert ended.code == "nested_tool_failed"
    assert "denied by the rule 'mcp:one:count'" in ended.error
    assert "call x" not in events(tmp_path / "one")


async def test_limits_and_languages_count_from_now_on(running: Session, settle: Any, folder: Path) -> None:
    await settle(DOWN, {"codeMode": {"timeoutMs": 30_000}})
    assert "TypeScript" in await description(running)
    settings = {"timeoutMs": 300, "languages": ["javascript"], "maxOutputBytes": 1024, "maxRunningRuns": 1}
    await taken(running, lambda: write_config(folder, DOWN, codeMode=settings))
    assert (await running.exec("for (;;);")).code == "timeout"
    assert (await running.exec("return 1", language="typescript")).code == "unsupported_language"
    assert (await running.value("return 'x'.repeat(5000)"))["truncated"] is True
    assert "TypeScript" not in await description(running)
    assert "maxRunningRuns takes effect only after a restart" in running.stderr


async def count(client: Raw, server: str) -> None:
    answer = await client.call("exec", {"code": COUNT.format(server)})
    assert answer["result"]["structuredContent"]["value"] == "x"


async def test_secrets_of_every_configuration_are_kept_out_of_the_log(tmp_path: Path) -> None:
    def entry(secret: str) -> dict[str, Any]:
        return counting(tmp_path / "one", f"stderr=my token is {secret}", env={"TOKEN": secret})

    config = write_config(tmp_path, {"one": entry("first-secret-value")})
    log = tmp_path / "log"
    async with handshaken(config, "--log-level", "debug", "--log-file", str(log)) as client:
        await count(client, "one")
        write_config(tmp_path, {"one": entry("second-secret-value")})
        await until(lambda: TAKEN in log.read_text("utf-8"))
        await count(client, "one")
        await until(lambda: log.read_text("utf-8").count("my token is ***") >= 2)
        assert await client.end() == 0
    assert "secret-value" not in log.read_text("utf-8")


async def test_an_env_file_is_watched_and_programs_that_print_values_run_again_only_when_a_file_has_changed(
    running: Session, settle: Any, folder: Path, tmp_path: Path
) -> None:
    runs, program, variables = tmp_path / "runs", tmp_path / "program.py", folder / "variables.env"
    program.write_text(f"open({str(runs)!r}, 'a').write('run\\n'); print('value')", "utf-8")
    variables.write_text("OTHER=1\n", "utf-8")
    one = counting(tmp_path / "one", env={"SECRET": {"command": [sys.executable, str(program)]}})
    two = counting(tmp_path / "two", envFile="variables.env")
    both = "return [unwrap(await MCP.one.environment()), unwrap(await MCP.two.environment())]"
    await settle({"one": one, "two": two}, {})
    assert await running.value(both) == ["set", "not set"]
    await taken(running, lambda: write_config(folder, {"one": one, "two": two}, deny=["mcp:nobody:*"]))
    assert await running.value(both) == ["set", "not set"]
    assert len(pids(tmp_path / "one")) == 1
    assert runs.read_text("utf-8").splitlines() == ["run", "run"]
    await taken(running, lambda: variables.write_text("SECRET=something\n", "utf-8"))
    assert await running.value(both) == ["set", "set"]
    assert len(pids(tmp_path / "one")) == 1
    assert runs.read_text("utf-8").splitlines() == ["run", "run", "run"]
    await taken(running, variables.unlink)
    assert "variables.env" in lines(running, "until a restart, it is used")[-1]
    assert await running.value(both) == ["set", "set"]
    # A server that never had the values is the only one that does not work.
    three = counting(tmp_path / "three", env={"KEY": "${NO_SUCH_VARIABLE}"})
    await taken(running, lambda: write_config(folder, {"one": one, "two": two, "three": three}))
    assert await running.value(both) == ["set", "set"]
    assert "NO_SUCH_VARIABLE is not set" in (await running.exec("return await MCP.three.environment()")).error


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither such links nor such signals")
async def test_a_link_that_is_turned_a_file_that_is_replaced_and_a_hangup_are_noticed(tmp_path: Path) -> None:
    one, two, three = (counting(tmp_path / name) for name in ("one", "two", "three"))
    first = write_config(tmp_path, {"one": one}, name="first.json")
    second = write_config(tmp_path, {"two": two}, name="second.json")
    config = tmp_path / "config.json"
    config.symlink_to(first)
    async with handshaken(config) as client:
        await count(client, "one")

        def turn() -> None:
            link = tmp_path / "next"
            link.symlink_to(second)
            link.replace(config)

        await taken(client, turn)
        await count(client, "two")
        new = write_config(tmp_path, {"three": three}, name="new.json")
        await taken(client, lambda: new.replace(config))
        await count(client, "three")
        # It is read again even if it looks the same.
        client.process.send_signal(signal.SIGHUP)
        await until(lambda: f"{TAKEN}: servers, plugins, rules and settings of tools stay the same" in client.stderr)
        assert await client.end() == 0


async def test_the_proxy_takes_changes_as_well_and_every_session_over_http_is_told(tmp_path: Path) -> None:
    one, two = counting(tmp_path / "one"), counting(tmp_path / "two")
    config = write_config(tmp_path, {"one": one}, codeMode=False)
    modes = ["legacy", "legacy", "auto"]
    ears = [Ear(mode) for mode in modes]
    seen = [anyio.Event() for _ in modes]
    async with serve_http(config, own_process=True) as served:

        async def hear(mode: str, ear: Ear, ready: anyio.Event, heard: anyio.Event) -> None:
            async with (
                httpx2.AsyncClient(timeout=httpx2.Timeout(SECONDS)) as http,
                Client(streamable_http_client(served.url, http_client=http), mode=mode, message_handler=ear) as client,
                listening(Session(client, served.stderr_path), mode, ear),
            ):

                async def names() -> set[str]:
                    return {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}

                assert {name.partition("__")[0] for name in await names()} == {"one"}
                ready.set()
                await ear.heard()
                assert {"one__count", "two__count"} <= await names()
                assert ear.count == 1
                heard.set()
                await ear.heard(2)
                left = await names()
                assert left >= {"two__release", "two__hold"}
                assert not {"two__count", "one__count"} & left

        async with anyio.create_task_group() as group:
            for mode, ear, heard in zip(modes, ears, seen, strict=True):
                ready = anyio.Event()
                group.start_soon(hear, mode, ear, ready, heard)
                await ready.wait()
            write_config(tmp_path, {"one": one, "two": two}, codeMode=False)
            for heard in seen:
                await heard.wait()
            write_config(tmp_path, {"two": two}, codeMode=False, deny=["mcp:two:count"])
