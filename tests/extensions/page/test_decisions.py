"""Decisions of a person on the page: about exactly what is shown, as at a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, Route

from codemode_mcp.config.edit import backup_folder
from tests.extensions.page.browsers import served, showing
from tests.integration.attached import Attached
from tests.integration.harness import SECONDS, counting, events, until, write_config

pytestmark = pytest.mark.anyio

THREE = (
    "const all = await Promise.allSettled(['a', 'b', 'c'].map((name) => MCP.one.count({ name })));"
    "return all.map((each) => each.status)"
)
ONE = "return (await MCP.one.count({ name: 'x' })).isError ?? false"
OTHER = "return (await MCP.two.count({ name: 'x' })).isError ?? false"


class Place:
    """A shared instance with one client, its configuration, and what its server has seen since this was made."""

    def __init__(self, config: Path, client: Attached) -> None:
        self.config = config
        self.client = client
        self._before = len(events(config.parent / "log")), len(self._trajectory())

    @property
    def calls(self) -> list[str]:
        lines = events(self.config.parent / "log")[self._before[0] :]
        return [each.removeprefix("call ") for each in lines if each.startswith("call ")]

    async def waiting(self, code: str) -> str:
        """Run a program whose calls wait for a person. Return the id of the run."""
        outcome = await self.client.exec(code)
        assert outcome["status"] == "waiting", outcome
        run: str = outcome["runId"]
        return run

    async def wait(self, run: str) -> dict[str, Any]:
        """Resume a run, and return its answer."""
        result = await self.client.request("tools/call", {"name": "wait", "arguments": {"runId": run}})
        found: dict[str, Any] = result["structuredContent"]
        return found

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind in the trajectory."""
        return [each for each in map(json.loads, self._trajectory()[self._before[1] :]) if each["kind"] == kind]

    def _trajectory(self) -> list[str]:
        path = self.config.parent / "runs.jsonl"
        return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[tuple[Path, Attached]]:
    """Run an instance that asks for approvals. Yield its configuration and a client."""
    folder = tmp_path_factory.mktemp("decisions")
    servers = {"one": counting(folder / "log"), "two": counting(folder / "other")}
    config = write_config(folder, servers, ask=["destructive"])
    value = json.loads(config.read_text("utf-8"))
    config.write_text(json.dumps({**value, "audit": {"trajectory": "runs.jsonl"}}), "utf-8")
    async with served(config) as client:
        yield config, client


@pytest.fixture
def place(shared: tuple[Path, Attached]) -> Place:
    return Place(*shared)


async def test_one_call_is_approved_and_another_is_denied(browser: Browser, place: Place) -> None:
    run = await place.waiting(THREE)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:
        await shown.sees("mcp:one:count")
        assert await shown.page.locator("article").count() == 3
        await shown.press("Approve call 2")
        await shown.status("Call 2 approved.")
        await shown.page.locator("article").nth(2).wait_for(state="detached")
        await shown.press("Deny call 1")
        await shown.status("Call 1 denied.")
        await until(lambda: place.calls == ["b"])
        await shown.press("Approve call 3")
        await shown.status("Call 3 approved.")
        await shown.sees("No call of this run waits for a decision.")
    assert (await place.wait(run))["value"] == ["rejected", "fulfilled", "fulfilled"]
    assert sorted(place.calls) == ["b", "c"]
    await until(lambda: len(place.recorded("call_decided")) == 3)
    assert {each["by"] for each in place.recorded("call_decided")} == {"page"}
    assert "a person at the page" in json.dumps(place.recorded("call_decided"))


async def test_the_pages_say_until_when_a_run_waits_and_what_its_client_must_do(browser: Browser, place: Place) -> None:
    run = await place.waiting(ONE)
    until_when = r"20\d\d-\d\d-\d\d \d\d:\d\d UTC"
    async with showing(browser, place.config) as shown:
        for path, words in (
            ("/approvals", "kept until"),
            (f"/runs/{run}", "until"),
            (f"/approvals/{run}", "Kept until"),
        ):
            await shown.go(path)
            assert re.search(rf"{words} {until_when}", await shown.page.inner_text("main")), path
        await shown.press("Approve call 1")
        await shown.status("Call 1 approved. The client must call wait by ")
    await place.wait(run)


