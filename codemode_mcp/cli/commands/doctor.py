"""`codemode-mcp doctor` and `codemode-mcp setup`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.shared import load, logging_as, plugins_on_stderr, say, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from codemode_mcp.cli.doctor import Check, Checkup
    from codemode_mcp.cli.mcp_clients.own_entries import OwnEntry
    from codemode_mcp.config import Config


app = typer.Typer()

_SHOWN = 4
"""Names of what is still being looked at, in the line of progress."""


@app.command(
    epilog="Example: codemode-mcp doctor --config codemode-mcp.json\n\nExample: codemode-mcp doctor github --json"
)
def doctor(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVER", help="Check only these; default: everything.", autocompletion=server_names),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the configuration, the engine, esbuild, every server and all else; say what to do.

    Exits with 0 where nothing has failed, with 1 where something has, with 2 where the configuration is invalid.
    """
    from codemode_mcp.cli.confirming import ask
    from codemode_mcp.cli.doctor import Checkup, check_config, report
    from codemode_mcp.config.trust import Gate

    loaded, checks = check_config(config, os.environ, Gate(ask))
    only = [] if loaded is None else _known(loaded, servers or [])
    interrupted = False
    with _progress() as tell:
        checkup = Checkup(tell)
        try:
            if loaded is None:
                if not servers:
                    anyio.run(checkup.run, None)
            else:
                # What the checks are about is said by them.
                with logging_as(loaded, level="error"), without("plugin %r is refused"), plugins_on_stderr():
                    anyio.run(partial(checkup.run, loaded, only, _other_clients, _own_code_mode, _own_entries))
        except KeyboardInterrupt:
            interrupted = True
    checks = report.joined([*checks, *checkup.checks])
    if as_json:
        print(json.dumps(report.as_json(checks), ensure_ascii=True, indent=2))  # noqa: T201
    else:
        _print(report.lines(checks, "→" if _encodable("→") else "->"))
        say(report.summary(checks))
    if interrupted:
        left = ", ".join(checkup.waiting) or "nothing"
        stop(1, f"doctor: interrupted; not looked at to the end: {left}. Name servers to check only these")
    if code := report.exit_code(checks, config_is_valid=loaded is not None):
        raise typer.Exit(code)


@app.command(epilog="Example: codemode-mcp setup\n\nExample: codemode-mcp setup --no-servers")
def setup(
    config: ConfigOption = None,
    no_servers: Annotated[bool, typer.Option("--no-servers", help="Start no server; only esbuild and engine.")] = False,
) -> None:
    """Make ahead of time what the first program would wait for: esbuild, the compiled engine, the servers' listings.

    What is there already is left as it is. Nothing but esbuild (with npm) and what servers load themselves is fetched.
    """
    from codemode_mcp.cli.doctor import report
    from codemode_mcp.cli.doctor.ahead import make_ahead

    loaded = load(config, None, None)
    done: list[Check] = []

    def tell(check: Check) -> None:
        check = replace(check, detail=redact(check.detail), advice=redact(check.advice))
        done.append(check)
        with redirect_stdout(out):
            _print(report.lines([check], "→" if _encodable("→") else "->"))

    with logging_as(loaded, level="error") as redact, plugins_on_stderr() as out:
        try:
            anyio.run(partial(make_ahead, loaded, tell, servers=not no_servers))
        except KeyboardInterrupt:
            stop(1, "setup: interrupted; what is listed above is done, run codemode-mcp setup again for the rest")
    if any(check.status == "fail" for check in done):
        raise typer.Exit(1)


def _other_clients(config: Config) -> Sequence[str]:
    from codemode_mcp.cli.mcp_clients.importing import told_of_shared
    from codemode_mcp.cli.mcp_clients.reading import this_machine

    return told_of_shared(config.path, this_machine())


def _own_code_mode() -> Sequence[str]:
    from codemode_mcp.cli.mcp_clients.importing import clients_with_code_mode
    from codemode_mcp.cli.mcp_clients.reading import this_machine

    return clients_with_code_mode(this_machine())


def _own_entries() -> Sequence[OwnEntry]:
    from codemode_mcp.cli.mcp_clients.own_entries import own_entries
    from codemode_mcp.cli.mcp_clients.reading import this_machine

    return own_entries(this_machine())


def _known(config: Config, names: Sequence[str]) -> Sequence[str]:
    """Return the names, if each is a server's. Ends the command otherwise."""
    from codemode_mcp.control.display import cut
    from codemode_mcp.did_you_mean import nearest

    there = [*(spec.name for spec in config.upstreams), *config.disabled]
    for name in names:
        if name not in there:
            close = next(iter(nearest(name, there, count=1)), None)
            hint = (
                f"; did you mean {cut(close, 60)!r}?"
                if close
                else f"; there are: {cut(', '.join(there), 200) or 'none'}"
            )
            stop(2, f"doctor: {config.path or 'the configuration'} has no server {cut(name, 60)!r}{hint}")
    return names


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        encoding = sys.stdout.encoding or "utf-8"
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201


def _encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _progress() -> Iterator[Callable[[Checkup], None]]:
    """Show findings so far and the checks that still run on stderr, until the report takes their place.

    Only at a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots", Text("looking"))
    with Live(spinner, console=Console(stderr=True), transient=True, refresh_per_second=8) as live:

        def tell(checkup: Checkup) -> None:
            spinner.update(text=Text(waiting_for(checkup), overflow="ellipsis", no_wrap=True))
            lines = (Text(line, overflow="ellipsis", no_wrap=True) for line in needing_a_look(checkup))
            live.update(Group(*lines, spinner))

        yield tell


def needing_a_look(checkup: Checkup) -> list[str]:
    """Return a line for each check that has ended and is not all right."""
    from codemode_mcp.control.display import cut

    return [
        cut(f"{check.status}  {check.name}: {check.detail}", 200)
        for check in checkup.checks
        if check.status in ("warn", "fail")
    ]


def waiting_for(checkup: Checkup) -> str:
    """Return the checks that still run, on one line."""
    from codemode_mcp.control.display import cut

    names = [cut(name, 30) for name in checkup.waiting]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{checkup.done} of {checkup.done + len(names)} done; looking at {', '.join(names[:_SHOWN])}{more}"


@contextmanager
def without(beginning: str) -> Iterator[None]:
    """Keep messages of plugins that begin so out of the log."""
    import logging

    def others(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(beginning)

    log = logging.getLogger("codemode_mcp.plugins")
    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)
