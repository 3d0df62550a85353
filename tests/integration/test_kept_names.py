"""Names of servers and tools in programs stay, whatever is added to the configuration, through the real commands."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from typer.testing import Result

from tests.integration.harness import SECONDS, SERVERS, invoke, serve, until, write_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="the user's cache folder is not named by the environment"),
]

CALL = "await MCP.fooBar.getItem(); return 'called'"


class Machine:
    """A configuration with servers that note their calls."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = {**env, "XDG_STATE_HOME": str(folder / "state")}

    def has(self, *servers: str, tools: tuple[str, ...] = ("get_item",), **options: object) -> Path:
        """Configure servers in this order, which list these tools."""
        entries = {}
        for name in servers:
            (self.folder / name).mkdir(exist_ok=True)
            listed = [{"name": each, "description": "Gets.", "inputSchema": {"type": "object"}} for each in tools]
            (self.folder / name / "tools.json").write_text(json.dumps(listed), "utf-8")
            arguments = [str(SERVERS / "scripted.py"), str(self.folder / name)]
            entries[name] = {"command": sys.executable, "args": arguments, "trust": "follow", **options}
        return write_config(self.folder, entries)

    def run(self, *words: str) -> Result:
        """Run a command in this process."""
        return invoke(*words, "--config", str(self.folder / "config.json"), env=self.env)

    def called(self, *words: str) -> list[str]:
        """Return the servers and tools that a command calls."""
        for log in self.folder.glob("*/called"):
            log.unlink()
        self.run(*words)
        logs = {log.parent.name: log.read_text("utf-8").split() for log in self.folder.glob("*/called")}
        return [f"{server}:{tool}" for server, tools in logs.items() for tool in tools]


@pytest.fixture
def machine(tmp_path: Path, own_cache: dict[str, str]) -> Machine:
    return Machine(tmp_path, own_cache)


def test_a_program_calls_the_same_server_when_others_are_added(machine: Machine) -> None:
    machine.has("foo-bar")
    assert machine.called("run", "-e", CALL) == ["foo-bar:get_item"]
    machine.has("FooBar", "fooBar", "foo-bar")
    assert machine.called("run", "-e", CALL) == ["foo-bar:get_item"]
    assert machine.called("call", "fooBar.get_item") == ["foo-bar:get_item"]
    assert machine.called("call", "FooBar.get_item") == ["FooBar:get_item"]
    assert machine.called("run", "-e", CALL.replace("fooBar", "fooBar_3")) == ["fooBar:get_item"]
    note = 'MCP.fooBar is the server "foo-bar"; "FooBar" is MCP.fooBar_2, "fooBar" is MCP.fooBar_3.'
    assert note in machine.run("run", "-e", CALL).output
    found = json.loads(machine.run("doctor", "--json").stdout)
    assert [each["detail"] for each in found if each["name"] == "names"] == [note]
    machine.has("FooBar", "fooBar")
    refused = machine.run("run", "-e", CALL)
    assert refused.exit_code == 1
    assert "MCP.fooBar does not exist" in refused.output


async def test_a_serving_process_keeps_the_names_that_it_has_shown(machine: Machine) -> None:
    config = machine.has("foo-bar")
    async with serve(config, env=machine.env) as session:
        assert await session.value(CALL) == "called"
        machine.has("fooBar", "foo-bar", tools=("getItem", "get_item"), start="eager")
        await until(lambda: "the configuration has changed" in session.stderr)
        with anyio.fail_after(SECONDS):
            while not await session.value("return 'getItem_2' in MCP.fooBar"):
                pass
        answer = await session.exec(CALL)
        assert answer.value == "called"
        assert (machine.folder / "foo-bar" / "called").read_text("utf-8").split() == ["get_item"] * 2
        assert not (machine.folder / "fooBar" / "called").exists()
        assert answer.structured["notes"] == [
            'MCP.fooBar is the server "foo-bar"; "fooBar" is MCP.fooBar_2.',
            'MCP.fooBar.getItem is the tool "get_item"; "getItem" is MCP.fooBar.getItem_2.',
        ]


def test_a_saved_program_and_a_recording_belong_to_the_tools_that_they_have_used(machine: Machine) -> None:
    machine.has("foo-bar")
    (machine.folder / "programs").mkdir()
    text = "export default async () => { await MCP.fooBar.getItem(); return 'called'; };\n"
    (machine.folder / "programs" / "gets.js").write_text(text, "utf-8")
    recording = str(machine.folder / "gets.jsonl")
    assert machine.called("run", "--program", "gets", "--record", recording) == ["foo-bar:get_item"]
    machine.has("fooBar")
    assert machine.run("run", "--replay", recording).stdout == "called\n"
    assert machine.called("run", "-e", "return await programs.gets()") == []
    done = machine.run("run", "--program", "gets")
    assert done.exit_code == 4
    changed = "MCP.fooBar.getItem was 'get_item' of server 'foo-bar', and is 'get_item' of server 'fooBar' now"
    assert changed in " ".join(done.output.split())
    assert changed in " ".join(machine.run("run", "-e", "return await programs.gets()").output.split())
    assert machine.called("run", "--program", "gets", "--accept-changes") == ["fooBar:get_item"]
    machine.has("foo-bar", "fooBar")
    # The other server has the name now, and the program is still bound to the first one.
    assert machine.called("run", "-e", "return await programs.gets()") == []
