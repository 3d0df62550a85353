"""`codemode-mcp run --replay`: its output, its exit codes and its messages, as a process without configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration"))

from harness import cli

from codemode_mcp.recordings.reader import encode
from tests.replay.written import asked, completed, delivered, said, written

if TYPE_CHECKING:
    import subprocess

    from codemode_mcp.recordings.reader import Recording

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


def replay(file: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    # Without a configuration, and in a folder that has none.
    return cli("run", "--replay", str(file), *arguments, cwd=file.parent, env={"HOME": str(file.parent), **more})


def test_a_replay_prints_what_the_recorded_run_has_printed(file: Path) -> None:
    cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    first = replay(file, **cache)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == 'asks\n{"found": "A", "at": "1970-01-01T00:00:00.000Z"}\n'
    other = replay(file, TZ="Asia/Tokyo", PYTHONHASHSEED="7", LANG="C", **cache)
    assert (other.returncode, other.stdout) == (0, first.stdout)


def test_another_program_that_differs_has_an_exit_code_of_its_own(file: Path) -> None:
    program = file.with_name("other.js")
    program.write_text("return unwrap(await MCP.echo.say({ text: 'b' }))", "utf-8")
    done = replay(file, "--program", str(program))
    assert (done.returncode, done.stdout) == (7, "")
    assert "call 1 of the program, mcp:echo:say, has other arguments than in the recording" in done.stderr
    assert done.stderr.count("has other arguments") == 1
    assert 'text: recorded "a", now "b"\n  at cell.js:1:21' in done.stderr
    loose = replay(file, "--loose", "-e", program.read_text("utf-8"))
    assert (loose.returncode, loose.stdout, loose.stderr) == (0, "A\n", "")


def test_a_file_that_is_no_recording_is_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    missing = replay(path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no file" in missing.stderr
    path.write_text("{}\n", "utf-8")
    damaged = replay(path)
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert "cannot be replayed: line 1: a line is damaged" in " ".join(damaged.stderr.split())
