"""Endpoints of serving processes, in folders of this user alone. The functions block for disk operations."""

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
"""Maximum bytes of the path of a Unix socket: the system allows 104 on macOS and 108 on Linux, with a final zero."""

MAX_ENDPOINTS = 256
"""Maximum number of endpoints that are read from a folder, the newest ones."""


class NoPrivateFolder(Exception):
    """Error for a user without a usable private folder. The message says what is wrong with each candidate."""


class NotPrivate(Exception):
    """Error for a folder that other users can access. The message says how."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one serving process.

    Attributes:
        pid: its process id.
        kind: `sock` is a Unix socket, `json` a file with a port of loopback and a token.
        local: it was made on this machine. A home folder may be shared by several machines.
    """

    path: Path
    pid: int
    kind: Literal["sock", "json"]
    local: bool


def folders() -> list[Path]:
    """Return the folders for endpoints, in the order of preference.

    A terminal searches all of them: a server that was started by a client may have other environment variables.
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


def new_endpoint(kind: Literal["sock", "json"], candidates: Sequence[Path] | None = None) -> Endpoint:
    """Return an unused name in the first usable folder, after creating that folder.

    Raises:
        NoPrivateFolder: no candidate is usable.
    """
    problems = []
    for folder in folders() if candidates is None else candidates:
        path = folder / f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}"
        if kind == "sock" and len(os.fsencode(path)) > MAX_PATH:
            problems.append(f"{folder}: the path of a socket would be longer than {MAX_PATH} bytes")
            continue
        try:
            _make(folder)
            check_private(folder)
        except NotPrivate as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            return Endpoint(path, os.getpid(), kind, local=True)
    raise NoPrivateFolder("; ".join(problems))


def endpoints_in(folder: Path) -> list[Endpoint]:
    """Return the endpoints in a folder, also those of processes that no longer run; empty if there is no folder.

    Raises:
        NotPrivate: other users could have put files there.
    """
    try:
        check_private(folder)
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".sock", ".json"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotPrivate(f"{folder}: {error.strerror}") from None
    return list(_read(entries))


def _read(entries: Sequence[os.DirEntry[str]]) -> Iterator[Endpoint]:
    found = []
    for entry in entries:
        host, _, rest = entry.name.partition("-")
        pid = rest.partition("-")[0]
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # removed since
        is_one = stat.S_ISSOCK(about.st_mode) if entry.name.endswith(".sock") else stat.S_ISREG(about.st_mode)
        if is_one and pid.isdecimal() and len(pid) < 12 and _is_ours(about):
            found.append((about.st_mtime, entry.path, int(pid), host == _host()))
    for _, path, number, local in sorted(found, reverse=True)[:MAX_ENDPOINTS]:
        yield Endpoint(Path(path), number, "sock" if path.endswith(".sock") else "json", local)


def remove_stale(endpoint: Endpoint) -> bool:
    """Remove an endpoint that does not answer if its process has died. Return True if it was removed.

    On Windows a living process keeps its file open, so that it cannot be removed.
    """
    if not endpoint.local or (sys.platform != "win32" and _is_alive(endpoint.pid)):
        return False
    try:
        endpoint.path.unlink()
    except OSError:
        return False
    return True


def check_private(folder: Path) -> None:
    """Raise `NotPrivate` if other users can access a folder, and `OSError` if it cannot be examined."""
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode):
        raise NotPrivate(f"{folder} is not a folder")
    if not _is_ours(about):
        raise NotPrivate(f"{folder} belongs to another user")
    if sys.platform != "win32" and stat.S_IMODE(about.st_mode) & 0o077:
        raise NotPrivate(f"{folder} is open to other users; run chmod 700 on it")


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
