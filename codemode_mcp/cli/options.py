"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from codemode_mcp.settings import LogLevel

ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Configuration file; default: looked up.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogLevelOption = Annotated[LogLevel | None, typer.Option("--log-level", help="How much to log.")]
LogFileOption = Annotated[str | None, typer.Option("--log-file", metavar="FILE", help="Log there, not to stderr.")]
