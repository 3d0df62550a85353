"""Servers over stdio, each a real process: the good ones, in both eras."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from upstream_clients import ToolOutcome, ToolSource, UpstreamCallError, UpstreamPool, UpstreamSpec
from upstream_clients.environment import is_passed_on
from upstream_clients.server_log import StderrTail
from upstream_clients.stdio import open_process

pytestmark = pytest.mark.anyio


def text(outcome: ToolOutcome) -> str:
    block: dict[str, Any] = outcome.result["content"][0]
    return str(block["text"])


async def test_a_modern_server_is_connected_listed_and_called(sdk_pool: Any) -> None:
    (view,) = sdk_pool.views()
    assert (view.state, view.era, view.protocol_version) == ("ready", "modern", "2026-07-28")
    assert (view.server_name, view.server_version) == ("sdk", "1.2.3")
    assert (view.instructions, view.description, view.logged_in) == ("Be gentle.", "Says things.", False)
    assert "echo" in [tool.name for tool in view.tools]
    assert text(await sdk_pool.source("srv").call_tool("echo", {"text": "hi"})) == "hi"


async def test_a_legacy_server_is_connected_listed_and_called(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        (view,) = pool.views()
        assert (view.state, view.era, view.protocol_version) == ("ready", "legacy", "2025-06-18")
        assert (view.resources, view.prompts) == (True, False)
        assert text(await pool.source("srv").call_tool("echo", {"text": "hi"})) == "hi"
        resources = await pool.source("srv").request("resources/list", {})
        assert resources["resources"][0]["uri"] == "a://b"


async def test_a_method_that_is_no_part_of_the_contract_is_refused(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        with pytest.raises(ValueError, match="tools/call"):
            await pool.source("srv").request("tools/call", {})


async def test_all_pages_of_a_listing_are_read(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("paged")) as pool:
        (view,) = pool.views()
        assert [tool.name for tool in view.tools] == [
            "echo",
            "die",
            "invalid",
            "grow",
            "ask",
            "hang",
            "wrong_structure",
        ]
        assert view.problems == ()


async def test_a_server_without_tools_is_ready_all_the_same(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server("no_tools")) as pool:
        (view,) = pool.views()
        assert (view.state, view.tools) == ("ready", ())


async def test_calls_overlap(sdk_pool: Any) -> None:
    source, key = sdk_pool.source("srv"), {"key": "overlap"}
    ended = []

    async def waiter() -> None:
        await source.call_tool("wait_cancelled", key)
        ended.append("waiter")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            tasks.start_soon(waiter)
            # Answered while both others are in mid-flight.
            assert text(await source.call_tool("echo", {"text": "between"})) == "between"
            assert ended == []
            with anyio.move_on_after(0.05):
                await source.call_tool("hang", key)
    assert ended == ["waiter", "waiter"]


async def test_cancelling_the_caller_cancels_the_call_upstream(sdk_pool: Any) -> None:
    source, key = sdk_pool.source("srv"), {"key": "cancel"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.call_tool, "hang", key)
        await source.call_tool("echo", {})
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        assert text(await source.call_tool("wait_cancelled", key)) == "done"


async def test_a_call_that_takes_too_long_says_so_and_is_cancelled_upstream(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError) as caught:
            await source.call_tool("hang", {}, timeout=0.1)
        assert caught.value.dispatched
        assert caught.value.message == "server 'srv': tool 'hang' timed out after 0.1 s"
        assert len(json.loads(text(await source.call_tool("cancelled", {})))) == 1


async def test_a_call_without_a_limit_of_its_own_has_that_of_the_server(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server(timeout_ms=100)) as pool:
        with pytest.raises(UpstreamCallError, match=r"timed out after 0\.1 s"):
            await pool.source("srv").call_tool("hang", {})


async def test_half_a_character_in_the_arguments_does_no_harm(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        source = pool.source("srv")
        for given, expected in (("\ud83d!", "\ufffd!"), ("\U0001f600", "\U0001f600")):
            assert text(await source.call_tool("echo", {"text": given}, timeout=10)) == expected


async def test_progress_of_a_call_reaches_its_caller(sdk_pool: Any) -> None:
    seen = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    await sdk_pool.source("srv").call_tool("progress", {}, on_progress=on_progress)
    assert seen == [(0.0, 3.0, "step 0"), (1.0, 3.0, "step 1"), (2.0, 3.0, "step 2")]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_change_of_the_tools_is_noticed(
    era: str, sdk_server: Any, raw_server: Any, pool_of: Any, changes: Any
) -> None:
    spec = sdk_server() if era == "modern" else raw_server()
    async with pool_of(spec, on_change=changes) as pool:
        source: ToolSource = pool.source("srv")
        assert source.view().era == era
        await changes.until(source, lambda view: None not in (view.prompt_list, view.template_list))
        before = changes.count
        await source.call_tool("grow", {})
        view = await changes.until(source, lambda view: any(tool.name.startswith("grown") for tool in view.tools))
        assert view.state == "ready"
        assert changes.count == before + 1


async def test_a_tool_whose_header_annotation_is_invalid_is_dropped_by_name(sdk_pool: Any) -> None:
    (view,) = sdk_pool.views()
    assert "badly_routed" not in [tool.name for tool in view.tools]
    assert len(view.problems) == 1
    assert "'badly_routed'" in view.problems[0]


async def test_an_unknown_tool_is_an_error_with_its_code(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        with pytest.raises(UpstreamCallError) as caught:
            await pool.source("srv").request("prompts/get", {"name": "x"})
    assert caught.value.code == -32601
    assert caught.value.dispatched


async def test_a_child_sees_its_own_environment_and_not_ours(
    raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET", "ours")
    async with pool_of(raw_server(env={"TOKEN": "theirs"})) as pool:
        environment = json.loads(text(await pool.source("srv").call_tool("environment", {})))
    assert environment.pop("TOKEN") == "theirs"
    assert "OUR_SECRET" not in environment
    # macOS adds a variable of its own to every process.
    assert [name for name in environment if not is_passed_on(name) and not name.startswith("__CF")] == []


async def test_a_child_gets_what_its_network_and_launcher_need_but_for_what_is_withheld(
    raw_server: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {
        **{
            name: f"of {name}"
            for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
        },
        **{
            name: f"of {name}"
            for name in ("HTTP_PROXY", "https_proxy", "no_proxy", "UV_INDEX_URL", "npm_config_registry")
        },
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    for name, value in {**wanted, "HTTPS_PROXY": "withheld", "UVICORN_PORT": "other", "AWS_PROFILE": "other"}.items():
        monkeypatch.setenv(name, value)
    async with pool_of(raw_server(withheld=frozenset({"HTTPS_PROXY"}))) as pool:
        environment = json.loads(text(await pool.source("srv").call_tool("environment", {})))
    assert {name: environment.get(name) for name in wanted} == wanted
    assert not {"HTTPS_PROXY", "UVICORN_PORT", "AWS_PROFILE"} & environment.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
@pytest.mark.parametrize("entry", ["", "."])
async def test_a_program_of_the_current_folder_is_no_server(pool_of: Any, tmp_path: Path, entry: str) -> None:
    (tmp_path / "planted").write_text("#!/bin/sh\n: > ran")
    (tmp_path / "planted").chmod(0o755)
    path = os.pathsep.join((os.environ["PATH"], entry))
    async with pool_of(UpstreamSpec("srv", command="planted", cwd=str(tmp_path), env={"PATH": path})) as pool:
        (view,) = pool.views()
        assert view.state == "down"
        assert "command 'planted' was not found on PATH" in str(view.error)
    assert not (tmp_path / "ran").exists()


async def test_a_request_for_user_input_is_an_error_that_says_so(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        with pytest.raises(UpstreamCallError, match="asks for further input from the user"):
            await pool.source("srv").call_tool("ask", {})


async def test_a_result_against_the_tools_own_schema_is_delivered_with_a_note(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        outcome = await pool.source("srv").call_tool("wrong_structure", {})
    assert outcome.result["structuredContent"] == {"count": "many"}
    assert len(outcome.notes) == 1


async def test_entering_a_pool_waits_for_no_server(raw_server: Any) -> None:
    async with UpstreamPool([raw_server("silent")]) as pool:
        assert [view.state for view in pool.views()] == ["connecting"]


async def test_a_call_before_the_connection_is_up_waits_for_it(raw_server: Any) -> None:
    async with UpstreamPool([raw_server()]) as pool:
        assert pool.views()[0].state == "connecting"
        assert text(await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=20)) == "hi"


# Lines of a server over stdio are taken in the order in which they were written.


ASKING = """
import json, sys
for line in sys.stdin:
    number = json.loads(line)["id"]
    messages = [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {}},
        {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}},
        {"jsonrpc": "2.0", "id": number, "result": {"content": []}},
    ]
    sys.stdout.write("".join(json.dumps(each) + "\\n" for each in messages))
    sys.stdout.flush()
"""


async def test_an_answer_does_not_overtake_the_question_that_was_written_before_it() -> None:
    spec = UpstreamSpec(name="asking", command=sys.executable, args=("-c", ASKING))
    order: list[str] = []
    over = anyio.Event()

    async def handle(message: Any) -> None:
        order.append("question")

    with StderrTail("asking", lambda text: text) as tail:
        async with open_process(spec, tail) as (transport, direct), anyio.create_task_group() as group:
            assert direct is not None

            async def dispatch() -> None:
                while True:
                    message = await transport.receive()
                    assert isinstance(message, dict)
                    if message.get("method") == "elicitation/create":
                        group.start_soon(handle, message)
                    elif "result" in message:
                        order.append("answer")
                        over.set()

            def answered(_: Any) -> None:
                order.append("answer")
                over.set()

            group.start_soon(dispatch)
            await anyio.lowlevel.checkpoint()
            direct.send("tools/call", {"name": "x"}, answered)
            with anyio.fail_after(20):
                await over.wait()
            group.cancel_scope.cancel()
    assert order[0] == "question"
