"""Requests of clients that show apps, in both protocol eras, without a browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apps.listed_servers import (
    MIME_TYPE,
    app_content,
    app_tool,
    calls_of,
    plain_tool,
    serving_apps,
    written_server,
)
from tests.integration.harness import raw
from tests.integration.http_harness import Served

APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME_TYPE]}}}
URI = "ui://clock/app.html"
UI = {"csp": {"connectDomains": ["https://api.test"]}}
META = "io.modelcontextprotocol/"


@dataclass
class AppClient:
    """A client over HTTP that sends bare requests."""

    served: Served
    capabilities: dict[str, Any]
    modern: bool
    session: str = ""

    async def send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {"mcp-protocol-version": "2025-11-25"}
        if self.session:
            headers["mcp-session-id"] = self.session
        if self.modern:
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            named = params.get("name", params.get("uri"))
            headers |= {} if named is None else {"mcp-name": named}
            info = {"name": "raw", "version": "1"}
            meta = {"protocolVersion": "2026-07-28", "clientInfo": info, "clientCapabilities": self.capabilities}
            params = {**params, "_meta": {META + key: value for key, value in meta.items()}}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.served.request(json=message, content=None, headers=headers)
        self.session = answer.headers.get("mcp-session-id", self.session)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = text.rpartition("data: ")[2]
        found: dict[str, Any] = json.loads(text)
        return found

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.send(method, params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.send(method, params)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error


async def connected(served: Served, era: str, capabilities: dict[str, Any]) -> tuple[AppClient, dict[str, Any]]:
    """Return a client, and what the server says of itself."""
    client = AppClient(served, capabilities, era == "modern")
    if client.modern:
        return client, await client.result("server/discover")
    info = {"name": "raw", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
    return client, await client.result("initialize", **hello)


def clock(folder: Path) -> dict[str, Any]:
    tools = [app_tool("show", URI), app_tool("refresh", URI, visibility=["app"]), plain_tool("plain")]
    resources = [
        {"uri": URI, "name": "clock", "mimeType": MIME_TYPE, "_meta": {"ui": UI}},
        {"uri": "ui://clock/not-an-app", "name": "other", "mimeType": "text/html"},
        {"uri": "file:///a", "name": "a"},
    ]
    return written_server(folder, "clock", tools, {URI: app_content("<p>clock</p>")}, resources)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the server that most tests share."""
    return tmp_path_factory.mktemp("clock")


@pytest.fixture(scope="module")
async def served(folder: Path) -> AsyncIterator[Served]:
    async with serving_apps(folder, 1, {"clock": clock(folder)}) as served:
        yield served


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


async def test_a_client_that_shows_apps_gets_tools_and_apps(era: str, served: Served) -> None:
    client, hello = await connected(served, era, APPS)
    assert hello["capabilities"]["extensions"]["io.modelcontextprotocol/ui"] == {"mimeTypes": [MIME_TYPE]}
    assert "resources" in hello["capabilities"]
    tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
    assert set(tools) == {"exec", "wait", "clock__show", "clock__refresh"}
    shown = "ui://clock/clock/app.html"
    assert tools["clock__show"]["_meta"] == {"ui": {"resourceUri": shown}, "ui/resourceUri": shown}
    listed = (await client.result("resources/list"))["resources"]
    apps = [each for each in listed if each["uri"].startswith("ui://")]
    facts = {"name": "clock", "mimeType": MIME_TYPE, "_meta": {"ui": UI}}
    assert apps == [{"uri": "ui://clock/clock/app.html", **facts}]
    (page,) = (await client.result("resources/read", uri="ui://clock/clock/app.html"))["contents"]
    assert (page["uri"], page["mimeType"], page["_meta"]) == (apps[0]["uri"], MIME_TYPE, {"ui": UI})
    assert "clock\\u003c/p>" in page["text"]
    for name in ("show", "refresh", "plain"):
        result = await client.result("tools/call", name=f"clock__{name}", arguments={})
        assert result["structuredContent"] == {"called": name, "with": {}}


async def test_other_uris_are_not_found(era: str, served: Served) -> None:
    client, _ = await connected(served, era, APPS)
    for uri in (
        *("ui://clock/app.html", "ui://clock/clock/none", "ui://none/app.html", "ui://clock", "ui://"),
        *("ui://codemode-mcp/x", "ui://codemode-mcp/resources/none/file%3A%2F%2F%2Fa"),
    ):
        error = await client.error("resources/read", uri=uri)
        assert "not found" in error["message"].lower() or "no such resource" in error["message"], uri


