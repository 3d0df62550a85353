"""Masking in messages: credentials are hidden; our sentences, commands, names of servers and plain words are not."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import SERVERS, command, serve, until, write_config

pytestmark = pytest.mark.anyio

SETTINGS = {
    "NODE_ENV": "production",
    "DB_HOST": "localhost",
    "PORT": "3000",
    "MODE": "exit",
    "LEVEL": "error",
    "ACTION": "start",
    "KIND": "server",
    "WORK_DIR": "/var/lib/app",
    "TZ": "Europe/Berlin",
    "VERBOSE": "true",
    "WHO": "foo-bar",
    "STATE": "held",
    "COMMAND": "codemode-mcp",
    "STEP": "trust",
    "PART": "item",
    "WITH": "with:",
}
SAID = "cannot connect to localhost:3000 (production), token s3cr3t-Token-1, password open sesame, key word"
SECRET = {"API_TOKEN": "s3cr3t-Token-1", "DB_URL": "postgres://me:open%20sesame@localhost/x", "SIGNING_KEY": "word"}


def failing(**env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", f"import sys; sys.exit({SAID!r})"], "env": env}


def scripted(folder: Path, **env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(folder)], "env": env}


@pytest.mark.parametrize("variables", [False, True], ids=["written", "variables"])
async def test_a_server_that_does_not_start_is_described_in_whole_sentences(tmp_path: Path, variables: bool) -> None:
    given = {**SETTINGS, **SECRET}
    env = {name: f"${{{name}}}" for name in given} if variables else given
    config = write_config(tmp_path, {"foo-bar": failing(**env)})
    said = SAID.replace("s3cr3t-Token-1", "***").replace("open sesame", "***").replace("key word", "key ***")
    whole = (
        "server 'foo-bar' did not start: it exited with code 1 before it answered; run the command by hand to see why; "
        f"its stderr says: {said}"
    )
    async with serve(config, env=given) as session:
        answer = await session.exec("return await MCP.fooBar.look({})")
        await until(lambda: whole in session.stderr)
        log = session.stderr
    assert whole.removeprefix("server 'foo-bar' ") in answer.error
    assert "'***'" not in log
    for secret in ("s3cr3t-Token-1", "open sesame", "key word"):
        assert secret not in log + answer.error
    found = await command("doctor", "--json", "--config", str(config), env=given)
    check = next(each for each in json.loads(found.stdout) if each["name"] == "server foo-bar")
    assert said in check["detail"]
    assert "it exited with code 1" in check["detail"]
    assert check["advice"].startswith(f"run it by hand: {sys.executable} -c ")


@pytest.mark.skipif(os.name == "nt", reason="the user's state folder is not named by the environment")
@pytest.mark.parametrize("name", ["foo-bar", "held", "k3y-8f2q7x1z"])
async def test_the_command_that_a_person_must_type_names_the_server_whatever_its_environment_is(
    tmp_path: Path, own_cache: dict[str, str], name: str
) -> None:
    env = {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}
    other = {"command": sys.executable, "args": ["-c", ""], "env": {"WHO": name, "API_TOKEN": name}, "disabled": False}
    entry = scripted(tmp_path, **SETTINGS, WHO_TOKEN=name, PASSWORD="diff")
    config = write_config(tmp_path, {name: entry, "other": other})
    tool = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}
    (tmp_path / "tools.json").write_text(json.dumps([tool]), "utf-8")
    async with serve(config, env=env) as session:
        await session.value(f"return await MCP[{name!r}].$api()")
        await until(lambda: list((tmp_path / "state").rglob("*.json")))
    (tmp_path / "tools.json").write_text(
        json.dumps([{**tool, "inputSchema": {"type": "object", "properties": {"a": {}}}}]), "utf-8"
    )
    async with serve(config, env=env) as session:
        told = await session.value(f"return await MCP[{name!r}].look({{}}).catch((error) => error.message)")
        await until(lambda: "trust diff" in session.stderr)
        log = session.stderr
    assert f"server {name!r}: 1 item is held until a person accepts it ({name}.look); look at it with: " in log
    assert f"codemode-mcp trust diff {name}" in log
    assert f"codemode-mcp trust accept {name}.look" in told
    assert "***" not in log + told
