"""Requests of commands to the serving processes of this user, over their control sockets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.cli.messages import stop_line
from codemode_mcp.control import client

if TYPE_CHECKING:
    from codemode_mcp.control.client import Answers
    from codemode_mcp.control.endpoints import Endpoint
    from codemode_mcp.control.protocol import Request


def ask_processes(request: Request, config: str | None) -> Answers:
    """Return the answers of all serving processes.

    Args:
        config: only of processes that serve this configuration file.
    """
    found = anyio.run(partial(client.ask_all, request))
    answers = [each for each in found.answers if isinstance(each[1].get("server"), dict)]
    if config is not None:
        wanted = Path(config).expanduser().resolve()
        answers = [
            (endpoint, answer)
            for endpoint, answer in answers
            if (served := answer["server"]["config"]) and Path(served).resolve() == wanted
        ]
    return client.Answers(tuple(answers), found.problems)


def ask_process(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """Return the answer of one process. End the command if there is none."""
    try:
        return anyio.run(partial(client.ask, endpoint, request))
    except client.NoAnswer as error:
        stop_line(1, str(error))
