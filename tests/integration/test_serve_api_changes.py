"""An HTTP API whose document at a URL changes while `serve` runs: what is held, and what a person accepts of it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.integration.harness import COMMAND, SECONDS, Session, serve, write_config
from tests.integration.terminal import terminal
from tests.openapi.loopback_api import DOCUMENT, JSON, LoopbackApi, Received, loopback_api, operation, reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals"),
]

PATH: Final = "/openapi.json"

KEPT: Final = {"/kept/{case}": {"get": operation("kept")}}


class Published:
    """A document at a URL, and the configuration of a user who calls its API."""

    def __init__(self, api: LoopbackApi, folder: Path, own_cache: dict[str, str]) -> None:
        self.api = api
        self.env = {**own_cache, "XDG_STATE_HOME": str(folder / "state")}
        self.config = write_config(folder, {"api": {"openapi": api.url + PATH, "refreshSeconds": 1}})
        self.unchanged = 0
        """Number of requests whose client had the document already."""
        self.has(KEPT)
        api.answers[PATH] = self._answer

    def has(self, *paths: dict[str, Any]) -> None:
        """Publish a document with these paths."""
        self._document = {**DOCUMENT, "paths": {path: node for each in paths for path, node in each.items()}}
        self._tag = '"' + hashlib.sha256(json.dumps(self._document).encode()).hexdigest()[:16] + '"'

    async def _answer(self, request: Received) -> None:
        if request.headers.get("if-none-match") == self._tag:
            self.unchanged += 1
            request.writer.write(reply("304 Not Modified"))
        else:
            request.writer.write(reply("200 OK", self._document, JSON, f"ETag: {self._tag}"))

    def called(self) -> list[str]:
        """Return the requests that are not for the document."""
        return [f"{each.method} {each.target}" for each in self.api.received if each.target != PATH]

    async def unless_refused(self, session: Session, name: str) -> str:
        """Call an operation. Return the message if it is refused, and its result otherwise."""
        answer = await session.exec(f"return unwrap(await MCP.api.{name}({{ case: 'x' }}))")
        return str(answer.structured.get("error") or answer.value)

    async def until_held(self, session: Session, name: str, *, by_calls_of: str) -> str:
        """Return the message of a refused call, as soon as the calls of another operation have led to it."""
        with anyio.fail_after(SECONDS):
            while True:
                if name != by_calls_of:
                    assert await self.unless_refused(session, by_calls_of) == "done"
                message = await self.unless_refused(session, name)
                if message != "done":
                    return message

    async def see_held(self, *arguments: str) -> None:
        """Run a command. Fail unless it names the two operations that are held, and not the one that is not."""
        with anyio.fail_after(SECONDS):
            ended = await anyio.run_process(
                [*COMMAND, *arguments, "--config", str(self.config)], env={**os.environ, **self.env}, check=False
            )
        shown = (ended.stdout + ended.stderr).decode()
        assert "api.moved" in shown, shown
        assert "api.more" in shown, shown
        assert "api.kept" not in shown, shown

    async def accept(self, item: str) -> None:
        async with terminal("trust", "accept", item, "--config", str(self.config), env=self.env) as command:
            await command.confirm()
            assert await command.end() == 0


def advice(published: Published, name: str) -> str:
    """Return the end of the message about a held operation."""
    option = f"--config {published.config}"
    return (
        f"Ask the user to look at it with: codemode-mcp trust diff api.{name} {option}, and to accept it with: "
        f"codemode-mcp trust accept api.{name} {option}"
    )


async def test_a_changed_document_is_read_again_and_its_changes_are_held_until_a_person_accepts_them(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    done = reply(body="done")
    async with loopback_api() as api:
        for path in ("/kept/x", "/old/x", "/new/x", "/more/x"):
            api.script(path, done)
        published = Published(api, tmp_path, own_cache)
        published.has(KEPT, {"/old/{case}": {"get": operation("moved")}})
        async with serve(published.config, env=published.env) as session:
            assert await published.unless_refused(session, "moved") == "done"
            assert await session.value("return Object.keys(MCP.api)") == ["kept", "moved"]

            published.has(
                KEPT, {"/new/{case}": {"get": operation("moved")}, "/more/{case}": {"post": operation("more")}}
            )
            message = await published.until_held(session, "moved", by_calls_of="kept")
            why = "its server has changed it since it was accepted"
            assert f"MCP.api.moved is held: {why}. {advice(published, 'moved')}" in message
            message = await published.unless_refused(session, "more")
            assert f"MCP.api.more is held: no person has accepted this new item. {advice(published, 'more')}" in message
            assert await published.unless_refused(session, "kept") == "done"
            assert await session.value("return Object.keys(MCP.api)") == ["kept"]
            assert {each.partition("/x")[0] for each in published.called()} == {"GET /kept", "GET /old"}

            async with anyio.create_task_group() as commands:
                for command in (("trust", "status", "api"), ("doctor", "api")):
                    commands.start_soon(published.see_held, *command)

            await published.accept("api")
            await until_done(published, session, "moved", "more")
            assert set(published.called()[-2:]) == {"GET /new/x", "POST /more/x"}

            # Of a wrong document everything is held. Refused calls are enough for the corrected one to be read.
            published.has({"/other/{case}": {"get": operation("kept")}})
            await published.until_held(session, "kept", by_calls_of="kept")
            unchanged = published.unchanged
            with anyio.fail_after(SECONDS):
                while published.unchanged < unchanged + 2:
                    assert "MCP.api.kept is held: " in await published.unless_refused(session, "kept")
            published.has(KEPT)
            await until_done(published, session, "kept")


async def until_done(published: Published, session: Session, *names: str) -> None:
    """Return once these operations can be called."""
    for name in names:
        with anyio.fail_after(SECONDS):
            while await published.unless_refused(session, name) != "done":
                pass
