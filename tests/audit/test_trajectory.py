"""The file of events: what is in it, who may read it, and what happens when it cannot be written."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit import trajectory as module
from codemode_mcp.audit.events import Auditor, Event
from codemode_mcp.audit.trajectory import AppendedFile, Trajectory, problem_with

SECRET = 'hunter2"with\\quotes\nand lines'


def same(text: str) -> str:
    return text


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def started(number: int = 1, inputs: str | None = None, **fields: Any) -> Event:
    return Event("call_started", 1000.0 + number, f"run_a/{number}", "run_a", {"tool": "mcp:s:t", **fields}, inputs)


def write(path: Path, *events: Event, redact: Callable[[str], str] = same, **options: Any) -> None:
    with Trajectory(path, redact, **options) as trajectory:
        for event in events:
            trajectory.record(event)


def test_every_event_is_one_line_with_its_parent_and_is_there_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *(started(n, '{"a": "b"}') for n in range(500)))
    found = lines(path)
    assert [event["id"] for event in found] == [f"run_a/{n}" for n in range(500)]
    first = found[0]
    assert (first["time"], first["kind"], first["parent"], first["tool"]) == (
        1000.0,
        "call_started",
        "run_a",
        "mcp:s:t",
    )
    assert first["pid"] == os.getpid()
    assert first["input"]["shape"] == {"a": "string 1"}


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes")
def test_only_its_owner_may_read_it_also_if_it_was_there_before(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("")
    old.chmod(0o644)
    for path in (new, old):
        write(path, started())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_made_before_there_is_an_event(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()


def test_events_after_the_end_are_passed_over(tmp_path: Path) -> None:
    with Trajectory(tmp_path / "t.jsonl", same) as trajectory:
        trajectory.record(started(1))
    trajectory.record(started(2))
    assert len(lines(tmp_path / "t.jsonl")) == 1


@pytest.mark.parametrize("include", [True, False])
def test_a_secret_is_in_no_line_however_json_escapes_it(tmp_path: Path, include: bool) -> None:
    path = tmp_path / "t.jsonl"
    inputs = json.dumps({"note": f"a {SECRET} b", SECRET: 1})
    write(
        path,
        started(1, inputs, principal=SECRET),
        Event("exec", 1.0, "req_1", None, {"request": SECRET}, f"return {json.dumps(SECRET)} // {SECRET}"),
        redact=lambda text: text.replace(SECRET, "***"),
        include_inputs=include,
    )
    text = path.read_text("utf-8")
    for event in lines(path):
        assert SECRET not in json.dumps(event, ensure_ascii=False)
        for value in _texts(event):
            assert SECRET not in value
    assert "***" in text
    assert ("a *** b" in text) == include


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for key, item in value.items() for text in (key, *_texts(item))]
        case list():
            return [text for item in value for text in _texts(item)]
    return []


def test_our_own_words_stay_where_a_secret_is_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    event = Event("call_ended", 1.0, "run_a/1", "run_a", {"tool": "failed", "status": "failed"})
    write(path, event, redact=lambda text: text.replace("failed", "***"))
    (found,) = lines(path)
    assert (found["kind"], found["status"], found["tool"]) == ("call_ended", "failed", "***")


def test_half_of_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", started(1, tool="\ud800 and 😀"))
    assert lines(tmp_path / "t.jsonl")[0]["tool"] == "\ud800 and 😀"


def test_a_full_file_is_put_aside_and_the_oldest_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *(started(n, tool="x" * 400) for n in range(100)), max_bytes=5000, files=2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.jsonl", "t.jsonl.1", "t.jsonl.2"]
    numbers = [int(event["id"][6:]) for name in (".2", ".1", "") for event in lines(tmp_path / f"t.jsonl{name}")]
    assert numbers == list(range(numbers[0], 100))
    assert all(each.stat().st_size <= 5000 for each in tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="appending is not atomic there")
def test_several_processes_append_to_one_file_and_put_it_aside_without_losing_or_mixing_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    program = (
        "import sys\nfrom pathlib import Path\nfrom codemode_mcp.audit.trajectory import AppendedFile\n"
        "file = AppendedFile(Path(sys.argv[1]), 50_000, 900)\n"
        "for n in range(1500):\n    file.append([(sys.argv[2] * 200 + f' {n}\\n').encode()])\nfile.close()\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abcd"]
    assert [process.wait(60) for process in processes] == [0] * 4
    found: dict[str, list[int]] = {}
    files = list(tmp_path.iterdir())
    for each in files:
        for line in each.read_text("utf-8").splitlines():
            name, number = line.split(" ")
            assert name == name[0] * 200
            found.setdefault(name[0], []).append(int(number))
    assert {name: sorted(numbers) for name, numbers in found.items()} == {name: [*range(1500)] for name in "abcd"}
    assert len(files) > 10


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
def test_a_file_that_was_moved_away_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    file = AppendedFile(path, 1000, 1)
    file.append([b"one\n"])
    path.rename(tmp_path / "moved")
    file.append([b"two\n"])
    file.close()
    assert ((tmp_path / "moved").read_text(), path.read_text()) == ("one\n", "two\n")


class Failing:
    """A file that refuses writes as long as it is told to."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.real = trajectory._file
        self.failing = True
        self.refused = threading.Event()
        trajectory._file = self  # type: ignore[assignment]

    def append(self, lines: list[bytes]) -> int:
        if self.failing:
            self.refused.set()
            raise OSError(28, "No space left on device")
        return self.real.append(lines)

    def close(self) -> None:
        self.real.close()


