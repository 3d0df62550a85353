"""Sockets are made and searched only in folders where no other user can create one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codemode_mcp.server.control import endpoints
from codemode_mcp.server.control.endpoints import (
    MAX_PATH,
    NoPrivateFolder,
    NotPrivate,
    check_private,
    new_endpoint,
    remove_stale,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes of Unix")


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_folder_is_made_for_this_user_alone(short: Path) -> None:
    folder = short / "deep" / "er"
    place = new_endpoint("sock", [folder])
    assert place.path.parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert place.pid == os.getpid()


def test_a_folder_of_this_user_that_was_open_to_others_is_closed(short: Path) -> None:
    folder = short / "open"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    new_endpoint("sock", [folder])
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_the_folder_is_passed_over(short: Path) -> None:
    elsewhere = short / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    link = short / "link"
    link.symlink_to(elsewhere)
    second = short / "second"
    assert new_endpoint("sock", [link, second]).path.parent == second
    assert elsewhere.stat().st_mode & 0o777 == 0o755, "nothing is done to what a link leads to"
    with pytest.raises(NotPrivate, match="is not a folder"):
        check_private(link)


def test_a_file_in_the_place_of_the_folder_is_passed_over(short: Path) -> None:
    (short / "file").write_text("", "utf-8")
    with pytest.raises(NoPrivateFolder):
        new_endpoint("sock", [short / "file"])


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_neither_used_nor_looked_at(short: Path) -> None:
    folder = short / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(NoPrivateFolder, match="belongs to another user"):
        new_endpoint("sock", [folder])
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(NotPrivate, match="belongs to another user"):
        endpoints.endpoints_in(folder)


def test_a_folder_that_others_can_write_to_is_not_looked_at(short: Path) -> None:
    folder = short / "open"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(NotPrivate, match="open to other users"):
        endpoints.endpoints_in(folder)


def test_a_folder_whose_path_is_too_long_for_a_socket_is_passed_over(short: Path) -> None:
    deep = short / ("d" * 90)
    fits = short / "fits"
    place = new_endpoint("sock", [deep, fits])
    assert place.path.parent == fits
    assert len(os.fsencode(place.path)) <= MAX_PATH
    assert not deep.exists()
    with pytest.raises(NoPrivateFolder, match=f"{MAX_PATH} bytes"):
        new_endpoint("sock", [deep])
    assert new_endpoint("json", [deep]).path.parent == deep


def test_files_that_are_no_sockets_or_of_others_are_passed_over(short: Path) -> None:
    folder = short / "control"
    with socket.socket(socket.AF_UNIX) as listening:
        place = new_endpoint("sock", [folder])
        listening.bind(os.fspath(place.path))
        host = place.path.name.split("-")[0]
        (folder / f"{host}-77-file.sock").write_text("", "utf-8")
        (folder / f"{host}-77-link.sock").symlink_to(place.path)
        (folder / f"{host}-77-pipe.json").symlink_to("/etc/passwd")
        os.mkfifo(folder / f"{host}-78-pipe.json")
        (folder / f"{host}-{'9' * 40}-many.json").write_text("{}", "utf-8")
        (folder / "readme").write_text("", "utf-8")
        assert endpoints.endpoints_in(folder) == [place]


def test_only_what_a_process_that_has_ended_left_here_is_removed(short: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = short / "control"
    alive = new_endpoint("json", [folder])
    host, _, _ = alive.path.name.split("-")
    stale = folder / f"{host}-{ended.pid}-aa.json"
    foreign = folder / f"abcdef-{ended.pid}-aa.json"
    for path in (alive.path, stale, foreign):
        path.write_text("{}", "utf-8")
    removed = [place.path for place in endpoints.endpoints_in(folder) if remove_stale(place)]
    assert removed == [stale]
    assert sorted(folder.iterdir()) == sorted([alive.path, foreign])


def test_a_folder_that_is_not_there_has_no_endpoints(short: Path) -> None:
    assert endpoints.endpoints_in(short / "nothing") == []
