"""Checks of the user's folders: write access, no write access for others, and free space. Blocks."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.doctor.check import Check
from upstream_clients.private_files import exposure

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MIN_FREE: Final = 100 * 1024 * 1024
"""Bytes that should be free. The compiled engine, esbuild and the tool lists take about 20 MB."""


def check() -> Iterable[Check]:
    """Check the folders for the cache, for logins and for the control socket."""
    from codemode_mcp.paths import cache_dir
    from upstream_clients.token_store import logins_folder

    without = "every process compiles the engine and starts every server"
    yield from folder("cache folder", cache_dir(), without)
    yield from folder("data folder", logins_folder(), "logins can be stored in the system keyring only")
    yield control()


def folder(name: str, path: Path, without: str) -> Iterable[Check]:
    """Check one folder, which may not exist yet.

    Args:
        without: the consequence if nothing can be stored in the folder.
    """
    existing = nearest_existing(path)
    if not existing.is_dir():
        yield Check(name, "warn", f"{existing} is a file, so {without}", "move that file away")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"chmod u+rwx {existing}, or set XDG_CACHE_HOME/XDG_DATA_HOME to a folder of yours"
        yield Check(name, "warn", f"{existing} cannot be written, so {without}", advice)
        return
    why = exposure(path)
    if why is not None:
        advice = f"chmod 700 {path} (as its owner), or remove it: it is made again"
        if not why.startswith(f"{path} "):
            advice = f"chmod go-w that folder (as its owner), so that only you can write {path}"
        yield Check(name, "warn", f"{why}, so {without}", advice)
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE:
        yield full_disk(name, existing, free, f"less than {MIN_FREE // 1_000_000} MB may not be enough")
    elif why is None:
        state = "" if path.exists() else ", made when it is needed"
        yield Check(name, "ok", f"{path}{state}; {free / 1e9:.1f} GB free")


def nearest_existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def full_disk(name: str, folder: Path, free: int, reason: str) -> Check:
    """Return a warning about a disk with little free space."""
    return Check(name, "warn", f"only {free // 1_000_000} MB are free at {folder}", f"free some space: {reason}")


def control() -> Check:
    """Check the folder for the control socket."""
    from codemode_mcp.control.endpoints import NoPrivateFolder, new_endpoint

    try:
        endpoint = new_endpoint("json" if sys.platform == "win32" else "sock")
    except NoPrivateFolder as error:
        advice = "make one of them yours alone, or set XDG_RUNTIME_DIR to a short folder of yours"
        detail = f"codemode-mcp runs will not find the processes of this user: {error}"
        return Check("control folder", "warn", detail, advice)
    return Check("control folder", "ok", str(endpoint.path.parent))
