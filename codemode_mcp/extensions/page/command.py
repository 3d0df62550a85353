"""`codemode-mcp ui`, the page in a browser."""

from __future__ import annotations

import os
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from codemode_mcp.cli.messages import say, stop
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.terminal import is_at_terminal

if TYPE_CHECKING:
    from codemode_mcp.process.instance.attaching import Client


app = typer.Typer()

TOKEN_SECONDS: Final = 60.0
"""Time for which the browser can use the file; see `page.sessions.TOKEN_SECONDS`."""

POLL_SECONDS: Final = 0.05
"""Interval of looks whether the browser has used the file."""


@app.command(epilog="Example: codemode-mcp ui\n\nExample: codemode-mcp ui /approvals")
def ui(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Page to show, such as /runs.")] = "/",
    config: ConfigOption = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser, or print the file to open.")
    ] = True,
) -> None:
    """Open the page that shows servers, runs and approvals, and where a person decides.

    The process that serves the configuration shows it: the shared instance, or `serve --transport http`.
    """
    from codemode_mcp.base.nesting import DEPTH_VARIABLE
    from codemode_mcp.extensions.page.sessions import write_redirect

    if DEPTH_VARIABLE in os.environ:
        stop(1, "ui is not for programs started by a server behind codemode-mcp; use a terminal of your own")
    if not browser and not is_at_terminal():
        stop(1, "ui --no-browser needs a terminal, and a person at it who opens the file; run it in one")
    if not path.startswith("/"):
        stop(2, f"{path}: the path of a page begins with /, such as /runs")
    admitted = _admit(config)
    file, url = Path(str(admitted["file"])), str(admitted["url"])
    try:
        write_redirect(file, url, str(admitted["token"]), path)
    except OSError as error:
        stop(1, f"{file} cannot be written: {error.strerror}")
    try:
        if browser and webbrowser.open(file.as_uri()):
            say(f"The page is at {url}. The browser opens it from {file}.")
        else:
            say(f"Open this file in a browser within {TOKEN_SECONDS:.0f} s: {file}")
        until = time.monotonic() + TOKEN_SECONDS
        while file.exists() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        if file.exists():
            say("No browser has opened the file, so it was removed. Run the command again.")
            raise typer.Exit(1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        with suppress(OSError):
            file.unlink()


def _admit(config: str | None) -> dict[str, Any]:
    """Return the address of the page, a token, and the file for it. Start the shared instance if nothing serves."""
    from codemode_mcp.cli.instance_control import running_record
    from codemode_mcp.cli.relaying import client_of
    from codemode_mcp.cli.serving_processes import ask_process, ask_processes
    from codemode_mcp.server.control.protocol import Request

    shared = client_of(config, {"ui": True})
    if shared is not None and running_record(shared[0]) is not None:
        return _attach(*shared)
    served = config if shared is None else shared[1].config
    for endpoint, _ in ask_processes(Request("clients"), served).answers:
        return ask_process(endpoint, Request("ui"))
    if shared is None:
        stop(1, "no process serves this configuration; start codemode-mcp serve --transport http, and run this again")
    return _attach(*shared)


def _attach(key: str, client: Client) -> dict[str, Any]:
    from codemode_mcp.process.instance import attaching

    try:
        attached = attaching.attach(key, client, dict(os.environ))
    except attaching.NoInstance as error:
        stop(1, str(error))
    except attaching.Refused as error:
        stop(2 if error.code in ("invalid_config", "not_confirmed") else 1, "\n".join(error.lines))
    attached.connection.close()
    return dict(attached.answer)
