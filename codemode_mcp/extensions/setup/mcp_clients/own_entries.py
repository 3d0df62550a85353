"""The entries of this server in the files of clients, and overlaps with their servers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.config.nodes import quote
from codemode_mcp.config.source import SourceError
from codemode_mcp.extensions.setup.mcp_clients.client_files import Source, read_clients
from codemode_mcp.extensions.setup.mcp_clients.dialects import NotImportable, VariableNames, common_form, with_variables
from codemode_mcp.extensions.setup.mcp_clients.entries import IsThisServer, convert, is_this_server, string_args
from codemode_mcp.extensions.setup.mcp_clients.importing import existing_at, identity, servers_of
from codemode_mcp.extensions.setup.mcp_clients.launch import PROGRAM, Launch
from codemode_mcp.extensions.setup.mcp_clients.locations import OWN_CODE_MODE, TITLES, ClientName, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


DESCRIPTION: Final = "Runs programs that call the tools of all other MCP servers."

DESKTOP_CLIENTS: Final = ("claude-desktop", "cursor", "vscode", "windsurf", "zed")
"""Clients that are usually not started from a shell, so that they lack the PATH of the shell."""

_START_KEYS: Final = frozenset(
    ("type", "command", "args", "cmd", "env", "envs", "environment", "env_vars", "env_keys", "url")
)
"""Keys for starting or reaching a server. `install` replaces or drops these keys of an older entry."""

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_OWN_NAME: Final = re.compile(r"code-?mode", re.IGNORECASE)


def new_entry(
    client: ClientName,
    launch: Launch,
    config: str,
    old: Mapping[str, Any] | None = None,
    name: str = PROGRAM,
    passed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the entry of this server for a client's file.

    Args:
        config: the absolute path of our configuration.
        old: the entry of this server that is replaced. Its variables are kept, and so are its keys that have nothing to
            do with starting this server.
        name: the name of the entry.
        passed: the client's references for the variables of servers behind this one, by variable.
    """
    old, passed = old or {}, passed or {}
    common = common_form(client, old)[0] if old else {}
    command, args = launch.command, [*launch.args, "--config", config]
    args += [each for each in _serve_options(string_args(common)) if each not in launch.args]
    match client:
        case "codex":
            names = [*dict.fromkeys((*(old.get("env_vars") or ()), *passed))]
            entry = {"command": command, "args": args, "required": True}
            entry |= {"env_vars": names} if names else {}
            entry |= {"env": old["env"]} if old.get("env") else {}
            replaced = {"bearer_token_env_var", "http_headers", "env_http_headers", "enabled"}
        case "opencode":
            environment = {**passed, **(old.get("environment") or {})}
            entry = {"type": "local", "command": [command, *args], "enabled": True}
            entry |= {"environment": environment} if environment else {}
            replaced = {"headers", "oauth"}
        case "goose":
            keys = [*dict.fromkeys((*(old.get("env_keys") or ()), *passed))]
            entry = {"enabled": True, "type": "stdio", "name": name, "description": DESCRIPTION}
            entry |= {"cmd": command, "args": args, "envs": old.get("envs") or {}, "env_keys": keys, "timeout": 300}
            replaced = {"uri", "headers", "config", "enabled", "name", "description"}
        case "copilot-cli":
            entry = {"type": "local", "command": command, "args": args, "tools": ["*"], "deferTools": "never"}
            entry |= _env(old, passed)
            replaced = {"headers"}
        case _:
            entry = {"type": "stdio"} if client in ("vscode", "claude-code") else {}
            entry |= {"command": command, "args": args, **_env(old, passed)}
            if client == "claude-code":
                # Otherwise the tool search of Claude Code hides both tools until the model searches for them.
                entry = {**entry, "env": entry.get("env", {}), "alwaysLoad": True}
            replaced = {"serverUrl", "httpUrl", "headers", "transport", "source", "disabled", "enabled"}
    return {**entry, **{key: value for key, value in old.items() if key not in _START_KEYS | replaced}}


def _env(old: Mapping[str, Any], passed: Mapping[str, str]) -> dict[str, Any]:
    env = {**passed, **(old.get("env") or {})}
    return {"env": env} if env or "env" in old else {}


def _serve_options(words: Sequence[str]) -> list[str]:
    """Return the options after `serve` in an older entry, such as `--read-only`, but without `--config`."""
    if "serve" not in words:
        return []
    options = [*words[words.index("serve") + 1 :]]
    kept = []
    while options:
        option = options.pop(0)
        if option == "--config":
            del options[:1]
        elif not option.startswith("--config="):
            kept.append(option)
    return kept


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """One entry of this server in the file of a client.

    Attributes:
        client: the name of the client for `install --client`.
        title: the client and the scope.
        path: the file.
        name: the name of the entry.
        env: the variables of the entry, expanded.
        folder: the project that the entry belongs to; None for an entry of the user.
        comes_with_folder: whether the file is part of the project folder, so that other people may have written it.
        desktop: whether the client is in `DESKTOP_CLIENTS`.
    """

    client: ClientName
    title: str
    path: Path
    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    folder: Path | None = None
    disabled: bool = False
    comes_with_folder: bool = False
    desktop: bool = False


