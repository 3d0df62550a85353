"""Apps of published servers, shown by the official bridge for hosts in a real browser, through the real command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apps.hosts import Host
from tests.apps.listed_servers import published, serving_apps
from tests.integration.http_harness import Served


@pytest.fixture(scope="module")
async def running(host_port: int, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One published server behind the real command."""
    servers = {"clock": published("server-basic-vanillajs")}
    async with serving_apps(tmp_path_factory.mktemp("clock"), host_port, servers) as served:
        yield served


async def test_an_app_of_a_server_is_shown_and_calls_its_tool(host: Host, running: Served) -> None:
    capabilities = await host.connect(running.url)
    assert capabilities["extensions"] == {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    assert list(await host.tools()) == ["exec", "wait", "clock__get-time"]
    result = await host.run("clock__get-time")
    first = result["structuredContent"]["time"]
    app = host.app()
    await app.get_by_text(first).first.wait_for()
    await app.get_by_role("button", name="Get Server Time").click()
    await host.page.wait_for_function("host.calls.length > 0")
    assert (await host.calls())[0]["name"] == "clock__get-time"
    await app.get_by_text(first).first.wait_for(state="detached")
    await app.get_by_role("button", name="Send Message").click()
    await host.page.wait_for_function("host.messages.length > 0")


async def test_a_program_shows_an_app_with_its_answer(host: Host, running: Served) -> None:
    await host.connect(running.url)
    code = 'const r = await MCP.clock.getTime(); show(r); return "the time"'
    answer = await host.run("exec", code=code)
    assert answer["structuredContent"]["value"] == "the time"
    assert answer["structuredContent"]["notes"] == ["The app of mcp:clock:get-time is attached to this answer."]
    shown = answer["_meta"]["codemode-mcp/app"]
    app = host.app(depth=2)
    await app.get_by_text(shown["result"]["structuredContent"]["time"]).first.wait_for()
    await app.get_by_role("button", name="Get Server Time").click()
    await host.page.wait_for_function("host.calls.length > 0")
    assert (await host.calls())[0]["name"] == "clock__get-time"


async def test_an_answer_without_an_app_takes_no_room(host: Host, running: Served) -> None:
    await host.connect(running.url)
    await host.run("exec", code="return 1")
    frame = host.page.locator("#app")
    await host.page.wait_for_function("document.querySelector('#app').style.height === '0px'")
    assert (await frame.bounding_box() or {})["height"] <= 2  # its border


async def test_another_published_app_is_shown(host: Host, host_port: int, tmp_path: Path) -> None:
    async with serving_apps(tmp_path, host_port, {"budget": published("server-budget-allocator")}) as running:
        await host.connect(running.url)
        (name,) = set(await host.tools()) - {"exec", "wait"}
        await host.run(name)
        await host.app().locator("canvas").first.wait_for()
        await host.app().get_by_text("Budget").first.wait_for()


async def test_apps_of_equal_names_call_the_tools_of_their_servers(host: Host, host_port: int, tmp_path: Path) -> None:
    servers = {name: published("server-basic-vanillajs") for name in ("here", "there")}
    async with serving_apps(tmp_path, host_port, servers) as running:
        await host.connect(running.url)
        for number, name in enumerate(servers, 1):
            result = await host.run(f"{name}__get-time", name)
            app = host.app(name)
            await app.get_by_text(result["structuredContent"]["time"]).first.wait_for()
            await app.get_by_role("button", name="Get Server Time").click()
            await host.page.wait_for_function(f"host.calls.length === {number}")
        assert [call["name"] for call in await host.calls()] == ["here__get-time", "there__get-time"]


async def test_a_client_without_the_extension_sees_nothing_of_apps(host: Host, running: Served) -> None:
    capabilities = await host.connect(running.url, apps=False)
    assert "extensions" not in capabilities
    tools = await host.tools()
    assert list(tools) == ["exec", "wait"]
    assert "ui" not in tools["exec"]["_meta"]
    refused = await host.request("resources/read", uri="ui://clock/get-time/mcp-app.html")
    assert "error" in refused
    answer = await host.run("exec", code="show(await MCP.clock.getTime())")
    assert set(answer["_meta"]) == {"codemode-mcp/telemetry"}
    (note,) = answer["structuredContent"]["notes"]
    assert note.startswith("show() did nothing, because this client shows no apps.")
