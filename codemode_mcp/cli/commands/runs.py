"""`codemode-mcp runs`: the runs of serving processes and stores of this user, and decisions about them at a terminal.

Listings go to stdout, questions to a person to stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from codemode_mcp.cli.deciding import confirm, require_person
from codemode_mcp.cli.messages import COLUMNS, print_json, say_line, stop_line
from codemode_mcp.cli.options import JsonOption, ServedConfigOption
from codemode_mcp.cli.parser import live_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.cli.serving_processes import Listing
    from codemode_mcp.rules.policy.approval import Remember

app = typer.Typer(
    name="runs",
    no_args_is_help=True,
    help="Show the runs of serving processes, and decide about calls that wait for approval.",
    epilog="Example: codemode-mcp runs list\n\nExample: codemode-mcp runs approve run_4fK2mQ8xZ1",
)

MAX_CALLS_TOGETHER = 20
"""Calls that a person is asked to approve in one question."""

MAX_RUNS = 1000
"""Runs in a table."""

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, or its unique beginning.", autocompletion=live_runs)
]
CallsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="CALL", help="Numbers of calls; default: all that wait.")
]


@app.command("list", epilog="Example: codemode-mcp runs list --json")
def list_runs(config: ServedConfigOption = None, as_json: JsonOption = False) -> None:
    """List the runs of all serving processes of this user, with suspended runs in a store and ended runs."""
    from codemode_mcp.base.display import table
    from codemode_mcp.cli import serving_processes
    from codemode_mcp.cli.serving_processes import list_all

    found = list_all(config)
    if as_json:
        print_json(_listing_json(found))
        return
    shown = found.runs[:MAX_RUNS]
    if shown:
        rows = [serving_processes.run_row(each, time.time()) for each in shown]
        _print(table(serving_processes.RUN_HEAD, rows, _table_width()))
    totals = serving_processes.totals_line(found.stores)
    if totals is not None:
        _print([totals])
    if len(found.runs) > len(shown):
        say_line(f"{len(found.runs) - len(shown)} more runs; runs list --json has all of them")
    for _, answer in found.answers:
        if answer["omitted"]:
            say_line(f"process {answer['server']['pid']} has {answer['omitted']} more runs")
    if shown and not found.answers:
        say_line(
            "no codemode-mcp serve of this user is running, so no run progresses; the suspended ones are in "
            f"{found.stored.name}; start a client or codemode-mcp serve to resume them or to decide about their calls"
        )
    if not shown:
        count, which = len(found.answers), "" if config is None else f" with {config}"
        if count:
            say_line(f"no runs; {count} serving process{'' if count == 1 else 'es'}{which}")
        elif found.problems:
            say_line(f"no runs are known{which}")
        else:
            say_line(f"no runs: no codemode-mcp serve of this user is running{which}; a client starts it")
    for problem in found.problems:
        say_line(problem)


def _listing_json(found: Listing) -> dict[str, Any]:
    return {
        "servers": [
            {
                **answer["server"],
                "store": answer.get("store"),
                "runs": [each.view for each in found.runs if each.source is endpoint],
                "omitted": answer["omitted"],
            }
            for endpoint, answer in found.answers
        ],
        "store": found.stored.totals
        and {**found.stored.totals, "runs": [each.view for each in found.runs if each.source is None]},
        "problems": found.problems,
    }


@app.command(epilog="Example: codemode-mcp runs show run_4fK2mQ8xZ1")
def show(run: RunArgument, config: ServedConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one run with its calls, and the calls that wait for approval."""
    from codemode_mcp.base.display import table
    from codemode_mcp.cli import serving_processes
    from codemode_mcp.cli.serving_processes import find_run
    from codemode_mcp.server.control.protocol import is_here, where

    endpoint, answer = find_run(run, config)
    view, server = answer["run"], answer["server"]
    if as_json:
        print_json({"server": server, **view})
        return
    _print(serving_processes.heading(view, time.time()))
    if endpoint is None or not is_here(view):
        _print([f"  {serving_processes.location_text(view)};", f"  {serving_processes.made_line(view)}"])
        if endpoint is None and where(view) == "stored" and view["endedMs"] is None:
            say_line("start a client or codemode-mcp serve to see its calls and to decide about them")
        return
    _print(
        [f"  process {server['pid']} ({server['transport']}, {server['mode']}), {server['config'] or 'no file'}", ""]
    )
    calls = view["calls"]
    if view["callCount"] > len(calls):
        _print([f"the latest {len(calls)} of {view['callCount']} calls:"])
    rows = [serving_processes.call_row(call) for call in calls]
    _print(table(serving_processes.CALL_HEAD, rows, _table_width()) if rows else ["no calls"])
    if view["waiting"]:
        _print(["", "waiting for approval:", *_approval_lines(view["waiting"]), ""])
        _print([f"decide with  codemode-mcp runs approve {view['id']}"])
        _print([f"or           codemode-mcp runs deny {view['id']}"])
    if view["waitingOmitted"]:
        _print([f"{view['waitingOmitted']} more calls wait; they are shown when these are decided"])


@app.command(epilog="Example: codemode-mcp runs approve run_4fK2mQ8xZ1 2 3 --remember run")
def approve(
    run: RunArgument,
    calls: CallsArgument = None,
    remember: Annotated[
        Literal["no", "run", "always"], typer.Option(help="Approve only these calls, later ones of this run, or all.")
    ] = "no",
    config: ServedConfigOption = None,
) -> None:
    """Show calls that wait for approval, and approve them after a confirmation."""
    _decide(run, calls or [], config, approved=True, remember=remember)


