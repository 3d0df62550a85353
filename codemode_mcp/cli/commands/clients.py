"""`codemode-mcp clients`, the connected clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from codemode_mcp.cli.messages import print_json, say, wrap
from codemode_mcp.cli.options import JsonOption, ServedConfigOption

app = typer.Typer()


@app.command(epilog="Example: codemode-mcp clients\n\nExample: codemode-mcp clients --json")
def clients(config: ServedConfigOption = None, as_json: JsonOption = False) -> None:
    """List the clients of all serving processes of this user with their profiles, and the profiles of known clients."""
    from codemode_mcp.base.display import plain
    from codemode_mcp.cli.serving_processes import ask_processes
    from codemode_mcp.server.control.protocol import Request
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
    from codemode_mcp.base.display import counted, cut
    from codemode_mcp.server.profiles import traits

    name = f"{client['name'] or '(no name)'} {client['version']}".rstrip()
    requests = f"{counted(client['requests'], 'request')}, the latest {client['idleMs'] // 1000} s ago"
    process = f"{server['transport']}, process {server['pid']}"
    yield f"  {cut(name, 60)}: MCP {cut(client['protocol'], 20)}, {process}; {requests}"
    yield f"    profile {cut(client['profile']['client'], 60)}: {traits(client['profile'])}"
    if client["overrides"]:
        yield f"    changed by the configuration: {', '.join(client['overrides'])}"
