"""Recordings of a real server: they have no secret of its configuration, and a killed process leaves a readable one."""

from __future__ import annotations

import base64
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codemode_mcp.audit.recordings.format import NO_END, NotReadable, read_recording
from tests.integration import file_keyring
from tests.integration.harness import SERVERS, command, counting, http_server, invoke, raw, serve, until

pytestmark = pytest.mark.anyio

SECRETS = {
    "environment": "canary-environment-41",
    "expanded": 'canary-"expanded"-42',
    "command": "canary-command-43",
    "keyring": "canary-keyring-44",
    "argument": "canary-argument-45",
    "fixed": "canary-fixed-46",
    "header": "canary-header-47",
    "query": "canary-query-48",
}
"""A secret of each kind, in the configuration."""

PROGRAM = """
const secrets = %s;
const kept = "nothing-secret-49";
const result = await MCP.echo.echo({ secrets, kept, encoded: secrets.map((each) => encodeURIComponent(each)) });
await MCP.hub.fail({}).catch((error) => text(error.message));
await load(secrets[0]);
text(secrets.join(" "));
text({ secrets });
throw new Error(`${kept} ${result.content[0].text}`);
"""


@contextmanager
def sockets() -> Iterator[dict[str, str]]:
    """Yield an environment whose folder for sockets belongs to one test."""
    with tempfile.TemporaryDirectory(dir="/tmp" if sys.platform != "win32" else None) as folder:
        yield {"XDG_RUNTIME_DIR": folder}


async def listening(runtime: dict[str, str]) -> None:
    """Wait until a terminal can reach the process."""
    folder = Path(runtime["XDG_RUNTIME_DIR"]) / "codemode-mcp"
    await until(lambda: folder.is_dir() and any(folder.iterdir()))


def with_every_secret(folder: Path, url: str) -> tuple[Path, dict[str, str]]:
    """Return a configuration that has a secret of each kind, and the environment for it."""
    (folder / "ring.json").write_text(json.dumps({"codemode-mcp token": SECRETS["keyring"]}), "utf-8")
    (folder / "tools.json").write_text(
        json.dumps([{"name": "fail", "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}}}])
    )
    env = {
        "PLAIN": SECRETS["environment"],
        "EXPANDED": "${EXPANDED}",
        "PRINTED": {"command": [sys.executable, "-c", f"print({SECRETS['command']!r})"]},
        "KEPT": {"keyring": "token"},
    }
    servers = {
        "echo": {
            "command": sys.executable,
            "args": [str(SERVERS / "echo.py"), str(folder), "--token=${ARGUMENT}"],
            "env": env,
        },
        "hub": {
            "command": sys.executable,
            "args": [str(SERVERS / "recording.py"), str(folder)],
            "override": {"fail": {"arguments": {"fixed": {"key": "${FIXED}"}}}},
        },
        "remote": {
            "url": f"{url}?key={SECRETS['query']}",
            "headers": {"Authorization": f"Bearer {SECRETS['header']}"},
        },
    }
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    environ = {name.upper(): SECRETS[name] for name in ("expanded", "argument", "fixed")}
    return path, {**environ, **file_keyring.environment(folder / "ring.json")}


async def test_a_recording_has_no_secret_of_the_configuration_and_everything_else(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    with sockets() as runtime:
        async with http_server("--token", SECRETS["header"]) as url:
            config, environ = with_every_secret(tmp_path, url)
            async with serve(config, "--record", str(folder), env={**environ, **runtime}) as session:
                answer = await session.exec(PROGRAM % json.dumps(list(SECRETS.values())))
                assert "nothing-secret-49" in answer.error
                assert all(each in answer.error for each in SECRETS.values() if '"' not in each)
                await listening(runtime)
                listed = json.loads(
                    (await command("runs", "list", "--json", "--config", str(config), env=runtime)).stdout
                )
                # Other tests may have left runs in the store that all of them share.
                (run_id,) = (run["id"] for each in listed["servers"] for run in each["runs"] if run["where"] == "here")
                from_memory = tmp_path / "exported.jsonl"
                said = await command("runs", "export", run_id, "--output", str(from_memory), env=runtime)
                assert said.exit_code == 0, said.stderr
        from_folder = tmp_path / "again.jsonl"
        done = await command("runs", "export", run_id[:14], "--from", str(folder), "-o", str(from_folder), env=runtime)
        assert done.exit_code == 0, done.stderr
    assert "masked:" in said.stderr
    assert "echo_PLAIN" in said.stderr
    assert "2 calls with arguments and results" in " ".join(said.stderr.split())
    (in_folder,) = folder.iterdir()
    for path in (in_folder, from_memory, from_folder):
        data = path.read_bytes()
        assert b"canary" not in data, path.name
        for kind, secret in SECRETS.items():
            assert base64.b64encode(secret.encode()) not in data, (kind, path.name)
        assert b"nothing-secret-49" in data
        assert path.stat().st_mode & 0o077 == 0
        found = read_recording(path)
        assert (found.opening.run, found.notes) == (run_id, ())
        assert found.end is not None
        assert found.end.error.count("__SECRET_") >= len(SECRETS)
    assert from_folder.read_bytes() == in_folder.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="it cannot be killed in this way on Windows")
async def test_a_killed_process_leaves_a_recording_of_what_its_program_did(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"up": counting(tmp_path / "log")}}), "utf-8")

    def asked() -> int:
        try:
            (path,) = folder.iterdir()
            return sum(type(step).__name__ == "Requests" for step in read_recording(path).steps)
        except (ValueError, FileNotFoundError, NotReadable):
            return 0

    async with raw(config, "--record", str(folder)) as process:
        await process.initialize("2025-06-18")
        code = "await MCP.up.count({ name: 'a' }); await new Promise((done) => setTimeout(done, 60_000));"
        await process.send_call(2, "exec", {"code": code})
        await until(lambda: asked() == 2)
        process.process.send_signal(signal.SIGKILL)
    (path,) = folder.iterdir()
    found = read_recording(path)
    assert (found.end, found.notes) == (None, (NO_END,))
    assert [type(step).__name__ for step in found.steps if type(step).__name__ != "Clock"] == [
        "Requests",
        "Turn",
        "Requests",
    ]


async def test_a_run_that_is_not_kept_is_named_with_the_way_to_record_it(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    text = {"mcpServers": {"up": counting(tmp_path / "log")}, "audit": {"keepRecordingBytes": 0}}
    config.write_text(json.dumps(text), "utf-8")
    with sockets() as runtime:
        async with serve(config, env=runtime) as session:
            answer = await session.exec("await yield_control()")
            await listening(runtime)
            done = await command("runs", "export", answer.run_id, "--output", str(tmp_path / "x"), env=runtime)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 1
    assert "is not kept: audit.keepRecordingBytes is 0" in said
    assert "set audit.recordings, or start the server with serve --record DIR" in said
    assert not (tmp_path / "x").exists()


def test_a_file_that_is_no_recording_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    done = invoke("run", "-e", "return 1", "--record", str(mine))
    assert done.exit_code == 2
    assert "exists and is not a recording" in " ".join(done.stderr.split())
    assert mine.read_text() == "mine"
