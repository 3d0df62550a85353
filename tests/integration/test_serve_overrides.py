"""`override` in a real server: programs, pass-through, approvals, records, and a changed configuration."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import mcp_types as types
import pytest

from tests.integration.harness import SERVERS, cli, serve, until

pytestmark = pytest.mark.anyio

SECRET = "hunter2-do-not-print"
TOOLS = [
    {
        "name": "create_issue",
        "description": "Create a zeppelin.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "owner": {"type": "string"},
                "key": {"type": "string"},
                "title": {"type": "string"},
                "labels": {"type": "array"},
                "limit": {"type": "integer"},
            },
            "required": ["owner", "key", "title"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    },
    {"name": "fail", "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}},
    {"name": "plain", "inputSchema": {"type": "object"}},
]
OVERRIDE: dict[str, Any] = {
    "create_issue": {
        "name": "report_bug",
        "description": "Report a bug.",
        "arguments": {
            "fixed": {"owner": "acme-corp", "key": "${KEY}"},
            "default": {"limit": 7},
            "hidden": ["labels"],
        },
    },
    "fail": {"arguments": {"fixed": {"key": "${KEY}"}}},
}
ENV = {"KEY": SECRET}
SENT = ["create_issue", {"owner": "acme-corp", "key": SECRET, "title": "x", "limit": 7}]


class Place:
    """A folder with a configuration of one recording server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "config.json"
        (folder / "tools.json").write_text(json.dumps(TOOLS), "utf-8")

    def configure(self, override: Any = None, **sections: Any) -> Path:
        entry = {"command": sys.executable, "args": [str(SERVERS / "recording.py"), str(self.folder)]}
        entry["override"] = OVERRIDE if override is None else override
        self.path.write_text(json.dumps({"mcpServers": {"hub": entry}, **sections}), "utf-8")
        return self.path

    @property
    def received(self) -> list[Any]:
        path = self.folder / "received"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


READ_ALL = """
const read = [JSON.stringify(await API.search("report a bug")), await MCP.hub.$api("reportBug", { schema: true })];
for (const file of (await API.list()).files) read.push(await API.read(file.path));
const said = [];
const given = [{ title: 'x', owner: 'evil' }, { title: 'x', OWNER: 'evil' }, { title: 5 }, { title: 'x', labels: [] }];
for (const each of given)
  await MCP.hub.reportBug(each).catch((error) => said.push(error.message));
await MCP.hub.fail({}).catch((error) => said.push(error.message));
return JSON.stringify([read, said, Object.keys(MCP.hub), String(await MCP.hub.reportBug({ title: 'x' }))]);
"""


async def test_a_program_calls_the_tool_and_learns_nothing_of_fixed_values(place: Place) -> None:
    path = place.configure(audit={"trajectory": "trajectory.jsonl", "includeInputs": True})
    async with serve(path, "--log-level", "debug", env=ENV) as session:
        text = await session.value(READ_ALL)
        log = session.stderr
    read, said, names, _ = json.loads(text)
    assert names == ["reportBug", "fail", "plain"]
    assert place.received == [["fail", {"key": SECRET}], SENT]
    assert [each.split("\n")[1] for each in said[:4]] == [
        "- input.owner: only the configuration of codemode-mcp may set this argument; leave it out",
        "- input.OWNER: only the configuration of codemode-mcp may set this argument; leave it out",
        "- input.title: expected string, got number 5",
        "- input.labels: only the configuration of codemode-mcp may set this argument; leave it out",
    ]
    assert "the key *** was refused" in said[4]
    trajectory = (place.folder / "trajectory.jsonl").read_text("utf-8")
    assert '"mcp:hub:create_issue"' in trajectory
    assert "report_bug" not in trajectory.replace("reportBug", "")
    for seen in (text, log, trajectory):
        assert SECRET not in seen
        assert "acme-corp" not in seen
    assert "zeppelin" not in json.dumps(read)


async def test_a_person_approves_what_is_sent_without_seeing_secrets(place: Place) -> None:
    path = place.configure(
        tools={"ask": ["mcp:hub:create_issue"]}, audit={"trajectory": "t.jsonl", "includeInputs": True}
    )
    shown: list[str] = []

    async def approve(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with serve(path, env=ENV, elicitation_callback=approve) as session:
        assert await session.value("return unwrap(await MCP.hub.reportBug({ title: 'x' }))") == "done"
    assert place.received == [SENT]
    (message,) = shown
    assert '"mcp:hub:create_issue"' in message
    assert '"owner": "acme-corp"' in message
    assert 'set by the configuration of codemode-mcp, not by the program: "key", "owner"' in message
    assert SECRET not in message
    assert "acme-corp" not in (place.folder / "t.jsonl").read_text("utf-8")


REPEAT = {
    "name": "repeat",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "additionalProperties": {"type": "integer"}},
}


async def test_a_secret_that_a_server_repeats_for_another_tool_reaches_neither_program_nor_client_nor_record(
    place: Place,
) -> None:
    (place.folder / "tools.json").write_text(json.dumps([*TOOLS, REPEAT]), "utf-8")
    path = place.configure(audit={"trajectory": "trajectory.jsonl", "includeInputs": True})
    shown: list[str] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        shown.append(message or "")

    code = """
        await MCP.hub.fail({}).catch(() => null);
        const found = await MCP.hub.repeat({});
        await new Promise((end) => setTimeout(end, 300));
        return JSON.stringify(found);
    """
    async with serve(path, "--log-level", "debug", env=ENV) as session:
        answer = await session.client.call_tool("exec", {"code": code}, progress_callback=report)
        text = json.dumps(answer.structured_content)
        await until(lambda: "does not match the tool's own output schema" in session.stderr)
        log = session.stderr
    assert place.received[1] == ["repeat", {}]
    assert "repeated ***" in text
    assert any("using ***" in each for each in shown)
    for seen in (text, log, json.dumps(shown), (place.folder / "trajectory.jsonl").read_text("utf-8")):
        assert SECRET not in seen


