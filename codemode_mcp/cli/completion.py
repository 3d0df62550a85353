"""Completions of a shell for an argument: names of servers and clients, ids of runs.

Nothing here connects to a server, runs a program or expands a variable, and whatever goes wrong offers nothing: a shell
shows messages in the middle of the user's line. Shells also evaluate what they are offered (zsh while it
completes), and a configuration may come with a folder from anywhere: only plain names are offered.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer  # noqa: TC002 - it reads this

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_RUNS: Final = 50
TAIL_BYTES: Final = 1 << 20
"""Bytes at the end of a trajectory in which runs are looked for."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,199}")
_ASK_SECONDS: Final = 0.5


def server_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of servers in the configuration that the command would use."""
    return _offered(incomplete, lambda: _servers(ctx))


def remote_server_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the servers that have a URL: no other has a login."""
    return _offered(incomplete, lambda: _servers(ctx, of=("url", "serverUrl")))


def client_names(incomplete: str) -> list[str]:
    """Names of MCP clients."""
    from codemode_mcp.cli.mcp_clients.places import CLIENTS

    return _offered(incomplete, lambda: CLIENTS)


def recorded_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of the latest runs in the trajectory, the newest first."""
    return _offered(incomplete, lambda: _recorded(ctx))


def live_runs(incomplete: str) -> list[str]:
    """Ids of runs of serving processes, which are asked over their own sockets."""
    return _offered(incomplete, _live)


def _offered(incomplete: str, names: Callable[[], Iterable[Any]]) -> list[str]:
    try:
        found = [name for name in names() if isinstance(name, str) and _PLAIN.fullmatch(name)]
    except Exception:  # an error cannot be shown
        return []
    return [name for name in found if name.startswith(incomplete)]


def _configuration(ctx: typer.Context) -> tuple[Path, dict[str, Any]]:
    """Return the file as it is written: no variable is expanded and no program is run for a value."""
    import platformdirs

    from codemode_mcp.config import find_config
    from codemode_mcp.config.source import look, parse, read_text

    folder = Path(platformdirs.user_config_dir("codemode-mcp", appauthor=False))
    path = find_config(
        ctx.params.get("config"), environ=os.environ, cwd=Path.cwd(), user_config_dir=folder, admit=lambda _: None
    )
    if path is None or look((path,)) == (None,):
        raise FileNotFoundError("there is no configuration, or it is no ordinary file")
    value = parse(read_text(path))
    return path, value if isinstance(value, dict) else {}


def _servers(ctx: typer.Context, of: tuple[str, ...] = ()) -> list[str]:
    """Return names of servers; `of`: of those whose entries have one of these keys."""
    _, value = _configuration(ctx)
    tables = [value[key] for key in ("mcpServers", "servers") if isinstance(value.get(key), dict)]
    return [
        name for table in tables for name, entry in table.items() if not of or any(key in (entry or ()) for key in of)
    ]


def _recorded(ctx: typer.Context) -> list[str]:
    import json

    from codemode_mcp.config.source import look

    trajectory = ctx.params.get("trajectory")
    if trajectory is None:
        path, value = _configuration(ctx)
        trajectory = path.parent / os.path.expanduser(value["audit"]["trajectory"])
    if look((Path(trajectory),)) == (None,):
        return []
    with open(trajectory, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        begun = [line for line in file.read(TAIL_BYTES).splitlines()[::-1] if b'"kind":"run_started"' in line]
    return [json.loads(line)["id"] for line in begun[:MOST_RUNS] if line.startswith(b"{")]


def _live() -> list[str]:
    import anyio

    from codemode_mcp.control.client import ask_all
    from codemode_mcp.control.protocol import Request

    async def ask() -> list[str]:
        with anyio.move_on_after(_ASK_SECONDS):
            found = await ask_all(Request("list"))
            return [run["id"] for _, answer in found.answers for run in answer["runs"]]
        return []

    return anyio.run(ask)
