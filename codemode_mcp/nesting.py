"""The depth to which servers of this kind have started each other, so that a loop of them ends."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upstream_clients.spec import UpstreamSpec

DEPTH_VARIABLE = "CODEMODE_MCP_DEPTH"
MAX_DEPTH = 3
"""The depth to which servers of this kind may start each other; deeper is a loop."""


def depth(environ: dict[str, str] | os._Environ[str]) -> int:
    """Return the number of servers of this kind above this one."""
    text = environ.get(DEPTH_VARIABLE, "0")
    return int(text) if text.isdecimal() else MAX_DEPTH


def one_deeper(spec: UpstreamSpec) -> UpstreamSpec:
    """Return a spec whose process knows how deep it is."""
    if spec.transport != "stdio":
        return spec
    return replace(spec, env={**spec.env, DEPTH_VARIABLE: str(depth(os.environ) + 1)})
