"""Arguments and the schemas of servers in the real process: what is sent, what is accepted, and what is noted."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import mcp_types as types
import pytest

from tests.integration.harness import SERVERS, Session, cli, serve
from tests.openapi.loopback_api import JSON, LoopbackApi, loopback_api, reply

pytestmark = pytest.mark.anyio

TEXT = {"type": "string"}
UPDATE = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "title": TEXT,
        "state": {"enum": ["open", "closed"], "default": "open"},
        "assignee": {"type": ["string", "null"], "default": None},
        "labels": {"type": "array", "items": TEXT, "default": []},
        "notify": {"type": "boolean", "default": True},
    },
    "required": ["id", "notify"],
}
FORECAST = {"type": "object", "properties": {"city": TEXT, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = [
    {"name": "update_issue", "inputSchema": UPDATE},
    {"name": "forecast", "inputSchema": FORECAST, "annotations": {"readOnlyHint": True}},
]


def parameter(name: str, place: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def body(media_type: str) -> dict[str, Any]:
    members = {
        "name": TEXT,
        "archived": {"type": "boolean", "default": False},
        "priority": {"type": "integer", "default": 3},
        "labels": {"type": "array", "items": TEXT, "default": []},
    }
    return {"content": {media_type: {"schema": {"type": "object", "properties": members}}}}


ITEM = [parameter("id", "path", type="integer", default=1)]
DOCUMENT = {
    "openapi": "3.0.3",
    "info": {"title": "Items", "version": "1"},
    "paths": {
        "/items/{id}": {
            "patch": {"operationId": "update", "parameters": ITEM, "requestBody": body(JSON), "responses": {}},
            "put": {"operationId": "fill", "parameters": ITEM, "responses": {}}
            | {"requestBody": body("application/x-www-form-urlencoded")},
            "post": {"operationId": "merge", "parameters": ITEM, "responses": {}}
            | {"requestBody": body("application/merge-patch+json")},
            "get": {
                "operationId": "read",
                "parameters": [
                    *ITEM,
                    parameter("fields", "query", type="string", default="id,name"),
                    parameter("X-Depth", "header", type="integer", default=2),
                    parameter("mode", "cookie", type="string", default="full"),
                ],
                "responses": {},
            },
        }
    },
}
PLUGIN = """
from codemode_mcp.plugins import PluginTool

def register(api):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "b": {}}, "required": ["a"]}
    api.tool(PluginTool(name="echo", description="Return the input.", run=lambda given: dict(given), input=schema))
"""


@dataclass(frozen=True)
class Place:
    """A process with an MCP server that records its calls, an API that does, and a plugin.

    Attributes:
        asked: the questions to the client.
    """

    folder: Path
    config: Path
    api: LoopbackApi
    session: Session
    asked: list[str]

    @property
    def received(self) -> list[Any]:
        """The calls of the MCP server so far."""
        path = self.folder / "received"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    (folder / "api.json").write_text(json.dumps(DOCUMENT), "utf-8")
    (folder / "echo.py").write_text(PLUGIN, "utf-8")
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with loopback_api() as api:
        api.answers["/items/7"] = reply("200 OK", {"ok": True})
        hub = {"command": sys.executable, "args": [str(SERVERS / "recording.py"), str(folder)]}
        items = {"openapi": "api.json", "baseUrl": api.url}
        sections = {
            "mcpServers": {"hub": hub, "items": items},
            "plugins": {"echo": {"module": "echo.py:register"}},
            "tools": {"ask": ["mcp:hub:update_issue"]},
        }
        config = folder / "config.json"
        config.write_text(json.dumps(sections), "utf-8")
        async with serve(config, elicitation_callback=approve) as session:
            yield Place(folder, config, api, session, asked)


async def test_an_mcp_tool_gets_what_the_program_gives_and_a_person_approves_exactly_that(place: Place) -> None:
    given = {"id": 1, "title": "new"}
    code = f"return unwrap(await MCP.hub.updateIssue({json.dumps(given)}))"
    assert await place.session.value(code) == "done"
    assert place.received[-1] == ["update_issue", given]
    assert "new" in place.asked[-1]
    for default in ("state", "assignee", "labels", "notify"):
        assert default not in place.asked[-1]


@pytest.mark.parametrize(
    ("call", "request_line", "sent"),
    [
        ("update({ id: 7, name: 'new' })", "PATCH /items/7", b'{"name":"new"}'),
        ("merge({ id: 7, name: 'new' })", "POST /items/7", b'{"name":"new"}'),
        ("fill({ id: 7, name: 'new' })", "PUT /items/7", b"name=new"),
        ("update({ id: 7 })", "PATCH /items/7", b""),
        ("read({ id: 7 })", "GET /items/7", b""),
        ("read({ id: 7, fields: 'a' })", "GET /items/7?fields=a", b""),
        ("update({ id: 7, labels: [], archived: false })", "PATCH /items/7", b'{"archived":false,"labels":[]}'),
    ],
)
async def test_an_api_gets_no_default_in_any_part_of_a_request(
    place: Place, call: str, request_line: str, sent: bytes
) -> None:
    assert await place.session.value(f"return unwrap(await MCP.items.{call}).ok")
    request = place.api.received[-1]
    assert f"{request.method} {request.target}" == request_line
    body = request.body
    assert (json.loads(body) if body[:1] == b"{" else body) == (json.loads(sent) if sent[:1] == b"{" else sent)
    assert not {"x-depth", "cookie"} & request.headers.keys()


async def test_a_tool_of_a_plugin_gets_what_the_program_gives(place: Place) -> None:
    assert await place.session.value("return await tools.echo({ b: 2 })") == {"b": 2}


async def test_undeclared_arguments_are_sent_and_noted_once_for_a_tool_and_a_program(place: Place) -> None:
    answer = await place.session.exec(
        "for (const dayz of [1, 2]) await MCP.hub.forecast({ city: 'x', dayz });\n"
        "await MCP.hub.forecast({ city: 'x', wind: 1 }); return 1"
    )
    assert place.received[-3:] == [
        ["forecast", {"city": "x", "dayz": 1}],
        ["forecast", {"city": "x", "dayz": 2}],
        ["forecast", {"city": "x", "wind": 1}],
    ]
    note = "mcp:hub:forecast got undeclared arguments: dayz; did you mean days?"
    assert answer.structured["notes"] == [note]
    assert note in answer.read
    assert "notes" not in (await place.session.exec("await MCP.hub.forecast({ city: 'x', days: 1 })")).structured
    command = "call", "hub.forecast", "city=x", "dayz=2", "--config", str(place.config)
    ended = await anyio.to_thread.run_sync(cli, *command)
    assert (ended.returncode, ended.stdout.strip()) == (0, "done")
    assert note in " ".join(ended.stderr.split())