async def test_all_calls_are_decided_together(browser: Browser, place: Place) -> None:
    run = await place.waiting(THREE)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:
        await shown.press("Approve all 3")
        await shown.status("Calls 1, 2, 3 approved.")
    assert (await place.wait(run))["value"] == ["fulfilled"] * 3


async def test_what_a_decision_changes_on_a_slow_machine_does_not_cover_the_answer_to_it(
    browser: Browser, place: Place
) -> None:
    run = await place.waiting(THREE)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:

        async def update(route: Route) -> None:
            await anyio.sleep(1.5)  # longer than a person's decision explains what changes
            await route.continue_()

        await shown.page.route(shown.page.url, update)
        await shown.press("Approve call 2")
        await shown.page.locator("article").nth(2).wait_for(state="detached")
        await shown.status("Call 2 approved.")
        assert len(shown.said) == 1
        await shown.press("Approve all 2")
        await shown.sees("No call of this run waits for a decision.")
        await shown.status("Calls 1, 3 approved.")
        assert len(shown.said) == 1
    assert (await place.wait(run))["value"] == ["fulfilled"] * 3


async def test_an_approval_for_the_run_asks_for_confirmation(browser: Browser, place: Place) -> None:
    run = await place.waiting(THREE)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:
        await shown.press("Approve for this run")
        assert "whatever its arguments" in await shown.page.inner_text("dialog")
        await shown.page.get_by_role("button", name="Back").click()
        assert place.calls == []
        await shown.press("Approve for this run")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("Call 1 approved.")
    assert (await place.wait(run))["value"] == ["fulfilled"] * 3


async def test_an_approval_for_ever_is_written_to_the_configuration_with_a_backup(
    browser: Browser, place: Place
) -> None:
    run = await place.waiting(OTHER)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:
        await shown.press("Always approve")
        assert str(place.config) in await shown.page.inner_text("dialog")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("Call 1 approved.")
        await until(lambda: "approved" in json.loads(place.config.read_text("utf-8"))["tools"])
    assert json.loads(place.config.read_text("utf-8"))["tools"]["approved"] == ["mcp:two:count"]
    assert list(backup_folder(place.config).glob("config.json.*.bak"))


async def test_a_run_is_cancelled(browser: Browser, place: Place) -> None:
    run = await place.waiting(ONE)
    async with showing(browser, place.config, f"/runs/{run}") as shown:
        assert "no end recorded" not in await shown.page.inner_text("main")
        assert await shown.page.locator("td.result", has_text="asked for by the rule 'destructive'").count() == 1
        await shown.press("Cancel the run")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("The run is cancelled.")
        await shown.sees("aborted")
    assert (await place.wait(run))["code"] == "aborted"
    assert place.calls == []


async def test_two_browsers_see_the_same_and_only_the_first_decides(browser: Browser, place: Place) -> None:
    run = await place.waiting(ONE)
    async with (
        showing(browser, place.config, f"/approvals/{run}") as first,
        showing(browser, place.config, f"/approvals/{run}", again=False) as second,
    ):
        calls = json.loads(await second.page.locator("input[name=calls]").first.input_value())
        await first.press("Deny call 1")
        await first.status("Call 1 denied.")
        await second.sees("No call of this run waits for a decision.")
        status, text = await second.post(f"/approvals/{run}/decide", {"decision": "approve", "calls": calls})
        assert (status, "no longer wait" in text) == (409, True)
        # The secret of another browser does not count.
        secret: str = await first.page.evaluate("localStorage['page-secret']")
        status, _ = await second.post(f"/runs/{run}/cancel", {}, **{"x-codemode-page": secret})
        assert status == 403
    assert place.calls == []


