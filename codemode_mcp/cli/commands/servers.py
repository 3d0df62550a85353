"""`codemode-mcp servers`: the servers of serving processes of this user, their logs, and their restart."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from codemode_mcp.cli.messages import print_json, say_line, stop_line, suggestion
from codemode_mcp.cli.options import JsonOption, ServedConfigOption
from codemode_mcp.cli.parser import server_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.server.control.endpoints import Endpoint

app = typer.Typer(
    name="servers",
    help="Show the servers of serving processes, and restart them. Without a command: servers status.",
    epilog="Example: codemode-mcp servers status\n\nExample: codemode-mcp servers restart github",
)

ServerArgument = Annotated[
    str, typer.Argument(metavar="SERVER", help="Name of the server.", autocompletion=server_names)
]

POLL_SECONDS: Final = 0.3
"""Interval of requests for new lines of a log, and for the state of a server that restarts."""

RESTART_SECONDS: Final = 60.0
"""Seconds that `restart` waits until a server has connected or failed."""


class _Process(NamedTuple):
    """A serving process with its servers, as it reports them."""

    endpoint: Endpoint
    facts: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]]


@app.callback(invoke_without_command=True)
def servers(context: typer.Context) -> None:
    """Show the servers of serving processes, and restart them. Without a command: servers status."""
    if context.invoked_subcommand is None:
        status()


@app.command(
    epilog="Example: codemode-mcp servers status\n\nExample: codemode-mcp servers status github\n\n"
    "Example: codemode-mcp servers status --json"
)
def status(
    server: Annotated[
        str | None,
        typer.Argument(metavar="SERVER", help="Show all facts about this server.", autocompletion=server_names),
    ] = None,
    config: ServedConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the servers of all serving processes: state, tools, calls in flight, processes, and the last error."""
    from codemode_mcp.cli.serving_processes import detail_lines, process_line, status_lines

    processes, problems = _processes(config, server)
    if as_json:
        print_json({"processes": [{**each.facts, "servers": each.servers} for each in processes], "problems": problems})
        return
    for process in processes:
        if len(processes) > 1:
            print(process_line(process.facts))
        if server is not None:
            lines = [line for each in process.servers for line in detail_lines(each)]
        elif process.servers:
            lines = [*status_lines(process.servers, _width())]
        else:
            lines = [f"The configuration of process {process.endpoint.pid} has no servers."]
        for line in lines:
            print(line)
    if not processes and not problems:
        say_line(_none_serves(config))
    for problem in problems:
        say_line(problem)


@app.command(epilog="Example: codemode-mcp servers restart github")
def restart(server: ServerArgument, config: ServedConfigOption = None) -> None:
    """End a server with its calls in flight, and start it again. A server that is down or idle is connected now.

    This happens in every serving process that has a server of this name; --config selects one configuration.
    """
    from codemode_mcp.cli.deciding import refuse_to_children
    from codemode_mcp.cli.serving_processes import ask_process, outcome_text
    from codemode_mcp.server.control.protocol import Request

    refuse_to_children("servers restart")
    failed = False
    for process in _with_server(server, config):
        ask_process(process.endpoint, Request("restart", server=server))
        until = time.monotonic() + RESTART_SECONDS
        while True:
            found = _named(ask_process(process.endpoint, Request("servers"))["servers"], server)
            if all(each["state"] != "connecting" for each in found) or time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        for each in found:
            say_line(f"process {process.endpoint.pid}: {outcome_text(each)}")
            failed |= each["state"] != "ready"
    if failed:
        raise typer.Exit(1)


@app.command(epilog="Example: codemode-mcp servers logs github\n\nExample: codemode-mcp servers logs github --follow")
def logs(
    server: ServerArgument,
    config: ServedConfigOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
) -> None:
    """Print the latest lines of a server: its standard error, its log messages, and the ends of its connections.

    A serving process keeps the latest 500 lines of each server. Secrets in them are replaced.
    """
    from codemode_mcp.cli.serving_processes import ask_process, log_line
    from codemode_mcp.server.control.protocol import Request

    processes = _with_server(server, config)
    latest = [0] * len(processes)
    first = True
    with suppress(KeyboardInterrupt):
        while first or follow:
            for number, process in enumerate(processes):
                found = ask_process(process.endpoint, Request("logs", server=server, after=latest[number]))["lines"]
                latest[number] = found[-1]["number"] if found else latest[number]
                prefix = f"{process.endpoint.pid} " if len(processes) > 1 else ""
                for line in found[-lines:] if first else found:
                    print(f"{prefix}{log_line(line)}", flush=True)
            first = False
            if follow:
                time.sleep(POLL_SECONDS)


def _processes(config: str | None, server: str | None) -> tuple[list[_Process], list[str]]:
    """Return the serving processes, and a sentence for each that did not answer.

    Args:
        server: only this server, and the processes that have it. End the command if no process has it.
    """
    from codemode_mcp.cli.serving_processes import ask_processes
    from codemode_mcp.server.control.protocol import Request

    found = ask_processes(Request("servers"), config)
    every = [_Process(endpoint, answer["server"], answer["servers"]) for endpoint, answer in found.answers]
    problems = [
        f"a serving process did not list its servers; restart it if it is of an older version: {problem}"
        for problem in found.problems
    ]
    if server is None:
        return every, problems
    chosen = [each._replace(servers=_named(each.servers, server)) for each in every]
    chosen = [each for each in chosen if each.servers]
    if not chosen:
        for problem in problems:
            say_line(problem)
        known = {each["name"] for process in every for each in process.servers}
        if not every:
            stop_line(1, _none_serves(config))
        stop_line(2, f"no serving process has a server {server!r}; {suggestion(server, known)}")
    return chosen, problems


def _with_server(server: str, config: str | None) -> list[_Process]:
    """Return the processes in which a server is enabled. End the command if there is none."""
    processes, problems = _processes(config, server)
    for problem in problems:
        say_line(problem)
    enabled = [each for each in processes if any(found["state"] != "disabled" for found in each.servers)]
    if not enabled:
        stop_line(1, f"server {server!r} is disabled in the configuration; remove disabled: true there to use it")
    return enabled


def _named(found: Sequence[Mapping[str, Any]], server: str) -> list[Mapping[str, Any]]:
    return [each for each in found if each["name"] == server]


def _none_serves(config: str | None) -> str:
    which = "" if config is None else f" with {config}"
    return (
        f"no codemode-mcp serve of this user is running{which}; a client starts it; codemode-mcp doctor checks the "
        "servers of a configuration"
    )


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
