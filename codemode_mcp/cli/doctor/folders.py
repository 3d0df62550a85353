"""Folders of the user: write access, for the user alone, and free room. Blocks."""

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

LEAST_FREE: Final = 100 * 1024 * 1024
"""Bytes; the compiled engine, esbuild and the listings take some 20 MB."""


def check() -> Iterable[Check]:
    from codemode_mcp.paths import cache_dir
    from upstream_clients.token_store import logins_folder

    without = "the engine is compiled and every server is started again each time"
    yield from folder("cache folder", cache_dir(), without)
    yield from folder("data folder", logins_folder(), "logins can only be kept in the system keyring")
    yield control()


def folder(name: str, path: Path, without: str) -> Iterable[Check]:
    """Yield one folder, which may not be there yet.

    Args:
        without: what it means that nothing can be kept there.
    """
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield Check(name, "warn", f"{there} is a file, so {without}", "move that file away")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        advice = f"chmod u+rwx {there}, or give XDG_CACHE_HOME/XDG_DATA_HOME a folder of yours"
        yield Check(name, "warn", f"{there} cannot be written, so {without}", advice)
        return
    why = exposure(path)
    if why is not None:
        advice = f"chmod 700 {path} (as its owner), or remove it: it is made again"
        if not why.startswith(f"{path} "):
            advice = f"chmod go-w that folder (as its owner), so that only you can put something at {path}"
        yield Check(name, "warn", f"{why}, so {without}", advice)
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE:
        detail = f"only {free // 1_000_000} MB are free at {there}"
        yield Check(name, "warn", detail, f"make room: less than {LEAST_FREE // 1_000_000} MB may not be enough")
    elif why is None:
        state = "" if path.exists() else ", made when it is needed"
        yield Check(name, "ok", f"{path}{state}; {free / 1e9:.1f} GB free")


def control() -> Check:
    from codemode_mcp.control.endpoints import NoPrivateFolder, new_endpoint

    try:
        endpoint = new_endpoint("json" if sys.platform == "win32" else "sock")
    except NoPrivateFolder as error:
        advice = "make one of them yours alone, or set XDG_RUNTIME_DIR to a short folder of yours"
        return Check(
            "control folder", "warn", f"codemode-mcp runs will not find this user's processes: {error}", advice
        )
    return Check("control folder", "ok", str(endpoint.path.parent))
