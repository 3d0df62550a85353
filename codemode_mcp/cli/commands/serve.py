"""`codemode-mcp serve` and `codemode-mcp demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
import typer

from codemode_mcp.cli import options

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp serve --config codemode-mcp.json\n\n"
    "Example: codemode-mcp serve --transport http --port 8808"
)
def serve(
    config: options.ConfigOption = None,
    transport: Annotated[str, typer.Option(metavar="<stdio|http>", help="Transport of MCP.")] = "stdio",
    host: Annotated[str | None, typer.Option(help="With http: address to listen on; default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With http: port; default: 8808; 0: any free port.")
    ] = None,
    path: Annotated[str | None, typer.Option(help="With http: path of the endpoint; default: /mcp.")] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="With http: serve every client that reaches the address, without authentication.",
        ),
    ] = False,
    read_only: options.ReadOnlyOption = False,
    locked: options.LockedOption = False,
    context: options.ContextOption = None,
    log_level: options.LogLevelOption = None,
    log_file: options.LogFileOption = None,
    private: Annotated[
        bool, typer.Option("--private", help="With stdio: serve in this process, without the shared instance.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Record each program into a file of this folder. Implies --private."),
    ] = None,
) -> None:
    """Serve MCP on standard input and output, or over HTTP."""
    if transport == "stdio" and (host, port, path) == (None, None, None):
        from codemode_mcp.cli.relaying import serve_by_relay

        serve_by_relay(
            config=config,
            read_only=read_only,
            locked=locked,
            context=context,
            log_level=log_level,
            log_file=log_file,
            private=private or record is not None,
        )
    from codemode_mcp.cli.serving import run

    run(
        config=config,
        transport=transport,
        host=host,
        port=port,
        path=path,
        allow_unauthenticated=allow_unauthenticated,
        read_only=read_only,
        locked=locked,
        context=context,
        log_level=log_level,
        log_file=log_file,
        record=record,
    )


@app.command(epilog="Example: codemode-mcp demo")
def demo() -> None:
    """Show what this server does, from start to finish, with bundled servers and no account."""
    from codemode_mcp.cli.demo import show

    if not anyio.run(show):
        raise typer.Exit(1)