def test_a_full_disk_is_logged_once_and_what_was_lost_is_told_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    with caplog.at_level(logging.INFO), Trajectory(path, same) as trajectory:
        disk = Failing(trajectory)
        for n in range(3):
            trajectory.record(started(n))
        assert disk.refused.wait(10)
        deadline = time.monotonic() + 10
        while trajectory._unwritten < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        disk.failing = False
        trajectory.record(started(9))
    lost, last = lines(path)
    assert (lost["kind"], lost["events"], last["id"]) == ("lost", 3, "run_a/9")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"the trajectory {path}: it cannot be written: No space left on device; events are lost until "
                      "that changes"]  # fmt: skip


def test_a_line_that_was_cut_short_by_a_full_disk_breaks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    file = AppendedFile(path, 1_000_000, 1)
    file.append([b'{"n":1}\n'])
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: real(descriptor, data[:4]))
    with pytest.raises(OSError, match="No space left"):
        file.append([b'{"n":2}\n'])
    monkeypatch.undo()
    file.append([b'{"n":3}\n'])
    file.close()
    assert path.read_text() == '{"n":1}\n{"n"\n{"n":3}\n'


def test_of_lines_that_are_written_together_those_before_the_cut_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    file = AppendedFile(path, 1_000_000, 1)
    real = os.write
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: real(descriptor, data[:6]))
    assert file.append([b"one\n", b"two\n", b"three\n"]) == 1
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="No space left"):
        file.append([b"two\n"])
    monkeypatch.undo()
    assert file.append([b"four\n", b"five\n"]) == 2
    file.close()
    assert path.read_text() == "one\ntw\nfour\nfive\n"


def test_lines_that_are_written_together_stay_within_the_size_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    file = AppendedFile(path, 12, 1)
    some = [b"12345\n"] * 3
    assert [file.append(some), file.append(some[2:])] == [2, 1]
    file.close()
    assert (path.read_text(), path.with_name("t.jsonl.1").read_text()) == ("12345\n", "12345\n12345\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_folder_that_is_removed_and_comes_back_is_written_to_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = AppendedFile(folder / "t.jsonl", 1000, 1)
    file.append([b"one\n"])
    (folder / "t.jsonl").unlink()
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        file.append([b"two\n"])
    folder.mkdir()
    file.append([b"three\n"])
    file.close()
    assert (folder / "t.jsonl").read_text() == "three\n"


def test_more_events_than_the_queue_holds_are_lost_and_counted_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    monkeypatch.setattr(module, "MAX_EVENTS", 50)
    monkeypatch.setattr(module, "LINGER_SECONDS", 60.0)
    with Trajectory(path, same) as trajectory:
        began = time.monotonic()
        for n in range(1000):
            trajectory.record(started(n))
        assert time.monotonic() - began < 5
    found = lines(path)
    kept = [event for event in found if event["kind"] == "call_started"]
    lost = sum(event["events"] for event in found if event["kind"] == "lost")
    assert len(kept) == 50
    assert lost == 950


def test_large_inputs_that_wait_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 10_000)
    monkeypatch.setattr(module, "LINGER_SECONDS", 60.0)
    path = tmp_path / "t.jsonl"
    write(path, *(started(n, json.dumps("x" * 4000)) for n in range(5)))
    assert [event["kind"] for event in lines(path)] == ["lost", "call_started", "call_started"]


def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    assert problem_with(tmp_path / "t.jsonl") is None
    problem = problem_with(tmp_path / "no" / "t.jsonl")
    assert problem is not None
    assert "No such file" in problem
    assert str(tmp_path) in problem
    assert problem_with(tmp_path) is not None


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away")
def test_nothing_is_appended_to_a_file_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.touch()
    path.chmod(0o666)
    os.chown(path, 12345, 12345)
    write(path, started())
    assert path.read_bytes() == b""
    assert "it belongs to another user" in (problem_with(path) or "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a right on Windows")
def test_nothing_is_appended_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").touch(0o600)
    path = tmp_path / "t.jsonl"
    path.symlink_to(tmp_path / "other")
    write(path, started())
    assert (tmp_path / "other").read_bytes() == b""
    assert problem_with(path) is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_without_waiting_for_its_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert problem_with(tmp_path / "pipe") is not None
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "it is not a regular file" in (problem_with(tmp_path / "pipe") or "")
    finally:
        os.close(reader)


def test_a_listener_that_fails_reaches_no_one(caplog: pytest.LogCaptureFixture) -> None:
    auditor = Auditor(lambda: 5.0)
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("no")

    auditor.emit("exec", "req_0")
    auditor.add(fail)
    auditor.add(heard.append)
    auditor.emit("exec", "req_1", status="x", nothing=None)
    assert heard == [Event("exec", 5.0, "req_1", None, {"status": "x"})]
    assert "could not be recorded" in caplog.text
    auditor.remove(fail)
    auditor.remove(heard.append)
    assert not auditor.listening
