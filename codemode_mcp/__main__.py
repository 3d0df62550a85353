"""`codemode-mcp` and `python -m codemode_mcp`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exits with its code."""
    from codemode_mcp.cli import app

    app()


if __name__ == "__main__":
    main()
