"""Remember which configurations of working directories a person has confirmed.

A configuration starts programs as its user, and one that lies in the working directory may have come with a repository.
A confirmation is for one real path, the folder it was found in, and for what the file starts, reads and writes: a
change of that asks again, a change of a rule or a limit does not. The folder counts because relative paths start there:
a link in another folder to a confirmed file would start the programs of that folder. Programs that the file names may
change without a question.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import HIDDEN, without_tokens
from codemode_mcp.config.literals import secret_args
from codemode_mcp.config.load import check_owner
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.errors import ConfigError
from upstream_clients.private_files import make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_HARMLESS: Final = ("$schema", "clients", "tools")
"""Sections that start, read and write nothing. Two keys of `tools` do."""

_BLANKS: Final = re.compile(r"(?<=\S)[^\S\r\n]{2,}")
"""Runs of blanks, all but those that a line begins with."""

_OF_TOOLS: Final = (("approval", "notify"), ("esbuild",))


class NotConfirmedError(ConfigError):
    """A configuration of the working directory that no person has confirmed."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__((f"{problem}. {advice[:1].upper()}{advice[1:]}",))
        self.problem = problem
        self.advice = advice


class Gate:
    """Decides on the configuration of the working directory once it is read, and on no other file.

    Args:
        decide: called with the path and what was read there; raises `ConfigError` where it must not be used.
    """

    def __init__(self, decide: Callable[[Path, object], None]) -> None:
        self._decide = decide
        self._found: Path | None = None

    def find(self, path: Path) -> None:
        """Note the file that was found: the `admit` of `find_config`."""
        self._found = path

    def admit(self, path: Path, value: object, about: os.stat_result) -> None:
        """Decide on what was read of it: the `admit` of `load_config`. Raises `ConfigError`."""
        if path == self._found:
            check_owner(path, about)
            self._decide(path, value)


def decisive(value: object) -> dict[str, Any]:
    """Return the parts of a configuration that start, read or write anything; empty where it has none."""
    if not isinstance(value, dict):
        return {}
    found = {key: part for key, part in value.items() if key not in _HARMLESS and part}
    for keys in _OF_TOOLS:
        part: object = value.get("tools")
        for key in keys:
            part = part.get(key) if isinstance(part, dict) else None
        if part:
            found[".".join(("tools", *keys))] = part
    return found


def digest(value: object) -> str:
    """Return the digest of the parts that decide."""
    return hashlib.sha256(json.dumps(decisive(value), sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def named(value: object) -> list[str]:
    """Return a line for each server, plugin and other part that decides, without secrets. The lines are not escaped."""
    parts = decisive(value)
    return [_BLANKS.sub(" ", without_tokens(line)) for key, part in parts.items() for line in _lines(key, part)]


def _lines(key: str, part: object) -> Iterator[str]:
    if key in ROOT_KEYS and isinstance(part, dict):
        for name, entry in part.items():
            yield f"server {name}: {_started(entry)}"
            if isinstance(entry, dict):
                for about in ("cwd", "envFile"):
                    if entry.get(about):
                        yield f"  {about}: {entry[about]}"
                if isinstance(entry.get("env"), dict) and entry["env"]:
                    yield f"  variables: {', '.join(map(str, entry['env']))}"
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
    """Yield a line for each program that prints a value: `{"command": [...]}`, at any depth."""
    left = [part]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if isinstance(value.get("command"), list):
                yield f"{margin}for a value: {_hidden(value['command'])}"
            left += value.values()
        elif isinstance(value, list):
            left += value


def _started(entry: object) -> str:
    if not isinstance(entry, dict):
        return "?"
    if entry.get("command") is None:
        return str(entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl") or "?")
    args = entry.get("args")
    return _hidden([entry["command"], *(args if isinstance(args, list) else [])])


def _hidden(command: list[Any]) -> str:
    """Return a command without the secrets among its arguments."""
    words = command[1:]
    for index, secrets in secret_args(words).items():
        for secret in secrets:
            words[index] = str(words[index]).replace(secret, HIDDEN)
    return _words([*command[:1], *words])


def _words(part: object) -> str:
    return " ".join(map(str, part)) if isinstance(part, list) else str(part)


def is_confirmed(path: Path, value: object, folder: Path) -> bool:
    """Return whether a person has confirmed this file as it is, or it decides nothing.

    Args:
        value: what the file holds.
        folder: where confirmations are kept; one that others can write confirms nothing.
    """
    if not decisive(value):
        return True
    try:
        with open_private(_record(path, folder)) as file:
            kept = json.loads(file.read())
    except (OSError, ValueError):
        return False
    return isinstance(kept, dict) and kept == _kept(path, value)


def confirm(path: Path, value: object, folder: Path) -> None:
    """Keep that a person has confirmed this file as it is. Raises `OSError`."""
    make_private_folder(folder)
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(_kept(path, value), file)
    os.replace(name, _record(path, folder))


def _kept(path: Path, value: object) -> Mapping[str, str]:
    return {"path": os.path.realpath(path), "folder": os.path.realpath(path.parent), "digest": digest(value)}


def _record(path: Path, folder: Path) -> Path:
    return folder / (
        hashlib.sha256(os.fsencode(f"{os.path.realpath(path)}\0{os.path.realpath(path.parent)}")).hexdigest()[:32]
        + ".json"
    )
