"""`codemode-mcp doctor` and `codemode-mcp setup`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from msgspec.structs import replace

from codemode_mcp.base.text import listed
from codemode_mcp.cli.loading import load, log_filter, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import print_json, say, stop, suggestion
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.parser import server_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from codemode_mcp.config import Config
    from codemode_mcp.extensions.setup.doctor import Check, Checkup

app = typer.Typer()

_MAX_RUNNING = 4
"""Names of running checks in the progress line."""


@app.command(
    epilog="Example: codemode-mcp doctor --config codemode-mcp.json\n\nExample: codemode-mcp doctor github --json"
)
def doctor(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVER", help="Check only these servers; default: all.", autocompletion=server_names),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the configuration, the engine, esbuild, every server and more, and say what to do.

    The exit code is 0 if nothing failed, 1 if a check failed, and 2 if the configuration is invalid.
    """
    from codemode_mcp.cli import check
    from codemode_mcp.cli.deciding import ask
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.extensions.setup.doctor import Checkup, check_config
    from codemode_mcp.extensions.setup.mcp_clients import client_files, own_entries

    loaded, checks = check_config(config, os.environ, Gate(ask))
    only = [] if loaded is None else _known(loaded, servers or [])
    interrupted = False
    machine = client_files.this_machine()
    with _progress() as show:
        checkup = Checkup(show)
        try:
            if loaded is None:
                if not servers:
                    anyio.run(checkup.run, None)
            else:
                # The checks report refused plugins themselves.
                with (
                    logging_of(loaded, level="error"),
                    log_filter("codemode_mcp.plugins", lambda entry: "plugin %r is refused" not in str(entry.msg)),
                    plugins_on_stderr(),
                ):
                    anyio.run(
                        partial(
                            checkup.run,
                            loaded,
                            only,
                            lambda config: own_entries.overlap_warnings(config.path, machine),
                            lambda: own_entries.clients_with_code_mode(machine),
                            lambda: own_entries.own_entries(machine),
                        )
                    )
        except KeyboardInterrupt:
            interrupted = True
    checks = check.joined([*checks, *checkup.checks])
    if as_json:
        print_json(check.as_json(checks))
    else:
        _print(checks)
        say(check.summary(checks))
    if interrupted:
        left = ", ".join(checkup.waiting) or "nothing"
        stop(1, f"doctor: interrupted; unfinished checks: {left}. To check only some servers, name them")
    if code := check.exit_code(checks, config_is_valid=loaded is not None):
        raise typer.Exit(code)


@app.command(epilog="Example: codemode-mcp setup\n\nExample: codemode-mcp setup --no-servers")
def setup(
    config: ConfigOption = None,
    no_servers: Annotated[bool, typer.Option("--no-servers", help="Prepare esbuild and the engine only.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Also fetch the compiler of TypeScript (10 MB), for type checks."),
    ] = False,
) -> None:
    """Prepare ahead of time what the first program would wait for: esbuild, the compiled engine, the lists of tools.

    What is already there is kept. Only esbuild is downloaded (with npm), and what servers download when they start.
    With --check, or with "check" in tools.codeMode, the compiler of TypeScript is downloaded too.
    """
    from codemode_mcp.extensions.setup.doctor.checkup import make_ahead

    loaded = load(config, None, None)
    done: list[Check] = []

    def report(check: Check) -> None:
        check = replace(check, detail=redactor.own(check.detail), advice=redactor.own(check.advice))
        done.append(check)
        with redirect_stdout(out):
            _print([check])

    with logging_of(loaded, level="error") as redactor, plugins_on_stderr() as out:
        try:
            anyio.run(partial(make_ahead, loaded, report, servers=not no_servers, check=check))
        except KeyboardInterrupt:
            stop(1, "setup: interrupted; the steps above are done; run codemode-mcp setup again for the rest")
    if any(check.status == "fail" for check in done):
        raise typer.Exit(1)


def _known(config: Config, names: Sequence[str]) -> Sequence[str]:
    """Return the names if each is the name of a server. End the command otherwise."""
    from codemode_mcp.base.display import cut

    known = [*(spec.name for spec in config.upstreams), *config.disabled]
    for name in names:
        if name not in known:
            where = config.path or "the configuration"
            stop(2, f"doctor: {where} has no server {cut(name, 60)!r}; {suggestion(name, known)}")
    return names


def _print(checks: Sequence[Check]) -> None:
    from codemode_mcp.cli import check

    arrow = "→"
    try:
        arrow.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        arrow = "->"
    for line in check.lines(checks, arrow):
        print(line, flush=True)


@contextmanager
def _progress() -> Iterator[Callable[[Checkup], None]]:
    """Show on stderr the findings so far and the running checks, until the report replaces them.

    Does nothing where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots", Text("checking"))
    with Live(spinner, console=Console(stderr=True), transient=True, refresh_per_second=8) as live:

        def show(checkup: Checkup) -> None:
            spinner.update(text=Text(running_line(checkup), overflow="ellipsis", no_wrap=True))
            lines = (Text(line, overflow="ellipsis", no_wrap=True) for line in problem_lines(checkup))
            live.update(Group(*lines, spinner))

        yield show


def problem_lines(checkup: Checkup) -> list[str]:
    """Return a line for each check that has ended with a warning or a failure."""
    from codemode_mcp.base.display import cut

    return [
        cut(f"{check.status}  {check.name}: {check.detail}", 200)
        for check in checkup.checks
        if check.status in ("warn", "fail")
    ]


def running_line(checkup: Checkup) -> str:
    """Return the checks that are still running, on one line."""
    from codemode_mcp.base.display import cut

    names = [cut(name, 30) for name in checkup.waiting]
    return f"{checkup.done} of {checkup.done + len(names)} done; checking {listed(names, _MAX_RUNNING)}"
