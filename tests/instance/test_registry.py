"""Records, locks and logs of the shared instance are used only if no other user can have made them."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codemode_mcp.process.instance import registry, wire
from codemode_mcp.process.instance.registry import (
    Busy,
    Record,
    Unusable,
    is_running,
    key_of,
    life_lock,
    open_log,
    read_record,
    remove_record,
    start_lock,
    write_record,
)
from codemode_mcp.server.control.protocol import VERSION

KEY = "0123456789abcdef"
RECORD = Record(4711, "0.1.0", "/run/user/1/codemode-mcp/x.sock")
unix = pytest.mark.skipif(sys.platform == "win32", reason="owners, modes and links of Unix")
root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the records, which does not exist yet."""
    monkeypatch.setattr(registry, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "instance"


def test_a_record_is_read_as_it_was_written_and_removed_only_by_its_process(folder: Path) -> None:
    assert read_record(KEY) is None
    write_record(KEY, RECORD)
    assert read_record(KEY) == RECORD
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.json"]
    if sys.platform != "win32":
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / f"{KEY}.json").stat().st_mode & 0o777 == 0o600
    remove_record(KEY, RECORD.pid + 1)
    assert read_record(KEY) == RECORD
    remove_record(KEY, RECORD.pid)
    assert read_record(KEY) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 5000, "x" * 100_000, '{"pid": 1}', json.dumps(RECORD._replace(pid=0)._asdict())]
)
def test_a_damaged_record_is_no_record(folder: Path, text: str) -> None:
    write_record(KEY, RECORD)
    (folder / f"{KEY}.json").write_text(text, "utf-8")
    assert read_record(KEY) is None


@unix
def test_a_folder_of_this_user_that_was_open_to_others_is_closed(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert read_record(KEY) is None
    assert folder.stat().st_mode & 0o777 == 0o700


@unix
@pytest.mark.parametrize("kind", ["link", "file"])
def test_something_else_in_the_place_of_the_folder_is_refused_by_name(folder: Path, tmp_path: Path, kind: str) -> None:
    folder.parent.mkdir()
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o755)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_text("", "utf-8")
    with pytest.raises(Unusable, match=f"{folder} is not a folder; .*move it away"):
        read_record(KEY)
    if kind == "link":
        assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


@root
def test_a_folder_of_another_user_is_refused_by_name(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(Unusable, match=f"{folder} belongs to another user"):
        read_record(KEY)


def use_record() -> None:
    read_record(KEY)


def use_lock() -> None:
    with start_lock(KEY):
        pass


def use_log() -> None:
    os.close(open_log(KEY))


USES = {"json": use_record, "lock": use_lock, "log": use_log}


@unix
@pytest.mark.parametrize("suffix", USES)
def test_a_link_in_the_place_of_a_file_is_refused_by_name(folder: Path, tmp_path: Path, suffix: str) -> None:
    write_record("other", RECORD)
    target = tmp_path / "target"
    target.write_text(json.dumps(RECORD._asdict()), "utf-8")
    (folder / f"{KEY}.{suffix}").symlink_to(target)
    with pytest.raises(Unusable, match=rf"{KEY}\.{suffix} is a link, .*remove it"):
        USES[suffix]()


@unix
@pytest.mark.parametrize("suffix", USES)
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_and_does_not_block(folder: Path, suffix: str) -> None:
    write_record("other", RECORD)
    path = folder / f"{KEY}.{suffix}"
    os.mkfifo(path)
    with pytest.raises(Unusable, match="remove it"):
        USES[suffix]()
    path.unlink()
    path.mkdir()
    with pytest.raises(Unusable, match="remove it"):
        USES[suffix]()


@root
@pytest.mark.parametrize("suffix", USES)
def test_a_file_of_another_user_is_refused_by_name(folder: Path, suffix: str) -> None:
    write_record("other", RECORD)
    path = folder / f"{KEY}.{suffix}"
    path.write_text(json.dumps(RECORD._asdict()), "utf-8")
    os.chown(path, 12345, 12345)
    with pytest.raises(Unusable, match=rf"{KEY}\.{suffix} cannot be used: it belongs to another user; remove it"):
        USES[suffix]()


@pytest.mark.usefixtures("folder")
def test_one_process_at_a_time_holds_the_start_lock() -> None:
    with start_lock(KEY):
        with pytest.raises(Busy), start_lock(KEY):
            pass
        with start_lock("another"):
            pass
    with start_lock(KEY):
        pass


@pytest.mark.usefixtures("folder")
def test_one_process_at_a_time_is_the_instance() -> None:
    assert not is_running(KEY)
    with life_lock(KEY):
        assert is_running(KEY)
        with pytest.raises(Busy), life_lock(KEY):
            pass
    assert not is_running(KEY)


@pytest.mark.usefixtures("folder")
def test_the_lock_of_the_instance_is_waited_for_while_a_command_looks() -> None:
    held, over = threading.Event(), threading.Event()

    def look() -> None:
        with life_lock(KEY):
            held.set()
            over.wait(0.1)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        assert held.wait(10)
        with life_lock(KEY, 10):
            assert is_running(KEY)
        looking.result()


@unix
@pytest.mark.usefixtures("folder")
def test_the_next_instance_removes_what_a_killed_one_has_left(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        path = Path(short) / "some.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
            killed.bind(str(path))
        other = "f" * 16
        write_record(KEY, RECORD._replace(endpoint=str(path)))
        write_record(other, RECORD)
        (folder / f"{KEY}.12345678.new").write_text("", "utf-8")
        registry.remove_remains(KEY)
        assert not path.exists()
        assert sorted(each.name for each in folder.iterdir()) == [f"{other}.json"]
        # A record that names something else was not written by an instance.
        path.write_text("", "utf-8")
        write_record(KEY, RECORD._replace(endpoint=str(path)))
        registry.remove_remains(KEY)
        assert path.exists()
        assert read_record(KEY) is None
        registry.remove_remains(KEY)


def test_the_key_depends_on_the_absolute_path_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text("{}", "utf-8")
    assert key_of(path) == key_of(tmp_path / "x" / ".." / "codemode-mcp.json")
    assert len({key_of(path), key_of(None), key_of(tmp_path / "other.json")}) == 3
    assert key_of(None).isalnum()
    if sys.platform != "win32":
        (tmp_path / "link.json").symlink_to(path)
        assert key_of(path) != key_of(tmp_path / "link.json")  # its servers start in another folder


def test_notes_are_lines_that_no_json_text_is() -> None:
    note = {"log": "two\nlines \N{SNOWMAN} \ud83d"}
    line = wire.encode_note(note)
    assert line.startswith(wire.MARK)
    assert line.count(b"\n") == 1
    assert wire.decode_note(line) == note


@pytest.mark.parametrize("line", [b"\x01", b"\x01{", b"\x01[]", b"\x01" + b"[" * 100_000, b"\x01\xff"])
def test_an_invalid_note_is_empty(line: bytes) -> None:
    assert wire.decode_note(line) == {}


def test_relays_and_terminals_use_one_version_of_the_control_protocol() -> None:
    assert wire.VERSION == VERSION


def test_versions_with_the_same_minor_number_understand_each_other() -> None:
    assert wire.minor_version("0.1.0") == wire.minor_version("0.1.7") != wire.minor_version("0.2.0")
