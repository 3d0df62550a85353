"""`codemode-mcp run`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from codemode_mcp.cli.command_requests import ProgramRequest, read_program
from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.messages import COLUMNS, is_utf8, say, stop
from codemode_mcp.cli.options import (
    ConfigOption,
    JsonOption,
    LogFileOption,
    LogLevelOption,
    PrivateOption,
    QuietOption,
    ReadOnlyOption,
)
from codemode_mcp.cli.quick_commands import run_there

if TYPE_CHECKING:
    from codemode_mcp.app.app import App
    from codemode_mcp.cli.trace.progress import Record
    from codemode_mcp.config import Config
    from codemode_mcp.policy.callers import Caller

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp run report.ts\n\n"
    "Example: codemode-mcp run -e 'return (await MCP.$api()).servers' --json\n\n"
    "Example: codemode-mcp run --trace report.ts\n\n"
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
    config: ConfigOption = None,
    read_only: ReadOnlyOption = False,
    trace: Annotated[bool, typer.Option("--trace", help="Draw a timeline of the calls at the end.")] = False,
    trace_html: Annotated[
        Path | None, typer.Option("--trace-html", metavar="FILE", help="Write the timeline as one page of HTML.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="RECORDING", help="Run a recorded program again, without servers."),
    ] = None,
    other_program: Annotated[
        Path | None, typer.Option("--program", metavar="FILE", help="With --replay: run this program instead.")
    ] = None,
    loose: Annotated[
        bool, typer.Option("--loose", help="With --replay: answer calls by their tool, whatever the arguments are.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    private: PrivateOption = False,
) -> None:
    """Run one program against the configured servers, and follow it until it ends."""
    if replay is None and (loose or other_program is not None):
        stop(2, f"{'--loose' if loose else '--program'} needs a recording: add --replay RECORDING")
    if other_program is not None:
        file = other_program
    if file is None and code is None and replay is None:
        stop(2, "give a FILE, or the program itself: codemode-mcp run -e 'return 1'")
    if file is not None and code is not None:
        if "--" not in sys.argv:
            stop(2, f"give a FILE or -e CODE, not both: leave out {file} or -e; arguments follow --")
        file, args = None, [str(file), *(args or [])]
    if file is not None:
        code, language = read_program(file, language)
    if replay is not None:
        from codemode_mcp.cli.replaying import replay_and_exit

        replay_and_exit(replay, code, language, None if args is None else tuple(args), loose=loose, as_json=as_json)
    request = ProgramRequest(code, language, args or (), as_json, quiet)
    if not (private or server or trace or trace_html or log_level or log_file):
        done = run_there(request, config=config, read_only=read_only)
        if done is not None:
            raise typer.Exit(done)
    from codemode_mcp.cli.following import execute, exit_after
    from codemode_mcp.cli.loading import load
    from codemode_mcp.cli.program import NO_SERVERS, BadProgram, check
    from codemode_mcp.cli.selection import for_program, with_servers

    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    try:
        program = check(request)
    except BadProgram as error:
        stop(error.exit_code, str(error))
    if loaded.path is None:
        say(NO_SERVERS)
    loaded = (
        with_servers(loaded, server, called=True) if server else for_program(loaded, program.source, program.language)
    )
    record = None
    if trace or trace_html is not None:
        from codemode_mcp.cli.trace.progress import Record

        record = Record()

    async def source(_: App, __: Caller) -> str:
        return program.source

    ok = execute(
        loaded,
        source,
        program.language,
        tuple(args or ()),
        record=record,
        as_json=as_json,
        quiet=quiet,
        log_start_failures=log_level is not None,
    )
    if record is not None:
        _show_trace(record, loaded, trace_html, draw=trace)
    exit_after(ok)


def _show_trace(record: Record, config: Config, html: Path | None, *, draw: bool) -> None:
    """Show the calls and times of the program."""
    from codemode_mcp.audit import Redactor
    from codemode_mcp.audit.redaction import Inputs
    from codemode_mcp.cli.trace import page, text

    redactor = Redactor()
    redactor.know(config.secretive)
    found = record.trace(Inputs(include=config.audit.include_inputs), redactor)
    if found is None:
        say("the program did not start: there is no trace of it")
        return
    if draw:
        width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stderr.isatty() else COLUMNS
        for line in text.drawn(found, width, unicode=is_utf8(sys.stderr)):
            print(line, file=sys.stderr)
    if html is not None:
        try:
            html.write_text(page.page(found), "utf-8")
        except OSError as error:
            stop(1, f"cannot write the trace to {html}: {error.strerror}; name another file with --trace-html")
        say(f"the trace is in {html}")
