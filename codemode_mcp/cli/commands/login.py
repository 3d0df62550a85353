"""`codemode-mcp login` and `codemode-mcp logout`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
import typer

from codemode_mcp.cli.completion import remote_server_names
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.shared import load, logging_as, stop

app = typer.Typer()

ServerArgument = Annotated[
    str, typer.Argument(help="The name of the server in the configuration.", autocompletion=remote_server_names)
]


@app.command(epilog="Example: codemode-mcp login docs --no-browser")
def login(
    server: ServerArgument,
    config: ConfigOption = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to wait for the browser.")] = 300,
) -> None:
    """Log in to a server that wants it, with a browser.

    The login is kept in the system keyring, else in a private file in the folder of your data.
    """
    from codemode_mcp.cli.browser_login import NoLoginHere, can_open_browser, find_server, log_in, open_browser
    from upstream_clients.errors import LoginError

    loaded = load(config, "warning", None)

    def show(url: str) -> None:
        opens = not no_browser and can_open_browser()
        print(f"{'If no browser opens, open' if opens else 'Open in a browser'}:\n\n  {url}\n", flush=True)  # noqa: T201
        if opens:
            open_browser(url)

    with logging_as(loaded):
        try:
            spec = find_server(loaded, server)
        except NoLoginHere as error:
            stop(2, str(error))
        try:
            where = anyio.run(partial(log_in, spec, show, timeout=timeout))
        except LoginError as error:
            stop(1, spec.redact(f"no login to server {server!r}: {error}"))
        except KeyboardInterrupt:
            stop(1, f"no login to server {server!r}: interrupted; run codemode-mcp login again")
    print(f"logged in to server {server!r}; the login is kept in {where}")  # noqa: T201


@app.command(epilog="Example: codemode-mcp logout docs")
def logout(
    server: ServerArgument,
    config: ConfigOption = None,
) -> None:
    """Forget the login to a server."""
    from codemode_mcp.cli.browser_login import NoLoginHere, find_server, log_out
    from upstream_clients.errors import LoginError

    loaded = load(config, "warning", None)
    with logging_as(loaded):
        try:
            spec = find_server(loaded, server)
            there_was = anyio.run(log_out, spec)
        except NoLoginHere as error:
            stop(2, str(error))
        except LoginError as error:
            stop(1, spec.redact(f"still logged in to server {server!r}: {error}"))
    print(  # noqa: T201
        f"logged out of server {server!r}" if there_was else f"there was no login to server {server!r}"
    )
