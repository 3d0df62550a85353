"""The search for a program on PATH, without the current folder. Only the standard library is imported.

`shutil.which` also searches the current folder: on Windows before all others, elsewhere if PATH has a relative or empty
entry. So does Windows itself, if it starts a program by its name alone. The current folder may be a project of others,
with a program that is called like the wanted one.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

_ENDINGS: Final = os.pathsep.join((".COM", ".EXE", ".BAT", ".CMD"))
"""Endings of programs on Windows, where PATHEXT is not set."""


def find_executable(name: str, path: str | None = None, system: str = sys.platform) -> str | None:
    """Return the path of a program; None if it is not there or cannot be run.

    A folder is searched if PATH names it by an absolute path, even if it is the current one: clients on Windows start
    servers in the folder of `cmd.exe`.

    Args:
        name: a name, or a path, which is not searched for.
        path: the folders to search, as in PATH; None for those of this process.
        system: a value of `sys.platform`.
    """
    endings = [""]
    if system == "win32":
        known = [each for each in os.environ.get("PATHEXT", _ENDINGS).lower().split(os.pathsep) if each]
        endings = endings if name.lower().endswith(tuple(known)) else known
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    folders = [""] if os.path.dirname(name) else [each for each in searched.split(os.pathsep) if os.path.isabs(each)]
    places = (os.path.join(folder, name + ending) for folder in folders for ending in endings)
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def path_to_start(command: str, path: str | None = None) -> str:
    """Return the path by which a command is started, so that the system does not search for it.

    Raises:
        FileNotFoundError: the command is a name, and there is no such program on PATH.
    """
    found = find_executable(command, path)
    if found is None and not os.path.dirname(command):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    return command if found is None else found