KEY = "ov3rride+Secret/of&many<marks>"


ENCODED = {
    "a url": f"https://h.example/?k={quote(KEY, safe='')}",
    "base64 in lines": base64.encodebytes(b"a" * 50 + KEY.encode()).decode(),
}
"""`tests/upstream_clients/test_redaction.py` has all encodings."""


async def test_a_program_cannot_decode_a_secret_of_an_override_that_a_server_repeats(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "give", "inputSchema": {"type": "object"}}]', "utf-8")
    for name, text in ENCODED.items():
        blob = base64.b64encode(text.encode()).decode()
        content = [{"type": "text", "text": text}, {"type": "resource", "resource": {"uri": "a:b", "blob": blob}}]
        result = {"content": content, "structuredContent": {"t": text, text: 1}, "_meta": {"x/y": [text]}}
        (tmp_path / name).write_text(json.dumps(result), "utf-8")
    entry = {
        "command": sys.executable,
        "args": [str(SERVERS / "scripted.py"), str(tmp_path)],
        "override": {"other": {"arguments": {"fixed": {"key": "${KEY}"}}}},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mcpServers": {"hub": entry}}), "utf-8")
    async with serve(path, env={"KEY": KEY}) as session:
        for name, text in ENCODED.items():
            seen = await session.value(f"return JSON.stringify(await MCP.hub.give({{name: {name!r}}}))")
            for part in (text, base64.b64encode(text.encode()).decode()):
                assert json.dumps(part)[1:-1] not in seen, name
            assert seen.count("***") >= 3, name


async def test_a_question_of_a_server_shows_no_secret_that_it_got(tmp_path: Path) -> None:
    override = {"name": {"arguments": {"fixed": {"label": "${KEY}"}}}}
    servers = {
        era: {"command": sys.executable, "args": [str(SERVERS / "asking.py"), era], "override": override}
        for era in ("modern", "legacy")
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    asked: list[str] = []

    async def reply(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async with serve(path, env=ENV, elicitation_callback=reply) as session:
        for era in servers:
            found = await session.value(f"return unwrap(await MCP.{era}.name({{}}))")
            assert "Your name for ***?" in asked.pop()
            assert found["label"] == "***"
            assert found["said"]["content"] == {"name": "Ann"}


async def test_clients_of_pass_through_see_and_call_the_tool_like_programs(place: Place) -> None:
    async with serve(place.configure(tools={"codeMode": False}), env=ENV) as session:
        listed = {tool.name: tool for tool in (await session.client.list_tools()).tools}
        assert set(listed) == {"hub__report_bug", "hub__fail", "hub__plain"}
        tool = listed["hub__report_bug"]
        assert tool.description == "Report a bug."
        assert tool.input_schema["required"] == ["title"]
        assert sorted(tool.input_schema["properties"]) == ["limit", "title"]
        refused = await session.client.call_tool("hub__report_bug", {"title": "x", "owner": "evil"})
        assert refused.is_error
        assert "may set this argument" in str(refused.content)
        assert not (await session.client.call_tool("hub__report_bug", {"title": "x"})).is_error
    assert place.received == [SENT]


async def test_a_changed_override_applies_to_the_next_call_of_a_program_that_runs(place: Place) -> None:
    async with serve(place.configure(), env=ENV) as session:
        call = "await MCP.hub.reportBug({ title: 'x' });"
        waiting = await session.exec(f"{call} await yield_control(); {call} return 1")
        arguments = {**OVERRIDE["create_issue"]["arguments"], "fixed": {"owner": "other-corp", "key": "${KEY}"}}
        place.configure({"create_issue": {"name": "again", "arguments": arguments}})
        await until(lambda: "new settings of tools" in session.stderr)
        assert (await session.wait(waiting.run_id)).value == 1
        assert await session.value("return Object.keys(MCP.hub)") == ["again", "fail", "plain"]
    assert [arguments["owner"] for _, arguments in place.received] == ["acme-corp", "other-corp"]


async def test_a_program_that_outlives_its_process_keeps_its_names(place: Place) -> None:
    path = place.configure(store={"kind": "sqlite", "path": "runs.sqlite3"})
    async with serve(path, env=ENV) as session:
        waiting = await session.exec("await yield_control(); return unwrap(await MCP.hub.reportBug({ title: 'x' }))")
    path = place.configure(
        {"create_issue": {**OVERRIDE["create_issue"], "name": "other"}},
        store={"kind": "sqlite", "path": "runs.sqlite3"},
    )
    async with serve(path, env=ENV) as session:
        assert (await session.wait(waiting.run_id)).value == "done"
    assert place.received == [SENT]
    assert SECRET.encode() not in (place.folder / "runs.sqlite3").read_bytes()


async def test_commands_show_the_result_and_doctor_reports_what_does_not_fit(place: Place) -> None:
    config = ("--config", str(place.configure({**OVERRIDE, "creat_issue": {}})))
    called = await anyio.to_thread.run_sync(lambda: cli("call", "hub.report_bug", "title=x", *config, env=ENV))
    assert called.stdout.strip() == "done", called.stderr
    assert place.received == [SENT]
    report = (await anyio.to_thread.run_sync(lambda: cli("doctor", "hub", *config, env=ENV))).stdout
    assert "the override of 'creat_issue' names a tool that the server does not list" in " ".join(report.split())
