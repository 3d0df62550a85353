"""Approvals of calls over the real server: the client's user is asked in the way of its era, or a person at a terminal
decides."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from codemode_mcp.config.edit import backup_folder
from tests.integration.harness import SECONDS, Session, counting, events, serve, until, write_config
from tests.integration.http_harness import serve_http
from tests.values import replace

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["modern client", "legacy client"])

OURS = "codemode-mcp asks for your approval: may a program make this tool call?"
COUNT = "return unwrap(await MCP.one.count({ name: 'a' }))"
COUNT_THREE = (
    "const all = await Promise.allSettled(['a', 'b', 'c'].map((name) => MCP.one.count({ name })));"
    "return all.map((each) => each.status)"
)


class Person:
    """Answers every question with the next of `decisions`, the last again and again; keeps what was shown."""

    def __init__(self, *decisions: Any) -> None:
        self.decides(*decisions)

    def decides(self, *decisions: Any) -> None:
        """Answer these from now on, as if nothing had been shown yet."""
        self._decisions = list(decisions)
        self.shown: list[Any] = []

    @property
    def messages(self) -> list[str]:
        return [params.message for params in self.shown]

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.shown.append(params)
        decision = self._decisions.pop(0) if len(self._decisions) > 1 else self._decisions[0]
        if isinstance(decision, str):
            decision = {"decision": decision}
        if decision is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=decision)


def asking(folder: Path, **tools: Any) -> tuple[Path, Path]:
    """Return a configuration that asks for what is destructive, and the log of its one server."""
    log = folder / "log"
    return write_config(folder, {"one": counting(log)}, **{"ask": ["destructive"], **tools}), log


@dataclass(frozen=True)
class Asked:
    """A server whose client's user is asked, and what its upstream has seen since the test began."""

    session: Session
    person: Person
    log: Path
    before: int = 0

    @property
    def events(self) -> list[str]:
        return events(self.log)[self.before :]


@pytest.fixture(scope="module", params=["auto", "legacy"], ids=["modern client", "legacy client"])
async def server(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Asked]:
    place = folder / request.param
    place.mkdir()
    (config, log), person = asking(place), Person()
    async with serve(config, mode=request.param, elicitation_callback=person) as session:
        yield Asked(session, person, log)


@pytest.fixture
def asked(server: Asked) -> Asked:
    return replace(server, before=len(events(server.log)))


async def test_one_question_for_all_calls_of_a_turn_and_then_they_are_made(asked: Asked) -> None:
    person = asked.person
    person.decides("approve")
    assert await asked.session.value(COUNT_THREE) == ["fulfilled"] * 3
    (message,) = person.messages
    assert message.startswith("codemode-mcp asks for your approval: may a program make these 3 tool calls?\n")
    assert message.count('"mcp:one:count"') == 3
    assert [f'"name": "{name}"' in message for name in "abc"] == [True] * 3
    schema = person.shown[0].requested_schema
    assert schema["required"] == ["decision"]
    assert schema["properties"]["decision"]["enum"] == ["approve", "deny"]
    assert schema["properties"]["remember"]["enum"] == ["no", "run", "always"]
    assert sorted(asked.events) == ["call a", "call b", "call c"]


async def test_a_program_that_asks_like_us_through_the_client_is_shown_as_the_program(asked: Asked) -> None:
    asked.person.decides({"decision": "approve", "answer": "x"})
    code = (
        f"const message = '{OURS}\\n\\n    call 1: \"x\"';"
        "const form = (name) => ({ type: 'object', properties: { [name]: { type: 'string' } } });"
        "const ask = (name) => tools.call('client:session:elicit', { message, requestedSchema: form(name) });"
        "const answers = await Promise.allSettled([ask('decision'), ask('answer'), MCP.one.count({ name: 'a' })]);"
        "return answers.map((each) => each.status)"
    )
    answer = await asked.session.finish(await asked.session.exec(code))
    # A form that could be taken for ours is not put at all.
    assert answer.value == ["rejected", "fulfilled", "fulfilled"]
    (ours,) = [message for message in asked.person.messages if "mcp:one:count" in message]
    (theirs,) = [message for message in asked.person.messages if message is not ours]
    assert ours.startswith(OURS)
    assert theirs.startswith("[")
    assert all(line.startswith("  ") for line in theirs.split("\n")[1:])
    assert asked.events == ["call a"]


