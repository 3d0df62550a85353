"""A changed configuration file is taken while the server runs; what did not change is not disturbed."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.announcements import Ear, listening
from tests.integration.harness import (
    MODERN,
    SECONDS,
    Session,
    counting,
    events,
    is_running,
    pids,
    raw,
    serve,
    until,
    write_config,
)
from tests.integration.http_harness import serve_http

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "legacy"])
TAKEN = "the configuration has changed"
REFUSED = "the changed configuration is not used"


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


@ERAS
async def test_servers_are_added_and_removed_and_the_others_are_not_disturbed(mode: str, tmp_path: Path) -> None:
    one, two, three = (counting(tmp_path / name) for name in ("one", "two", "three"))
    config = write_config(tmp_path, {"one": one, "two": two})
    ear = Ear(mode)
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        assert "three" not in await description(session)
        for name in ("one", "two"):
            assert await session.value(COUNT.format(name)) == "x"
        await taken(session, lambda: write_config(tmp_path, {"one": one, "three": three}))
        await ear.heard()
        assert "one, three" in await description(session)
        assert await session.value(COUNT.format("three")) == "x"
        assert await session.value(COUNT.format("one")) == "x"
        assert len(pids(tmp_path / "one")) == 1
        await until(lambda: not is_running(pids(tmp_path / "two")[0]))
        refused = await session.exec(COUNT.format("two"))
        assert refused.status == "failed"
        assert ear.count == 1


async def test_only_the_server_that_changed_is_restarted_and_calls_of_others_go_on(tmp_path: Path) -> None:
    one, two = counting(tmp_path / "one"), counting(tmp_path / "two")
    config = write_config(tmp_path, {"one": one, "two": two}, codeMode={"timeoutMs": 300})
    async with serve(config) as session:
        code = "const a = MCP.one.hold({ name: 'a' }); const b = MCP.two.hold({ name: 'b' });"
        code += "return await Promise.allSettled([a, b])"
        waiting = await session.exec(code)
        await until(lambda: "call a" in events(tmp_path / "one") and "call b" in events(tmp_path / "two"))
        changed = {**two, "env": {"SECRET": "tell-nobody-this"}}
        await taken(session, lambda: write_config(tmp_path, {"one": one, "two": changed}))
        await until(lambda: not is_running(pids(tmp_path / "two")[0]))
        await session.exec("return unwrap(await MCP.one.release({ name: 'a' }))")
        mine, theirs = (await session.finish(waiting)).value
        assert mine["status"] == "fulfilled"
        assert theirs["status"] == "rejected"
        environment = await session.exec("return unwrap(await MCP.two.environment())")
        assert (await session.finish(environment)).value == "set"
        assert len(pids(tmp_path / "one")) == 1
        assert len(pids(tmp_path / "two")) == 2


async def test_a_broken_file_is_told_of_and_the_one_before_stays(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    good = config.read_text("utf-8")
    async with serve(config) as session:
        assert await session.value(COUNT.format("one")) == "x"
        await taken(session, lambda: config.write_text('{"mcpServers": {', "utf-8"), REFUSED)
        assert "is not valid JSON" in lines(session, REFUSED)[-1]
        wrong = {"mcpServers": {"one": {"comand": "x"}, "two": {}}}
        await taken(session, lambda: config.write_text(json.dumps(wrong), "utf-8"), "mcpServers.two")
        assert "unknown key" in lines(session, "mcpServers.one.comand")[-1]
        assert await session.value(COUNT.format("one")) == "x"
        config.unlink()
        await until(lambda: lines(session, f"{config} is not there any more"))
        assert await session.value(COUNT.format("one")) == "x"
        assert len(pids(tmp_path / "one")) == 1
        entry = json.loads(good)["mcpServers"]["one"]
        await taken(session, lambda: write_config(tmp_path, {"one": entry, "two": counting(tmp_path / "two")}))
        assert await session.value(COUNT.format("two")) == "x"
        assert len(pids(tmp_path / "one")) == 1


async def test_a_tool_that_is_denied_meanwhile_is_refused_for_running_programs_too(tmp_path: Path) -> None:
    servers = {"one": counting(tmp_path / "one")}
    config = write_config(tmp_path, servers)
    async with serve(config) as session:
        waiting = await session.exec(f"await MCP.one.peek.name; await yield_control(); {COUNT.format('one')}")
        await taken(session, lambda: write_config(tmp_path, servers, deny=["mcp:one:count"]))
        ended = await session.wait(waiting.run_id)
        assert ended.code == "nested_tool_failed"
        assert "denied by the rule 'mcp:one:count'" in ended.error
        assert "call x" not in events(tmp_path / "one")


async def test_a_running_program_keeps_its_catalog(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    async with serve(config) as session:
        waiting = await session.exec(
            "await yield_control(); return (await MCP.$api()).servers.map((s) => s.identifier)"
        )
        servers = {"one": counting(tmp_path / "one"), "two": counting(tmp_path / "two")}
        await taken(session, lambda: write_config(tmp_path, servers))
        assert (await session.wait(waiting.run_id)).value == ["one"]
        assert await session.value("return (await MCP.$api()).servers.map((s) => s.identifier)") == ["one", "two"]


async def test_limits_and_languages_count_from_now_on(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, codeMode={"timeoutMs": 30_000})
    async with serve(config) as session:
        assert "TypeScript" in await description(session)
        settings = {"timeoutMs": 300, "languages": ["javascript"], "maxOutputBytes": 1024, "maxRunningRuns": 1}
        await taken(session, lambda: write_config(tmp_path, {}, codeMode=settings))
        assert (await session.exec("for (;;);")).code == "timeout"
        assert (await session.exec("return 1", language="typescript")).code == "unsupported_language"
        assert (await session.value("return 'x'.repeat(5000)"))["truncated"] is True
        assert "TypeScript" not in await description(session)
        assert "maxRunningRuns counts after a restart only" in session.stderr


async def test_secrets_of_every_configuration_are_kept_out_of_the_log(tmp_path: Path) -> None:
    def entry(secret: str) -> dict[str, Any]:
        return counting(tmp_path / "one", f"stderr=my token is {secret}", env={"TOKEN": secret})

    config = write_config(tmp_path, {"one": entry("first-secret-value")})
    log = tmp_path / "log"

    async with raw(config, "--log-level", "debug", "--log-file", str(log)) as client:

        async def count() -> None:
            code = {"code": COUNT.format("one")}
            answer = await client.request("tools/call", {**MODERN, "name": "exec", "arguments": code})
            assert answer["result"]["structuredContent"]["value"] == "x"

        await count()
        write_config(tmp_path, {"one": entry("second-secret-value")})
        await until(lambda: TAKEN in log.read_text("utf-8"))
        await count()
        await until(lambda: log.read_text("utf-8").count("my token is ***") >= 2)
        assert await client.end() == 0
    assert "secret-value" not in log.read_text("utf-8")


async def test_programs_that_print_values_run_again_only_when_the_file_has_changed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    program = tmp_path / "program.py"
    program.write_text(f"open({str(runs)!r}, 'a').write('run\\n'); print('value')", "utf-8")
    one = counting(tmp_path / "one", env={"SECRET": {"command": [sys.executable, str(program)]}})
    config = write_config(tmp_path, {"one": one})
    async with serve(config) as session:
        assert await session.value("return unwrap(await MCP.one.environment())") == "set"
        await taken(session, lambda: write_config(tmp_path, {"one": one}, deny=["mcp:nobody:*"]))
        assert await session.value("return unwrap(await MCP.one.environment())") == "set"
        assert len(pids(tmp_path / "one")) == 1
    assert runs.read_text("utf-8").splitlines() == ["run", "run"]


async def test_an_env_file_is_watched_as_well(tmp_path: Path) -> None:
    variables = tmp_path / "variables.env"
    variables.write_text("OTHER=1\n", "utf-8")
    config = write_config(tmp_path, {"one": counting(tmp_path / "one", envFile="variables.env")})
    async with serve(config) as session:
        environment = "return unwrap(await MCP.one.environment())"
        assert await session.value(environment) == "not set"
        await taken(session, lambda: variables.write_text("SECRET=something\n", "utf-8"))
        assert await session.value(environment) == "set"
        await taken(session, variables.unlink, REFUSED)
        assert "variables.env" in lines(session, REFUSED)[-1]
        assert await session.value(environment) == "set"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither such links nor such signals")
async def test_a_link_that_is_turned_and_a_file_that_is_replaced_are_noticed(tmp_path: Path) -> None:
    one, two, three = (counting(tmp_path / name) for name in ("one", "two", "three"))
    first = write_config(tmp_path, {"one": one}, name="first.json")
    second = write_config(tmp_path, {"two": two}, name="second.json")
    config = tmp_path / "config.json"
    config.symlink_to(first)
    async with serve(config) as session:
        assert await session.value(COUNT.format("one")) == "x"

        def turn() -> None:
            link = tmp_path / "next"
            link.symlink_to(second)
            link.replace(config)

        await taken(session, turn)
        assert await session.value(COUNT.format("two")) == "x"
        new = write_config(tmp_path, {"three": three}, name="new.json")
        await taken(session, lambda: new.replace(config))
        assert await session.value(COUNT.format("three")) == "x"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
async def test_a_hangup_reads_the_file_again_even_if_it_looks_the_same(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with raw(config) as client:
        await client.request("tools/list", MODERN)
        client.process.send_signal(signal.SIGHUP)
        await until(lambda: f"{TAKEN}: nothing that matters" in client.stderr)
        assert await client.end() == 0


async def test_what_cannot_change_while_we_run_is_said(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": counting(tmp_path / "one")})
    async with serve(config) as session:
        await session.value("return 1")
        servers = {"one": counting(tmp_path / "one")}
        await taken(session, lambda: write_config(tmp_path, servers, codeMode={"enabled": False}), "after a restart")
        assert "tools.codeMode.enabled counts after a restart only" in session.stderr
        assert [tool.name for tool in (await session.client.list_tools()).tools] == ["exec", "wait"]
        assert await session.value(COUNT.format("one")) == "x"


async def test_clients_hear_nothing_of_what_does_not_change_what_they_see(tmp_path: Path) -> None:
    mode = "legacy"
    servers = {"one": counting(tmp_path / "one")}
    config = write_config(tmp_path, servers)
    ear = Ear(mode)
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        before = await description(session)
        await taken(session, lambda: write_config(tmp_path, servers, deny=["mcp:one:count"]))
        assert await session.value("return MCP.one.count === undefined") is True
        assert await description(session) == before
        # What is heard now is the first that is heard.
        await taken(session, lambda: write_config(tmp_path, {**servers, "two": counting(tmp_path / "two")}))
        await ear.heard()
        assert ear.count == 1


async def test_the_proxy_takes_changes_as_well(tmp_path: Path) -> None:
    mode = "auto"
    one, two = counting(tmp_path / "one"), counting(tmp_path / "two")
    config = write_config(tmp_path, {"one": one}, codeMode=False)
    ear = Ear(mode)
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):

        async def servers() -> set[str]:
            listed = await session.client.list_tools(cache_mode="refresh")
            return {tool.name.partition("__")[0] for tool in listed.tools}

        assert await servers() == {"one"}
        await taken(session, lambda: write_config(tmp_path, {"one": one, "two": two}, codeMode=False))
        await ear.heard()
        assert await servers() == {"one", "two"}
        await taken(session, lambda: write_config(tmp_path, {"two": two}, codeMode=False, deny=["mcp:two:count"]))
        await ear.heard(2)
        listed = await session.client.list_tools(cache_mode="refresh")
        assert {tool.name for tool in listed.tools} >= {"two__release", "two__hold"}
        assert not {"two__count", "one__count"} & {tool.name for tool in listed.tools}


async def test_every_session_over_http_is_told(tmp_path: Path) -> None:
    one, two = counting(tmp_path / "one"), counting(tmp_path / "two")
    config = write_config(tmp_path, {"one": one}, codeMode=False)
    modes = ["legacy", "legacy", "auto"]
    ears = [Ear(mode) for mode in modes]
    async with serve_http(config) as served:

        async def hear(mode: str, ear: Ear, ready: anyio.Event) -> None:
            async with (
                httpx2.AsyncClient(timeout=httpx2.Timeout(SECONDS)) as http,
                Client(streamable_http_client(served.url, http_client=http), mode=mode, message_handler=ear) as client,
                listening(Session(client, served.stderr_path), mode, ear),
            ):
                assert (await client.list_tools()).tools
                ready.set()
                await ear.heard()
                listed = await client.list_tools(cache_mode="refresh")
                assert "two__count" in {tool.name for tool in listed.tools}

        async with anyio.create_task_group() as group:
            for mode, ear in zip(modes, ears, strict=True):
                ready = anyio.Event()
                group.start_soon(hear, mode, ear, ready)
                await ready.wait()
            write_config(tmp_path, {"one": one, "two": two}, codeMode=False)
        assert [ear.count for ear in ears] == [1, 1, 1]