async def test_a_decision_about_other_arguments_decides_nothing(browser: Browser, place: Place) -> None:
    run = await place.waiting(ONE)
    async with showing(browser, place.config, f"/approvals/{run}") as shown:
        target = f"/approvals/{run}/decide"
        for calls in ([[1, "0" * 64]], [[1, ""]]):
            status, text = await shown.post(target, {"decision": "approve", "calls": calls})
            assert (status, "other arguments than were shown" in text) == (404, True)
        for body in (
            {"decision": "approve", "calls": []},
            {"decision": "approve", "calls": [["1", "x"]]},
            {"decision": "approve", "calls": "nonsense"},
            {"decision": "maybe", "calls": [[1, "x"]]},
            {"decision": "approve", "remember": "never", "calls": [[1, "x"]]},
            {"calls": [[1, "x"]]},
        ):
            assert (await shown.post(target, body))[0] == 400, body
    assert place.calls == []


async def test_an_open_page_shows_an_event_of_a_run_without_being_loaded_again(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/approvals") as shown:
        await shown.page.evaluate("window.stays = true")
        run = await place.waiting(ONE)
        await shown.page.locator(f"[data-part=approvals] a[href*='{run}']").first.wait_for()
        assert await shown.page.evaluate("window.stays")


async def test_a_tool_is_switched_off_and_on(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/tools") as shown:
        await shown.page.get_by_role("link", name="mcp:one:count").click()
        await shown.sees("needs approval")
        await shown.press("Switch off")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("added to tools.deny")
        await shown.sees("denied")
        assert json.loads(place.config.read_text("utf-8"))["tools"]["deny"] == ["mcp:one:count"]
        outcome = await place.client.exec(ONE)
        assert outcome["status"] == "failed"
        await shown.press("Switch on")
        await shown.page.get_by_role("button", name="Confirm").click()
        await shown.status("removed from tools.deny")
        await shown.sees("needs approval")
        assert json.loads(place.config.read_text("utf-8"))["tools"]["deny"] == []
        await until(lambda: [each["on"] for each in place.recorded("tool_switched")] == [False, True])
        await shown.go("/policy")
        await shown.sees("switched off")


async def test_a_page_that_was_left_open_follows_the_process(browser: Browser, place: Place) -> None:
    async with showing(browser, place.config, "/runs") as shown:
        await shown.go("/runs?state=completed")
        first = shown.page.locator("main table tr").nth(1)
        before = await first.inner_text()
        await shown.page.evaluate("document.querySelector('main table').stays = true")
        await place.client.exec("return 'a program'")
        with anyio.fail_after(SECONDS):
            while await first.inner_text() == before:  # noqa: ASYNC110 - the browser sets no event
                await anyio.sleep(0.05)
        # Only the rows have changed, so a selection in the rest of the page would be kept.
        assert await shown.page.evaluate("document.querySelector('main table').stays")
        await first.locator("a").first.click()
        await shown.sees("return 'a program'")


async def test_a_page_that_is_not_visible_asks_for_nothing_until_it_is(browser: Browser, place: Place) -> None:
    def see(state: str) -> str:
        return f"""() => {{
          Object.defineProperty(document, "visibilityState", {{ value: "{state}", configurable: true }});
          document.dispatchEvent(new Event("visibilitychange"));
          return stream === null;
        }}"""

    async with showing(browser, place.config, "/runs") as shown:
        assert await shown.page.evaluate(see("hidden"))
        asked: list[str] = []
        shown.page.on("request", lambda request: asked.append(request.url))
        for code in ("return 1", "return 2"):
            assert (await place.client.exec(code))["status"] == "completed"
        await until(lambda: len(place.recorded("run_ended")) == 2)
        run = place.recorded("run_ended")[0]["id"]
        assert asked == []
        assert not await shown.page.evaluate(see("visible"))
        await shown.page.locator(f"a[href='/runs/{run}']").wait_for()
        assert f"{shown.origin}/runs" in asked
