"""The records by which the relays of a user find the shared instance of a configuration. The functions block on disk
operations.

There is one instance for each machine, user, configuration file and set of user folders. Its record names the process,
the version of codemode-mcp and the endpoint of its control socket. Another user who could write a record could pose as
the instance. So the folder of the records has mode 0700, files in it have mode 0600, no link is followed, and all of
this is checked at each use.

An instance holds a lock for its whole life, which the system releases when the process ends for any reason. So there is
one at most. Another lock lets only one of several relays start an instance.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from codemode_mcp.base.paths import cache_dir, data_dir, state_dir
from codemode_mcp.server.control import endpoints
from codemode_mcp.server.control.endpoints import sha256
from upstream_clients.private_files import NO_LINK, check_private, open_private, try_lock

MAX_RECORD: Final = 16 * 1024
"""Maximum bytes of a record. A longer one is damaged."""


LOCK_PAUSE_SECONDS: Final = 0.01
"""Pause before another attempt to lock a file."""


class Record(NamedTuple):
    """The facts about an instance that are known before a connection to it.

    Attributes:
        version: the version of codemode-mcp.
        endpoint: the path of a Unix socket, or of the file with a loopback port and a token.
    """

    pid: int
    version: str
    endpoint: str


class Unusable(Exception):
    """Error for a folder or file that others may have made or can change. The message says what to do."""


class Busy(Exception):
    """Error for a start lock that another process holds."""


def key_of(config: Path | None) -> str:
    """Return the key of the instance of a configuration file; None for the defaults.

    Two paths to the same file, through a link, have two keys: relative paths in the file, and the owner of runs, depend
    on the path.
    """
    user = os.geteuid() if sys.platform != "win32" else os.environ.get("USERNAME", "")
    path = "" if config is None else os.path.abspath(config)
    parts = (socket.gethostname(), user, path, cache_dir(), state_dir(), data_dir())
    return sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def folder() -> Path:
    """Return the folder of the records, which is created if needed.

    Raises:
        OSError: it cannot be created.
        Unusable: others can access it, or something else has its path.
    """
    path = cache_dir() / "instance"
    try:
        endpoints.make_folder(path)
    except OSError:
        if not os.path.lexists(path):
            raise
        # Something else has this path, or the mode cannot be changed. The check below says so.
    try:
        endpoints.check_private(path)
    except endpoints.NotPrivate as error:
        raise Unusable(f"{error}; the folder of the shared instance must be yours alone: move it away") from None
    return path


def read_record(key: str) -> Record | None:
    """Return the record of an instance; None if there is no record, or it is damaged.

    Raises:
        OSError: the folder cannot be created or read.
        Unusable: others may have written the record.
    """
    path = folder() / f"{key}.json"
    try:
        with open_private(path) as file:
            found = json.loads(file.read(MAX_RECORD))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    match found:
        case {"pid": int() as pid, "version": str() as version, "endpoint": str() as endpoint} if pid > 0:
            return Record(pid, version, endpoint)
    return None


def keys() -> list[str]:
    """Return the keys of all records. Raises `OSError` or `Unusable`."""
    return sorted(path.stem for path in folder().glob("*.json"))


def write_record(key: str, record: Record) -> None:
    """Replace the record of an instance. Raises `OSError` or `Unusable`."""
    path = folder() / f"{key}.json"
    draft = path.with_name(f"{key}.{os.urandom(4).hex()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record._asdict(), file)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def remove_record(key: str, pid: int) -> None:
    """Remove the record of an instance, unless another process has replaced it."""
    with suppress(OSError, Unusable):
        found = read_record(key)
        if found is not None and found.pid == pid:
            (folder() / f"{key}.json").unlink()


def remove_remains(key: str) -> None:
    """Remove what an earlier instance of a key has left if it was killed: its endpoint, its record and drafts of it.

    The caller holds the lock of the instance, so the earlier process has ended. Its id may belong to another process by
    now, or to one that was not waited for.
    """
    with suppress(OSError, Unusable):
        found = read_record(key)
        if found is not None:
            _remove_endpoint(Path(found.endpoint))
            remove_record(key, found.pid)
        for draft in folder().glob(f"{key}.*.new"):
            draft.unlink()


def _remove_endpoint(path: Path) -> None:
    with suppress(OSError, endpoints.NotPrivate):
        endpoints.check_private(path.parent)
        mode = os.lstat(path).st_mode
        if (stat.S_ISSOCK(mode) and path.suffix == ".sock") or (stat.S_ISREG(mode) and path.suffix == ".json"):
            path.unlink()


def log_path(key: str) -> Path:
    """Return the path of the log of an instance. Raises `OSError` or `Unusable`."""
    return folder() / f"{key}.log"


def open_log(key: str) -> int:
    """Open the log of an instance for appending. Return the descriptor.

    Raises:
        OSError: the file cannot be opened.
        Unusable: the file is a link, or others can change it.
    """
    return _open_own(log_path(key), os.O_WRONLY | os.O_APPEND)


@contextmanager
def start_lock(key: str) -> Iterator[None]:
    """Hold the lock for starting an instance for the duration of the context, so that only one relay starts it.

    Raises:
        Busy: another process holds the lock.
        OSError: the file of the lock cannot be opened.
        Unusable: the file is a link, or others can change it.
    """
    descriptor = _open_own(folder() / f"{key}.lock", os.O_RDWR)
    try:
        if not try_lock(descriptor):
            raise Busy
        yield
    finally:
        os.close(descriptor)


@contextmanager
def life_lock(key: str, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of the instance of a key for the duration of the context, which is the life of a process.

    Args:
        seconds: wait so long for the lock. `is_running` holds it for a moment too.

    Raises:
        Busy: another process is the instance.
        OSError: the file of the lock cannot be opened.
        Unusable: the file is a link, or others can change it.
    """
    descriptor = _open_own(folder() / f"{key}.life", os.O_RDWR)
    deadline = time.monotonic() + seconds
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise Busy
            time.sleep(LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def is_running(key: str) -> bool:
    """Return True if a process is the instance of a key. Raises `OSError` or `Unusable`."""
    try:
        with life_lock(key):
            return False
    except Busy:
        return True


def _open_own(path: Path, flags: int) -> int:
    # Opening a pipe without O_NONBLOCK would wait for its reader.
    flags |= os.O_CREAT | NO_LINK | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
        try:
            check_private(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise _unusable(path, error) from None
    return descriptor


def _unusable(path: Path, error: OSError) -> OSError | Unusable:
    """Return the error for a file that cannot be opened: `Unusable` if its path is taken by something else."""
    if os.path.islink(path):
        return Unusable(f"{path} is a link, which codemode-mcp never makes there; remove it")
    if error.errno in (errno.EPERM, errno.EINVAL, errno.ENXIO, errno.EISDIR):
        return Unusable(f"{path} cannot be used: {error.strerror}; remove it")
    return error
