"""Endpoints of serving processes in private folders, and the identity of the process at the other end."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import platformdirs

from upstream_clients.private_files import make_private_folder

MAX_PATH = 103
"""Maximum bytes of the path of a Unix socket. macOS allows 104 bytes and Linux 108, each with a final zero."""

MAX_TOKEN_FILE = 4096
"""Maximum bytes that are read from the file of an endpoint."""

MAX_ENDPOINTS = 256
"""Maximum number of endpoints that are read from a folder. The newest endpoints are read."""


class NoPrivateFolder(Exception):
    """Error for a user without a usable private folder. The message says what is wrong with each candidate."""


class NotPrivate(Exception):
    """Error for a folder that other users can access. The message has the reason."""


class Endpoint(NamedTuple):
    """The address of one serving process.

    Attributes:
        path: the socket or file.
        pid: the id of the process.
        kind: `sock` for a Unix socket, `json` for a file with a loopback port and a token.
        local: True if the endpoint was made on this machine. Several machines may share a home folder.
    """

    path: Path
    pid: int
    kind: Literal["sock", "json"]
    local: bool


def folders() -> list[Path]:
    """Return the folders for endpoints, in the order of preference.

    A terminal searches all folders, because a server that a client has started may have other environment variables.
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
        # The last folder is for users whose other folders have paths that are too long for a socket.
        found += [cache, Path(f"/tmp/codemode-mcp-{uid}")]
    else:
        found.append(cache)
    return list(dict.fromkeys(found))


def new_endpoint(kind: Literal["sock", "json"], candidates: Sequence[Path] | None = None) -> Endpoint:
    """Return an unused endpoint in the first usable folder. The folder is created, but not the endpoint.

    Raises:
        NoPrivateFolder: no candidate is usable.
    """
    problems = []
    for folder in folders() if candidates is None else candidates:
        path = folder / f"{_host()}-{os.getpid()}-{os.urandom(4).hex()}.{kind}"
        if kind == "sock" and len(os.fsencode(path)) > MAX_PATH:
            problems.append(f"{folder}: the path of a socket would be longer than {MAX_PATH} bytes")
            continue
        try:
            make_folder(folder)
            check_private(folder)
        except NotPrivate as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            return Endpoint(path, os.getpid(), kind, local=True)
    raise NoPrivateFolder("; ".join(problems))


def endpoint_at(path: Path, pid: int) -> Endpoint:
    return Endpoint(path, pid, "json" if path.suffix == ".json" else "sock", local=True)


def endpoints_in(folder: Path) -> list[Endpoint]:
    """Return the endpoints in a folder, including those of processes that have ended; empty if there is no folder.

    Raises:
        NotPrivate: other users could have put files into the folder.
    """
    try:
        check_private(folder)
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".sock", ".json"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotPrivate(f"{folder}: {error.strerror}") from None
    return list(_newest_endpoints(entries))


def _newest_endpoints(entries: Sequence[os.DirEntry[str]]) -> Iterator[Endpoint]:
    found = []
    for entry in entries:
        host, _, rest = entry.name.partition("-")
        pid = rest.partition("-")[0]
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # its process has removed it
        is_endpoint = stat.S_ISSOCK(status.st_mode) if entry.name.endswith(".sock") else stat.S_ISREG(status.st_mode)
        if is_endpoint and pid.isdecimal() and len(pid) < 12 and _is_ours(status):
            found.append((status.st_mtime, entry.path, int(pid), host == _host()))
    for _, path, number, local in sorted(found, reverse=True)[:MAX_ENDPOINTS]:
        yield Endpoint(Path(path), number, "sock" if path.endswith(".sock") else "json", local)


def remove_stale(endpoint: Endpoint) -> bool:
    """Remove an endpoint that does not answer, if its process has ended. Return True if it was removed.

    On Windows, a running process keeps its file open, and an open file cannot be removed.
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
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotPrivate(f"{folder} is not a folder")
    if not _is_ours(status):
        raise NotPrivate(f"{folder} belongs to another user")
    if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
        raise NotPrivate(f"{folder} is open to other users; run chmod 700 on it")


def make_folder(folder: Path) -> None:
    """Create a folder with mode 0700, or close an older folder of this user to others. Raises `OSError`."""
    make_private_folder(folder)
    if sys.platform == "win32":
        return
    # An older folder may be open to others. The descriptor makes sure that the mode of no other folder is changed, even
    # if the path is replaced meanwhile.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        status = os.fstat(descriptor)
        if _is_ours(status) and stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def read_token(path: Path) -> tuple[int, str]:
    """Return the port and the token in the file of an endpoint.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    # A link could lead to a file of another user. Opening a pipe would wait for its writer.
    flags = os.O_RDONLY | (0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = json.loads(file.read(MAX_TOKEN_FILE))
    match found:
        case {"port": int() as port, "token": str() as token} if 0 < port < 65536 and len(token) >= 32:
            return port, token
    raise ValueError("no port or no token")


def _is_ours(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        return True
    return True


def _host() -> str:
    return sha256(socket.gethostname().encode("utf-8", "replace")).hexdigest()[:6]


# The identity of the process at the other end of the control socket.
#
# On a Unix socket, the system names the user of a process. On a loopback port, each side proves that it knows the token
# in the endpoint's file. A relay uses this module while its client waits, so it imports little.


if TYPE_CHECKING:
    from hashlib import sha256
else:
    # `hashlib` loads OpenSSL, which takes 8 ms and 4 MB. `random` of the standard library does the same.
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # before Python 3.12
        except ImportError:
            from hashlib import sha256

__all__ = ["peer_user", "proof", "proves", "sha256"]


def peer_user(connected: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a Unix socket; None if the system does not know it."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            uid: int = struct.unpack("3i", found)[1]
            return uid
        # Level 0 is `SOL_LOCAL`. `struct xucred` of macOS and FreeBSD begins with a version and the user id.
        found = connected.getsockopt(0, getattr(socket, "LOCAL_PEERCRED", 1), 128)
        return int(struct.unpack_from("=II", found)[1])
    except (OSError, struct.error):
        return None


def proof(token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> str:
    """Return a proof that a side knows the token. The proof does not disclose the token.

    Each proof contains the side and the nonces of both sides, so that it cannot be used by the other side, or again.

    Args:
        nonces: those of the server and of the client.
    """
    import hmac  # only loopback ports need it

    return hmac.new(token.encode(), "\n".join((side, *nonces)).encode(), "sha256").hexdigest()


def proves(given: object, token: str, side: Literal["client", "server"], nonces: tuple[str, str]) -> bool:
    import hmac

    # The comparison takes the same time for all wrong proofs, so that it gives no hint at the right proof.
    return isinstance(given, str) and hmac.compare_digest(given.encode(), proof(token, side, nonces).encode())
