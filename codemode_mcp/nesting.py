"""Count servers of this kind that start each other, so that a loop of them ends."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upstream_clients.spec import UpstreamSpec

DEPTH_VARIABLE = "CODEMODE_MCP_DEPTH"
"""Environment variable with the number of servers of this kind above a process."""

MAX_DEPTH = 3
"""Depth from which servers refuse to start: it is a loop."""


def depth(environ: dict[str, str] | os._Environ[str]) -> int:
    """Return the number of servers of this kind above a process; `MAX_DEPTH` if the variable has no valid number."""
    text = environ.get(DEPTH_VARIABLE, "0")
    return int(text) if text.isdecimal() else MAX_DEPTH


def one_deeper(spec: UpstreamSpec) -> UpstreamSpec:
    """Return the spec of a server with the variable for its depth, if the server is a process."""
    if spec.transport != "stdio":
        return spec
    return replace(spec, env={**spec.env, DEPTH_VARIABLE: str(depth(os.environ) + 1)})
