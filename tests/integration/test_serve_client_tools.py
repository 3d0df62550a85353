"""Programs ask the connected client: its user, its model, its folders, in the way of its era and across suspending."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.harness import Session, serve, write_config
from tests.integration.http_harness import ERAS, Served, serve_http

pytestmark = pytest.mark.anyio


async def fill_in(context: Any, params: Any) -> types.ElicitResult:
    if "no thanks" in params.message:
        return types.ElicitResult(action="decline")
    fields = params.requested_schema["properties"]
    values = {"string": "Ada", "integer": 3, "boolean": True, "number": 1.5}
    return types.ElicitResult(
        action="accept",
        content={name: rule["enum"][-1] if "enum" in rule else values[rule["type"]] for name, rule in fields.items()},
    )


async def think(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = params.messages[-1].content
    assert isinstance(said, types.TextContent)
    text = f"{params.system_prompt or 'plain'}: {said.text} ({params.max_tokens})"
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text=text), model="thinker", stop_reason="endTurn"
    )


async def folders(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])


ALL = {"elicitation_callback": fill_in, "sampling_callback": think, "list_roots_callback": folders}


@asynccontextmanager
async def connected(served: Served, mode: str, **callbacks: Any) -> AsyncIterator[Session]:
    """Yield a client that can be asked this, over HTTP: there a server has room for many."""
    async with Client(streamable_http_client(served.url), mode=mode, **callbacks) as client:
        yield Session(client, served.stderr_path)


@pytest.fixture(scope="module", params=["auto", "legacy"], ids=["modern client", "legacy client"])
async def able(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Session]:
    """Yield a client that can be asked everything."""
    async with serve(write_config(folder, {}), mode=request.param, **ALL) as session:
        yield session


async def test_a_program_asks_the_user_the_model_and_for_the_folders(able: Session) -> None:
    said = await able.value(
        "const ask = (name, input) => tools.call('client:session:' + name, input);"
        "return [await ask('elicit', { message: 'Who?', fields: { name: 'string', size: ['small', 'large'] } }),"
        " await tools.elicit({ message: 'no thanks' }),"
        " await tools.sample({ prompt: 'hi', system: 'short', maxTokens: 7 }),"
        " await ask('sample', { messages: [{ role: 'user', content: 'a' }, { role: 'assistant', content: 'b' },"
        "   { role: 'user', content: { type: 'text', text: 'c' } }] }),"
        " await ask('roots'), ALL_TOOLS.map((each) => each.id).filter((id) => id.startsWith('client:'))]"
    )
    assert said == [
        {"accepted": True, "action": "accept", "content": {"name": "Ada", "size": "large"}},
        {"accepted": False, "action": "decline", "content": None},
        {"text": "short: hi (7)", "model": "thinker", "stopReason": "endTurn"},
        {"text": "plain: c (1000)", "model": "thinker", "stopReason": "endTurn"},
        [{"uri": "file:///home/ada", "name": "home"}],
        ["client:session:elicit", "client:session:roots", "client:session:sample"],
    ]


async def test_only_what_the_client_can_do_is_there(tmp_path: Path) -> None:
    probe = (
        "const tried = [];"
        "for (const name of ['elicit', 'sample', 'roots']) {"
        "  try { await tools.call('client:session:' + name, {}) } catch (e) { tried.push(e.message.split('.')[0]) }"
        "}"
        "const own = (entries) => entries.filter((each) => each.source === 'client').map((each) => each.name);"
        "return [own(ALL_TOOLS), ['elicit', 'sample', 'roots'].filter((name) => name in tools),"
        "  own(await tools.search('ask the user of the client')), tried]"
    )
    async with serve_http(write_config(tmp_path, {})) as served:
        for mode in ERAS:
            async with connected(served, mode) as session:
                listed, names, found, tried = await session.value(probe)
            assert (listed, names, found) == ([], [], [])
            assert tried == [f'there is no tool "client:session:{name}"' for name in ("elicit", "sample", "roots")]
            async with connected(served, mode, list_roots_callback=folders) as session:
                listed, names, found, tried = await session.value(probe)
            assert (listed, names, found, len(tried)) == (["roots"], ["roots"], ["roots"], 2)
