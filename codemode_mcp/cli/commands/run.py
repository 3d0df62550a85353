"""`codemode-mcp run`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.options import ConfigOption, JsonOption, LogFileOption, LogLevelOption
from codemode_mcp.cli.selection import for_program, with_servers
from codemode_mcp.cli.shared import COLUMNS, fitted, load, logging_as, plugins_on_stderr, say, stop
from codemode_mcp.cli.terminal import TICK_SECONDS, Screen, is_at_terminal
from codemode_mcp.errors import CodeModeError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.audit.events import Event
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.cli.asking import Unattended
    from codemode_mcp.cli.trace.progress import Record
    from codemode_mcp.config import Config
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.settings import Language
    from upstream_clients.pool import UpstreamPool

_UNATTENDED = "`codemode-mcp run`, which cannot ask here; tools.approved lets a call pass"

CANCEL_SECONDS = 3.0
"""Seconds for a program that is given up to end, and for its calls to be cancelled."""


app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp run report.ts\n\n"
    "Example: codemode-mcp run -e 'return (await MCP.$api()).servers' --json\n\n"
    "Example: codemode-mcp run --trace report.ts"
)
def run(
    file: Annotated[Path | None, typer.Argument(help="Program to run; .ts is TypeScript, - is stdin.")] = None,
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="What the program finds in `args`.")
    ] = None,
    code: Annotated[str | None, typer.Option("-e", metavar="CODE", help="Program text.")] = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: by file name or by trying.")
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Start this server alone; may be repeated.", autocompletion=server_names),
    ] = None,
    config: ConfigOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="In the end, draw what was called and when.")] = False,
    trace_html: Annotated[
        Path | None, typer.Option("--trace-html", metavar="FILE", help="Write that as one page of HTML.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no line of progress.")] = False,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Run one program against the configured servers, following it until it ends."""
    if file is None and code is None:
        stop(2, "give a FILE, or the program itself: codemode-mcp run -e 'return 1'")
    separated = "--" in sys.argv
    if file is not None and code is not None:
        if not separated:
            stop(2, f"give a FILE or -e CODE, not both: leave out {file} or -e; arguments stand behind --")
        file, args = None, [str(file), *(args or [])]
    if file is not None:
        code = _read(file)
        if language is None and file.suffix in (".ts", ".mts", ".cts"):
            language = "typescript"
        elif language is None and file.suffix in (".js", ".mjs", ".cjs"):
            language = "javascript"
    assert code is not None
    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    from codemode_mcp.server.exec_arguments import exec_arguments

    try:
        program = exec_arguments({"code": code, "language": language})
    except CodeModeError as error:
        if error.code == "unsupported_language":
            stop(2, f"--language {language}: use javascript or typescript, or leave it out")
        stop(1, error.message)
    if loaded.path is None:
        say("no configuration: programs have no servers; codemode-mcp import takes over those of your clients")
    loaded = (
        with_servers(loaded, server, called=True) if server else for_program(loaded, program.source, program.language)
    )
    record = None
    if trace or trace_html is not None:
        from codemode_mcp.cli.trace.progress import Record

        record = Record()

    async def given(_: App) -> str:
        return program.source

    ok = execute(
        loaded,
        given,
        program.language,
        tuple(args or ()),
        record=record,
        as_json=as_json,
        quiet=quiet,
        all_logged=log_level is not None,
    )
    if record is not None:
        _show(record, loaded, trace_html, drawn=trace)
    end(ok)


def execute(
    config: Config,
    program: Callable[[App], Awaitable[str]],
    language: Language | None = None,
    args: tuple[str, ...] = (),
    *,
    record: Record | None = None,
    as_json: bool = False,
    quiet: bool = False,
    all_logged: bool = False,
) -> bool | None:
    """Run a program and show what it gives. Return whether it completed; None if a person interrupted it.

    Args:
        program: gives the text of the program once everything is open.
        all_logged: log why servers do not start, in place of one line that names them.
    """
    screen = Screen()
    ok: bool | None = False
    try:
        with screen, logging_as(config), plugins_on_stderr(), _start_failures(logged=all_logged):
            running = _Running(config, screen, record, args, as_json=as_json, quiet=quiet)
            ok = anyio.run(partial(running.follow, program, language))
    except KeyboardInterrupt:
        if screen.is_stuck:
            os._exit(130)  # our output is not read; everything else is closed
        say("interrupted: the program was cancelled, and its calls in flight")
        ok = None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error is not screen.gone:
            raise
        stop(1, f"cannot write the output: {error.strerror}; the program was cancelled")
    return ok


