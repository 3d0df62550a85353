"""Pass-through: the tools of the upstreams themselves, by policy and by the one road, in both eras."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from codemode_mcp.passthrough import MAX_VALUES
from tests.integration.announcements import Ear, listening
from tests.integration.harness import (
    MODERN,
    SECONDS,
    SERVERS,
    Session,
    counting,
    events,
    other,
    serve,
    until,
    write_config,
)
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, Served, serve_http

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern", "legacy"])
ANY = {"type": "object"}


def scripted(folder: Path, tools: list[Any], *, file: str = "tools.json", **more: Any) -> dict[str, Any]:
    """The entry of an upstream with these tools."""
    (folder / file).write_text(json.dumps(tools), "utf-8")
    return {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(folder), file], **more}


def proxy(folder: Path, servers: dict[str, Any], *, code_mode: Any = False, **tools: Any) -> Path:
    return write_config(folder, servers, codeMode=code_mode, **tools)


async def names(session: Session) -> list[str]:
    with anyio.fail_after(SECONDS):
        return [tool.name for tool in (await session.client.list_tools(cache_mode="refresh")).tools]


async def call(session: Session, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    with anyio.fail_after(SECONDS):
        return await session.client.call_tool(tool, arguments, **options)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@ERAS
async def test_the_tools_of_all_servers_are_shown_as_they_are(mode: str, tmp_path: Path) -> None:
    tool = {
        "name": "create_issue",
        "title": "Create an issue",
        "description": "Makes one.",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}, "x-mine": [1]},
        "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "annotations": {"readOnlyHint": False, "idempotentHint": True},
    }
    servers = {
        "git-hub": scripted(tmp_path, [tool, {"name": "a", "inputSchema": ANY}]),
        "one": counting(tmp_path / "l"),
    }
    async with serve(proxy(tmp_path, servers), mode=mode) as session:
        listed = (await session.client.list_tools()).tools
        shown = [each.name for each in listed]
        assert shown == sorted(shown)
        assert shown[:3] == ["git-hub__a", "git-hub__create_issue", "one__advance"]
        assert not {"exec", "wait"} & set(shown)
        found = listed[1].model_dump(by_alias=True, mode="json", exclude_none=True)
        assert found == {**tool, "name": "git-hub__create_issue"}
        assert session.client.server_capabilities.tools.list_changed is True
        assert "git-hub, one" in (session.client.instructions or "")


@ERAS
async def test_a_call_reaches_the_tool_and_its_result_comes_back_whole(mode: str, tmp_path: Path) -> None:
    result = {
        "content": [
            {"type": "text", "text": "é😀", "annotations": {"audience": ["user"], "priority": 0.5}},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "b", "mimeType": "text/plain"}},
        ],
        "structuredContent": {"nothing": None, "many": [1, 2.5, {"deep": []}], "big": 12345678901234567890},
        "isError": True,
        "_meta": {"example.com/trace": {"id": 7}},
    }
    (tmp_path / "result").write_text(json.dumps(result), "utf-8")
    servers = {"s": scripted(tmp_path, [{"name": "give", "inputSchema": ANY}, {"name": "echo", "inputSchema": ANY}])}
    async with serve(proxy(tmp_path, servers), mode=mode) as session:
        got = (await call(session, "s__give", {"name": "result"})).model_dump(
            by_alias=True, mode="json", exclude_none=False
        )
        assert got["structuredContent"] == result["structuredContent"]
        assert got["isError"] is True
        assert got["_meta"]["example.com/trace"] == {"id": 7}
        blocks = [{key: value for key, value in block.items() if value is not None} for block in got["content"]]
        assert blocks[0]["text"] == "é😀"
        assert blocks[0]["annotations"]["audience"] == ["user"]
        assert [block["type"] for block in blocks] == ["text", "image", "audio", "resource_link", "resource"]
        assert blocks[4]["resource"]["text"] == "b"
        sent = {"text": "ü", "nothing": None, "n": [1, {"a": 2.5}]}
        assert json.loads(text(await call(session, "s__echo", sent))) == sent


@ERAS
async def test_what_a_protocol_revision_cannot_say_is_shown_as_text_and_not_lost(mode: str, tmp_path: Path) -> None:
    blocks = [{"type": "hologram", "data": "beam"}, {"type": "text", "text": "half \ud83d of a pair"}]
    (tmp_path / "result").write_text(json.dumps({"content": blocks, "_meta": 7}), "utf-8")
    (tmp_path / "list").write_text(json.dumps({"content": [], "structuredContent": [1, 2]}), "utf-8")
    tools = [
        {"name": "give", "inputSchema": ANY},
        {"name": "odd_output", "inputSchema": ANY, "outputSchema": {"type": "array"}},
        {"name": "odd_input", "inputSchema": {"type": ["object", "null"], "properties": {}}},
    ]
    async with serve(proxy(tmp_path, {"s": scripted(tmp_path, tools)}), mode=mode) as session:
        assert await names(session) == ["s__give", "s__odd_input", "s__odd_output"]
        result = await call(session, "s__give", {"name": "result"})
        hologram, half = (block.text for block in result.content)
        assert json.loads(hologram) == blocks[0]
        assert half == "half \ufffd of a pair"
        listed = await call(session, "s__give", {"name": "list"})
        assert listed.structured_content == [1, 2] or json.loads(text(listed)) == [1, 2]


async def test_what_policy_denies_is_neither_shown_nor_told_from_what_does_not_exist(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = proxy(tmp_path, {"one": counting(log)}, deny=["mcp:one:count", "readOnly"])
    async with serve(config) as session:
        shown = await names(session)
        assert "one__release" in shown
        assert not {"one__count", "one__peek"} & set(shown)
        messages = []
        for name in ("one__count", "one__zzzzz"):
            with pytest.raises(MCPError) as refused:
                await call(session, name, {"name": "x"})
            assert refused.value.error.code == types.INVALID_PARAMS
            messages.append(refused.value.error.message.partition(" Nearest")[0].replace(name, "NAME"))
        assert messages[0] == messages[1]
        assert not [line for line in events(log) if line.startswith("call")]


async def test_a_tool_that_needs_approval_is_shown_and_refused_with_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serve(proxy(tmp_path, {"one": counting(log)}, ask=["mcp:one:count"])) as session:
        assert "one__count" in await names(session)
        result = await call(session, "one__count", {"name": "x"})
        assert result.is_error
        assert "was not approved" in text(result)
        assert "one__count" in text(result)
        assert "MCP." not in text(result)
        assert "call x" not in events(log)


async def test_annotations_of_a_server_that_is_not_trusted_are_not_shown(tmp_path: Path) -> None:
    tool = {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}}
    servers = {
        "trusted": scripted(tmp_path, [tool]),
        "other": scripted(tmp_path, [tool], trustAnnotations=False),
    }
    async with serve(proxy(tmp_path, servers)) as session:
        other_tool, trusted = (await session.client.list_tools()).tools
        assert (other_tool.name, other_tool.annotations) == ("other__look", None)
        assert trusted.annotations is not None
        assert trusted.annotations.read_only_hint is True


async def test_arguments_that_do_not_fit_are_not_sent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serve(proxy(tmp_path, {"one": counting(log)})) as session:
        result = await call(session, "one__count", {"nme": 3})
        assert result.is_error
        assert "one__count" in text(result)
        assert "nothing was sent" in text(result)
        assert "name" in text(result)
        assert "Signature" not in text(result), "the client writes no program"
        assert "MCP." not in text(result)
        assert not [line for line in events(log) if line.startswith("call")]


async def test_a_result_that_is_too_large_is_refused(tmp_path: Path) -> None:
    servers = {"big": other("sdk_server.py")}
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "maxToolResultBytes": 2048})
    async with serve(config) as session:
        assert not (await call(session, "big__big", {"bytes": 1000})).is_error
        refused = await call(session, "big__big", {"bytes": 3000})
        assert refused.is_error
        assert "maxToolResultBytes (2048)" in text(refused)


async def given_beside_lists(one: Session, another: Session) -> tuple[Any, list[float]]:
    """The result that one client is given, and the seconds that another waits for each of its lists meanwhile."""
    waited: list[float] = []
    over = anyio.Event()

    async def look() -> None:
        while not over.is_set():
            began = anyio.current_time()
            await names(another)
            waited.append(anyio.current_time() - began)

    await names(another)
    async with anyio.create_task_group() as group:
        group.start_soon(look)
        result = await call(one, "s__give", {"name": "result"})
        over.set()
    return result, waited


@pytest.mark.parametrize("kind", ["parts", "odd parts", "values"])
async def test_a_result_of_very_many_parts_holds_up_nobody_else(kind: str, tmp_path: Path) -> None:
    results = {
        "parts": {"content": [{"type": "text", "text": ""}] * 300_000},
        "odd parts": {"content": [{"type": "x"}] * 300_000},
        "values": {"content": [], "structuredContent": {str(number): [] for number in range(300_000)}},
    }
    (tmp_path / "result").write_text(json.dumps(results[kind]), "utf-8")
    config = proxy(tmp_path, {"s": scripted(tmp_path, [{"name": "give", "inputSchema": ANY}])})
    async with serve_http(config) as served, served.client() as one, served.client() as other_client:
        result, waited = await given_beside_lists(one, other_client)
        assert result.is_error
        assert "ask the tool for less at a time" in text(result)
        assert max(waited) < 10


async def test_the_largest_result_that_is_passed_on_holds_up_nobody_else(tmp_path: Path) -> None:
    icons = [{"src": "a"}] * (MAX_VALUES // 2 // 100 - 4)
    link = {"type": "resource_link", "name": "a", "uri": "file:///a", "icons": icons}
    (tmp_path / "result").write_text(json.dumps({"content": [link] * 100}), "utf-8")
    config = proxy(tmp_path, {"s": scripted(tmp_path, [{"name": "give", "inputSchema": ANY}])})
    async with serve_http(config) as served, served.client() as one, served.client() as other_client:
        result, waited = await given_beside_lists(one, other_client)
        assert not result.is_error
        assert len(result.content) == 100
        assert len(result.content[99].icons) == len(icons)
        assert max(waited) < 10


async def test_failures_of_a_tool_its_server_and_its_process_are_results(tmp_path: Path) -> None:
    async with serve(proxy(tmp_path, {"one": counting(tmp_path / "log")})) as session:
        refused = await call(session, "one__refuse", {})
        assert (refused.is_error, text(refused)) == (True, "the tool says no")
        rejected = await call(session, "one__reject", {})
        assert rejected.is_error
        assert "the server says no" in text(rejected)
        died = await call(session, "one__die", {})
        assert died.is_error
        assert "'one'" in text(died)


@ERAS
async def test_progress_is_passed_on_as_the_tool_tells_it(mode: str, tmp_path: Path) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    servers = {"s": scripted(tmp_path, [{"name": "slow", "inputSchema": ANY}])}
    async with serve(proxy(tmp_path, servers), mode=mode) as session:
        await call(session, "s__slow", {}, progress_callback=note)
        await until(lambda: len(told) == 2)
        assert told == [(1, 2, "step 1"), (2, 2, "step 2")]


@ERAS
async def test_cancelling_a_call_cancels_it_upstream(mode: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with serve(proxy(tmp_path, {"one": counting(log)}), mode=mode) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(call, session, "one__hold", {"name": "x"})
            await until(lambda: "call x" in events(log))
            group.cancel_scope.cancel()
        await until(lambda: "cancelled x" in events(log))
        assert text(await call(session, "one__count", {"name": "after"})) == "after"


async def answer(context: Any, params: Any) -> types.ElicitResult:
    assert params.message.startswith("[asker] Your name for ")
    return types.ElicitResult(action="accept", content={"name": params.message.split()[-1].rstrip("?").upper()})


@pytest.mark.parametrize(("mode", "upstream"), [("auto", "legacy"), ("legacy", "modern")])
async def test_what_a_server_asks_reaches_the_client_and_is_never_mixed_up(
    mode: str, upstream: str, tmp_path: Path
) -> None:
    servers = {"asker": {"command": sys.executable, "args": [str(SERVERS / "asking.py"), upstream]}}
    said: dict[str, str] = {}

    async def ask(session: Session, label: str) -> None:
        said[label] = json.loads(text(await call(session, "asker__name", {"label": label})))["said"]["content"]["name"]

    async with serve(proxy(tmp_path, servers), mode=mode, elicitation_callback=answer) as session:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, session, f"x{number}")
        assert said == {f"x{number}": f"X{number}" for number in range(8)}


async def test_a_server_is_told_when_the_client_cannot_be_asked(tmp_path: Path) -> None:
    servers = {"asker": {"command": sys.executable, "args": [str(SERVERS / "asking.py"), "legacy"]}}
    async with serve(proxy(tmp_path, servers)) as session:
        result = await call(session, "asker__name", {"label": "ada"})
        assert result.is_error
        said = "server 'asker' asked the user a question, but this client does not support elicitation"
        assert said in text(result)


async def test_a_client_that_never_answers_holds_a_call_no_longer_than_it_may(tmp_path: Path) -> None:
    async def never(context: Any, params: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "maxRequestMs": 1000})
    async with serve(config, mode="legacy", elicitation_callback=never) as session:
        assert "did not answer within 1 s (maxRequestMs)" in text(await call(session, "s__ask"))


@ERAS
async def test_a_question_that_cannot_be_put_is_refused_in_words(mode: str, tmp_path: Path) -> None:
    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    async with serve(proxy(tmp_path, servers), mode=mode, elicitation_callback=answer) as session:
        assert "nested" in text(await call(session, "s__ask", {"deep": 240}))
        assert await names(session) == ["s__ask"]
        assert "Traceback" not in session.stderr


async def raw_call(
    served: Served, token: str | None = None, state: str | None = None, said: str | None = None
) -> dict[str, Any]:
    """A modern call of `s__ask` as bare JSON, by a client that can be asked; the whole answer."""
    capabilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    params: dict[str, Any] = {"name": "s__ask", "arguments": {}, "_meta": MODERN["_meta"] | capabilities}
    if state is not None:
        params |= {"requestState": state}
        params |= {"inputResponses": {"question-1": {"action": "accept", "content": {"name": said}}}}
    response = await served.request(
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        content=None,
        headers={"mcp-method": "tools/call", "mcp-name": "s__ask"},
        token=token,
    )
    found = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        found = found.rpartition("data: ")[2]
    message: dict[str, Any] = json.loads(found)
    return message


async def asked(served: Served, token: str | None = None) -> str:
    """Make a call whose tool asks; what to repeat it with."""
    result = (await raw_call(served, token))["result"]
    assert result["resultType"] == "input_required"
    return str(result["requestState"])


def over(answer: dict[str, Any]) -> bool:
    """Whether a call was refused because there is none to go on with."""
    result = answer.get("result", {"isError": False})
    return result["isError"] is True and "this call is over" in result["content"][0]["text"]


async def test_a_call_whose_client_does_not_come_back_is_given_up(tmp_path: Path) -> None:
    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "snapshotTtlSeconds": 1})
    async with serve_http(config) as served:
        state = await asked(served)
        await until(lambda: (tmp_path / "called").read_text("utf-8").split() == ["ask", "cancelled"])
        late = await raw_call(served, state=state, said="ada")
        assert over(late) or "error" in late
        assert "ada" not in json.dumps(late)


async def test_the_answer_to_a_question_can_be_given_once(tmp_path: Path) -> None:
    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    async with serve_http(proxy(tmp_path, servers)) as served:
        state = await asked(served)
        first = await raw_call(served, state=state, said="ada")
        assert json.loads(first["result"]["content"][0]["text"])["content"] == {"name": "ada"}
        second = await raw_call(served, state=state, said="eve")
        assert over(second)
        assert (tmp_path / "called").read_text("utf-8").split() == ["ask"]


async def test_nobody_else_can_answer_a_question(tmp_path: Path) -> None:
    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    config = proxy(tmp_path, servers)
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | {"http": TWO_TOKENS}), "utf-8")
    async with serve_http(config) as served:
        state = await asked(served, ALICE)
        foreign = await raw_call(served, BOB, state, "eve")
        assert over(foreign) or "error" in foreign
        own = await raw_call(served, ALICE, state, "ada")
        assert json.loads(own["result"]["content"][0]["text"])["content"] == {"name": "ada"}
        assert (tmp_path / "called").read_text("utf-8").split() == ["ask"]


@ERAS
async def test_a_change_of_the_list_is_announced_once_and_only_when_it_is_one(mode: str, tmp_path: Path) -> None:
    tools = [{"name": "relist", "inputSchema": ANY}]
    ear = Ear(mode)
    config = proxy(tmp_path, {"s": scripted(tmp_path, tools)})
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        assert await names(session) == ["s__relist"]
        await call(session, "s__relist", {"times": 20})  # says so, but it is the same list
        (tmp_path / "tools.json").write_text(json.dumps([*tools, {"name": "new", "inputSchema": ANY}]), "utf-8")
        await call(session, "s__relist", {"times": 30})
        await ear.heard()
        assert await names(session) == ["s__new", "s__relist"]
        (tmp_path / "tools.json").write_text(json.dumps(tools), "utf-8")
        await call(session, "s__relist", {"times": 30})
        await ear.heard(2)
        assert await names(session) == ["s__relist"]
        assert ear.count == 2


async def test_a_server_that_comes_late_is_announced(tmp_path: Path) -> None:
    mode = "legacy"
    go = tmp_path / "go"
    servers = {"one": counting(tmp_path / "one"), "late": counting(tmp_path / "late", f"wait_for={go}")}
    ear = Ear(mode)
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "connectWaitMs": 1500})
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        assert {name.partition("__")[0] for name in await names(session)} == {"one"}
        go.touch()
        await ear.heard()
        assert {name.partition("__")[0] for name in await names(session)} == {"one", "late"}


async def test_names_that_clients_do_not_take_are_made_fit_and_still_reach_their_tools(tmp_path: Path) -> None:
    odd = ["get/thing", "get thing", "é", "n" * 100, "plain"]
    tools = [{"name": name, "inputSchema": ANY} for name in odd]
    servers = {
        "my server": scripted(tmp_path, tools),
        "a": scripted(tmp_path, [{"name": "b__c", "inputSchema": ANY}], file="other.json"),
    }
    async with serve(proxy(tmp_path, servers)) as session:
        shown = await names(session)
        assert len(set(shown)) == len(odd) + 1
        assert "a__b__c" in shown
        for name in shown:
            assert len(name) <= 64
            assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
            assert json.loads(text(await call(session, name, {"to": name}))) == {"to": name}


async def test_only_read_only_tools_on_request_also_here(tmp_path: Path) -> None:
    config = proxy(tmp_path, {"one": counting(tmp_path / "log")}, allow=["readOnly"])
    async with serve(config) as session:
        assert await names(session) == ["one__peek"]
