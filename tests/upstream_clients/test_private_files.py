"""Files and folders that only this user can change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from upstream_clients.private_files import exposure, make_private_folder, open_private

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no user ids and modes on Windows")

needs_root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can become, or give files to, another user"
)
OTHER = 12345


def read(path: Path) -> bytes:
    with open_private(path) as file:
        return file.read()


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_every_folder_that_is_made_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_private_folder(tmp_path / "a" / "b" / "c")
        make_private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            make_private_folder(folder)


def test_only_a_regular_file_that_others_cannot_write_is_opened(tmp_path: Path) -> None:
    file, pipe, link = tmp_path / "file", tmp_path / "pipe", tmp_path / "link"
    file.write_bytes(b"mine")
    file.chmod(0o644)
    assert read(file) == b"mine"
    os.mkfifo(pipe)
    link.symlink_to(file)
    for path in (pipe, link, tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError):
            read(path)
    file.chmod(0o664)
    with pytest.raises(PermissionError, match="can be written by others"):
        read(file)


@needs_root
def test_a_file_of_another_user_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"theirs")
    os.chown(file, OTHER, OTHER)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read(file)


def test_a_folder_above_that_others_can_write_is_named_unless_it_is_sticky(tmp_path: Path) -> None:
    path = tmp_path / "above" / "a" / "file"
    make_private_folder(path.parent)
    path.touch(0o600)
    assert exposure(path) is None
    path.parent.parent.chmod(0o777)
    assert exposure(path) == f"{path.parent.parent} can be written by others"
    path.parent.parent.chmod(0o1777)
    assert exposure(path) is None
    assert exposure(path.parent / "not" / "there") is None
    path.parent.chmod(0o1777)
    assert exposure(path.parent) == f"{path.parent} can be written by others", "the place itself is not a shared one"


def test_the_folders_behind_a_link_count_too(tmp_path: Path) -> None:
    real = tmp_path / "open" / "real"
    make_private_folder(real)
    make_private_folder(tmp_path / "mine")
    (tmp_path / "mine" / "link").symlink_to("../open/real")
    assert exposure(tmp_path / "mine" / "link") is None
    real.parent.chmod(0o777)
    assert exposure(tmp_path / "mine" / "link" / "file") == f"{real.parent} can be written by others"
    (tmp_path / "mine" / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        exposure(tmp_path / "mine" / "loop")


@needs_root
def test_a_folder_and_a_link_of_another_user_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "mine"
    make_private_folder(folder)
    os.chown(folder.parent, OTHER, OTHER)
    assert exposure(folder) == f"{folder.parent} belongs to another user"
    tmp_path.chmod(0o1777)
    make_private_folder(tmp_path / "own")
    link = tmp_path / "link"
    link.symlink_to("own")
    assert exposure(link) is None
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert exposure(link) == f"the link {link} belongs to another user"


@needs_root
def test_a_folder_that_its_owner_exchanges_during_the_check_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    theirs = tmp_path / "theirs"
    for folder in (theirs, tmp_path / "mine"):
        folder.mkdir(0o700)
    os.chown(theirs, OTHER, OTHER)
    look = os.lstat

    def exchanged_after_a_look(path: Path) -> os.stat_result:
        about = look(path)
        if path == theirs:
            theirs.rmdir()
            theirs.symlink_to("mine")
        return about

    monkeypatch.setattr(os, "lstat", exchanged_after_a_look)
    assert exposure(theirs / "file") == f"{theirs} belongs to another user"


@needs_root
def test_what_belongs_to_root_is_trusted_by_others(tmp_path: Path) -> None:
    program = (
        "import os, pathlib\n"
        "from upstream_clients.private_files import exposure, open_private\n"
        f"os.setgid({OTHER}); os.setuid({OTHER})\n"
        "print(exposure(pathlib.Path('/etc/passwd')), open_private(pathlib.Path('/etc/passwd')).read(1) != b'')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None True\n", "")


@needs_root
def test_a_folder_that_the_group_of_its_owner_alone_can_write_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "home" / "cache" / "file"
    path.parent.mkdir(parents=True)
    tmp_path.chmod(0o755)
    path.parent.parent.chmod(0o775)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    for group, why in ((OTHER, None), (OTHER + 1, f"{path.parent.parent} can be written by others")):
        for folder in (path.parent, path.parent.parent):
            os.chown(folder, OTHER, group)
        assert exposure(path) == why
