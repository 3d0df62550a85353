"""The lock file: the digests of what a team has accepted of its servers, for version control.

It stands beside the configuration. It has names and digests only, since definitions could quote secrets. Digests of
entries of the configuration are made without secrets. The members are sorted, so that two versions can be compared and
merged. Of servers and tools whose names collide in programs, it has the identifiers with a number.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, convert

from codemode_mcp.errors import ConfigError
from codemode_mcp.strict_json import Form, parse_json
from codemode_mcp.trust.items import ENTRY_KEY, SERVER_KEY, Item
from declarations.names import is_displaced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.trust.items import Key, Kind

NAME: Final = "codemode-mcp.lock.json"
FORMAT: Final = 2

_READABLE: Final = (1, FORMAT)
"""Formats that this version reads. Format 1 has no entries of the configuration."""

MAX_BYTES: Final = 8 * 1024 * 1024

_GROUPS: Final[tuple[tuple[str, Kind], ...]] = (("tools", "tool"), ("prompts", "prompt"), ("templates", "template"))
"""Members of a server in the file, and the kind of their items."""

_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class LockFileError(ConfigError):
    """Error for a lock file that cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__((f"{path} {problem}",))


class LockFileMissing(LockFileError):
    """Error for a lock file that does not exist."""


@dataclass(frozen=True, slots=True)
class LockFile:
    """The accepted items of servers, without their definitions, by the names of the servers.

    Attributes:
        server_names: the identifiers of servers in programs that have another one than their name gives.
        tool_names: those of tools, by the name of the server and the name of the tool.
    """

    servers: Mapping[str, Mapping[Key, Item]]
    server_names: Mapping[str, str] = field(default_factory=dict)
    tool_names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class _Digests(Form):
    digest: _Sha256
    shape: _Sha256


class _Server(Form):
    server: _Digests
    tools: dict[str, _Digests]
    prompts: dict[str, _Digests]
    templates: dict[str, _Digests]
    entry: _Digests | None = None
    """None if the server was listed last by a version without entries. Its entry is not compared then."""
    identifier: str = ""
    """The identifier of the server, if its name gives another one."""
    tool_identifiers: dict[str, str] | None = None
    """The identifiers of tools whose names give other ones."""


class _Content(Form):
    format: int
    servers: dict[str, _Server]


def lock_path(config: Path) -> Path:
    """Return the path of the lock file for a configuration file."""
    return config.with_name(NAME)


def read_lock_file(path: Path) -> LockFile:
    """Return the content of a lock file.

    Raises:
        LockFileMissing: there is no such file.
        LockFileError: the file cannot be read, or is not a lock file of this format.
    """
    try:
        # A pipe would block the opening.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LockFileError(path, "is not a regular file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise LockFileMissing(path, "does not exist; write it with: codemode-mcp trust lock") from None
    except OSError as error:
        raise LockFileError(path, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise LockFileError(path, f"has more than {MAX_BYTES:,} bytes")
    try:
        value = parse_json(data.decode())
        if value["format"] in _READABLE:
            servers = convert(value, _Content).servers
            return LockFile(
                {name: _items(each) for name, each in servers.items()},
                {name: each.identifier for name, each in servers.items() if each.identifier},
                {name: each.tool_identifiers or {} for name, each in servers.items()},
            )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise LockFileError(path, f"is not a lock file: {error}; write it with: codemode-mcp trust lock") from None
    raise LockFileError(
        path,
        f"has format {str(value['format'])[:20]}, and this version of codemode-mcp reads format {FORMAT}; write it "
        "with: codemode-mcp trust lock",
    )


def write_lock_file(path: Path, lock: LockFile) -> bool:
    """Replace a lock file in one step. Return False if it has this content already.

    Raises:
        OSError: the file cannot be written.
    """
    data = lock_text(lock).encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return True


def lock_text(lock: LockFile) -> str:
    """Return the text of a lock file. The same items always have the same text."""
    servers = {name: _server_json(items) | _names_json(lock, name) for name, items in sorted(lock.servers.items())}
    return json.dumps({"format": FORMAT, "servers": servers}, indent=2) + "\n"


def _server_json(items: Mapping[Key, Item]) -> dict[str, Any]:
    groups = {
        member: {name: _digests_json(item) for (each, name), item in sorted(items.items()) if each == kind}
        for member, kind in _GROUPS
    }
    entry = {"entry": _digests_json(items[ENTRY_KEY])} if ENTRY_KEY in items else {}
    return {**entry, "server": _digests_json(items[SERVER_KEY]), **groups}


def _names_json(lock: LockFile, server: str) -> dict[str, Any]:
    """Return the identifiers of a server and its tools that their names do not give; nothing in most cases."""
    identifier = lock.server_names.get(server, "")
    tools = {
        name: each
        for name, each in sorted(lock.tool_names.get(server, {}).items())
        if ("tool", name) in lock.servers[server] and is_displaced(name, each)
    }
    shown = {"identifier": identifier} if is_displaced(server, identifier, "server") else {}
    return {**shown, **({"toolIdentifiers": tools} if tools else {})}


def _digests_json(item: Item) -> dict[str, str]:
    return {"digest": item.digest, "shape": item.shape_digest}


def _items(server: _Server) -> Mapping[Key, Item]:
    """Return the items of one server in the file."""
    found = {SERVER_KEY: Item(*SERVER_KEY, None, server.server.digest, server.server.shape)}
    if server.entry is not None:
        found[ENTRY_KEY] = Item(*ENTRY_KEY, None, server.entry.digest, server.entry.shape)
    for member, kind in _GROUPS:
        named: Mapping[str, _Digests] = getattr(server, member)
        for name, each in named.items():
            found[kind, name] = Item(kind, name, None, each.digest, each.shape)
    return found
