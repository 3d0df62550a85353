"""The environment variables and the executable of a stdio server.

A server needs its folders, the path to its interpreter, and the settings of its network and its launcher: certificates,
proxies, settings of `uv` and `npm`. It inherits nothing else, since a shell often has tokens for other programs.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from upstream_clients.redaction import is_named_secret, is_ordinary, password_of

_SYSTEM: Final = (
    (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
PROXIES: Final = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"))
NAMES: Final = frozenset(
    (
        *_SYSTEM,
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        *(*PROXIES, "NO_PROXY", "no_proxy"),
        *("LANG", "TZ"),
    )
)
PREFIXES: Final = ("LC_", "UV_", "npm_config_", "NPM_CONFIG_")

IRRELEVANT: Final = frozenset(("LANG", "PATH", "SHELL", "TERM"))
"""Variables, besides `LC_*`, that do not decide what a server reaches once its command is found."""

PLAIN: Final = ("HOME", "USER", "PATH", "PWD", "TMPDIR")
"""Variables whose values are never hidden in messages. Paths would be unreadable without them."""


def is_passed_on(name: str) -> bool:
    return name in NAMES or name.startswith(PREFIXES)


def passed_on(environ: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a server inherits, without functions that bash has exported (`() {...`)."""
    return {
        name: value
        for name, value in environ.items()
        if is_passed_on(name) and name not in withheld and not value.startswith("()")
    }


def relevant(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the inherited variables that decide what a server reaches: its folders, network and launcher."""
    return {
        name: value
        for name, value in passed_on(environ).items()
        if name not in IRRELEVANT and not name.startswith("LC_")
    }


def system_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that any program needs, for a child that is not a server, without exported functions."""
    return {name: environ[name] for name in _SYSTEM if name in environ and not environ[name].startswith("()")}


def secrets_passed_on(environ: Mapping[str, str], withheld: Collection[str] = ()) -> Iterator[str]:
    """Yield the secrets in the variables that a server inherits: tokens, and credentials in URLs."""
    for name, value in passed_on(environ, withheld).items():
        password = password_of(value)
        if password:
            yield password
        if is_named_secret(name, value) or (name in PROXIES and not is_ordinary(value)) or password:
            yield value


def plain_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values that are never hidden."""
    return tuple(value for name in PLAIN if (value := environ.get(name)))


# The search for a program on PATH, without the current folder. Only the standard library is imported.
#
# `shutil.which` also searches the current folder: on Windows before all others, elsewhere if PATH has a relative or
# empty entry. So does Windows itself, if it starts a program by its name alone. The current folder may be a project of
# others, with a program that is called like the wanted one.


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
