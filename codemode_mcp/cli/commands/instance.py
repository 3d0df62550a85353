"""`codemode-mcp instance`: the shared instance, which serves all clients of one configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from codemode_mcp.cli.instance_control import (
    POLL_SECONDS,
    STOP_SECONDS,
    advice_for,
    answer_of,
    ask_instance,
    end_instance,
    folder_errors,
    running_record,
)
from codemode_mcp.cli.messages import print_json, say, stop, wrap
from codemode_mcp.cli.options import ConfigOption, JsonOption

app = typer.Typer(
    name="instance",
    no_args_is_help=True,
    help="Show and control the shared instance, the process that serves all clients of a configuration.",
    epilog="Example: codemode-mcp instance status\n\nExample: codemode-mcp instance stop",
)

FOLLOW_SECONDS: Final = 0.3
"""Seconds between two looks at a log that is followed."""

_NOT_SHARED: Final = "instance.shared: false"
_NONE: Final = "No shared instance runs for this configuration."


@app.command(
    epilog="Example: codemode-mcp instance status\n\nExample: codemode-mcp instance status --json\n\n"
    "Example: codemode-mcp instance status --all"
)
def status(
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the shared instances of all your configurations.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the shared instance, its clients, its servers, and the memory that it saves."""
    if everything:
        _status_of_all(as_json=as_json)
        return
    key = _key(config)
    record = running_record(key)
    facts = None if record is None else ask_instance(record, "instance")["instance"]
    if as_json:
        print_json({"running": facts is not None, "instance": facts})
    elif facts is None:
        print(wrap(f"{_NONE} It starts with the first client."))
    else:
        _print(facts)


def _status_of_all(*, as_json: bool) -> None:
    from codemode_mcp.server.control.client import NoAnswer

    found, problems = [], []
    with folder_errors():
        from codemode_mcp.process.instance import registry

        keys = registry.keys()
    for key in keys:
        record = running_record(key)
        if record is None:
            continue
        try:
            found.append(answer_of(record, "instance")["instance"])
        except NoAnswer as error:
            problems.append(f"{error}. {advice_for(record)}")
    if as_json:
        print_json({"instances": found, "problems": problems})
    elif not found and not problems:
        print("No shared instance runs.")
    else:
        for number, facts in enumerate(found):
            if number:
                print()
            _print(facts)
        for problem in problems:
            say(problem)
    if problems:
        raise typer.Exit(1)


@app.command(epilog="Example: codemode-mcp instance start\n\nExample: codemode-mcp instance start --http --port 8808")
def start(
    config: ConfigOption = None,
    http: Annotated[bool, typer.Option("--http", help="Let it serve MCP over HTTP too, until it ends.")] = False,
    host: Annotated[str | None, typer.Option(help="With --http: address to listen on; default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --http: port; default: 8808; 0: any free port.")
    ] = None,
    path: Annotated[str | None, typer.Option(help="With --http: path of the endpoint; default: /mcp.")] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="With --http: serve every client that reaches the address, without authentication.",
        ),
    ] = False,
) -> None:
    """Start the shared instance before the first client, or let it serve over HTTP.

    Without a client and without HTTP, it ends after a minute.
    """
    if not http:
        for option, value in (("--host", host), ("--port", port), ("--path", path)):
            if value is not None:
                stop(2, f"{option} is for --http; add that, or leave {option} out")
        if allow_unauthenticated:
            stop(2, "--allow-unauthenticated is for --http; add that, or leave it out")
        _start(_admitted_path(config))
        return
    from codemode_mcp.cli.serving import check_path

    check_path(path)
    options = {
        "host": "127.0.0.1" if host is None else host.strip("[]"),
        "port": 8808 if port is None else port,
        "path": "/mcp" if path is None else path.rstrip("/") or "/",
        "allowUnauthenticated": allow_unauthenticated,
    }
    _start_http(config, options)


def _start(path: Path | None) -> None:
    from codemode_mcp.cli.relaying import is_shared
    from codemode_mcp.process.instance import attaching, registry

    if path is not None and not is_shared(path):
        stop(1, f"{path} has {_NOT_SHARED}, so no client would use a shared instance")
    key = registry.key_of(path)
    record = running_record(key)
    if record is not None:
        say(f"The shared instance runs already: process {record.pid}.")
        return
    with folder_errors():
        try:
            attaching.start(key, None if path is None else str(path))
        except attaching.NoInstance as error:
            stop(1, str(error))
    until = time.monotonic() + STOP_SECONDS
    # If a client has started it at the same moment, its record may not be written yet.
    while (started := running_record(key)) is None and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    if started is None:
        stop(1, "the shared instance has started, and has ended; codemode-mcp instance logs may say why")
    say(f"The shared instance runs: process {started.pid}.")


