"""`codemode-mcp savings`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
import typer

from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import is_utf8, print_json, say, stop
from codemode_mcp.cli.options import ConfigOption, JsonOption, TrajectoryOption
from codemode_mcp.extensions.savings.exposure import CONNECT_SECONDS, exposure_of
from codemode_mcp.extensions.savings.report import Report, drawn
from codemode_mcp.extensions.savings.report import as_json as report_as_json
from codemode_mcp.extensions.savings.tasks import Exposure, Reads, Tasks, tasks_of

if TYPE_CHECKING:
    from codemode_mcp.config import Config


app = typer.Typer()


_DAY = 24 * 3600.0


@app.command(epilog="Example: codemode-mcp savings --since 7")
def savings(
    config: ConfigOption = None,
    trajectory: TrajectoryOption = None,
    since: Annotated[float | None, typer.Option(metavar="DAYS", min=0.0, help="Only tasks of the last days.")] = None,
    reads: Annotated[
        Literal["content", "structured"], typer.Option(help="Part of a result that your client shows its model.")
    ] = "content",
    bytes_per_token: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.1, max=100.0, help="Bytes per token of the estimate.")
    ] = 4.0,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens that exec and wait save, compared with adding your servers directly, and where they cost more."""
    import shutil

    loaded = load(config, None, None)
    if sys.stderr.isatty():
        say(f"asking {len(loaded.upstreams)} servers for their lists ...")
    with logging_of(loaded, level="error"), plugins_on_stderr():
        exposure = anyio.run(partial(_measured, loaded))
    tasks, unrecorded = _recorded(loaded, trajectory, since, reads)
    report = Report(exposure, tasks, unrecorded, bytes_per_token, reads)
    if as_json:
        print_json(report_as_json(report))
    else:
        for line in drawn(report, shutil.get_terminal_size((100, 24)).columns, unicode=is_utf8(sys.stdout)):
            print(line)


async def _measured(config: Config) -> Exposure:
    """Connect to the servers of a configuration. Return the sizes of their tools, and of `exec` and `wait`."""
    from codemode_mcp.process.app.app import open_app

    # The trajectory is for the user's programs, so this measurement must not write to it.
    async with open_app(replace(config, audit=replace(config.audit, trajectory=None, recordings=None))) as app:
        await app.connect(CONNECT_SECONDS)
        await app.plugins()
        return await exposure_of(app)


def _recorded(config: Config, named: Path | None, since: float | None, reads: Reads) -> tuple[Tasks | None, str]:
    """Return the recorded tasks, and the reason if there are none."""
    from codemode_mcp.audit.trajectory_files import every, files_of

    path = named or (None if config.audit.trajectory is None else Path(config.audit.trajectory))
    if path is None:
        return None, (
            'No tasks are recorded: add "audit": { "trajectory": "runs.jsonl" } to the configuration, restart the '
            "server, work for a while, and run this again."
        )
    try:
        if not files_of(path):
            if named is not None:
                stop(1, f"there is no file {named}; name the file of audit.trajectory")
            return None, f"No tasks are recorded in {path} yet; recording starts when a client calls exec."
        tasks = tasks_of(every(path), reads, 0.0 if since is None else time.time() - since * _DAY)
    except OSError as error:
        stop(1, f"cannot open {error.filename}: {error.strerror}")
    lately = "" if since is None else f" in the last {since:g} days"
    return tasks, "" if tasks.all else f"No tasks of a model are recorded in {path}{lately}."
