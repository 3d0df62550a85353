"""`codemode-mcp ui`, the page in a browser, and `codemode-mcp clients`, the connected clients."""

from __future__ import annotations

import os
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from codemode_mcp.cli.messages import print_json, say, stop, wrap
from codemode_mcp.cli.options import ConfigOption, JsonOption, ServedConfigOption
from codemode_mcp.cli.terminal import is_at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from codemode_mcp.instance.attaching import Client


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
    from codemode_mcp.nesting import DEPTH_VARIABLE
    from codemode_mcp.page.sessions import write_redirect

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
    from codemode_mcp.control.protocol import Request

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
    from codemode_mcp.instance import attaching

    try:
        attached = attaching.attach(key, client, dict(os.environ))
    except attaching.NoInstance as error:
        stop(1, str(error))
    except attaching.Refused as error:
        stop(2 if error.code in ("invalid_config", "not_confirmed") else 1, "\n".join(error.lines))
    attached.connection.close()
    return dict(attached.answer)


@app.command(epilog="Example: codemode-mcp clients\n\nExample: codemode-mcp clients --json")
def clients(config: ServedConfigOption = None, as_json: JsonOption = False) -> None:
    """List the clients of all serving processes of this user with their profiles, and the profiles of known clients."""
    from codemode_mcp.cli.serving_processes import ask_processes
    from codemode_mcp.control.display import plain
    from codemode_mcp.control.protocol import Request
    from codemode_mcp.server.profiles import PROFILES, profile_json

    found = ask_processes(Request("clients"), config)
    servers = [{**answer["server"], "clients": answer["clients"]} for _, answer in found.answers]
    profiles = [profile_json(each) for each in PROFILES]
    if as_json:
        print_json({"servers": servers, "profiles": profiles, "problems": found.problems})
        return
    for line in _lines(servers, profiles):
        print(wrap(plain(line)))
    for problem in found.problems:
        say(f"A serving process did not list its clients; restart it if it is of an older version. It says: {problem}")


def _lines(servers: list[dict[str, Any]], profiles: list[dict[str, Any]]) -> Iterator[str]:
    from codemode_mcp.server.profiles import traits

    yield "Connected clients:"
    if not any(server["clients"] for server in servers):
        yield "  none; a client is listed after its first request for tools"
    for server in servers:
        for client in server["clients"]:
            yield from _client_lines(client, server)
    yield ""
    yield "Known profiles (all other clients get the plain default):"
    for profile in profiles:
        yield f"  {profile['client']}: {traits(profile)}"
        yield f"    {profile['evidence']}"


def _client_lines(client: Mapping[str, Any], server: Mapping[str, Any]) -> Iterator[str]:
    from codemode_mcp.control.display import counted, cut
    from codemode_mcp.server.profiles import traits

    name = f"{client['name'] or '(no name)'} {client['version']}".rstrip()
    requests = f"{counted(client['requests'], 'request')}, the latest {client['idleMs'] // 1000} s ago"
    process = f"{server['transport']}, process {server['pid']}"
    yield f"  {cut(name, 60)}: MCP {cut(client['protocol'], 20)}, {process}; {requests}"
    yield f"    profile {cut(client['profile']['client'], 60)}: {traits(client['profile'])}"
    if client["overrides"]:
        yield f"    changed by the configuration: {', '.join(client['overrides'])}"
