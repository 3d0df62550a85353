"""Access to this process from a terminal of its user: `codemode-mcp runs` and `codemode-mcp clients`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp import __version__
from codemode_mcp.server.profiles import KEYS, override_of, profile_json, profile_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from codemode_mcp.config import Config
    from codemode_mcp.control.answers import Control
    from codemode_mcp.control.servers import Servers
    from codemode_mcp.runs.operator import Operator
    from codemode_mcp.server.connected_clients import ConnectedClients
    from codemode_mcp.settings import ProfileOverride
    from codemode_mcp.stores.opening import OpenedStore

STORE_SECONDS = 2.0
"""Seconds that a terminal waits for a store that is being opened."""


async def terminal_control(
    config: Config,
    transport: Literal["stdio", "http"],
    mode: Literal["code", "pass-through"],
    runs: Operator,
    store: OpenedStore,
    redact: Callable[[str], str],
    *,
    serves: Callable[[str], bool],
    clients: Callable[[], list[dict[str, Any]]],
    servers: Servers,
    open_page: Callable[[], Awaitable[dict[str, Any]]] | None,
    export: Callable[[str], bytes] | None,
) -> Control:
    """Return the answers to requests of terminals.

    Args:
        serves: returns True if this process may resume the runs of an owner without a request of the owner.
        servers, open_page, export: see `Control`.
    """
    from codemode_mcp.audit.redaction import Inputs
    from codemode_mcp.control.answers import Control, ServerFacts

    inputs = Inputs(include=config.audit.include_inputs)
    about = ServerFacts(transport, mode, None if config.path is None else str(config.path), __version__)
    # So that a terminal that asks right after the start is shown the runs in the store, too.
    await store.wait_attempted(STORE_SECONDS)

    def arguments(text: str) -> dict[str, Any]:
        return inputs.of_arguments(text, redact)

    return Control(
        runs,
        about,
        arguments,
        may_take_over=serves,
        clients=clients,
        servers=servers,
        open_page=open_page,
        export=export,
    )


def listen(control: Control) -> AbstractAsyncContextManager[object]:
    """Answer the requests of terminals on a socket of this process, for the duration of the context."""
    from codemode_mcp.control.server import listening

    return listening(control)


def clients_json(connected: ConnectedClients, overrides: Sequence[ProfileOverride]) -> list[dict[str, Any]]:
    """Return clients as JSON, each with its profile and the override that changes it."""
    listed = []
    for each in connected.listed():
        override = override_of(each.client.name, overrides)
        listed.append(
            {
                **asdict(each.client),
                "requests": each.requests,
                "idleMs": round(each.idle_seconds * 1000),
                "profile": profile_json(profile_of(each.client.name, overrides)),
                "overrides": [] if override is None else [KEYS[field] for field, _ in override.values],
            }
        )
    return listed


def terminal_command() -> str:
    """Return the command that runs codemode-mcp in a terminal of its user: with its whole path, quoted for a shell."""
    started = os.path.abspath(sys.argv[0])
    if Path(started).stem == "codemode-mcp" and os.path.isfile(started):
        words = [started]
    else:
        words = [sys.executable, "-m", "codemode_mcp"]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
