"""`codemode-mcp demo`."""

from __future__ import annotations

import anyio
import typer

app = typer.Typer()


@app.command(epilog="Example: codemode-mcp demo")
def demo() -> None:
    """Show what this server does, from start to finish, with bundled servers and no account."""
    from codemode_mcp.cli.demo import show

    if not anyio.run(show):
        raise typer.Exit(1)
