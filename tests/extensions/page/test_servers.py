"""The pages about servers, clients and the doctor, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import NARROW, overflow, served, showing
from tests.integration.attached import Attached, attached
from tests.integration.harness import OTHER_SERVERS, SECONDS, counting, is_running, pids, until, write_config
from tests.ports import reserved_port

pytestmark = pytest.mark.anyio

CALL = 'return MCP.a.count({ name: "x" })'
ATTACK = "<script>window.hacked = 1</script> <img src=x onerror='window.hacked = 1'> \u202e" + "b" * 900


@dataclass
class Place:
    """A shared instance with one client.

    Attributes:
        log: the log of server `a`.
        trajectory: the events of the instance.
        later: the command of server `later`, which is not there yet.
    """

    config: Path
    client: Attached
    log: Path
    trajectory: Path
    later: Path


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("servers")
    log, trajectory, later = folder / "log", folder / "runs.jsonl", folder / "later"
    servers = {
        "a": counting(log),
        "noisy": counting(folder / "noise", f"stderr={ATTACK}", start="lazy"),
        "later": {"command": str(later)},
        "down": {"command": "no-such-command"},
        "off": {"command": "x", "disabled": True},
    }
    config = write_config(folder, servers)
    value = json.loads(config.read_text("utf-8"))
    config.write_text(json.dumps({**value, "audit": {"trajectory": str(trajectory)}}), "utf-8")
    async with served(config) as client:
        await client.exec(CALL)
        yield Place(config, client, log, trajectory, later)


async def test_a_server_is_shown_and_restarted_by_a_click(browser: Browser, place: Place) -> None:
    before = pids(place.log)
    async with showing(browser, place.config, "/servers") as shown:
        link = shown.page.get_by_role("link", name="a", exact=True)
        row = shown.page.get_by_role("row").filter(has=link).filter(has_text="ready")
        assert await row.get_by_role("cell").nth(2).inner_text() == "9"
        await link.click()
        await shown.sees(str(before[-1]))
        await shown.press("Restart")
        await shown.page.get_by_role("button", name="Back").click()
        assert pids(place.log) == before
        await shown.press("Restart")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("is restarted")
        await until(lambda: len(pids(place.log)) == len(before) + 1 and not is_running(before[-1]))
        await shown.sees(str(pids(place.log)[-1]))
        await shown.sees("was restarted by a person at the page")
        await shown.go("/servers/off")
        assert await shown.page.get_by_role("button", name="Restart").count() == 0
        assert await shown.go("/servers/unknown") == 404

    def restarts() -> list[tuple[str, str]]:
        lines = map(json.loads, place.trajectory.read_text("utf-8").splitlines())
        return [(each["id"], each["by"]) for each in lines if each["kind"] == "server_restarted"]

    await until(lambda: ("a", "a person at the page") in restarts())
    assert len([server for server, _ in restarts() if server == "a"]) == 1


async def test_a_search_finds_tools_and_servers_that_are_down(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/tools?q=count+down") as shown:
        await shown.sees("MCP.down")
        await shown.page.get_by_role("link", name="mcp:a:count", exact=True).click()
        await shown.page.wait_for_url("**/tools/mcp%3Aa%3Acount")


async def test_a_restart_needs_the_secret_of_the_page(browser: Browser, place: Place) -> None:
    before = pids(place.log)
    async with showing(browser, place.config, "/servers/a") as shown:
        for path in ("/servers/a", "/doctor"):
            assert (await shown.post(path, {"do": "restart"}, **{"x-codemode-page": "guess"}))[0] == 403
        assert (await shown.post("/servers/other", {"do": "restart"}))[0] == 404
        assert (await shown.post("/servers/a", {"do": "harm"}))[0] == 400
        assert pids(place.log) == before


async def test_what_a_server_writes_is_shown_while_it_writes_and_does_no_harm(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/servers/noisy", width=NARROW) as shown:
        await place.client.exec("return MCP.noisy.count({ name: 'x' })")
        await shown.sees("<script>window.hacked = 1</script>")
        assert await shown.page.evaluate("window.hacked") is None
        assert await overflow(shown) <= 0
        assert "\u202e" not in await shown.page.inner_text("body")


async def test_a_server_that_is_down_says_why_and_needs_no_restart_of_the_page(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/servers/later") as shown:
        await shown.sees("down")
        await shown.sees(str(place.later))
        entry = counting(place.log.with_name("another"))
        place.later.write_text(f"#!/bin/sh\nexec {entry['command']} {' '.join(entry['args'])}\n", "utf-8")
        place.later.chmod(0o700)
        await shown.press("Restart")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.sees("ready")
        await shown.sees("Last error")


async def test_clients_are_shown_with_their_restrictions(browser: Browser, place: Place) -> None:
    async with attached(place.config, options={"readOnly": True}) as client:
        await client.greet(name="careful")
        async with showing(browser, place.config, "/clients") as shown:
            row = shown.page.locator("section[data-part=connected] tbody tr").filter(has_text="careful 1")
            assert "read-only" in await row.inner_text()
            await client.exec("return 1")
            await shown.sees("Requests")
            await shown.page.locator("section[data-part=clients]").get_by_text("careful").wait_for()


async def test_the_checks_run_when_a_person_asks(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/doctor") as shown:
        await shown.sees("have not run yet")
        await shown.press("Run the checks")
        await shown.page.get_by_text("Failed (").wait_for(timeout=2 * SECONDS * 1000)
        await shown.status("failed")
        await shown.sees("server down")
        await shown.sees("What to do")


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Path]:
    """Return the configuration of an instance whose two clients have other variables."""
    folder = tmp_path_factory.mktemp("two")
    servers = {
        "own": counting(folder / "log") | {"env": {"WHO": "${WHO}"}},
        "both": counting(folder / "both"),
        "one": counting(folder / "one") | {"command": "${COMMAND}"},
        "off": {"command": "x", "disabled": True},
    }
    config = write_config(folder, servers)
    call = "return [await MCP.own.count({ name: 'x' }), await MCP.both.count({ name: 'x' })]"
    variables = {"WHO": "two", "COMMAND": sys.executable}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHO", "one")
        patch.setenv("COMMAND", "no-such-command")
        async with served(config) as first, attached(config, environ=variables) as second:
            await second.greet(name="<b>editor</b>")
            await first.exec(call)
            await second.exec(call)
            await second.exec("return MCP.one.count({ name: 'x' })")
            yield config


async def test_the_first_page_counts_each_server_once(browser: Browser, two: Path) -> None:
    async with showing(browser, two) as shown:
        await shown.sees("4/5")
        await shown.sees("1 down")


async def test_tools_rules_and_savings_of_each_configuration_can_be_chosen(browser: Browser, two: Path) -> None:
    async with showing(browser, two, "/tools") as shown:
        choice = shown.page.get_by_label("Configuration")
        names = await choice.locator("option").all_inner_texts()
        assert names == ["1 of 2: attached", "2 of 2: <b>editor</b>"]
        await choice.select_option("2")
        await shown.page.get_by_role("button", name="Choose").click()
        await shown.page.get_by_role("link", name="mcp:one:count", exact=True).click()
        await shown.page.wait_for_url("**/tools/mcp%3Aone%3Acount?app=2")
        assert await shown.page.locator("form.act").get_attribute("data-action") == (
            "/tools/mcp%3Aone%3Acount/switch?app=2"
        )
        for path in ("/policy?app=2", "/savings?app=2", "/tools?app=9", "/tools?app=x"):
            assert await shown.go(path) == 200
            chosen = await shown.page.get_by_label("Configuration").input_value()
            assert chosen == ("2" if path.endswith("app=2") else "1")


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
