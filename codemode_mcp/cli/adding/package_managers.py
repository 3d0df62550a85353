"""Questions to npm and uv: the latest version of a package, and the index that it comes from.

They read the settings of the person: `.npmrc`, `uv.toml`, variables and credentials. So the answer is about the index
from which `npx` and `uvx` fetch the package later. They get the variables that a server inherits. They run in an empty
folder, since the settings of a project could send variables to an index of its choice before a person has agreed. uv
builds no package, since this would run code of the package, and installs no Python.

Their messages are not shown, since an address in them may contain a password. Of an address, only the origin is shown.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.cli.adding.sources import origin_of
from codemode_mcp.cli.adding.web import Unreachable
from upstream_clients.environment import passed_on
from upstream_clients.executables import find_executable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["npm", "pypi"]

MANAGERS: Final[Mapping[Kind, str]] = {"npm": "npm", "pypi": "uv"}
"""The programs that know the indexes. `npx` and `uvx` belong to them."""

SECONDS: Final = 60
"""Timeout for one answer."""

MAX_BYTES: Final = 1024 * 1024
"""Bytes of an answer that are read."""

_INSTALL: Final[Mapping[str, str]] = {"npm": "install Node.js, which has it", "uv": "install uv"}
_NPM: Final = ("--loglevel=error", "--fetch-retries=0", "--no-update-notifier")
_UV: Final = (
    *("pip", "compile", "--system", "--no-build", "--no-deps", "--no-header", "--no-annotate", "--color=never"),
    *("--emit-index-url", "--emit-index-annotation", "--no-python-downloads", "-"),
)
"""Arguments of uv. With `--system`, it does not run the Python of a `.venv` in a folder above, such as `/tmp`."""

_STOPS: Final = (("package.json", "{}"), ("uv.toml", ""))
"""Files with which npm and uv do not look for the settings of a project in the folders above."""

_ERROR: Final = re.compile(r"E[A-Z0-9]{2,30}")
_INDEX: Final = re.compile(r"^--(?:extra-)?index-url (\S+)", re.MULTILINE)
_PINNED: Final = re.compile(r"^[A-Za-z0-9._-]+==([^\s;]+)", re.MULTILINE)
_FROM: Final = re.compile(r"^\s+# from (\S+)", re.MULTILINE)


class NotInstalled(Unreachable):
    """Error for a package manager that is not on PATH."""


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    output: str
    errors: str


def npm_release(name: str, tag: str) -> Mapping[str, Any] | None:
    """Return what npm knows about a release: `name`, `version`, `bin`, `deprecated`; None if there is no such release.

    Args:
        tag: a tag; empty for the one that npm uses by default.

    Raises:
        NotInstalled: npm is not on PATH.
        Unreachable: npm does not answer with one release.
    """
    package = f"{name}@{tag}" if tag else name
    answer = _ask("npm", ("view", "--json", *_NPM, "--", package, "name", "version", "bin", "deprecated"))
    try:
        found = json.loads(answer.output)
    except (ValueError, RecursionError):
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    if answer.code == 0 and isinstance(found, dict) and error is None:
        return found
    code = error.get("code") if isinstance(error, dict) else None
    if code == "E404":
        return None
    reason = code if isinstance(code, str) and _ERROR.fullmatch(code) else f"exit code {answer.code}"
    raise Unreachable(f"npm cannot look up {package!r} ({reason}); npm view {package} says why")


def uv_release(name: str) -> tuple[str, str] | None:
    """Return the latest version of a package that needs no build, and the origin of its index.

    Returns:
        None if there is no such package. The origin is empty if uv does not say it.

    Raises:
        NotInstalled: uv is not on PATH.
        Unreachable: uv finds no version.
    """
    answer = _ask_uv(f"{name}\n")
    if answer.code == 0 and (pinned := _PINNED.search(answer.output)):
        index = _FROM.search(answer.output)
        return pinned[1], origin_of(index[1]) if index else ""
    if answer.code == 1 and "not found in the package registry" in " ".join(answer.errors.split()):
        return None
    if answer.code == 1:
        raise Unreachable(f"uv finds no version of {name!r} that this machine can use without building it")
    raise Unreachable(f"uv cannot look up {name!r} (exit code {answer.code}); its index may be unreachable")


def indexes_of(kind: Kind, name: str) -> tuple[str, ...]:
    """Return the origins of the indexes that may have a package. Nothing is sent to them.

    Returns:
        Nothing if npm does not show its index, as for an address with a password.

    Raises:
        NotInstalled: the package manager is not on PATH.
        Unreachable: it does not answer.
    """
    found = _npm_indexes(name) if kind == "npm" else _INDEX.findall(_ask_uv().output)
    return tuple(dict.fromkeys(origin for each in found if (origin := origin_of(each))))


def index_of_project(name: str, folder: Path, home: Path) -> tuple[str, ...] | None:
    """Return the origins of npm's indexes in a folder; None if no project there has settings of npm.

    Args:
        home: the folder with the settings of the person.
    """
    files = (each / ".npmrc" for each in (folder, *folder.parents) if each != home)
    if not any(each.exists() for each in files):
        return None
    return tuple(origin for each in _npm_indexes(name, folder) if (origin := origin_of(each)))


def _npm_indexes(name: str, folder: Path | None = None) -> list[str]:
    """Return the address of npm's index for a package, of which the scope may have one of its own."""
    scope = [f"{name.partition('/')[0]}:registry"] if name.startswith("@") else []
    for key in (*scope, "registry"):
        answer = _ask("npm", ("config", "get", *_NPM, "--", key), folder=folder)
        if answer.code != 0:
            return []
        found = answer.output.strip()
        if found not in ("", "undefined", "null"):
            return [found]
    return []


def _ask_uv(requirement: str = "") -> _Answer:
    """Return the answer about a requirement. Without one, uv names its indexes and sends nothing."""
    answer = _ask("uv", _UV, requirement)
    if answer.code != 0 and "No interpreter found" in answer.errors:
        raise Unreachable("uv finds no Python on this machine; uv python install gets one")
    return answer


def _ask(program: str, words: Sequence[str], given: str = "", *, folder: Path | None = None) -> _Answer:
    """Run a package manager. The answer goes to files, which no process that is left behind keeps open for us."""
    environ = passed_on(os.environ)
    path = find_executable(program, environ.get("PATH", ""))
    if path is None:
        raise NotInstalled(f"{program} is not installed, or not on PATH; {_INSTALL[program]}")
    with tempfile.TemporaryDirectory(prefix="codemode-mcp-", ignore_cleanup_errors=True) as made:
        empty, output, errors = Path(made, "empty"), Path(made, "output"), Path(made, "errors")
        empty.mkdir()
        for name, text in _STOPS:
            (empty / name).write_text(text)
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                done = subprocess.run(
                    [path, *words],
                    cwd=folder or empty,
                    env=environ,
                    input=given.encode(),
                    stdout=out,
                    stderr=err,
                    timeout=SECONDS,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{program} has not answered within {SECONDS} s") from None
        except OSError as error:
            raise Unreachable(f"{program} cannot be run: {error.strerror}") from None
        return _Answer(done.returncode, _read(output), _read(errors))


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_BYTES).decode(errors="replace")
