"""Shell completions for arguments: names of servers and clients, ids of runs.

Nothing here connects to a server, runs a program or expands a variable. Errors lead to no completions, since a shell
would show their messages in the middle of the user's line. Some shells evaluate completions (zsh while it completes),
and the configuration of a folder may be by others, so only plain names are offered.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer  # noqa: TC002 - typer reads the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_RUNS: Final = 50
TAIL_BYTES: Final = 1 << 20
"""Bytes at the end of a trajectory that are searched for runs."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,199}")
_ASK_SECONDS: Final = 0.5


def server_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of the servers in the configuration that the command would use."""
    return _complete(incomplete, lambda: _servers(ctx))


def remote_server_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of the servers that have a URL: only these have a login."""
    return _complete(incomplete, lambda: _servers(ctx, with_key=("url", "serverUrl", "openapi")))


def listed_items(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of servers, and those of the items of a server whose name is complete."""
    return _complete(incomplete, lambda: _listed_items(ctx, incomplete))


def saved_programs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of saved programs and of proposals."""
    return _complete(incomplete, lambda: _saved_programs(ctx))


def client_names(incomplete: str) -> list[str]:
    """Return names of MCP clients."""
    from codemode_mcp.cli.mcp_clients.locations import CLIENTS

    return _complete(incomplete, lambda: CLIENTS)


def recorded_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return ids of the latest runs in the trajectory, newest first."""
    return _complete(incomplete, lambda: _recorded_runs(ctx))


def live_runs(incomplete: str) -> list[str]:
    """Return ids of the runs of serving processes, which are asked over their control sockets."""
    return _complete(incomplete, _live_runs)


def _complete(incomplete: str, names: Callable[[], Iterable[Any]]) -> list[str]:
    try:
        found = [name for name in names() if isinstance(name, str) and _PLAIN.fullmatch(name)]
    except Exception:  # an error cannot be shown
        return []
    return [name for name in found if name.startswith(incomplete)]


def _configuration(ctx: typer.Context) -> tuple[Path, dict[str, Any]]:
    """Return the configuration file and its value as written, without expanding variables or running programs."""
    from codemode_mcp.cli.confirming import find
    from codemode_mcp.config.source import file_states, parse, read_text

    path = find(ctx.params.get("config"), lambda _: None)
    if path is None or file_states((path,)) == (None,):
        raise FileNotFoundError("there is no configuration, or it is not a regular file")
    value = parse(read_text(path))
    return path, value if isinstance(value, dict) else {}


def _servers(ctx: typer.Context, with_key: tuple[str, ...] = ()) -> list[str]:
    """Return names of servers, or of those whose entries have one of some keys."""
    _, value = _configuration(ctx)
    tables = [value[key] for key in ("mcpServers", "servers") if isinstance(value.get(key), dict)]
    return [
        name
        for table in tables
        for name, entry in table.items()
        if not with_key or any(key in (entry or ()) for key in with_key)
    ]


def _listed_items(ctx: typer.Context, incomplete: str) -> list[str]:
    from codemode_mcp.paths import state_dir
    from codemode_mcp.trust.pins_file import PinsFolder
    from codemode_mcp.trust.references import reference

    path, _ = _configuration(ctx)
    folder, names = PinsFolder(state_dir() / "pins", path), _servers(ctx)
    for server in [each for each in names if incomplete.startswith(f"{each}.")]:
        pins = folder.load(server)
        items = {} if pins is None else {**pins.accepted, **pins.present.items}
        names += [reference(server, *key) for key in items]
    return names


def _saved_programs(ctx: typer.Context) -> list[str]:
    from codemode_mcp.saved_programs.folder import folder_of, name_of, program_files
    from codemode_mcp.saved_programs.program_state import state_of

    path, _ = _configuration(ctx)
    folder = folder_of(path)
    proposed = [each.name for each in state_of(path).proposals().waiting]
    return [*([] if folder is None else map(name_of, program_files(folder))), *proposed]


def _recorded_runs(ctx: typer.Context) -> list[str]:
    import json

    from codemode_mcp.config.source import file_states

    trajectory = ctx.params.get("trajectory")
    if trajectory is None:
        path, value = _configuration(ctx)
        trajectory = path.parent / os.path.expanduser(value["audit"]["trajectory"])
    if file_states((Path(trajectory),)) == (None,):
        return []
    with open(trajectory, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        started = [line for line in file.read(TAIL_BYTES).splitlines()[::-1] if b'"kind":"run_started"' in line]
    return [json.loads(line)["id"] for line in started[:MAX_RUNS] if line.startswith(b"{")]


def _live_runs() -> list[str]:
    import anyio

    from codemode_mcp.control.client import ask_all
    from codemode_mcp.control.protocol import Request

    async def ask() -> list[str]:
        with anyio.move_on_after(_ASK_SECONDS):
            found = await ask_all(Request("list"))
            return [run["id"] for _, answer in found.answers for run in answer["runs"]]
        return []

    return anyio.run(ask)
