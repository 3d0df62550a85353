"""`codemode-mcp instance`: the shared instance, which serves all clients of one configuration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codemode_mcp.cli.messages import print_json, say, stop, wrap
from codemode_mcp.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.instance.registry import Record

app = typer.Typer(
    name="instance",
    no_args_is_help=True,
    help="Show and control the shared instance, the process that serves all clients of a configuration.",
    epilog="Example: codemode-mcp instance status\n\nExample: codemode-mcp instance stop",
)

STOP_SECONDS = 15.0
"""Seconds that `stop` waits for the end of an instance."""

POLL_SECONDS = 0.05


@app.command(epilog="Example: codemode-mcp instance status\n\nExample: codemode-mcp instance status --json")
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show whether the shared instance runs, its clients, its servers, and the memory that it saves."""
    record, _ = _record(config)
    facts = None if record is None else _ask(record, "instance")["instance"]
    if as_json:
        print_json({"running": facts is not None, "instance": facts})
        return
    if facts is None:
        print(wrap("No shared instance runs for this configuration. It starts with the first client."))
        return
    for line in _lines(facts):
        print(wrap(line))


@app.command("stop", epilog="Example: codemode-mcp instance stop")
def stop_instance(config: ConfigOption = None) -> None:
    """Suspend the runs of the shared instance, and end it. Its clients start the next one."""
    record, key = _record(config)
    if record is None:
        say("No shared instance runs for this configuration.")
        return
    _stop(record, key)
    say(f"The shared instance, process {record.pid}, has ended.")


@app.command(epilog="Example: codemode-mcp instance logs --lines 100")
def logs(
    config: ConfigOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines from the end.")] = 50,
) -> None:
    """Print the end of the log of the shared instance."""
    from codemode_mcp.control.display import plain
    from codemode_mcp.instance import registry

    path = registry.log_path(registry.key_of(_path(config)))
    try:
        text = path.read_text("utf-8", "replace")
    except FileNotFoundError:
        say(f"No shared instance has written a log for this configuration; it would be {path}.")
        return
    except OSError as error:
        stop(1, f"{path}: {error.strerror}")
    for line in text.splitlines()[-lines:]:
        print(plain(line))


@app.command(hidden=True, epilog="Example: codemode-mcp instance run --key 0123456789abcdef")
def run(key: Annotated[str, typer.Option("--key", help="Key of the instance.")], config: ConfigOption = None) -> None:
    """Be the shared instance. Relays start this command."""
    from codemode_mcp.instance.process import run as run_instance

    raise typer.Exit(run_instance(key, config))


def _path(config: str | None) -> Path | None:
    from codemode_mcp.cli.confirming import admit, find
    from codemode_mcp.errors import ConfigError

    try:
        return find(config, admit)
    except ConfigError as error:
        stop(2, "\n".join(error.problems))


def _record(config: str | None) -> tuple[Record | None, str]:
    """Return the record and the key of the instance of a configuration. The record is None if no instance runs."""
    from codemode_mcp.instance import registry

    key = registry.key_of(_path(config))
    record = registry.read_record(key)
    return (record if record is not None and registry.is_running(key) else None), key


def _ask(record: Record, operation: str) -> dict[str, Any]:
    from codemode_mcp.cli.serving_processes import ask_process
    from codemode_mcp.control.endpoints import endpoint_at
    from codemode_mcp.control.protocol import Request

    return ask_process(endpoint_at(Path(record.endpoint), record.pid), Request(operation))  # type: ignore[arg-type]


def _stop(record: Record, key: str) -> None:
    from codemode_mcp.instance import registry

    _ask(record, "stop")
    until = time.monotonic() + STOP_SECONDS
    while registry.is_running(key):
        if time.monotonic() > until:
            stop(1, f"process {record.pid}, the shared instance, has not ended within {STOP_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    from codemode_mcp.control.display import counted, cut, plain

    memory = facts.get("memoryBytes")
    size = "" if memory is None else f", {memory / 1e6:.0f} MB"
    yield f"The shared instance runs: process {facts['pid']}, version {facts['version']}{size}."
    yield f"It has served for {facts['uptimeSeconds']} s: {facts['config'] or 'no configuration file'}."
    yield f"{counted(len(facts['clients']), 'client')}:"
    for client in facts["clients"]:
        limits = [
            name for name, on in (("read-only", client["readOnly"]), (client["context"], client["context"])) if on
        ]
        suffix = f" ({', '.join(limits)})" if limits else ""
        name = cut(plain(client.get("name") or "(no name yet)"), 60)
        yield f"  {name}, relay {client['pid']}, in {cut(plain(client['folder']), 200)}{suffix}"
    yield f"{counted(len(facts['servers']), 'server')}:"
    for server in facts["servers"]:
        yield f"  {cut(plain(server['name']), 60)}: {server['state']}"
    saved = facts.get("saved")
    if saved:
        yield (
            f"Saved against a private server for each client: {counted(saved['processes'], 'process')}, about "
            f"{saved['bytes'] / 1e6:.0f} MB."
        )
