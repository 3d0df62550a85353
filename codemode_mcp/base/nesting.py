"""The depth of codemode-mcp processes that start each other. A limit ends loops in their configurations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upstream_clients.spec import UpstreamSpec

DEPTH_VARIABLE = "CODEMODE_MCP_DEPTH"
"""Environment variable with the number of codemode-mcp processes above a process."""

MAX_DEPTH = 3
"""Depth from which a process refuses to start, since the configurations probably form a loop."""


def depth(environ: dict[str, str] | os._Environ[str]) -> int:
    """Return the number of codemode-mcp processes above a process; `MAX_DEPTH` if the variable is not a number."""
    text = environ.get(DEPTH_VARIABLE, "0")
    return int(text) if text.isdecimal() else MAX_DEPTH


def with_depth(spec: UpstreamSpec) -> UpstreamSpec:
    """Return the spec of a server. If the server is a process, its environment gets the variable for its depth."""
    if not spec.is_process:
        return spec
    from dataclasses import replace  # takes 10 ms; a relay needs only `depth`

    return replace(spec, env={**spec.env, DEPTH_VARIABLE: str(depth(os.environ) + 1)})
