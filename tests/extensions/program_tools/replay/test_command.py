"""`codemode-mcp run --replay`: its output, its exit codes and its messages, as a process without configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import typer

sys.path.append(str(Path(__file__).resolve().parents[3] / "integration"))

import subprocess

from harness import cli, quickstart, write_config

from codemode_mcp.audit.recordings.format import Recording, encode
from codemode_mcp.extensions.program_tools.replaying import replay_and_exit
from tests.extensions.program_tools.replay.written import asked, completed, delivered, said, written

CODE = "text('asks'); const found = unwrap(await MCP.echo.say({ text: 'a' })); return { found, at: new Date(0) }"


def greeting() -> Recording:
    value = {"found": "A", "at": "1970-01-01T00:00:00.000Z"}
    return written(CODE, asked(said(1, "a")), delivered(10, (1, "A")), end=completed(value, "asks"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A recording in a file."""
    path = tmp_path / "greeting.recording.jsonl"
    recording = greeting()
    lines = (recording.opening, recording.catalog, recording.start, *recording.steps, recording.end)
    path.write_bytes(b"".join(encode(line) for line in lines if line is not None))
    return path


PROGRAM = """
text("began " + new Date().toISOString());
const found = await Promise.all([1, 2, 3].map((n) => MCP.tracker.getIssue({ issue_id: n })));
await new Promise((resolve) => setTimeout(resolve, 3));
json({ random: Math.random(), took: performance.now() });
return found.map((each) => unwrap(each).title);
"""


def replay(file: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Replay a recording in a folder without a configuration."""
    env = {"HOME": str(file.parent), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"], **more}
    return cli("run", "--replay", str(file), *arguments, cwd=file.parent, env=env)


def test_a_replay_elsewhere_prints_every_byte_of_the_recorded_run(tmp_path: Path) -> None:
    config = write_config(tmp_path, quickstart())
    file = tmp_path / "elsewhere" / "run.jsonl"
    file.parent.mkdir()
    program = tmp_path / "program.js"
    program.write_text(PROGRAM, "utf-8")
    ran = cli("run", "--config", str(config), "--record", str(file), str(program))
    assert ran.returncode == 0, ran.stderr
    again = replay(file, TZ="Asia/Tokyo", PYTHONHASHSEED="7", LC_ALL="C", PYTHONUTF8="1")
    assert (again.returncode, again.stdout, again.stderr) == (0, ran.stdout, "")
    assert len(ran.stdout.splitlines()) == 3


def test_another_program_that_differs_has_an_exit_code_of_its_own(file: Path) -> None:
    program = file.with_name("other.js")
    program.write_text("return unwrap(await MCP.echo.say({ text: 'b' }))", "utf-8")
    done = replay(file, "--program", str(program))
    assert (done.returncode, done.stdout) == (7, "")
    assert "call 1 of the program, mcp:echo:say, has other arguments than in the recording" in done.stderr
    assert done.stderr.count("has other arguments") == 1
    assert "codemode-mcp 0 has made the recording" in done.stderr
    assert 'text: recorded "a", now "b"\n  at cell.js:1:21' in done.stderr
    loose = replay(file, "--loose", "-e", program.read_text("utf-8"))
    assert (loose.returncode, loose.stdout, loose.stderr) == (0, "A\n", "")


def test_a_file_that_is_no_recording_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.jsonl"
    for text, message in (
        (None, "there is no file"),
        ("{}\n", "cannot be replayed: it is no recording"),
        ("", "cannot be replayed: it has no whole line"),
    ):
        if text is not None:
            path.write_text(text, "utf-8")
        with pytest.raises(typer.Exit) as ended:
            replay_and_exit(path, None, None, None, loose=False, as_json=False)
        assert ended.value.exit_code == 2
        assert message in " ".join(capsys.readouterr().err.split())
