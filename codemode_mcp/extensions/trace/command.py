"""`codemode-mcp trace`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from codemode_mcp.cli.loading import load
from codemode_mcp.cli.messages import is_utf8, print_json, say, stop
from codemode_mcp.cli.options import ConfigOption, JsonOption, TrajectoryOption
from codemode_mcp.cli.parser import recorded_runs

app = typer.Typer()


@app.command(epilog="Example: codemode-mcp trace\n\nExample: codemode-mcp trace run_4fK2mQ --html run.html")
def trace(
    run: Annotated[
        str | None,
        typer.Argument(
            help="Id of a run, or its beginning; default: list the latest runs.", autocompletion=recorded_runs
        ),
    ] = None,
    config: ConfigOption = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the timeline as one page of HTML.")] = None,
    as_json: JsonOption = False,
    trajectory: TrajectoryOption = None,
) -> None:
    """Show what a run did and when: its requests, its nested calls, and where it was suspended."""
    import shutil

    from codemode_mcp.audit import trajectory_files
    from codemode_mcp.extensions.trace import timeline as trace

    if run is None and html is not None:
        stop(2, "--html draws one run: name it; codemode-mcp trace lists them")
    if trajectory is None:
        configured = load(config, None, None).audit.trajectory
        if configured is None:
            stop(
                1,
                'no run is recorded: set "audit.trajectory" to a file in the configuration, or name one: --trajectory',
            )
        trajectory = Path(configured)
    elif not trajectory_files.files_of(trajectory):
        stop(1, f"--trajectory {trajectory}: there is no such file; it is created when a client first calls exec")
    try:
        if run is None:
            traces = trajectory_files.latest(trajectory, 20)
            if as_json:
                print_json([trace.as_json(each) for each in traces])
            else:
                for line in trace.listed(traces):
                    print(line)
            if not traces:
                why = "" if trajectory_files.files_of(trajectory) else ": there is no such file"
                say(f"no run is recorded in {trajectory} yet{why}; recording starts when a client calls exec")
            return
        found = trajectory_files.find(trajectory, run)
        if html is not None:
            html.write_text(trace.page(found), "utf-8")
            say(f"written to {html}")
    except trajectory_files.NoTrace as problem:
        stop(1, str(problem))
    except BrokenPipeError:
        raise
    except OSError as error:
        option = "--html" if html is not None and error.filename == str(html) else "--trajectory"
        stop(1, f"cannot open {error.filename}: {error.strerror}; name another file with {option}")
    if as_json:
        print_json(trace.as_json(found))
    elif html is None:
        for line in trace.drawn(found, shutil.get_terminal_size((110, 24)).columns, unicode=is_utf8(sys.stdout)):
            print(line)
