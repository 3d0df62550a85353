"""Tests that the fakes of the package keep the contract of `ToolSource`."""

import anyio
import pytest

from upstream_clients import Tool, ToolSource, UpstreamCallError, UpstreamUnavailable
from upstream_clients.testing import FailingSource, LyingSource, ScriptedSource, SlowSource, text_result

pytestmark = pytest.mark.anyio


def test_every_fake_is_a_tool_source() -> None:
    sources: list[ToolSource] = [ScriptedSource("a", {}), SlowSource("b", {}), FailingSource("c"), LyingSource()]
    assert [source.name for source in sources] == ["a", "b", "c", "liar"]


async def test_a_scripted_source_answers_as_told_and_remembers() -> None:
    source = ScriptedSource(
        "srv",
        {
            "fixed": text_result("hi"),
            "doubled": lambda arguments: text_result(arguments["text"] * 2),
            "broken": UpstreamCallError("srv", "no", dispatched=True),
            "resources/list": {"resources": []},
        },
    )
    assert [tool.name for tool in source.view().tools] == ["fixed", "doubled", "broken"]
    assert (await source.call_tool("doubled", {"text": "ab"})).result == text_result("abab")
    assert await source.request("resources/list", {}) == {"resources": []}
    with pytest.raises(UpstreamCallError, match="no"):
        await source.call_tool("broken", {})
    with pytest.raises(UpstreamCallError, match="unknown"):
        await source.call_tool("nothing", {})
    assert [name for name, _ in source.calls] == ["doubled", "resources/list", "broken", "nothing"]


async def test_a_slow_source_holds_its_calls_until_released() -> None:
    source = SlowSource("srv", {"echo": text_result("hi")})
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(source.call_tool, "echo", {})
            await source.wait_pending(3)
            assert source.calls == []
            source.release.set()
    assert len(source.calls) == 3


async def test_a_slow_source_counts_what_is_given_up() -> None:
    source = SlowSource("srv", {"echo": text_result("hi")})
    with pytest.raises(UpstreamCallError, match=r"timed out after 0\.01 s"):
        await source.call_tool("echo", {}, timeout=0.01)
    with anyio.move_on_after(0.01):
        await source.call_tool("echo", {})
    assert (source.pending, source.cancelled) == (0, 2)


async def test_a_failing_source_is_listed_and_rejects() -> None:
    source = FailingSource("srv", tools=[Tool("echo")])
    assert (source.view().state, source.view().error) == ("down", "server 'srv' is down")
    with pytest.raises(UpstreamUnavailable):
        await source.call_tool("echo", {})


async def test_a_lying_source_gives_notes_on_everything() -> None:
    source = LyingSource()
    for tool in source.view().tools:
        assert (await source.call_tool(tool.name, {})).notes, tool.name


async def test_a_scripted_source_has_resources_subscriptions_and_log_messages() -> None:
    source = ScriptedSource("srv", {}, resource_list=({"uri": "a:"},), resource_subscriptions=True)
    seen: list[object] = []
    assert (await source.list_resources()).items == ({"uri": "a:"},)
    leave = await source.subscribe("a:", seen.append)
    source.report_update("a:")
    assert (seen, source.subscribed) == (["a:"], ["a:"])
    leave()
    source.report_update("a:")
    assert (seen, source.subscribed) == (["a:"], [])
    stop = source.on_log(seen.append, "error", owner="ada")
    source.report_log("info", "low")
    source.report_log("error", "of bob", owner="bob")
    source.report_log("error", "of ada", owner="ada")
    stop()
    source.report_log("error", "late")
    assert seen == ["a:", {"level": "error", "data": "of ada"}]
    source.change(resource_subscriptions=False)
    with pytest.raises(UpstreamCallError):
        await source.subscribe("a:", seen.append)
