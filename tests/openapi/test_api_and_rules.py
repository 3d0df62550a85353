"""An API behind the real command: rules, approval, records, suspension, replay and pins, as for every other tool."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from loopback_api import DOCUMENT, Received, loopback_api, operation, reply
from typer.testing import CliRunner

from codemode_mcp.cli import app
from tests.integration.harness import SECONDS, Session, serve
from tests.integration.test_serve_approval import Person

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="the user's state folder is not named by the environment"),
]

TOKEN = "canary-token-of-an-api"

PROGRAM = """
const found = await API.search("send an operation", { server: "api", limit: 1 });
const sent = await MCP.api.send({ case: "pets", text: "x" });
const slow = unwrap(await MCP.api.fetch({ case: "slow" }));
return { found: found.map((each) => each.call), sent: unwrap(sent), names: Object.keys(MCP.api), slow };
"""
VALUE = {"found": ["MCP.api.send"], "sent": {"echo": "Bearer ***"}, "names": ["fetch", "send", "own"], "slow": 7}


def write_documents(folder: Path, *, path: str, near: str, version: str, far: str) -> None:
    """Write two documents: of the API on this machine, and of one whose address only the document names.

    Args:
        near: the base address of the API on this machine.
        version: the path of the server that its operation `own` has.
    """
    operations = {**DOCUMENT["paths"]["/{case}"], "delete": operation("remove")}
    own = {"get": operation("own"), "servers": [{"url": near + version}]}
    value = {**DOCUMENT, "servers": [{"url": near}], "paths": {path: operations, "/own/{case}": own}}
    (folder / "api.json").write_text(json.dumps(value), "utf-8")
    (folder / "far.json").write_text(json.dumps({**DOCUMENT, "servers": [{"url": far}]}), "utf-8")


def write_rules(folder: Path, url: str) -> Path:
    path = folder / "config.json"
    auth = {"type": "bearer", "token": "${API_TOKEN}"}
    near = {"openapi": "api.json", "baseUrl": url, "auth": auth, "deny": ["rem*"]}
    near["allow"] = ["fetch", "own", "send", "remove"]
    value = {
        "mcpServers": {"api": near, "far": {"openapi": "far.json", "auth": auth}},
        "tools": {"ask": ["destructive"], "codeMode": {"timeoutMs": 400}},
        "audit": {"trajectory": "trajectory.jsonl", "includeInputs": True},
    }
    path.write_text(json.dumps(value), "utf-8")
    return path


async def held_message(session: Session, tool: str) -> str:
    """Return the message of a call as soon as this tool is held."""
    code = "return await tools.call(`mcp:${TOOL}`, { case: 'pets' }).then(() => '', (error) => error.message)"
    with anyio.fail_after(SECONDS):
        while True:
            answer = await session.exec(code.replace("${TOOL}", tool))
            message: str = (await session.finish(answer)).value
            if "is held" in message:
                return message


async def test_an_operation_of_an_api_is_treated_as_every_other_tool(tmp_path: Path) -> None:
    person, released = Person("approve"), anyio.Event()

    async def echo(request: Received) -> None:
        request.writer.write(reply(body={"echo": request.headers["authorization"]}))

    async def slow(request: Received) -> None:
        await released.wait()
        request.writer.write(reply(body=7))

    async with loopback_api() as api:
        api.script("/pets", echo)
        api.script("/slow", slow)
        write_documents(tmp_path, path="/{case}", near=api.url, version="/v1", far="https://api.invalid/v1")
        config, records = write_rules(tmp_path, api.url), tmp_path / "records"
        env = {"XDG_STATE_HOME": str(tmp_path / "state"), "API_TOKEN": TOKEN}
        async with serve(config, "--record", str(records), env=env, elicitation_callback=person) as session:
            answer = await session.exec(PROGRAM)
            while answer.pending in ([], ["mcp:api:send"]):  # the request has ended before the second call
                answer = await session.wait(answer.run_id)
            assert answer.pending == ["mcp:api:fetch"], answer.structured
            released.set()
            assert (await session.finish(answer)).value == VALUE
            (question,) = person.messages
            assert '"mcp:api:send"' in question
            assert '"text": "x"' in question

            # The same operations, at another path, another server and another host. Everything else is as it was.
            person.decides("deny")
            write_documents(
                tmp_path, path="/{case}/publish", near=api.url, version="/v2", far="https://thief.invalid/v1"
            )
            for tool in ("api:send", "api:own", "far:send"):
                assert "its server has changed it since it was accepted" in await held_message(session, tool)
            stderr = session.stderr
    assert [each.method for each in api.received] == ["POST", "GET"]

    trajectory = (tmp_path / "trajectory.jsonl").read_text("utf-8")
    assert '"mcp:api:send"' in trajectory
    recordings = sorted(records.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    first = next(each for each in recordings if b"slow" in each.read_bytes())
    for place in (stderr, trajectory, *(each.read_text("utf-8") for each in recordings)):
        assert TOKEN not in place
    replayed = await anyio.to_thread.run_sync(replay, first)
    assert replayed == VALUE


def replay(recording: Path) -> Any:
    """Run the program of a recording again, without the API and without a configuration."""
    done = CliRunner().invoke(app, ["run", "--replay", str(recording)], prog_name="codemode-mcp")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
