"""The log of a process in the background: of bounded size, private, and harmless if it cannot be written."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codemode_mcp.audit import client_logs
from codemode_mcp.audit.client_logs import EARLIER_FILES, logging_to_rotating_file

log = logging.getLogger("codemode_mcp.process.instance")
posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")


@pytest.fixture(autouse=True)
def _only_this_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_files_are_bounded_in_size_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logs, "MAX_BYTES", 1000)
    file = tmp_path / "a.log"
    with logging_to_rotating_file(file, "info", str):
        for number in range(100):
            log.info("record %d %s", number, "x" * 50)
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["a.log", *(f"a.log.{number + 1}" for number in range(EARLIER_FILES))]
    assert all(each.stat().st_size <= 1000 for each in files)
    assert "record 99 " in file.read_text("utf-8")
    if sys.platform != "win32":
        assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


def test_an_earlier_log_is_continued(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with logging_to_rotating_file(tmp_path / "a.log", "info", lambda line: line.replace("one", "***")):
            log.info(text)
    assert [line.partition(": ")[2] for line in (tmp_path / "a.log").read_text("utf-8").splitlines()] == ["***", "two"]


@posix
def test_a_link_or_another_kind_of_file_in_its_place_is_refused(tmp_path: Path) -> None:
    link, target = tmp_path / "link.log", tmp_path / "target"
    target.write_text("mine", "utf-8")
    link.symlink_to(target)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder.log").mkdir()
    for name in ("link.log", "pipe.log", "folder.log"):
        with pytest.raises(OSError), logging_to_rotating_file(tmp_path / name, "info", str):
            log.info("never")
    assert target.read_text("utf-8") == "mine"


@posix
def test_a_link_that_comes_later_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logs, "MAX_BYTES", 100)
    file, target = tmp_path / "a.log", tmp_path / "target"
    target.write_text("", "utf-8")
    with logging_to_rotating_file(file, "info", str):
        log.info("x" * 90)
        file.unlink()
        file.symlink_to(target)
        log.info("y" * 90)  # the link is renamed, and a new file begins
        log.info("z" * 90)
    assert target.read_text("utf-8") == ""
    assert not file.is_symlink()


SCRIPT = """
import logging, os, sys
from pathlib import Path
from codemode_mcp.audit import client_logs
client_logs.MAX_BYTES = 200
with client_logs.logging_to_rotating_file(Path(sys.argv[1]), "info", str, stderr=True):
    for number in range(9):
        logging.getLogger("codemode_mcp").info("record %d %s", number, "x" * 40)
    os.write(2, b"a crash\\n")
"""


def test_standard_error_moves_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    command = [sys.executable, "-c", SCRIPT, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert file.read_text("utf-8").endswith("a crash\n")
    assert "record 8" in file.read_text("utf-8")


@posix
def test_a_full_disk_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    file = tmp_path / "a.log"
    with logging_to_rotating_file(file, "info", str):
        handler = logging.getLogger().handlers[-1]
        full = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - the handler closes it
        working, handler.stream = handler.stream, full  # type: ignore[attr-defined]
        for _ in range(100):
            log.info("lost %s", "x" * 1000)
        handler.stream = working  # type: ignore[attr-defined]
        log.info("room again")
        with pytest.raises(OSError):
            full.close()
    assert "room again" in file.read_text("utf-8")