def own_entries(machine: Machine) -> list[OwnEntry]:
    """Return the entries of this server in the files of all clients. This blocks while it reads the files."""
    return [
        found
        for source in read_clients(machine)
        for name, entry in source.servers.items()
        if isinstance(entry, dict) and (found := _own_entry(source, str(name), entry, machine)) is not None
    ]


def _own_entry(source: Source, name: str, entry: Mapping[str, Any], machine: Machine) -> OwnEntry | None:
    assert source.client is not None
    try:
        common, _ = common_form(source.client, entry)
    except NotImportable:
        return None
    url = common.get("url") or common.get("serverUrl") or common.get("httpUrl")
    is_http = isinstance(url, str) and common.get("command") is None and _OWN_NAME.search(name) is not None
    if not is_http and not is_this_server(entry, source.client):
        return None

    def value(match: re.Match[str]) -> str:
        match match[1]:
            case "userHome":
                return str(machine.home)
            case "workspaceFolder":
                return str(source.folder or machine.folder)
        return machine.environ.get(match[1]) or match[2] or ""

    def expand(text: object) -> str:
        return _REFERENCE.sub(value, str(text))

    args, env = common.get("args"), common.get("env")
    return OwnEntry(
        source.client,
        source.title,
        source.path,
        name,
        command=None if is_http else expand(common["command"]),
        args=tuple(map(expand, args)) if isinstance(args, list) else (),
        env={str(key): expand(each) for key, each in env.items()} if isinstance(env, dict) else {},
        url=expand(url) if is_http else None,
        folder=source.folder,
        disabled=common.get("disabled") is True or common.get("enabled") is False,
        comes_with_folder=source.scope == "project",
        desktop=source.client in DESKTOP_CLIENTS,
    )


# Overlaps between clients and this server: servers that both start, and clients that have a code mode, too.


class Overlap(Struct, frozen=True):
    """A server that a client starts both directly and through this server."""

    source: Source
    name: str
    our_name: str


def overlaps(sources: Iterable[Source], ours: Mapping[str, Any], machine: Machine) -> tuple[Overlap, ...]:
    """Return the servers that clients start twice.

    Args:
        ours: the entries in the file of our configuration, with their references unexpanded.
    """
    known = {identity(entry): name for name, entry in ours.items() if isinstance(entry, dict)}
    by_client: dict[str | None, list[Source]] = {}
    for source in sources:
        by_client.setdefault(source.client, []).append(source)
    found: list[Overlap] = []
    for client_sources in by_client.values():
        names = VariableNames()
        direct: list[Overlap] = []
        starts_us = False
        for source in client_sources:
            for name, entry in source.servers.items():
                try:
                    literal = convert(name, entry, source, machine, names).entry
                except IsThisServer:
                    starts_us = starts_us or not (isinstance(entry, dict) and entry.get("disabled") is True)
                    continue
                except NotImportable:
                    continue
                variable, _ = with_variables(literal, name, names)
                our_name = known.get(identity(literal)) or known.get(identity(variable))
                if our_name and "disabled" not in literal:
                    direct.append(Overlap(source, name, our_name))
        if starts_us:
            found += direct
    return tuple(found)


def overlap_warnings(config_path: Path | None, machine: Machine) -> tuple[str, ...]:
    """Return a warning for each file with servers that its client starts both directly and through this server."""
    try:
        ours = {} if config_path is None else servers_of(existing_at(config_path))
    except SourceError:
        return ()
    by_path: dict[Path, list[Overlap]] = {}
    for each in overlaps(read_clients(machine), ours, machine) if ours else ():
        by_path.setdefault(each.source.path, []).append(each)
    return tuple(
        f"{found[0].source.title} starts {', '.join(dict.fromkeys(quote(each.name) for each in found))} itself and "
        f"through codemode-mcp; remove {'it' if len(found) == 1 else 'them'} from {path}"
        for path, found in by_path.items()
    )


def clients_with_code_mode(machine: Machine) -> tuple[str, ...]:
    found = {
        source.client
        for source in read_clients(machine, OWN_CODE_MODE)
        if any(is_this_server(entry, source.client) for entry in source.servers.values())
    }
    return tuple(TITLES[client] for client in OWN_CODE_MODE if client in found)
