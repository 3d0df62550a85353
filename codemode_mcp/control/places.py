"""Sockets of serving processes, in folders of this user alone. Functions here block as long as a disk does."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs

from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_PATH = 103
"""Bytes of a Unix socket's path: 108 with their end on Linux, 104 on macOS."""

MAX_PLACES = 256
"""Newest sockets of one folder that are looked at."""


class NoPlace(Exception):
    """There is no folder that only this user can use. The message says what is wrong with each."""


class NotPrivate(Exception):
    """A folder that is not this user's alone. The message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Address of one serving process.

    Attributes:
        pid: its process id.
        kind: `sock` is a Unix socket, `json` a file with a port of loopback and a token.
        local: whether it was made on this machine: a home may be on several.
    """

    path: Path
    pid: int
    kind: Literal["sock", "json"]
    local: bool


def folders() -> list[Path]:
    """Return the folders in the order of preference.

    A server that a client starts may have other variables than a terminal has, so all of them are looked at.
    """
    found = []
    cache = Path(platformdirs.user_cache_dir("codemode-mcp", appauthor=False)) / "control"
    if sys.platform != "win32":
        uid = os.geteuid()
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if os.path.isabs(runtime):
            found.append(Path(runtime) / "codemode-mcp")
        if sys.platform == "linux" and Path(f"/run/user/{uid}").is_dir():
            found.append(Path(f"/run/user/{uid}/codemode-mcp"))
        found += [cache, Path(f"/tmp/codemode-mcp-{uid}")]  # short
    else:
        found.append(cache)
    return list(dict.fromkeys(found))


def new_place(kind: Literal["sock", "json"], candidates: Sequence[Path] | None = None) -> Place:
    """Return an unused name in the first usable folder; the folder is made.

    Raises:
        NoPlace: none of the candidates will do.
    """
    problems = []
    for folder in folders() if candidates is None else candidates:
        path = folder / f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}"
        if kind == "sock" and len(os.fsencode(path)) > MAX_PATH:
            problems.append(f"{folder}: a socket's path may have {MAX_PATH} bytes, here it would be longer")
            continue
        try:
            _make(folder)
            check_private(folder)
        except NotPrivate as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            return Place(path, os.getpid(), kind, local=True)
    raise NoPlace("; ".join(problems))


def places(folder: Path) -> list[Place]:
    """Return where processes listen or have listened, as far as the names of this user's files in the folder say.

    Raises:
        NotPrivate: others could have put them there.
    """
    try:
        check_private(folder)
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".sock", ".json"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotPrivate(f"{folder}: {error.strerror}") from None
    return list(_read(entries))


def _read(entries: Sequence[os.DirEntry[str]]) -> Iterator[Place]:
    found = []
    for entry in entries:
        host, _, rest = entry.name.partition("-")
        pid = rest.partition("-")[0]
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        is_one = stat.S_ISSOCK(about.st_mode) if entry.name.endswith(".sock") else stat.S_ISREG(about.st_mode)
        if is_one and pid.isdecimal() and len(pid) < 12 and _is_ours(about):
            found.append((about.st_mtime, entry.path, int(pid), host == _host()))
    for _, path, number, local in sorted(found, reverse=True)[:MAX_PLACES]:
        yield Place(Path(path), number, "sock" if path.endswith(".sock") else "json", local)


def forget(place: Place) -> bool:
    """Remove what a process has left that was killed; for one that does not answer. Whether it was removed.

    On Windows a process that lives keeps its file open, so that it cannot be removed.
    """
    if not place.local or (sys.platform != "win32" and _is_alive(place.pid)):
        return False
    try:
        place.path.unlink()
    except OSError:
        return False
    return True


def check_private(folder: Path) -> None:
    """Raises `NotPrivate`: the folder is not this user's alone; OSError: it cannot be looked at."""
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode):
        raise NotPrivate(f"{folder} is not a folder")
    if not _is_ours(about):
        raise NotPrivate(f"{folder} belongs to another user")
    if sys.platform != "win32" and stat.S_IMODE(about.st_mode) & 0o077:
        raise NotPrivate(f"{folder} is open to others; chmod 700 would close it")


def _make(folder: Path) -> None:
    make_private_folder(folder)
    if sys.platform == "win32":
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        about = os.fstat(descriptor)
        if _is_ours(about) and stat.S_IMODE(about.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _is_ours(about: os.stat_result) -> bool:
    return sys.platform == "win32" or about.st_uid == os.geteuid()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode("utf-8", "replace")).hexdigest()[:6]