async def test_other_clients_see_none_of_it(era: str, served: Served, folder: Path) -> None:
    before = calls_of(folder, "clock")
    client, hello = await connected(served, era, {})
    assert "io.modelcontextprotocol/ui" not in hello["capabilities"].get("extensions", {})
    assert [tool["name"] for tool in (await client.result("tools/list"))["tools"]] == ["exec", "wait"]
    for uri in ("ui://clock/clock/app.html", "ui://codemode-mcp/shown"):
        await client.error("resources/read", uri=uri)
    for name in ("clock__show", "clock__refresh"):
        answer = await client.send("tools/call", {"name": name, "arguments": {}})
        assert "error" in answer or answer["result"]["isError"]
    assert calls_of(folder, "clock") == before


async def test_without_the_word_ui_no_tool_is_listed(tmp_path: Path) -> None:
    async with serving_apps(tmp_path, 1, {"clock": clock(tmp_path)}, expose={}) as served:
        client, _ = await connected(served, "modern", APPS)
        tools = (await client.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["exec", "wait"]
        assert [tool["_meta"] for tool in tools] == [{"anthropic/alwaysLoad": True}] * 2
        result = await client.result("tools/call", name="exec", arguments={"code": "show(await MCP.clock.show())"})
        (note,) = result["structuredContent"]["notes"]
        assert note.startswith('show() did nothing, because "ui" is not in expose.direct for this client.')
        assert "codemode-mcp/app" not in result["_meta"]


async def test_a_tool_that_is_exposed_anyway_has_its_app(tmp_path: Path) -> None:
    expose = {"direct": ["mcp:clock:show", "mcp:clock:plain", "ui"]}
    async with serving_apps(tmp_path, 1, {"clock": clock(tmp_path)}, expose=expose) as served:
        client, _ = await connected(served, "modern", APPS)
        tools = (await client.result("tools/list"))["tools"]
        assert sorted(tool["name"] for tool in tools) == [
            *("clock__plain", "clock__refresh", "clock__show", "exec", "wait")
        ]
        assert "ui" in next(tool for tool in tools if tool["name"] == "clock__show")["_meta"]
        plain, _ = await connected(served, "modern", {})
        names = [tool["name"] for tool in (await plain.result("tools/list"))["tools"]]
        assert sorted(names) == ["clock__plain", "clock__show", "exec", "wait"]


async def test_a_shown_app_is_with_the_answer_of_wait_too(era: str, served: Served) -> None:
    client, _ = await connected(served, era, APPS)
    code = "const r = await MCP.clock.show({ a: 1 }); await yield_control(); show(r); show(r); return 1"
    first = await client.result("tools/call", name="exec", arguments={"code": code})
    assert "codemode-mcp/app" not in first["_meta"]
    run = first["structuredContent"]["runId"]
    rest = await client.result("tools/call", name="wait", arguments={"runId": run})
    assert rest["_meta"]["codemode-mcp/app"] == {
        "resourceUri": "ui://clock/clock/app.html",
        "tool": "mcp:clock:show",
        "arguments": {"a": 1},
        "result": {
            "content": [{"type": "text", "text": '{"called": "show", "with": {"a": 1}}'}],
            "structuredContent": {"called": "show", "with": {"a": 1}},
        },
    }
    (note,) = rest["structuredContent"]["notes"]
    assert note.startswith("The app of mcp:clock:show is attached to this answer. show() was called 2 times")


async def test_challenges_of_nested_calls_are_in_the_metadata_of_the_answer(tmp_path: Path) -> None:
    servers = {"vault": written_server(tmp_path, "vault", [plain_tool("locked")], {})}
    async with serving_apps(tmp_path, 1, servers) as served:
        client, _ = await connected(served, "modern", {})
        code = """
          for (const challenge of ['Bearer realm="a"', 'nonsense', 'Bearer realm="a"', 'Bearer realm="b"']) {
            await MCP.vault.locked({ challenge });
          }
          return 1
        """
        result = await client.result("tools/call", name="exec", arguments={"code": code})
        assert result["_meta"]["mcp/www_authenticate"] == ['Bearer realm="a"', 'Bearer realm="b"']


async def test_apps_reach_clients_over_stdio_too(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"clock": clock(tmp_path)}, "expose": {"direct": ["ui"]}}), "utf-8")
    async with raw(config) as client:
        info = {"name": "raw", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": APPS, "clientInfo": info}
        answer = (await client.request("initialize", hello))["result"]
        assert "extensions" in answer["capabilities"]
        await client.send(method="notifications/initialized")
        tools = (await client.request("tools/list"))["result"]["tools"]
        assert {tool["name"] for tool in tools} == {"exec", "wait", "clock__show", "clock__refresh"}
        (page,) = (await client.request("resources/read", {"uri": "ui://clock/clock/app.html"}))["result"]["contents"]
        assert page["mimeType"] == MIME_TYPE
        called = (await client.request("tools/call", {"name": "clock__refresh", "arguments": {}}))["result"]
        assert called["structuredContent"]["called"] == "refresh"