def _start_http(config: str | None, options: Mapping[str, Any]) -> None:
    from codemode_mcp.cli.relaying import is_shared
    from codemode_mcp.process.instance import attaching, registry

    found: list[Path] = []
    path = _path(config, found)
    if path is not None and not is_shared(path):
        stop(1, f"{path} has {_NOT_SHARED}; codemode-mcp serve --transport http serves it")
    client = attaching.Client(None if path is None else str(path), bool(found), os.getcwd(), {"http": options})
    try:
        attached = attaching.attach(registry.key_of(path), client, dict(os.environ))
    except attaching.NoInstance as error:
        stop(1, str(error))
    except attaching.Refused as error:
        if error.code == "private":
            stop(1, f"the configuration has {_NOT_SHARED}; codemode-mcp serve --transport http serves it")
        stop(2 if error.code in ("invalid_config", "not_confirmed") else 1, "\n".join(error.lines))
    attached.connection.close()
    say(f"codemode-mcp serves MCP at {attached.answer.get('url')}, until process {attached.pid} ends")
    for note in attached.answer.get("notes", ()):
        say(str(note))


@app.command("stop", epilog="Example: codemode-mcp instance stop\n\nExample: codemode-mcp instance stop --kill")
def stop_instance(
    config: ConfigOption = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="End the process even if it does not answer. Its runs are not suspended.")
    ] = False,
) -> None:
    """Suspend the runs of the shared instance, and end it. Its clients start the next one."""
    key = _key(config)
    record = running_record(key)
    if record is None:
        say(_NONE)
        return
    end_instance(record, key, kill=kill)
    say(f"The shared instance, process {record.pid}, has ended.")


@app.command(epilog="Example: codemode-mcp instance restart")
def restart(config: ConfigOption = None) -> None:
    """End the shared instance, and start it again. Its runs are suspended, and its clients stay connected."""
    path = _admitted_path(config)
    from codemode_mcp.process.instance import registry

    key = registry.key_of(path)
    record = running_record(key)
    if record is not None:
        end_instance(record, key, kill=False)
    # If a client has started the next one meanwhile, that one counts.
    _start(path)


@app.command(epilog="Example: codemode-mcp instance logs --lines 100\n\nExample: codemode-mcp instance logs --follow")
def logs(
    config: ConfigOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
) -> None:
    """Print the end of the log of the shared instance. The log stays when the instance has ended."""
    from codemode_mcp.base.display import plain
    from codemode_mcp.process.instance import registry

    with folder_errors():
        path = registry.log_path(_key(config))
    try:
        with path.open("rb") as file:
            text = file.read()
            position = file.tell()
    except FileNotFoundError:
        say(f"No shared instance has written a log for this configuration; it would be {path}.")
        return
    except OSError as error:
        stop(1, f"{path}: {error.strerror}")
    for line in text.decode("utf-8", "replace").splitlines()[-lines:]:
        print(plain(line))
    if follow:
        with suppress(KeyboardInterrupt):
            for line in _new_lines(path, position):
                print(plain(line), flush=True)


def _new_lines(path: Path, position: int) -> Iterator[str]:
    """Yield the lines that are appended to a log, also after the file was replaced by a new one."""
    rest = b""
    while True:
        time.sleep(FOLLOW_SECONDS)
        try:
            with path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < position:
                    position, rest = 0, b""
                file.seek(position)
                rest += file.read()
                position = file.tell()
        except OSError:
            continue
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")


@app.command(hidden=True, epilog="Example: codemode-mcp instance run --key 0123456789abcdef")
def run(
    key: Annotated[str, typer.Option("--key", help="Key of the instance.")],
    config: ConfigOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Serve in a child of this process.")] = False,
) -> None:
    """Be the shared instance. Relays start this command."""
    from codemode_mcp.cli.command_service import run_command
    from codemode_mcp.process.instance.host import run as run_instance

    raise typer.Exit(run_instance(key, config, run_command, detach=detach))


# the instance of a configuration


def _path(config: str | None, found: list[Path] | None = None) -> Path | None:
    """Return the absolute path of a configuration. A file that was found in the working directory is added to `found`.

    Nothing of the file is used here, so it need not be confirmed.
    """
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.cli.deciding import find

    try:
        path = find(config, ([] if found is None else found).append)
    except ConfigError as error:
        stop(2, "\n".join(error.problems))
    return None if path is None else Path(os.path.abspath(path))


def _admitted_path(config: str | None) -> Path | None:
    """Return the absolute path of a configuration that the user has confirmed, if it needs that."""
    from codemode_mcp.base.errors import ConfigError
    from codemode_mcp.cli.deciding import admit, find

    try:
        path = find(config, admit)
    except ConfigError as error:
        stop(2, "\n".join(error.problems))
    return None if path is None else Path(os.path.abspath(path))


def _key(config: str | None) -> str:
    from codemode_mcp.process.instance import registry

    return registry.key_of(_path(config))


def _print(facts: Mapping[str, Any]) -> None:
    from codemode_mcp.cli.instance_control import lines

    for line in lines(facts):
        print(wrap(line))
