"""Updates of resources of servers reach the clients that have subscribed to them, in both eras."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.integration.harness import SECONDS, SERVERS, Session, serve, until
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:resources/:mcp.MCPDeprecationWarning")]
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
A, B = "note:///a", "note:///b"


def write(folder: Path, **others: Any) -> Path:
    entry = {"command": sys.executable, "args": [str(SERVERS / "watched.py"), str(folder)]}
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": {"notes": entry}, **others}), "utf-8")
    return path


def asked(folder: Path) -> list[str]:
    path = folder / "asked"
    return path.read_text("utf-8").splitlines() if path.exists() else []


class Updates:
    """The URIs of updates that a client has got, as its `message_handler`."""

    def __init__(self, era: str) -> None:
        self.uris: list[str] = []
        self._legacy = era == "legacy"

    async def __call__(self, message: Any) -> None:
        if self._legacy and isinstance(message, types.ResourceUpdatedNotification):
            self.uris.append(str(message.params.uri))


@asynccontextmanager
async def subscribed(session: Session, era: str, updates: Updates, *uris: str) -> AsyncIterator[None]:
    """Subscribe for the duration of the context, as a client of the era does."""
    if era == "legacy":
        for uri in uris:
            await session.client.subscribe_resource(uri)
        yield
        for uri in uris:
            await session.client.unsubscribe_resource(uri)
        return

    async def follow(stream: Any) -> None:
        async for event in stream:
            updates.uris.append(str(event.uri))

    async with session.client.listen(resource_subscriptions=list(uris)) as stream, anyio.create_task_group() as group:
        group.start_soon(follow, stream)
        yield
        group.cancel_scope.cancel()


async def touch(session: Session, uri: str) -> None:
    await session.value(f"await MCP.notes.touch({{ uri: {json.dumps(uri)} }})")


@ERAS
async def test_an_update_reaches_a_client_until_it_unsubscribes(tmp_path: Path, era: str) -> None:
    updates = Updates(era)
    async with serve(write(tmp_path), mode=era, message_handler=updates) as session:
        with anyio.fail_after(SECONDS):
            assert [each.uri for each in (await session.client.list_resources()).resources] == [A, B]
            async with subscribed(session, era, updates, A):
                await until(lambda: asked(tmp_path) == [f"subscribe {A}"])
                await touch(session, B)
                await touch(session, A)
                await until(lambda: updates.uris == [A])
            await until(lambda: asked(tmp_path) == [f"subscribe {A}", f"unsubscribe {A}"])
            await touch(session, A)
        assert updates.uris == [A]


async def test_a_resource_that_a_client_may_not_read_cannot_be_subscribed_to(tmp_path: Path) -> None:
    async with serve(write(tmp_path, tools={"deny": ["mcp:notes:resources/read"]})) as session:
        with anyio.fail_after(SECONDS), pytest.raises(MCPError, match="not found"):
            await session.client.subscribe_resource(A)
    async with serve(write(tmp_path, tools={"ask": ["mcp:notes:resources/read"]})) as session:
        with anyio.fail_after(SECONDS), pytest.raises(MCPError, match="need an approval"):
            await session.client.subscribe_resource(A)
    async with serve(write(tmp_path, expose={"resources": False})) as session:
        with anyio.fail_after(SECONDS), pytest.raises(MCPError, match="Method not found"):
            await session.client.subscribe_resource(A)
    assert asked(tmp_path) == []


async def test_a_stream_gets_no_updates_of_resources_that_its_caller_may_not_read(tmp_path: Path) -> None:
    contexts = {"guests": {"for": ["principal:bob"], "deny": ["mcp:notes:resources/read"]}}
    config = write(tmp_path, http=TWO_TOKENS, tools={"contexts": contexts})
    alice, bob = Updates("auto"), Updates("auto")
    async with (
        serve_http(config) as served,
        served.client("auto", ALICE) as one,
        served.client("auto", BOB) as other,
        subscribed(one, "auto", alice, A),
        subscribed(other, "auto", bob, A),
    ):
        await until(lambda: asked(tmp_path) == [f"subscribe {A}"])
        await touch(one, A)
        await until(lambda: alice.uris == [A])
    assert bob.uris == []


async def test_the_subscriptions_of_a_client_end_with_its_session(tmp_path: Path) -> None:
    async with serve_http(write(tmp_path)) as served:
        async with served.client("legacy") as session:
            with anyio.fail_after(SECONDS):
                await session.client.subscribe_resource(A)
        await until(lambda: asked(tmp_path) == [f"subscribe {A}", f"unsubscribe {A}"])
