"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codemode_mcp.base.log_level import LogLevel

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file; default: CODEMODE_MCP_CONFIG, else this folder's, else yours.",
    ),
]
ServedConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Only processes that serve this configuration.")
]
ContextOption = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="With stdio: use the rules of this context of tools.contexts."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LockedOption = Annotated[
    bool, typer.Option("--locked", help="Use only what codemode-mcp.lock.json has; hold everything else.")
]
LogLevelOption = Annotated[LogLevel | None, typer.Option("--log-level", help="How much to log.")]
LogFileOption = Annotated[
    str | None, typer.Option("--log-file", metavar="FILE", help="Log to this file instead of stderr.")
]
PrivateOption = Annotated[
    bool, typer.Option("--private", help="Open servers in this process, even if a shared instance runs.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress line.")]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Allow read-only tools only.")]
TrajectoryOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Trajectory file; default: that of the configuration.")
]
