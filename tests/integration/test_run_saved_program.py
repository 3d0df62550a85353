"""`codemode-mcp run --program` as a scheduler runs it: no terminal, and an exit code for each reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import COMMAND, SECONDS, SERVERS, write_config
from tests.integration.terminal import terminal

Run = Callable[..., subprocess.CompletedProcess[str]]

PROGRAMS = {
    "sends.ts": "/** Sends. */\nexport default async function sends(input: { to: string; copies?: number }) {\n"
    "  const sent = await MCP.s.send({ to: input.to });\n  return { to: input.to, failed: !!sent.isError };\n}\n",
    "nested.js": "export default async () => (await programs.sends({ to: 'nested' })).to;\n",
    "plain.js": "export default () => 'plain';\n",
    "broken.js": "export default 1;\n",
}


def tools(description: str = "Send.", **annotations: Any) -> str:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    send = {"name": "send", "description": description, "inputSchema": schema, "annotations": annotations}
    return json.dumps([send])


@pytest.fixture
def run(tmp_path: Path, own_cache: dict[str, str], esbuild: None) -> Run:
    """Return a function that runs a saved program with standard input closed, in a session without a terminal."""
    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(tmp_path)], "trust": "follow"}
    write_config(tmp_path, {"s": entry})
    (tmp_path / "programs").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "programs" / name).write_text(text, "utf-8")
    (tmp_path / "tools.json").write_text(tools(), "utf-8")
    cache = {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "run", "--private", "--config", str(tmp_path / "config.json"), *arguments]
        closed = "exec <&-; " if stdin is None else ""
        return subprocess.run(
            ["sh", "-c", f'{closed}exec "$@"', "sh", *command],
            capture_output=True,
            text=True,
            input=stdin,
            env={**os.environ, **cache},
            timeout=SECONDS,
            start_new_session=True,
            check=False,
        )

    return run


@pytest.mark.skipif(os.name == "nt", reason="sh")
def test_each_reason_not_to_run_has_its_exit_code(run: Run, tmp_path: Path, own_cache: dict[str, str]) -> None:
    # A run takes seconds, so each also shows another way to give the input, or another program.
    (tmp_path / "input.json").write_text('{"to": "ann"}', "utf-8")
    done = run("--program", "sends", "--input", f"@{tmp_path}/input.json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"to": "ann", "failed": False}), done.stderr
    assert "broken" not in done.stderr, "the file of another program"
    called = run("-e", "return await programs.sends({ to: 'bo' })")
    assert json.loads(called.stdout) == {"to": "bo", "failed": False}, "its servers are started, which -e does not name"
    wrong = run("--program", "sends", "--input", "-", stdin='{"to": 1}')
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "programs.sends cannot take this input: input.to" in wrong.stderr

    (tmp_path / "tools.json").write_text(tools("Send it to everyone."), "utf-8")
    assert run("--program", "nested", "--accept-changes").stdout == "nested\n"
    for name in ("sends", "nested"):  # the changes were accepted for one run
        changed = run("--program", name, *(["--input", '{"to": "ann"}'] if name == "sends" else []))
        assert (changed.returncode, changed.stdout) == (4, ""), changed.stderr
        assert "programs.sends: MCP.s.send has another description" in changed.stderr
        assert "codemode-mcp programs accept sends --config" in changed.stderr.replace("\n  ", " ")

    async def accept() -> None:
        env = {**own_cache, "XDG_STATE_HOME": str(tmp_path / "state")}
        async with terminal("programs", "accept", "sends", "--config", str(tmp_path / "config.json"), env=env) as shown:
            await shown.see("MCP.s.send has another description")
            await shown.confirm()
            assert await shown.end() == 0, shown.text

    anyio.run(accept)
    accepted = run("--program", "sends", "--input", '{"to": "eve"}')
    assert (accepted.returncode, json.loads(accepted.stdout)) == (0, {"to": "eve", "failed": False}), accepted.stderr
    assert "broken" not in accepted.stderr
    assert run("--program", "plain").stdout == "plain\n"

    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["tools"] = {"ask": ["mcp:s:*"]}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    asked = run("--program", "nested", "--accept-changes")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert "tools.approved" in asked.stderr

    config["mcpServers"]["s"] = {"command": "no-such-command"}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    down = run("--program", "nested", "--accept-changes")
    assert (down.returncode, down.stdout) == (5, "")
    assert "s is down" in down.stderr