def end(ok: bool | None) -> None:
    """End the command with the exit code for what `execute` returned."""
    if ok is not True:
        raise typer.Exit(130 if ok is None else 1)


@contextmanager
def _start_failures(*, logged: bool) -> Iterator[None]:
    """Keep the warnings about servers that do not start out of the log: the program or one line tells of them."""

    def others(record: logging.LogRecord) -> bool:
        return logged or record.levelno != logging.WARNING or " did not start: " not in record.getMessage()

    log = logging.getLogger("upstream_clients.connection")
    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)


def _read(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return file.read_text("utf-8")
    except FileNotFoundError:
        if re.search(r"[\s(;=]", str(file)):
            stop(2, f"there is no file {str(file)!r}; to run this text: codemode-mcp run -e {shlex.quote(str(file))}")
        stop(2, f"there is no file {file}; the program itself can stand behind -e")
    except (OSError, UnicodeDecodeError) as error:
        what = "the program from stdin" if str(file) == "-" else str(file)
        stop(1, f"cannot read {what}: {getattr(error, 'strerror', None) or error}")


class _Running:
    """One program from its beginning to its end, and what of it is shown."""

    def __init__(
        self,
        config: Config,
        screen: Screen,
        record: Record | None,
        args: tuple[str, ...],
        *,
        as_json: bool,
        quiet: bool,
    ) -> None:
        self._config = config
        self._screen = screen
        self._record = record
        self._args = args
        self._as_json = as_json
        self._counts = screen.draws and not quiet
        self._run_id: str | None = None
        self._in_flight: set[str] = set()
        self._calm: anyio.Event | None = None

    async def follow(self, program: Callable[[App], Awaitable[str]], language: Language | None) -> bool:
        """Run the program. Return whether it has completed."""
        from codemode_mcp.app.app import open_app
        from codemode_mcp.cli.asking import Person, Unattended
        from codemode_mcp.nesting import DEPTH_VARIABLE

        client = Unattended()
        # What our own upstream servers start decides nothing.
        if is_at_terminal() and DEPTH_VARIABLE not in os.environ:
            client = Person(self._screen)
        loop = asyncio.get_running_loop()
        async with open_app(self._config) as opened:
            opened.auditor.add(self._listen)
            if self._record is not None:
                opened.auditor.add(self._record.listen)
            manager = await opened.manager()
            async with anyio.create_task_group() as group:
                self._screen.when_gone(partial(loop.call_soon_threadsafe, group.cancel_scope.cancel))
                if self._counts:
                    group.start_soon(self._count, opened, manager)
                try:
                    ok = await self._rounds(opened, manager, await program(opened), language, client)
                    self._say_down(await opened.pool(), told=not ok)
                    return ok
                except ProgramError as error:
                    self._screen.say(fitted(error.message))
                    return False
                except anyio.get_cancelled_exc_class():
                    with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                        await self._give_up(manager)
                    raise
                finally:
                    self._screen.status = ""
                    group.cancel_scope.cancel()
        return False

    def _say_down(self, pool: UpstreamPool, *, told: bool) -> None:
        """Name the servers that did not start, in one line, unless the error of the program has told of one."""
        down = [view.name for view in pool.views() if view.error and view.state != "ready"]
        if down and not told:
            self._screen.say(fitted(f"not started: {', '.join(down)}; codemode-mcp doctor says why"))

    async def _give_up(self, manager: RunManager) -> None:
        """Cancel the program, and return once its calls are told."""
        if self._run_id is None:
            return
        await manager.operator.cancel(self._run_id)
        if self._in_flight:
            self._calm = anyio.Event()
            await self._calm.wait()

    async def _rounds(
        self, opened: App, manager: RunManager, source: str, language: Language | None, client: Unattended
    ) -> bool:
        from codemode_mcp.runs.rendering import render, render_error

        run_id = None
        cancel = False
        while True:
            outcome = None
            try:
                if run_id is None:
                    watch = None if self._as_json else self._print
                    outcome = await opened.execute(
                        source, language, opened.operator, client, on_output=watch, args=self._args
                    )
                else:
                    outcome = await opened.observe(run_id, opened.operator.owner, cancel=cancel, client=client)
                if outcome.status == "waiting" and not client.decides:
                    manager.operator.decide(outcome.run_id, None, approved=False, by=_UNATTENDED)
                # No person can answer here, and without an answer it would not resume.
                cancel = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                rendered = await render(outcome, self._config.tools, opened.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, self._config.tools)
            self._tell(rendered.structured, outcome)
            if rendered.structured["status"] != "waiting":
                return not rendered.is_error
            run_id = rendered.structured["runId"]

    def _tell(self, answer: Mapping[str, Any], outcome: Outcome | None) -> None:
        """Print the result to stdout, so that it can be piped, and remarks to stderr.

        Output that the program has printed is there already.
        """
        if self._as_json:
            self._screen.print(json.dumps(answer, ensure_ascii=False))
            return
        for note in _notes(outcome):
            self._screen.say(fitted(note))
        if answer["status"] == "failed":
            self._screen.say(fitted(f"{answer['code']}: {answer['error']}"))
        elif answer["status"] == "completed" and outcome is not None and outcome.value is not None:
            # Whole: what is cut from an answer could be loaded by a later program of this process alone.
            value = outcome.value
            self._screen.print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def _print(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        from codemode_mcp.runs.outputs import printed

        for item in outputs:
            self._screen.print(printed(item))

    def _listen(self, event: Event) -> None:
        match event.kind:
            case "run_started":
                self._run_id = event.id
            case "call_started":
                self._in_flight.add(event.id)
            case "call_ended":
                self._in_flight.discard(event.id)
                if not self._in_flight and self._calm is not None:
                    self._calm.set()

    async def _count(self, opened: App, manager: RunManager) -> None:
        """Keep the line of progress as it is at the moment."""
        from codemode_mcp.cli.trace.progress import Progress

        def called(tool: str) -> str:
            entry = opened.catalog_of(opened.operator).get(tool)
            return tool if entry is None else entry.path

        progress = Progress(called)
        opened.auditor.add(progress.listen)
        while True:
            await anyio.sleep(TICK_SECONDS)
            made = next((view.call_count for view in manager.operator.views() if view.id == self._run_id), 0)
            self._screen.status = progress.line(time.time(), self._screen.width, made)


def _notes(outcome: Outcome | None) -> Iterator[str]:
    if outcome is None:
        return
    for note in (*outcome.notes, *outcome.asked):
        # Here it is asked for, or denied, immediately.
        if not note.startswith("A person has to approve "):
            yield note
    if outcome.dropped and outcome.status != "waiting":
        yield f"{outcome.dropped} characters of output were thrown away: one program may print 8 Mi of them"


def _show(record: Record, config: Config, html: Path | None, *, drawn: bool) -> None:
    """Show the calls and times of the program."""
    from codemode_mcp.audit import Redactor
    from codemode_mcp.audit.redaction import Inputs
    from codemode_mcp.cli.trace import page, text

    redactor = Redactor()
    redactor.know(config.secretive)
    found = record.trace(Inputs(include=config.audit.include_inputs), redactor)
    if found is None:
        say("nothing of the program has run: there is no trace of it")
        return
    if drawn:
        encoding = sys.stderr.encoding or ""
        unicode = encoding.lower().replace("-", "") == "utf8"
        width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stderr.isatty() else COLUMNS
        for line in text.drawn(found, width, unicode=unicode):
            print(line.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8"), file=sys.stderr)  # noqa: T201
    if html is not None:
        try:
            html.write_text(page.page(found), "utf-8")
        except OSError as error:
            stop(1, f"cannot write the trace to {html}: {error.strerror}; name another file with --trace-html")
        say(f"the trace is in {html}")