@app.command(epilog="Example: codemode-mcp runs deny run_4fK2mQ8xZ1")
def deny(run: RunArgument, calls: CallsArgument = None, config: ServedConfigOption = None) -> None:
    """Show calls that wait for approval, and deny them after a confirmation."""
    _decide(run, calls or [], config, approved=False, remember="no")


@app.command(epilog="Example: codemode-mcp runs cancel run_4fK2mQ8xZ1")
def cancel(run: RunArgument, config: ServedConfigOption = None) -> None:
    """End a run and cancel its calls, after a confirmation."""
    from codemode_mcp.cli.serving_processes import ask_process, find_run, stop_unserved, summary
    from codemode_mcp.server.control.protocol import Request

    require_person("runs cancel")
    endpoint, answer = find_run(run, config)
    view = answer["run"]
    if view["endedMs"] is not None:
        stop_line(1, f"run {view['id']} has ended already; codemode-mcp runs list shows which have not")
    say_line(summary(view))
    if endpoint is None or view.get("where") == "stored":
        stop_unserved("cancelled", view)
    confirm("cancel", "this run")
    if not ask_process(endpoint, Request("cancel", view["id"]))["cancelled"]:
        stop_line(1, f"run {view['id']} ended before it could be cancelled")
    say_line(f"run {view['id']} is cancelled")


@app.command(epilog="Example: codemode-mcp runs export run_4fK2mQ8xZ1 --output report.jsonl")
def export(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write; default: RUN.jsonl.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="The folder of serve --record; default: as configured.")
    ] = None,
    config: ServedConfigOption = None,
) -> None:
    """Write the recording of a run to one file, for a replay or a bug report.

    The file has the program, the definitions of its tools, its calls with arguments and results, and its output. Only
    secrets of the configuration and of logins are masked.
    """
    from codemode_mcp.cli import recording_files
    from codemode_mcp.cli.recording_files import exported_run

    found = exported_run(run, config, folder)
    output = Path(f"{found.run_id}.jsonl") if output is None else output
    if found.path is None or not output.exists() or not output.samefile(found.path):
        recording_files.make_way(output)
        recording_files.write_private(output, found.data)
    say_line(f"the recording of run {found.run_id} is in {output}")
    recording_files.describe(output)


def _decide(run: str, calls: Sequence[int], config: str | None, *, approved: bool, remember: Remember) -> None:
    from codemode_mcp.audit.trajectory_files import deadline
    from codemode_mcp.base.display import cut
    from codemode_mcp.cli import serving_processes
    from codemode_mcp.cli.serving_processes import ask_process, find_run, stop_unserved
    from codemode_mcp.server.control.protocol import Request

    verb, done = ("approve", "approved") if approved else ("deny", "denied")
    require_person(f"runs {verb}")
    endpoint, answer = find_run(run, config)
    view = answer["run"]
    waiting = view["waiting"]
    if endpoint is None or (view.get("where") == "stored" and view["endedMs"] is None):
        stop_unserved("decided", view)
    if view.get("where") == "elsewhere":
        stop_line(
            1,
            f"run {view['id']} is {serving_processes.location_text(view)}; decide there, or when it is suspended again",
        )
    if not waiting:
        state = serving_processes.state_text(view)
        stop_line(1, f"no call of run {view['id']} waits for approval; it is {state}; see codemode-mcp runs list")
    for number in calls:
        if number not in [each["call"] for each in waiting]:
            stop_line(
                1, f"call {number} of run {view['id']} does not wait for approval; see codemode-mcp runs show RUN"
            )
    chosen = [each for each in waiting if not calls or each["call"] in calls]
    if approved:
        chosen = chosen[:MAX_CALLS_TOGETHER]
    left = len(calls or waiting) + (0 if calls else view["waitingOmitted"]) - len(chosen)
    say_line(f"run {view['id']}, caller {serving_processes.caller_text(view)}, process {endpoint.pid}")
    for line in _approval_lines(chosen):
        say_line(line)
    if remember == "run":
        say_line(
            "Every other call of these tools in this run will be made without asking, whatever its arguments. That "
            "includes the calls that wait now."
        )
    elif remember == "always":
        say_line(
            "Later calls of these tools will never need approval again, whatever their arguments and their caller: "
            f"the tools are added to tools.approved in {answer['server']['config'] or 'the configuration'}."
        )
    if left:
        say_line(f"{left} more wait, which are not part of this decision.")
    tools = Counter(each["tool"] for each in chosen)
    names = ", ".join(cut(tool, 50) + (f" {count} times" if count > 1 else "") for tool, count in tools.items())
    say_line("")
    confirm(verb, f"{names} as shown above")
    seen = tuple((each["call"], each["digest"]) for each in chosen)
    answer = ask_process(endpoint, Request("decide", view["id"], seen, approved, remember))
    decided = answer["decided"]
    if decided:
        say_line(f"{done}: call{'' if len(decided) == 1 else 's'} {', '.join(map(str, decided))}")
        if answer.get("expiresMs") is not None:
            until = deadline(answer["expiresMs"], time.time())
            say_line(f"the client must call wait by {until}")
    missed = ", ".join(str(each["call"]) for each in chosen if each["call"] not in decided)
    if missed:
        stop_line(1, f"not {done}, since they no longer wait: {missed}; codemode-mcp runs show RUN has their state")


def _approval_lines(waiting: Iterable[Mapping[str, Any]]) -> list[str]:
    from codemode_mcp.cli.serving_processes import approval_lines

    return list(approval_lines(waiting, min(shutil.get_terminal_size().columns, COLUMNS)))


def _table_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000


def _print(lines: Iterable[str]) -> None:
    from codemode_mcp.base.display import plain

    for line in lines:
        print(plain(line))
