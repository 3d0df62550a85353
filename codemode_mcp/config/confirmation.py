"""Confirmations of the configuration files of working directories by a person.

A configuration starts programs as its user, and a file in the working directory may have come with a repository.
Therefore a person has to confirm such a file before it is used. A confirmation holds for one real path, for the folder
in which the file was found, and for everything that the file starts, reads or writes. If one of these changes, the
person is asked again. Rules and limits may change without a question, and so may the content of the programs that the
file names.

The folder is part of a confirmation because relative paths start there. Otherwise a link in another folder to a
confirmed file could start the programs of that folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.base.config_path import check_owner
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config.literals import secret_args
from codemode_mcp.config.servers import ROOT_KEYS
from upstream_clients.json_values import values_in
from upstream_clients.private_files import make_private_folder, open_private
from upstream_clients.redaction import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_HARMLESS: Final = ("$schema", "clients", "instance", "tools")
"""Sections that start, read and write nothing, apart from `_KEYS_OF_TOOLS`."""

_KEYS_OF_TOOLS: Final = (("approval", "notify"), ("esbuild",))
"""Keys of `tools` that start programs."""

_ADDRESSES: Final = ("url", "serverUrl", "httpUrl", "openapi")

_SPACES: Final = re.compile(r"(?<=\S)[^\S\r\n]{2,}")
"""Several spaces, except at the beginning of a line."""


class NotConfirmedError(ConfigError):
    """Error for a configuration file of the working directory that no person has confirmed.

    Args:
        problem: a sentence that says what is wrong, without a full stop.
        advice: a sentence that says what to do next.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__((f"{problem}. {advice[:1].upper()}{advice[1:]}",))
        self.problem = problem
        self.advice = advice


class Gate:
    """The check of the configuration file of the working directory. Other files are not checked.

    Args:
        decide: called with the path and the value of the file; raises `ConfigError` to refuse the file.
    """

    def __init__(self, decide: Callable[[Path, object], None]) -> None:
        self._decide = decide
        self._found: Path | None = None

    def remember(self, path: Path) -> None:
        """Remember the file that was found. This method is the `admit` of `find_config`."""
        self._found = path

    def admit(self, path: Path, value: object, status: os.stat_result) -> None:
        """Check the file after it was read. This method is the `admit` of `load_config`.

        Raises:
            ConfigError: the file must not be used.
        """
        if path == self._found:
            check_owner(path, status)
            self._decide(path, value)


def parts_to_confirm(value: object) -> dict[str, Any]:
    """Return the parts of a configuration that start, read or write something, by key."""
    if not isinstance(value, dict):
        return {}
    parts = {key: part for key, part in value.items() if key not in _HARMLESS and part}
    for keys in _KEYS_OF_TOOLS:
        part: object = value.get("tools")
        for key in keys:
            part = part.get(key) if isinstance(part, dict) else None
        if part:
            parts[".".join(("tools", *keys))] = part
    return parts


def digest(value: object) -> str:
    return hashlib.sha256(
        json.dumps(parts_to_confirm(value), sort_keys=True).encode("utf-8", "surrogatepass")
    ).hexdigest()


def described_parts(value: object) -> list[str]:
    """Return a line for each server, plugin and other part that needs a confirmation, without secrets.

    The lines are not escaped for a terminal.
    """
    parts = parts_to_confirm(value)
    return [_SPACES.sub(" ", without_tokens(line)) for key, part in parts.items() for line in _lines(key, part)]


def _lines(key: str, part: object) -> Iterator[str]:
    if key in ROOT_KEYS and isinstance(part, dict):
        for name, entry in part.items():
            yield f"server {name}: {_target(entry)}"
            if isinstance(entry, dict):
                for field in ("cwd", "envFile", "baseUrl"):
                    if entry.get(field):
                        yield f"  {field}: {entry[field]}"
                if isinstance(entry.get("otherOrigins"), list) and entry["otherOrigins"]:
                    yield f"  otherOrigins: {', '.join(map(str, entry['otherOrigins']))}"
                if isinstance(entry.get("env"), dict) and entry["env"]:
                    yield f"  variables: {', '.join(map(str, entry['env']))}"
                auth = entry.get("auth")
                for field in ("authorizationUrl", "tokenUrl"):
                    if isinstance(auth, dict) and auth.get(field):
                        yield f"  {field}: {auth[field]}"
                yield from _programs("  ", entry)
    elif key == "plugins" and isinstance(part, dict):
        for name, entry in part.items():
            module = entry.get("module") if isinstance(entry, dict) else None
            yield f"plugin {name}: {module or 'the installed package'}"
            yield from _programs("  ", entry)
    elif key == "tools.approval.notify":
        yield f"{key}: {_words(part)}"
    else:
        yield f"section {key}" if "." not in key else f"{key}: {part}"
        yield from _programs("  ", part)


def _programs(margin: str, part: object) -> Iterator[str]:
    """Yield a line for each program that prints a value (`{"command": [...]}`), at any depth."""
    for value in values_in(part):
        if isinstance(value, dict) and isinstance(value.get("command"), list):
            yield f"{margin}for a value: {_without_secrets(value['command'])}"


def _target(entry: object) -> str:
    if not isinstance(entry, dict):
        return "?"
    if entry.get("command") is None:
        return str(next((entry[key] for key in _ADDRESSES if entry.get(key)), "?"))
    args = entry.get("args")
    return _without_secrets([entry["command"], *(args if isinstance(args, list) else [])])


def _without_secrets(command: list[Any]) -> str:
    words = command[1:]
    for index, secrets in secret_args(words).items():
        for secret in secrets:
            words[index] = str(words[index]).replace(secret, HIDDEN)
    return _words([*command[:1], *words])


def _words(part: object) -> str:
    return " ".join(map(str, part)) if isinstance(part, list) else str(part)


def is_confirmed(path: Path, value: object, folder: Path) -> bool:
    """Return True if a person has confirmed this file, or if it needs no confirmation.

    Args:
        value: the value of the file.
        folder: the folder with the confirmations. If others can write to the folder, nothing is confirmed.
    """
    if not parts_to_confirm(value):
        return True
    try:
        with open_private(_record_path(path, folder)) as file:
            return bool(json.loads(file.read()) == _record(path, value))
    except (OSError, ValueError):
        return False


def confirm(path: Path, value: object, folder: Path) -> None:
    """Record that a person has confirmed this file.

    Raises:
        OSError: the confirmation cannot be written.
    """
    make_private_folder(folder)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(_record(path, value), file)
    os.replace(name, _record_path(path, folder))


def _record(path: Path, value: object) -> Mapping[str, str]:
    return {"path": os.path.realpath(path), "folder": os.path.realpath(path.parent), "digest": digest(value)}


def _record_path(path: Path, folder: Path) -> Path:
    paths = f"{os.path.realpath(path)}\0{os.path.realpath(path.parent)}"
    return folder / f"{hashlib.sha256(os.fsencode(paths)).hexdigest()[:32]}.json"
