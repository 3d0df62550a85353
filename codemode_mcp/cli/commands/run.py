"""`codemode-mcp run` and `codemode-mcp call`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from codemode_mcp.cli import options
from codemode_mcp.cli.command_service import ProgramRequest, read_call, read_input, read_program
from codemode_mcp.cli.messages import say, stop
from codemode_mcp.cli.parser import saved_programs, server_names
from codemode_mcp.cli.running_instance import call_there, run_there

if TYPE_CHECKING:
    from codemode_mcp.extension_points import RunDrawing


app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp run report.ts\n\n"
    "Example: codemode-mcp run -e 'return (await MCP.$api()).servers' --json\n\n"
    "Example: codemode-mcp run --trace report.ts\n\n"
    'Example: codemode-mcp run --program weeklyReport --input \'{"repo": "hello"}\'\n\n'
    "Example: codemode-mcp run --replay report.recording.jsonl"
)
def run(
    file: Annotated[Path | None, typer.Argument(help="Program to run; .ts is TypeScript, - is stdin.")] = None,
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Values of `args` in the program.")
    ] = None,
    code: Annotated[str | None, typer.Option("-e", metavar="CODE", help="Program text.")] = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: by file name or by trying.")
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Start only this server; may be repeated.", autocompletion=server_names),
    ] = None,
    config: options.ConfigOption = None,
    read_only: options.ReadOnlyOption = False,
    only_check: Annotated[
        bool, typer.Option("--check", help="Check the types of the program, and do not run it.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Draw a timeline of the calls at the end.")] = False,
    trace_html: Annotated[
        Path | None, typer.Option("--trace-html", metavar="FILE", help="Write the timeline as one page of HTML.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="RECORDING", help="Run a recorded program again, without servers."),
    ] = None,
    saved: Annotated[
        str | None,
        typer.Option(
            "--program",
            metavar="NAME",
            help="Run a saved program; with --replay, a file to run instead of the recorded program.",
            autocompletion=saved_programs,
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="Input of the saved program: JSON, @FILE, or - for stdin."),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Run the saved program even if definitions of its tools have changed."),
    ] = False,
    loose: Annotated[
        bool, typer.Option("--loose", help="With --replay: answer calls by their tool, whatever the arguments are.")
    ] = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
    log_level: options.LogLevelOption = None,
    log_file: options.LogFileOption = None,
    private: options.PrivateOption = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write a recording of the run. Implies --private."),
    ] = None,
) -> None:
    """Run one program against the configured servers, and follow it until it ends."""
    if replay is None and loose:
        stop(2, "--loose needs a recording: add --replay RECORDING")
    if saved is None and (given is not None or accept_changes):
        stop(2, f"{'--input' if given is not None else '--accept-changes'} needs a saved program: add --program NAME")
    if only_check and (saved is not None or replay is not None):
        stop(2, "--check reads a FILE or -e CODE; to check saved programs: codemode-mcp programs check")
    if record is not None and replay is None:
        from codemode_mcp.cli.recording_files import make_way

        make_way(record)
    if replay is None and saved is not None:
        if file is not None or code is not None or args or language is not None:
            stop(2, "--program NAME runs a saved program, so leave out FILE, -e, --language and arguments; use --input")
        request = ProgramRequest(None, None, (), as_json, quiet, saved, read_input(given), accept_changes)
    else:
        if saved is not None:
            file = Path(saved)
        if file is None and code is None and replay is None:
            stop(2, "give a FILE, or the program itself: codemode-mcp run -e 'return 1'")
        if file is not None and code is not None:
            if "--" not in sys.argv:
                stop(2, f"give a FILE or -e CODE, not both: leave out {file} or -e; arguments follow --")
            file, args = None, [str(file), *(args or [])]
        if file is not None:
            code, language = read_program(file, language)
        if replay is not None:
            from codemode_mcp.extension_points import first

            replays = first(lambda each: each.replay)
            if replays is None:
                stop(1, "this installation cannot replay recordings; leave out --replay")
            replays(replay, code, language, None if args is None else tuple(args), loose=loose, as_json=as_json)
        if only_check:
            _check_and_end(code or "", language, file, config, servers=server)
        request = ProgramRequest(code, language, args or (), as_json, quiet)
    if not (private or server or trace or trace_html or log_level or log_file or record):
        done = run_there(request, config=config, read_only=read_only)
        if done is not None:
            raise typer.Exit(done)
    from codemode_mcp.cli.command_programs import NO_SERVERS, Refused, run_of
    from codemode_mcp.cli.following import execute
    from codemode_mcp.cli.loading import load, log_filter, with_servers

    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    if loaded.path is None and request.saved is not None:
        stop(2, "saved programs stand beside a configuration file, and there is none; name one with --config FILE")
    try:
        program = run_of(request, loaded)
    except Refused as error:
        stop(error.exit_code, error.message)
    if loaded.path is None:
        say(NO_SERVERS)
    loaded = with_servers(loaded, server, called=True) if server else program.narrowed(loaded)
    timeline = None
    if trace or trace_html is not None:
        timeline = _drawing()
    with log_filter("codemode_mcp.programs", program.is_logged):
        exit_code = execute(
            loaded,
            program,
            drawing=timeline,
            record_file=record,
            as_json=as_json,
            quiet=quiet,
            log_start_failures=log_level is not None,
        )
    if timeline is not None:
        timeline.show(loaded, trace_html, draw=trace)
    if record is not None:
        from codemode_mcp.cli.recording_files import say_written

        say_written(record, quiet=quiet)
    raise typer.Exit(exit_code)


def _check_and_end(
    code: str, language: str | None, file: Path | None, config: str | None, servers: list[str] | None
) -> NoReturn:
    """Check the types of a program instead of running it."""
    from codemode_mcp.cli.command_programs import Refused, check
    from codemode_mcp.cli.loading import load, with_servers
    from codemode_mcp.extension_points import first

    type_check = first(lambda each: each.type_check)
    if type_check is None:
        stop(1, "this installation cannot check types; leave out --check")
    loaded = load(config, "error", None)
    try:
        program = check(ProgramRequest(code, language, (), as_json=False, quiet=True))
    except Refused as error:
        stop(error.exit_code, error.message)
    loaded = with_servers(loaded, servers, called=False) if servers else loaded
    type_check.check_cell_and_end(loaded, program.source, program.language, "-e" if file is None else str(file))


def _drawing() -> RunDrawing:
    from codemode_mcp.extension_points import first

    draw_run = first(lambda each: each.draw_run)
    if draw_run is None:
        stop(1, "this installation cannot draw runs; leave out --trace and --trace-html")
    return draw_run()


@app.command(
    epilog="Example: codemode-mcp call github.listIssues owner=octocat repo=hello state=open\n\n"
    'Example: codemode-mcp call github.create_issue --json \'{"title": "Broken", "labels": ["bug"]}\''
)
def call(
    tool: Annotated[str, typer.Argument(metavar="SERVER.TOOL", help="Tool to call.", autocompletion=server_names)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Arguments; values that are not strings in the tool's schema are JSON."
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help="All arguments as one JSON object.")
    ] = None,
    config: options.ConfigOption = None,
    read_only: options.ReadOnlyOption = False,
    quiet: options.QuietOption = False,
    log_level: options.LogLevelOption = None,
    log_file: options.LogFileOption = None,
    private: options.PrivateOption = False,
) -> None:
    """Call one tool and print its result. Only the server of the tool is started.

    The same rules and approvals apply as to programs.
    """
    request = read_call(tool, arguments or [], text)
    if not private and log_level is None and log_file is None:
        code = call_there(request, config=config, read_only=read_only, quiet=quiet)
        if code is not None:
            raise typer.Exit(code)
    from codemode_mcp.cli.command_programs import CallingProgram, Refused
    from codemode_mcp.cli.following import execute
    from codemode_mcp.cli.loading import load

    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    try:
        program = CallingProgram(request, loaded)
    except Refused as error:
        stop(error.exit_code, error.message)
    raise typer.Exit(execute(program.narrowed(loaded), program, quiet=quiet))
