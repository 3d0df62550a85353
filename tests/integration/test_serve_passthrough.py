"""Pass-through: the tools of the upstreams themselves, by policy and by the one road, in both eras."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from codemode_mcp.server.direct_forms import MAX_VALUES
from tests.integration.announcements import Ear, listening
from tests.integration.harness import (
    MODERN,
    SECONDS,
    SERVERS,
    Session,
    counting,
    events,
    serve,
    until,
    write_config,
)
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, Served, serve_http

pytestmark = pytest.mark.anyio

ANY = {"type": "object"}


def scripted(folder: Path, tools: list[Any], *, file: str = "tools.json", **more: Any) -> dict[str, Any]:
    """Return the entry of an upstream with these tools."""
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


async def answer(context: Any, params: Any) -> types.ElicitResult:
    assert params.message.startswith("[asker] Your name for ")
    return types.ElicitResult(action="accept", content={"name": params.message.split()[-1].rstrip("?").upper()})


def shown_of(server: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{server}__")]


CREATE = {
    "name": "create_issue",
    "title": "Create an issue",
    "description": "Makes one.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}, "x-mine": [1]},
    "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
    "annotations": {"readOnlyHint": False, "idempotentHint": True},
}
RELIST = [{"name": "relist", "inputSchema": ANY}]


@dataclass(frozen=True)
class Open:
    """A proxy that allows everything, with a client that can be asked."""

    session: Session
    mode: str
    ear: Ear
    folder: Path
    """Folder of the server `s`, with the results of `give`. The log of the server `one` is in `log`."""

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def changing(self) -> Path:
        """The list of the server `later`."""
        return self.folder / "later.json"


@pytest.fixture(scope="module", params=["auto", "legacy"], ids=["modern", "legacy"])
async def opened(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Open]:
    mode = request.param
    place = folder / mode
    place.mkdir()
    named = [{"name": name, "inputSchema": ANY} for name in ("give", "echo", "slow", "ask")]
    era = {"auto": "legacy", "legacy": "modern"}[mode]
    servers = {
        "git-hub": scripted(place, [CREATE, {"name": "a", "inputSchema": ANY}], file="hub.json"),
        "one": counting(place / "log"),
        "asker": {"command": sys.executable, "args": [str(SERVERS / "asking.py"), era]},
        "later": scripted(place, RELIST, file="later.json", trust="follow"),
        "s": scripted(place, named, file="s.json"),
    }
    ear = Ear(mode)
    # A list waits for all of them also on a busy machine: none is announced later.
    config = proxy(place, servers, code_mode={"enabled": False, "connectWaitMs": 25_000})
    async with serve(config, mode=mode, message_handler=ear, elicitation_callback=answer) as session:
        yield Open(session, mode, ear, place)


async def test_the_tools_of_all_servers_are_shown_as_they_are(opened: Open) -> None:
    session = opened.session
    listed = (await session.client.list_tools(cache_mode="refresh")).tools
    shown = [each.name for each in listed]
    assert shown == sorted(shown)
    assert shown[4:7] == ["git-hub__a", "git-hub__create_issue", "later__relist"]
    assert "one__advance" in shown
    assert not {"exec", "wait"} & set(shown)
    found = listed[5].model_dump(by_alias=True, mode="json", exclude_none=True)
    assert found == {**CREATE, "name": "git-hub__create_issue"}
    assert session.client.server_capabilities.tools.list_changed is True
    assert "git-hub, one, asker" in (session.client.instructions or "")


async def test_a_call_reaches_the_tool_and_its_result_comes_back_whole(opened: Open) -> None:
    session = opened.session
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
    (opened.folder / "whole").write_text(json.dumps(result), "utf-8")
    got = (await call(session, "s__give", {"name": "whole"})).model_dump(by_alias=True, mode="json", exclude_none=False)
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


async def test_arguments_that_do_not_fit_are_not_sent(opened: Open) -> None:
    result = await call(opened.session, "one__count", {"nme": 3})
    assert result.is_error
    assert "one__count" in text(result)
    assert "nothing was sent" in text(result)
    assert "name" in text(result)
    assert "Signature" not in text(result), "the client writes no program"
    assert "MCP." not in text(result)
    assert "call count" not in events(opened.log)


async def test_progress_is_passed_on_as_the_tool_tells_it(opened: Open) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    await call(opened.session, "s__slow", {}, progress_callback=note)
    await until(lambda: told)
    # The answer goes before what is not yet sent.
    assert told == [(1, 2, "step 1"), (2, 2, "step 2")][: len(told)]


async def test_cancelling_a_call_cancels_it_upstream(opened: Open) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(call, opened.session, "one__hold", {"name": "x"})
        await until(lambda: "call x" in events(opened.log))
        group.cancel_scope.cancel()
    await until(lambda: "cancelled x" in events(opened.log))
    assert text(await call(opened.session, "one__count", {"name": "after"})) == "after"


async def test_what_a_server_asks_reaches_the_client_and_is_never_mixed_up(opened: Open) -> None:
    """A modern client and a legacy server, and the other way round."""
    said: dict[str, str] = {}

    async def ask(label: str) -> None:
        result = await call(opened.session, "asker__name", {"label": label})
        said[label] = json.loads(text(result))["said"]["content"]["name"]

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(ask, f"x{number}")
    assert said == {f"x{number}": f"X{number}" for number in range(8)}


async def test_a_change_of_the_list_is_announced_once_and_only_when_it_is_one(opened: Open) -> None:
    session, ear = opened.session, opened.ear
    async with listening(session, opened.mode, ear):
        assert shown_of("later", await names(session)) == ["later__relist"]
        before = ear.count
        await call(session, "later__relist", {"times": 20})  # says so, but it is the same list
        opened.changing.write_text(json.dumps([*RELIST, {"name": "new", "inputSchema": ANY}]), "utf-8")
        await call(session, "later__relist", {"times": 30})
        await ear.heard(before + 1)
        assert shown_of("later", await names(session)) == ["later__new", "later__relist"]
        opened.changing.write_text(json.dumps(RELIST), "utf-8")
        await call(session, "later__relist", {"times": 30})
        await ear.heard(before + 2)
        assert shown_of("later", await names(session)) == ["later__relist"]
        assert ear.count == before + 2


# with rules and limits, and a client that cannot be asked


@pytest.fixture(scope="module")
async def strict(folder: Path) -> AsyncIterator[Session]:
    """Yield the logs of its servers `one` and `two` are `one` and `two` in its folder; `folder / "strict"` is that."""
    place = folder / "strict"
    place.mkdir()
    servers = {
        "one": counting(place / "one"),
        "two": counting(place / "two"),
        "s": scripted(place, [{"name": name, "inputSchema": ANY} for name in ("give", "ask")], file="s.json"),
    }
    rules = {"deny": ["mcp:one:count", "readOnly"], "ask": ["mcp:two:count"]}
    settings = {"enabled": False, "maxToolResultBytes": 2048, "connectWaitMs": 25_000}
    config = proxy(place, servers, code_mode=settings, **rules)
    async with serve(config) as session:
        yield session


async def test_what_policy_denies_is_neither_shown_nor_told_from_what_does_not_exist(
    strict: Session, folder: Path
) -> None:
    shown = await names(strict)
    assert "one__release" in shown
    assert not {"one__count", "one__peek"} & set(shown)
    messages = []
    for name in ("one__count", "one__zzzzz"):
        with pytest.raises(MCPError) as refused:
            await call(strict, name, {"name": "x"})
        assert refused.value.error.code == types.INVALID_PARAMS
        messages.append(refused.value.error.message.partition(" Nearest")[0].replace(name, "NAME"))
    assert messages[0] == messages[1]
    assert not [line for line in events(folder / "strict" / "one") if line.startswith("call")]


async def test_a_server_is_told_when_the_client_cannot_be_asked(strict: Session) -> None:
    said = text(await call(strict, "s__ask", {}))
    assert "server 's' asked the user a question, but this client does not support elicitation" in said


async def test_failures_of_a_tool_its_server_and_its_process_are_results(strict: Session) -> None:
    refused = await call(strict, "two__refuse", {})
    assert (refused.is_error, text(refused)) == (True, "the tool says no")
    rejected = await call(strict, "two__reject", {})
    assert rejected.is_error
    assert "the server says no" in text(rejected)
    died = await call(strict, "two__die", {})
    assert died.is_error
    assert "'two'" in text(died)


async def test_a_server_that_comes_late_is_announced_and_only_what_is_read_only_is_shown_on_request(
    tmp_path: Path,
) -> None:
    mode = "legacy"
    go = tmp_path / "go"
    servers = {"one": counting(tmp_path / "one"), "late": counting(tmp_path / "late", f"wait_for={go}")}
    ear = Ear(mode)
    settings = {"enabled": False, "connectWaitMs": 1500}
    config = proxy(tmp_path, servers, code_mode=settings, allow=["readOnly"])
    async with serve(config, mode=mode, message_handler=ear) as session, listening(session, mode, ear):
        assert await names(session) == ["one__peek"]
        go.touch()
        await ear.heard()
        assert await names(session) == ["late__peek", "one__peek"]


async def test_a_client_that_never_answers_holds_a_call_no_longer_than_it_may(tmp_path: Path) -> None:
    async def never(context: Any, params: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "maxRequestMs": 1000})
    async with serve(config, mode="legacy", elicitation_callback=never) as session:
        assert "did not answer within 1 s (maxRequestMs)" in text(await call(session, "s__ask"))


# over HTTP


@pytest.fixture(scope="module")
async def served(folder: Path) -> AsyncIterator[Served]:
    """Serve the tools `give` and `ask` of a server whose folder is `folder / "http"`."""
    place = folder / "http"
    place.mkdir()
    config = proxy(place, {"s": scripted(place, [{"name": name, "inputSchema": ANY} for name in ("give", "ask")])})
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | {"http": TWO_TOKENS}), "utf-8")
    async with serve_http(config) as served:
        yield served


@pytest.fixture
def called(served: Served, folder: Path) -> Callable[[], list[str]]:
    """Return a function that lists the calls since the test began."""
    path = folder / "http" / "called"
    path.unlink(missing_ok=True)
    return lambda: path.read_text("utf-8").split()


async def given_beside_lists(served: Served, another: Session) -> tuple[types.CallToolResult, list[float]]:
    """Return the result that one client is given, and the seconds that another waits for each of its lists
    meanwhile. The result is read by the SDK only afterwards, since that would delay the other client, too."""
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
        with anyio.fail_after(SECONDS):
            given = await served.call("s__give", {"name": "result"}, authorization=f"Bearer {ALICE}")
        over.set()
    return types.CallToolResult.model_validate(given["result"]), waited


async def test_the_largest_result_that_is_passed_on_delays_no_other_client(served: Served, folder: Path) -> None:
    icons = [{"src": "a"}] * (MAX_VALUES // 2 // 100 - 4)
    link = {"type": "resource_link", "name": "a", "uri": "file:///a", "icons": icons}
    (folder / "http" / "result").write_text(json.dumps({"content": [link] * 100}), "utf-8")
    async with served.client(token=BOB) as other_client:
        result, waited = await given_beside_lists(served, other_client)
        assert not result.is_error
        assert len(result.content) == 100
        last = result.content[99]
        assert isinstance(last, types.ResourceLink)
        assert len(last.icons or ()) == len(icons)
        assert max(waited) < 10


async def raw_call(
    served: Served, token: str | None = None, state: str | None = None, said: str | None = None
) -> dict[str, Any]:
    """Return a modern call of `s__ask` as bare JSON, by a client that can be asked; the whole answer."""
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
    """Return True if a reply was refused because no call waits for it."""
    result = answer.get("result", {"isError": False})
    return result["isError"] is True and "this call has ended or was cancelled" in result["content"][0]["text"]


async def test_a_call_whose_client_does_not_come_back_is_given_up(tmp_path: Path) -> None:
    servers = {"s": scripted(tmp_path, [{"name": "ask", "inputSchema": ANY}])}
    config = proxy(tmp_path, servers, code_mode={"enabled": False, "snapshotTtlSeconds": 1})
    async with serve_http(config) as served:
        state = await asked(served)
        await until(lambda: (tmp_path / "called").read_text("utf-8").split() == ["ask", "cancelled"])
        late = await raw_call(served, state=state, said="ada")
        assert over(late) or "error" in late
        assert "ada" not in json.dumps(late)


async def test_the_answer_to_a_question_can_be_given_once(served: Served, called: Callable[[], list[str]]) -> None:
    state = await asked(served, ALICE)
    first = await raw_call(served, ALICE, state, "ada")
    assert json.loads(first["result"]["content"][0]["text"])["content"] == {"name": "ada"}
    assert over(await raw_call(served, ALICE, state, "eve"))
    assert called() == ["ask"]


async def test_no_other_client_can_answer_a_question(served: Served, called: Callable[[], list[str]]) -> None:
    state = await asked(served, ALICE)
    foreign = await raw_call(served, BOB, state, "eve")
    assert over(foreign) or "error" in foreign
    own = await raw_call(served, ALICE, state, "ada")
    assert json.loads(own["result"]["content"][0]["text"])["content"] == {"name": "ada"}
    assert called() == ["ask"]
