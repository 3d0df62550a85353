"""`codemode-mcp login` and `codemode-mcp logout`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
import typer

from codemode_mcp.cli.loading import load, logging_of
from codemode_mcp.cli.messages import stop
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.parser import remote_server_names

app = typer.Typer()

ServerArgument = Annotated[
    str, typer.Argument(help="Name of the server in the configuration.", autocompletion=remote_server_names)
]


@app.command(epilog="Example: codemode-mcp login docs --no-browser")
def login(
    server: ServerArgument,
    config: ConfigOption = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to wait for the browser.")] = 300,
) -> None:
    """Log in, with a browser, to a server that requires a login.

    The login is kept in the system keyring, or else in a private file in your data folder.
    """
    from codemode_mcp.cli.browser_login import NoLoginPossible, can_open_browser, find_server, log_in, open_browser
    from upstream_clients.errors import LoginError

    loaded = load(config, "warning", None)

    def show(url: str) -> None:
        opens = not no_browser and can_open_browser()
        print(f"{'If no browser opens, open' if opens else 'Open in a browser'}:\n\n  {url}\n", flush=True)
        if opens:
            open_browser(url)

    with logging_of(loaded):
        try:
            spec = find_server(loaded, server)
        except NoLoginPossible as error:
            stop(2, str(error))
        try:
            where = anyio.run(partial(log_in, spec, show, timeout=timeout))
        except LoginError as error:
            stop(1, f"no login to server {server!r}: {spec.redact(str(error))}")
        except KeyboardInterrupt:
            stop(1, f"no login to server {server!r}: interrupted; run codemode-mcp login again")
    print(f"logged in to server {server!r}; the login is kept in {where}")


@app.command(epilog="Example: codemode-mcp logout docs")
def logout(server: ServerArgument, config: ConfigOption = None) -> None:
    """Delete the login to a server, and revoke it if the server allows that."""
    from codemode_mcp.cli.browser_login import NoLoginPossible, find_server, log_out
    from upstream_clients.errors import LoginError

    loaded = load(config, "warning", None)
    with logging_of(loaded):
        try:
            spec = find_server(loaded, server)
            had_login = anyio.run(log_out, spec)
        except NoLoginPossible as error:
            stop(2, str(error))
        except LoginError as error:
            stop(1, f"still logged in to server {server!r}: {spec.redact(str(error))}")
    print(f"logged out of server {server!r}" if had_login else f"there was no login to server {server!r}")
