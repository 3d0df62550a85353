"""Entry point of `codemode-mcp` and `python -m codemode_mcp`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence


def main() -> None:
    """Run the command line, and exit with its code."""
    import os

    _open_missing_streams()
    try:
        _run(sys.argv[1:], os.environ)
    except BaseException as raised:
        error = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error from None
        # `serve` runs without typer around it, so nothing else handles its `typer.Exit`.
        typer = sys.modules.get("typer")
        if typer is not None and isinstance(error, typer.Exit):
            sys.exit(error.exit_code)
        if isinstance(error, BrokenPipeError):
            # The reader of our output is gone. Python would fail again when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        if os.environ.get("CODEMODE_MCP_DEBUG"):
            raise
        from codemode_mcp.cli.messages import say

        say(f"codemode-mcp failed: {type(error).__name__}: {error}")
        say("This is a bug in codemode-mcp. Run the command again with CODEMODE_MCP_DEBUG=1 for a traceback.")
        sys.exit(1)


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    from codemode_mcp.process.app.heap import collect_rarely

    collect_rarely()
    # Common command lines are read without typer, whose import takes long. Clients wait for `serve` and the instance.
    match arguments:
        case _ if "_CODEMODE_MCP_COMPLETE" in environ:
            pass
        case ["serve", *rest]:
            from codemode_mcp.cli.relaying import common_options, serve_by_relay

            options = common_options(rest)
            if options is not None:
                serve_by_relay(**options)
                from codemode_mcp.cli.serving import run

                run(**{name: value for name, value in options.items() if name != "private"})
                return
        case ["instance", "run", *rest]:
            from codemode_mcp.cli.relaying import read_options, spelled

            read = read_options(rest, spelled(("key", "config")), spelled(("detach",)))
            if read is not None and not read[0] and "key" in read[1]:
                from codemode_mcp.cli.command_service import run_command
                from codemode_mcp.process.instance.host import run as run_instance

                sys.exit(run_instance(config=read[1].pop("config", None), run_command=run_command, **read[1]))
        case ["call" | "run" | "tools", *_]:
            from codemode_mcp.cli.running_instance import run_quickly

            try:
                code = run_quickly(arguments)
            except KeyboardInterrupt:  # before the program has begun
                sys.exit(130)
            if code is not None:
                sys.exit(code)
    from codemode_mcp.cli import app

    app()


def _open_missing_streams() -> None:
    """Open the null device for each closed standard stream, so that no other file gets its descriptor."""
    import os

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    main()
