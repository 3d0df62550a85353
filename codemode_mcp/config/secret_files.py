"""Secrets that `add` stores for servers on a system without a keyring: each in a file that only the user can read.

A reference such as `{"keyring": "books/value"}` in the configuration means such a file, if there is one, and otherwise
the entry of the system keyring. Every function blocks.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from typing import TYPE_CHECKING, Final

from codemode_mcp.base.paths import data_dir
from upstream_clients.keychain import NoKeychain
from upstream_clients.private_files import exposure, make_private_folder, open_private
from upstream_clients.state_files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES: Final = 1024 * 1024


def folder() -> Path:
    """Return the folder of the files."""
    return data_dir() / "secrets"


def read(name: str) -> str | None:
    """Return a secret; None if it has no file. Raises `NoKeychain` if others can read or write the file."""
    path = _path(name)
    try:
        with open_private(path) as file:
            if sys.platform != "win32" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NoKeychain(f"{path} can be read by other users, so it is not used; run chmod 600 on it")
            return file.read(_MAX_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise NoKeychain(f"{path} is damaged") from None
    except OSError as error:
        raise NoKeychain(f"{path} cannot be used: {error.strerror}") from None


def write(name: str, value: str) -> None:
    """Store a secret. Raises `NoKeychain`."""
    path = _path(name)
    try:
        make_private_folder(path.parent)
        why = exposure(path)
        if why is None:
            replace_file(path, value.encode())
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
    if why is not None:
        raise NoKeychain(why)


def remove(name: str) -> bool:
    """Delete the file of a secret. Return False if there is none. Raises `NoKeychain`."""
    path = _path(name)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise NoKeychain(f"{path} cannot be deleted: {error.strerror}") from None
    return True


def _path(name: str) -> Path:
    return folder() / hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
