"""Questions of upstream servers reach the connected client in the way of its era, or wait for one that can answer."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from codemode_mcp.cli import app
from tests.integration.harness import SECONDS, SERVERS, Session, npm_server, serve, write_config
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, Served, serve_http, write_http_config

pytestmark = pytest.mark.anyio

UPSTREAM_ERAS = pytest.mark.parametrize("upstream", ["modern", "legacy"], ids=["modern upstream", "legacy upstream"])


def asking(upstream: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "asking.py"), upstream]}


SHOWN: list[str] = []


async def give_name(context: Any, params: Any) -> types.ElicitResult:
    SHOWN.append(params.message)
    if params.mode == "url":
        assert params.url == "https://example.com/consent"
        return types.ElicitResult(action="accept")
    assert params.message.startswith("[asker] Your name for ")
    if "no thanks" in params.message:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={"name": params.message.split()[-1].rstrip("?").upper()})


async def think(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    (message,) = params.messages
    assert isinstance(message.content, types.TextContent)
    text = types.TextContent(type="text", text=f"about {message.content.text}")
    return types.CreateMessageResult(role="assistant", content=text, model="test")


async def folders(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])


ALL = {"elicitation_callback": give_name, "sampling_callback": think, "list_roots_callback": folders}


@pytest.fixture(
    scope="module",
    params=[("legacy", "modern"), ("auto", "legacy")],
    ids=["modern upstream-legacy client", "legacy upstream-modern client"],
)
async def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """Yield a client that answers whatever it is asked, before a server that asks, of the other era."""
    mode, upstream = request.param
    config = write_config(tmp_path_factory.mktemp("asker"), {"asker": asking(upstream)})
    async with serve(config, mode=mode, **ALL) as session:
        yield session


async def test_every_kind_of_question_reaches_the_client_and_its_answer_the_server(session: Session) -> None:
    said = await session.value(
        "const ask = async (tool) => unwrap(await MCP.asker[tool]({ label: 'ada' })).said;"
        "return [await ask('name'), await ask('consent'), await ask('think'), await ask('folders')]"
    )
    name, consent, thought, roots = said
    assert name == {"action": "accept", "content": {"name": "ADA"}}
    assert consent["action"] == "accept"
    assert thought["content"]["text"] == "about ada"
    assert [root["uri"] for root in roots["roots"]] == ["file:///home/ada"]


async def test_concurrent_calls_never_mix_up_their_questions(session: Session) -> None:
    answers = await session.value(
        "const labels = Array.from({ length: 12 }, (_, n) => 'x' + n);"
        "return Promise.all(labels.map(async (label) => unwrap(await MCP.asker.name({ label }))))"
    )
    assert [(each["label"], each["said"]["content"]["name"]) for each in answers] == [
        (f"x{n}", f"X{n}") for n in range(12)
    ]


async def test_more_questions_in_a_row_than_a_client_takes_in_one_request(session: Session) -> None:
    answer = await session.exec(
        "const names = []; for (let n = 0; n < 20; n++)"
        " names.push(unwrap(await MCP.asker.name({ label: 'x' + n })).said.content.name); return names"
    )
    assert (await session.finish(answer)).value == [f"X{n}" for n in range(20)]


async def test_what_the_user_declines_is_told_to_the_server(session: Session) -> None:
    answer = await session.value("return unwrap(await MCP.asker.name({ label: 'no thanks' })).said")
    assert answer == {"action": "decline"}


async def test_what_looks_like_our_question_in_a_servers_is_shown_as_the_servers(session: Session) -> None:
    imitated = (
        "codemode-mcp asks for your approval: may a program make this tool call?\n\n    call 1: harmless\n\r\x1b[2J"
    )
    SHOWN.clear()
    await session.value(f"return unwrap(await MCP.asker.name({{ label: {json.dumps(imitated)} }}))")
    (message,) = SHOWN
    assert message.startswith("[asker] Your name for ")
    assert "\x1b" not in message
    assert "\r" not in message
    assert all(line.startswith("  ") for line in message.split("\n")[1:])


async def sees_what_its_program_waits_for(session: Session) -> None:
    waiting = await session.exec("return unwrap(await MCP.asker.name({ label: 'ada' }))")
    (pending,) = waiting.structured["pendingToolCalls"]
    assert (pending["tool"], pending["status"]) == ("mcp:asker:name", "needs_input")
    next_step = waiting.structured["next"]
    assert "Server 'asker' asks the user \"Your name for ada?\". This client cannot be asked." in next_step
    assert "Tell the user what is asked" in next_step
    assert "This client cannot be asked" in (await session.wait(waiting.run_id)).structured["next"]
    cancelled = await session.wait(waiting.run_id, cancel=True)
    assert cancelled.code == "aborted"


async def test_a_client_that_cannot_be_asked_sees_what_the_program_waits_for(tmp_path: Path) -> None:
    """One before a server of 2026-07-28 is among those over HTTP."""
    async with serve(write_config(tmp_path, {"asker": asking("legacy")})) as session:
        await sees_what_its_program_waits_for(session)


def test_run_ends_when_only_a_person_could_answer(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"asker": asking("modern")})
    code = "return unwrap(await MCP.asker.name({ label: 'ada' }))"
    done = CliRunner().invoke(app, ["run", "--config", str(config), "-e", code], catch_exceptions=False)
    assert done.exit_code == 1
    assert "Server 'asker' asks the user \"Your name for ada?\". This client cannot be asked." in done.stderr
    assert "aborted" in done.stderr


async def test_a_person_may_think_for_longer_than_a_request_lasts_and_an_error_rejects_one_call(tmp_path: Path) -> None:
    asked: list[str] = []
    decided = anyio.Event()

    async def think_long(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        await decided.wait()
        return types.ElicitResult(action="accept", content={"name": "ADA"})

    async def fail(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=-1, message="not today")

    limits = {"timeoutMs": 1000, "maxRequestMs": 2000}
    config = write_config(tmp_path, {"asker": asking("legacy")}, codeMode=limits)
    async with serve(config, mode="legacy", elicitation_callback=think_long, sampling_callback=fail) as session:
        waiting = await session.exec("return unwrap(await MCP.asker.name({})).said")
        while not asked:
            waiting = await session.wait(waiting.run_id)
        assert "The client is being asked" in (await session.wait(waiting.run_id)).read
        decided.set()
        assert (await session.finish(waiting)).value == {"action": "accept", "content": {"name": "ADA"}}
        code = "return (await MCP.asker.think({}).then(() => 'answered', (error) => error.message))"
        assert "not today" in (await session.finish(await session.exec(code))).value
    assert len(asked) == 1


@UPSTREAM_ERAS
async def test_clients_over_http_are_asked_about_their_own_programs_only(upstream: str, tmp_path: Path) -> None:
    config = write_http_config(tmp_path, {"asker": asking(upstream)}, **TWO_TOKENS)
    answers: dict[str, list[str]] = {}

    async def take_part(served: Served, who: str, token: str, mode: str) -> None:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            assert params.message == f"[asker] Your name for {who}?"
            return types.ElicitResult(action="accept", content={"name": who})

        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(SECONDS)) as http,
            Client(
                streamable_http_client(served.url, http_client=http), mode=mode, elicitation_callback=answer
            ) as client,
        ):
            session = Session(client, served.stderr_path)
            # Of an old server over stdio, a first question that any client's call may have caused is refused.
            code = f"""
                const found = [];
                while (found.length < 3)
                    try {{
                        found.push(unwrap(await MCP.asker.name({{ label: '{who}' }})).said.content.name);
                    }} catch (error) {{ if (!error.message.includes('repeat')) throw error; }}
                return found"""
            answers[who] = (await session.finish(await session.exec(code))).value

    clients = [(ALICE, "auto"), (ALICE, "legacy"), (BOB, "auto"), (BOB, "legacy")]
    async with serve_http(config) as served:
        async with anyio.create_task_group() as group:
            for number, (token, mode) in enumerate(clients):
                group.start_soon(take_part, served, f"client-{number}", token, mode)
        if upstream == "modern":
            async with served.client("legacy", ALICE) as mute:
                await sees_what_its_program_waits_for(mute)
    assert answers == {f"client-{number}": [f"client-{number}"] * 3 for number in range(4)}


async def test_questions_that_no_client_of_one_principal_can_answer_delay_no_call_of_another(tmp_path: Path) -> None:
    config = write_http_config(tmp_path, {"asker": asking("legacy")}, **TWO_TOKENS)
    ask = "return unwrap(await MCP.asker.name({ label: 'x' }))"
    async with (
        serve_http(config) as served,
        served.client("legacy", ALICE) as alice,
        served.client("legacy", BOB) as bob,
    ):
        stuck = await alice.exec(ask)
        assert stuck.status == "waiting"
        # The first question that may be of either program has programs take turns from now on.
        refused = await alice.exec(ask)
        assert refused.status == "failed"
        with anyio.fail_after(SECONDS):  # the question has no end of its own
            await bob.finish(await bob.exec("return unwrap(await MCP.asker.folders({ label: 'x' }))"))
        ended = await alice.finish(await alice.wait(stuck.run_id))
    assert "connect a client that supports elicitation" in str(ended.error)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_server_that_asks_for_folders_when_it_starts_gets_those_of_the_one_client(
    mode: str, tmp_path: Path
) -> None:
    async def folder(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=tmp_path.as_uri())])

    config = write_config(tmp_path, {"files": npm_server("filesystem")})
    async with serve(config, mode=mode, list_roots_callback=folder) as session:
        code = "return unwrap(await MCP.files.listAllowedDirectories({})).content"
        # It asks once it runs, so the first calls may come before the answer.
        said = await session.value(code)
        with anyio.fail_after(SECONDS):
            while str(tmp_path) not in said:
                said = await session.value(code)
