"""`codemode-mcp` and `python -m codemode_mcp`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exits with its code."""
    import os
    import sys

    _have_streams()
    from codemode_mcp.cli import app

    try:
        app()
    except BaseException as raised:
        error = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error from None
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has gone; nothing more can be said to them.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        if os.environ.get("CODEMODE_MCP_DEBUG"):
            raise
        from codemode_mcp.cli.shared import say

        say(f"codemode-mcp failed: {type(error).__name__}: {error}")
        say("This is a fault of ours; run it again with CODEMODE_MCP_DEBUG=1 for the details.")
        sys.exit(1)


def _have_streams() -> None:
    """Where one is closed, nothing is read or written, and what is opened next is not in its place."""
    import os
    import sys

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    main()
