"""The pages about servers, clients and the doctor, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import NARROW, overflow, served, showing
from tests.integration.attached import attached, instance
from tests.integration.harness import OTHER_SERVERS, SECONDS, counting, is_running, pids, until, write_config
from tests.ports import reserved_port

pytestmark = pytest.mark.anyio

CALL = 'return MCP.a.count({ name: "x" })'
ATTACK = "<script>window.hacked = 1</script> <img src=x onerror='window.hacked = 1'> \u202e" + "b" * 900


async def test_a_server_is_shown_and_restarted_by_a_click(browser: Browser, tmp_path: Path) -> None:
    log, trajectory = tmp_path / "log", tmp_path / "trajectory.jsonl"
    config = write_config(tmp_path, {"a": counting(log), "off": {"command": "x", "disabled": True}})
    config.write_text(json.dumps({**json.loads(config.read_text()), "audit": {"trajectory": str(trajectory)}}))
    async with served(config) as client:
        await client.exec(CALL)
        async with showing(browser, config, "/servers") as shown:
            row = shown.page.get_by_role("row").filter(has_text="ready")
            assert await row.get_by_role("cell").nth(2).inner_text() == "9"
            await shown.page.get_by_role("link", name="a", exact=True).click()
            await shown.sees(str(pids(log)[0]))
            await shown.press("Restart")
            await shown.page.get_by_role("button", name="Back").click()
            assert len(pids(log)) == 1
            await shown.press("Restart")
            await shown.page.get_by_role("button", name="Confirm").click()
            await shown.status("is restarted")
            await until(lambda: len(pids(log)) == 2 and not is_running(pids(log)[0]))
            await shown.sees(str(pids(log)[1]))
            await shown.sees("was restarted by a person at the page")
            await shown.go("/servers/off")
            assert await shown.page.get_by_role("button", name="Restart").count() == 0
            assert await shown.go("/servers/unknown") == 404
        await until(lambda: '"server_restarted"' in trajectory.read_text())
    (event,) = [json.loads(line) for line in trajectory.read_text().splitlines() if "server_restarted" in line]
    assert (event["id"], event["by"]) == ("a", "a person at the page")


async def test_the_first_page_counts_each_server_once(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = counting(tmp_path / "log") | {"env": {"WHO": "${WHO}"}}
    servers = {
        "own": own,
        "both": counting(tmp_path / "both"),
        "down": {"command": "no-such-command"},
        "off": {"command": "x", "disabled": True},
    }
    config = write_config(tmp_path, servers)
    monkeypatch.setenv("WHO", "one")
    async with served(config) as first, attached(config, environ={"WHO": "two"}) as second:
        await second.greet()
        for client in (first, second):
            await client.exec("return [await MCP.own.count({ name: 'x' }), await MCP.both.count({ name: 'x' })]")
        async with showing(browser, config) as shown:
            await shown.sees("3/4")
            await shown.sees("1 down")


async def test_tools_rules_and_savings_of_each_configuration_can_be_chosen(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, {"own": counting(tmp_path / "log") | {"command": "${OWN_COMMAND}"}})
    monkeypatch.setenv("OWN_COMMAND", "no-such-command")
    async with served(config) as first, attached(config, environ={"OWN_COMMAND": sys.executable}) as second:
        await first.exec("return 1")
        await second.greet(name="<b>editor</b>")
        await second.exec("return MCP.own.count({ name: 'x' })")
        async with showing(browser, config, "/tools") as shown:
            choice = shown.page.get_by_label("Configuration")
            names = await choice.locator("option").all_inner_texts()
            assert names == ["1 of 2: attached", "2 of 2: <b>editor</b>"]
            await choice.select_option("2")
            await shown.page.get_by_role("button", name="Choose").click()
            await shown.page.get_by_role("link", name="mcp:own:count", exact=True).click()
            await shown.page.wait_for_url("**/tools/mcp%3Aown%3Acount?app=2")
            assert await shown.page.locator("form.act").get_attribute("data-action") == (
                "/tools/mcp%3Aown%3Acount/switch?app=2"
            )
            for path in ("/policy?app=2", "/savings?app=2", "/tools?app=9", "/tools?app=x"):
                assert await shown.go(path) == 200
                chosen = await shown.page.get_by_label("Configuration").input_value()
                assert chosen == ("2" if path.endswith("app=2") else "1")


async def test_a_search_finds_tools_and_servers_that_are_down(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log"), "down": {"command": "no-such-command"}})
    async with served(config) as client:
        await client.exec(CALL)
        async with showing(browser, config, "/tools") as shown:
            assert await shown.go("/tools?q=count+down") == 200
            await shown.sees("MCP.down")
            await shown.page.get_by_role("link", name="mcp:a:count", exact=True).click()
            await shown.page.wait_for_url("**/tools/mcp%3Aa%3Acount")


async def test_a_restart_needs_the_secret_of_the_page(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    async with served(config) as client:
        await client.exec(CALL)
        async with showing(browser, config, "/servers/a") as shown:
            for path in ("/servers/a", "/doctor"):
                assert (await shown.post(path, {"do": "restart"}, **{"x-codemode-page": "guess"}))[0] == 403
            assert (await shown.post("/servers/other", {"do": "restart"}))[0] == 404
            assert (await shown.post("/servers/a", {"do": "harm"}))[0] == 400
            assert len(pids(tmp_path / "log")) == 1


async def test_without_decisions_nothing_can_be_restarted(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log")})
    config.write_text(json.dumps({**json.loads(config.read_text()), "ui": {"decide": False}}))
    async with served(config) as client:
        await client.exec(CALL)
        async with showing(browser, config, "/servers/a") as shown:
            assert await shown.page.get_by_role("button", name="Restart").count() == 0
            status, text = await shown.post("/servers/a", {"do": "restart"})
            assert status == 403
            assert "ui.decide" in text
            assert len(pids(tmp_path / "log")) == 1


async def test_what_a_server_writes_is_shown_while_it_writes_and_does_no_harm(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log", f"stderr={ATTACK}", start="lazy")})
    async with (
        served(config) as client,
        showing(browser, config, "/servers/a", width=NARROW) as shown,
    ):
        await client.exec(CALL)
        await shown.sees("<script>window.hacked = 1</script>")
        assert await shown.page.evaluate("window.hacked") is None
        assert await overflow(shown) <= 0
        assert "\u202e" not in await shown.page.inner_text("body")


async def test_a_server_that_is_down_says_why_and_needs_no_restart_of_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    script = tmp_path / "later"
    config = write_config(tmp_path, {"a": {"command": str(script)}})
    async with served(config) as client:
        await client.exec("return 1")
        async with showing(browser, config, "/servers/a") as shown:
            await shown.sees("down")
            await shown.sees(str(script))
            entry = counting(tmp_path / "log")
            script.write_text(f"#!/bin/sh\nexec {entry['command']} {' '.join(entry['args'])}\n", "utf-8")
            script.chmod(0o700)
            await shown.press("Restart")
            await shown.page.get_by_role("button", name="Confirm").click()
            await shown.sees("ready")
            await shown.sees("Last error")


@pytest.mark.skipif(sys.platform == "win32", reason="the instance is controlled by signals of Unix")
async def test_clients_are_shown_with_their_restrictions(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config), attached(config, options={"readOnly": True}) as client:
        await client.greet()
        async with showing(browser, config, "/clients") as shown:
            row = shown.page.locator("section[data-part=connected] tbody tr").first
            text = await row.inner_text()
            assert "attached 1" in text
            assert "read-only" in text
            await client.exec("return 1")
            await shown.sees("Requests")
            await (
                shown.page.locator("section[data-part=clients]")
                .get_by_text("attached")
                .wait_for(timeout=SECONDS * 1000)
            )


async def test_the_checks_run_when_a_person_asks(browser: Browser, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": counting(tmp_path / "log"), "b": {"command": str(tmp_path / "missing")}})
    async with served(config), showing(browser, config, "/doctor") as shown:
        await shown.sees("have not run yet")
        with anyio.fail_after(120):
            await shown.press("Run the checks")
            await shown.page.get_by_role("status").filter(has_text="failed").wait_for(timeout=120_000)
        await shown.sees("Failed (")
        await shown.sees("server b")
        await shown.sees("What to do")


@pytest.fixture(scope="module")
def protected() -> Iterator[str]:
    """Yield the origin of a server that requires a login."""
    port = reserved_port()
    command = [sys.executable, str(OTHER_SERVERS / "oauth_server.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the data folder of a user can be set on Linux only")
async def test_a_person_logs_in_to_a_server_from_its_page(
    browser: Browser, tmp_path: Path, protected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    config = write_config(tmp_path, {"docs": {"url": f"{protected}/mcp"}})
    async with served(config) as client:
        await client.exec("return 1")
        async with showing(browser, config, "/servers/docs") as shown:
            await shown.sees("needs a login")
            await shown.sees("codemode-mcp login --config")
            await shown.press("Log in")
            await shown.status("Open the link")
            async with shown.page.expect_popup() as popup:
                await shown.page.get_by_role("link", name="Log in at 127.0.0.1").click()
            opened = await popup.value
            await opened.wait_for_load_state()
            await shown.sees("logged in to server 'docs'")
            await shown.sees("ready")
            assert await shown.page.get_by_role("button", name="Log in").count() == 0