async def test_an_approval_for_ever_is_written_to_the_file_and_counts_after_a_restart(tmp_path: Path) -> None:
    config, log = asking(tmp_path)
    config.write_text("// ours\n" + config.read_text().replace('["destructive"]', '["destructive"] /* carefully */'))
    person = Person({"decision": "approve", "remember": "always"})
    async with serve(config, elicitation_callback=person) as session:
        await session.value(COUNT)
        await until(lambda: "mcp:one:count" in config.read_text())
        text = config.read_text()
        assert text.startswith("// ours\n")
        assert "/* carefully */" in text
        assert len(os.listdir(backup_folder(config))) == 1
        # The same process takes it up.
        await until(lambda: "the configuration has changed: new rules" in session.stderr)
        await session.value(COUNT)
        assert len(person.messages) == 1
    async with serve(config, elicitation_callback=person) as session:
        await session.value(COUNT)
    assert len(person.messages) == 1
    assert len(events(log)) == 3


# pass-through


async def test_in_pass_through_over_http_nothing_is_remembered_and_the_mute_are_denied(
    tmp_path: Path,
) -> None:
    config, log = asking(tmp_path, codeMode=False)
    before, person = config.read_text(), Person({"decision": "approve", "remember": "always"})
    async with serve_http(config) as served:
        await served.ready()
        async with Client(streamable_http_client(served.url), elicitation_callback=person) as client:
            with anyio.fail_after(SECONDS):
                assert (await client.call_tool("one__count", {"name": "a"})).is_error
        for mode in ("auto", "legacy"):
            async with Client(streamable_http_client(served.url), mode=mode) as client:
                with anyio.fail_after(SECONDS):
                    denied = await client.call_tool("one__count", {"name": "a"})
                assert denied.is_error
                assert "its user cannot be asked" in denied.content[0].text
    assert "remember" not in person.shown[0].requested_schema["properties"]
    assert (events(log), config.read_text()) == ([], before)


@ERAS
async def test_a_call_in_pass_through_is_put_to_its_client_and_an_approval_for_ever_kept_where_it_can_be(
    mode: str, tmp_path: Path
) -> None:
    config, log = asking(tmp_path, codeMode=False)
    person = Person("approve", "deny", {"decision": "approve", "remember": "always"})
    async with serve(config, mode=mode, elicitation_callback=person) as session:
        with anyio.fail_after(SECONDS):
            approved = await session.client.call_tool("one__count", {"name": "a"})
            assert not approved.is_error
            denied = await session.client.call_tool("one__count", {"name": "b"})
            assert denied.is_error
            assert "one__count was not approved: the user denied it" in denied.content[0].text
            assert events(log) == ["call a"]
            ours = "codemode-mcp asks for your approval: may the client make this tool call?"
            assert person.messages[0].startswith(ours)
            assert '"name": "a"' in person.messages[0]
            assert person.shown[0].requested_schema["properties"]["remember"]["enum"] == ["no", "always"]
            await session.client.call_tool("one__count", {"name": "c"})
            assert json.loads(config.read_text())["tools"]["approved"] == ["mcp:one:count"]
            await until(lambda: "the configuration has changed: new rules" in session.stderr)
            await session.client.call_tool("one__count", {"name": "d"})
            assert len(person.messages) == 3
            config.unlink()
            result = await session.client.call_tool("one__release", {"name": "e"})
        assert not result.is_error
        assert "The approval is valid for this call only" in result.content[-1].text
    assert events(log) == ["call a", "call c", "call d", "call e"]


async def test_a_call_in_pass_through_is_answered_in_time_without_a_decision(tmp_path: Path) -> None:
    config, log = asking(tmp_path, codeMode={"enabled": False, "maxRequestMs": 2000})
    asked, taken_back = anyio.Event(), anyio.Event()

    async def never(context: Any, params: Any) -> types.ElicitResult:
        if not asked.is_set():  # the first question takes long: nothing is imported yet
            asked.set()
            return types.ElicitResult(action="decline")
        try:
            await anyio.sleep_forever()
        finally:
            taken_back.set()
        raise AssertionError

    async with serve(config, mode="legacy", elicitation_callback=never) as session:
        with anyio.fail_after(SECONDS):
            while not asked.is_set():
                assert (await session.client.call_tool("one__count", {"name": "a"})).is_error
            result = await session.client.call_tool("one__count", {"name": "a"})
            assert result.is_error
            assert "has not answered within 2 s (maxRequestMs), so the call was not sent" in result.content[0].text
            assert "tools.approved" in result.content[0].text
            await taken_back.wait()
    assert events(log) == []
