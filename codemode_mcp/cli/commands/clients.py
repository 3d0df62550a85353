"""`codemode-mcp clients`: the profiles of known clients, and the clients of serving processes with theirs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codemode_mcp.cli.options import JsonOption
from codemode_mcp.cli.shared import fitted, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

app = typer.Typer()


@app.command(epilog="Example: codemode-mcp clients\n\nExample: codemode-mcp clients --json")
def clients(
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Only processes that serve this configuration.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the clients of all serving processes of this user with their profiles, and the profiles of known clients."""
    from functools import partial

    import anyio

    from codemode_mcp.control.client import ask_all
    from codemode_mcp.control.protocol import Request
    from codemode_mcp.server.profiles import PROFILES, profile_json

    found = anyio.run(partial(ask_all, Request("clients")))
    wanted = None if config is None else Path(config).expanduser().resolve()
    servers = [
        {**answer["server"], "clients": answer["clients"]}
        for _, answer in found.answers
        if wanted is None or (answer["server"]["config"] and Path(answer["server"]["config"]).resolve() == wanted)
    ]
    profiles = [profile_json(each) for each in PROFILES]
    if as_json:
        told = {"servers": servers, "profiles": profiles, "problems": found.problems}
        print(json.dumps(told, ensure_ascii=True, indent=2))  # noqa: T201
        return
    _print("Connected clients:")
    if not any(server["clients"] for server in servers):
        _print("  none; a client is listed after its first request for tools")
    for server in servers:
        for client in server["clients"]:
            for line in _connected(client, server):
                _print(line)
    _print("")
    _print("Known profiles (all other clients get the plain default):")
    for profile in profiles:
        for line in _profile(profile):
            _print(line)
    for problem in found.problems:
        say(f"A serving process did not list its clients; restart it if it is of an older version. It says: {problem}")


def _connected(client: Mapping[str, Any], server: Mapping[str, Any]) -> Iterator[str]:
    from codemode_mcp.control.display import counted, cut
    from codemode_mcp.server.profiles import traits

    named = f"{client['name'] or '(no name)'} {client['version']}".rstrip()
    seen = f"{counted(client['requests'], 'request')}, the latest {client['idleMs'] // 1000} s ago"
    where = f"{server['transport']}, process {server['pid']}"
    yield f"  {cut(named, 60)}: MCP {cut(client['protocol'], 20)}, {where}; {seen}"
    yield f"    profile {cut(client['profile']['client'], 60)}: {traits(client['profile'])}"
    if client["overrides"]:
        yield f"    changed by the configuration: {', '.join(client['overrides'])}"


def _profile(profile: Mapping[str, Any]) -> Iterator[str]:
    from codemode_mcp.server.profiles import traits

    yield f"  {profile['client']}: {traits(profile)}"
    yield f"    {profile['evidence']}"


def _print(text: str) -> None:
    from codemode_mcp.control.display import plain

    encoding = sys.stdout.encoding or "utf-8"
    print(fitted(plain(text)).encode(encoding, "backslashreplace").decode(encoding))  # noqa: T201
