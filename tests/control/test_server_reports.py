"""Tests of how several applications of one process report and restart the servers that they share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from codemode_mcp.process.instance.host import Reports
from codemode_mcp.server.control.answers import Control, ServerFacts, holders
from codemode_mcp.server.control.protocol import Request, encode_request, merged_servers


class Servers:
    """The servers of one application: numbers by name."""

    def __init__(self, **numbers: int) -> None:
        self.numbers = numbers
        self.restarted: list[tuple[str, str]] = []

    def reports(self) -> list[dict[str, Any]]:
        return [{"name": name, "number": number} for name, number in self.numbers.items()]

    def number_of(self, name: str) -> int | None:
        return self.numbers.get(name)

    def lines_after(self, name: str, number: int) -> list[dict[str, Any]]:
        return [{"number": number + 1, "text": name}]

    def latest_lines(self) -> dict[int, int]:
        return dict.fromkeys(self.numbers.values(), 1)

    def restart(self, name: str, by: str) -> None:
        self.restarted.append((name, by))


def control(servers: Servers | None) -> Control:
    def arguments(text: str) -> Mapping[str, Any]:
        return {}

    return Control(None, ServerFacts("stdio", "code", None, "1"), arguments, servers=servers)  # type: ignore[arg-type]


async def test_a_server_that_applications_share_is_listed_and_restarted_once() -> None:
    one, other, third = Servers(a=1, b=2), Servers(a=1), Servers(a=3)
    controls = [control(each) for each in (one, other, third)]
    found = merged_servers(each.reports() for each in (one, other, third))
    assert found == [{"name": "a", "number": 1}, {"name": "b", "number": 2}, {"name": "a", "number": 3}]
    assert holders(controls, "a") == [controls[0], controls[2]]
    assert holders(controls, "c") == []

    async def no_facts() -> dict[str, Any]:
        return {}

    reports = Reports(no_facts, lambda reason: None)
    async with AsyncExitStack() as stack:
        for each in controls:
            await stack.enter_async_context(reports.listen(each))
        listed = await reports.answer(encode_request(Request("servers")))
        assert len(listed["servers"]) == 3
        assert await reports.answer(encode_request(Request("restart", server="a"))) == {"ok": True, "restarted": True}
        assert [len(each.restarted) for each in (one, other, third)] == [1, 0, 1]
        refused = await reports.answer(encode_request(Request("restart", server="c")))
        assert "no server 'c'" in refused["error"]


async def test_a_restart_names_the_person_who_asked() -> None:
    servers = Servers(a=1)
    await control(servers).handle(Request("restart", server="a"))
    await control(servers).handle(Request("restart", server="a"), "a person at the page")
    assert servers.restarted == [("a", "a person at a terminal"), ("a", "a person at the page")]


@pytest.mark.parametrize("operation", ["logs", "restart"])
async def test_an_unknown_server_is_refused_by_name(operation: Any) -> None:
    for servers in (None, Servers(a=1)):
        answer = await control(servers).handle(Request(operation, server="missing"))
        assert answer["ok"] is False
        assert "'missing'" in answer["error"]
        assert "codemode-mcp servers" in answer["error"]


async def test_a_process_without_servers_lists_none() -> None:
    assert (await control(None).handle(Request("servers")))["servers"] == []
