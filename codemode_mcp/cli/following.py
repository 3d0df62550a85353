"""One program of a command: it runs, is followed until it ends, and asks the person at the terminal.

`execute` does it in the process of the command, and the shared instance does it by `FollowedRun`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from codemode_mcp.audit.events import Event, request_id
from codemode_mcp.audit.trajectory_files import duration
from codemode_mcp.base.display import columns, cut, wrapped
from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.cli.loading import log_filter, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import say, stop, wrap
from codemode_mcp.cli.terminal import TICK_SECONDS, Question, Screen, Terminal, is_attended
from codemode_mcp.rules.policy.approval import QUOTED, ApprovalQuestion
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.cli.command_programs import GivenProgram
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import RunDrawing
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.runs.questions import RunNotes, Way
    from codemode_mcp.server.services import App
    from upstream_clients import tools
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.tools import JsonObject, QuestionMethod


_UNATTENDED = "`codemode-mcp run`, which cannot ask here; tools.approved lets a call pass"

CANCEL_SECONDS = 3.0
"""Timeout for an interrupted program to end and for its calls to be cancelled."""


def execute(
    config: Config,
    program: GivenProgram,
    *,
    drawing: RunDrawing | None = None,
    record_file: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
    log_start_failures: bool = False,
) -> int:
    """Run a program and print its output. Return the exit code of the command.

    Args:
        record_file: the file for the recording of the run.
        log_start_failures: log why servers do not start, instead of one line that names them.
    """

    def is_logged(entry: logging.LogRecord) -> bool:
        is_start_failure = entry.levelno == logging.WARNING and " did not start: " in entry.getMessage()
        return log_start_failures or not is_start_failure

    screen = Screen()
    try:
        with (
            screen,
            logging_of(config),
            plugins_on_stderr(),
            log_filter("upstream_clients.connection", is_logged),
        ):
            followed = FollowedRun(
                screen,
                client_at(screen, attended=is_attended()),
                program,
                as_json=as_json,
                shows_progress=screen.draws and not quiet,
            )
            return program.exit_code(anyio.run(partial(_follow, config, followed, screen, drawing, record_file)))
    except KeyboardInterrupt:
        if screen.is_stuck:
            os._exit(130)  # the reader of our output does not read; everything else is closed
        say("interrupted: the program was cancelled, and its calls in flight")
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        if error is not screen.gone:
            raise
        stop(1, f"cannot write the output: {error.strerror}; the program was cancelled")


async def _follow(
    config: Config,
    followed: FollowedRun,
    screen: Screen,
    drawing: RunDrawing | None,
    record_file: Path | None,
) -> bool:
    """Run a program in an application of its own. Return whether it completed."""
    from codemode_mcp.process.app.app import open_app

    loop = asyncio.get_running_loop()
    async with open_app(config, record_file=record_file) as opened:
        if drawing is not None:
            opened.auditor.add(drawing.listen)
        with anyio.CancelScope() as scope:
            screen.when_gone(partial(loop.call_soon_threadsafe, scope.cancel))
            return await followed.follow(opened, opened.operator)
    return False


class FollowedRun:
    """One program from its start to its end, and the printing of its output.

    Args:
        servers: the servers that the program can reach; None for all.
    """

    def __init__(
        self,
        terminal: Terminal,
        client: UnattendedClient,
        program: GivenProgram,
        *,
        as_json: bool = False,
        shows_progress: bool = False,
        servers: Collection[str] | None = None,
    ) -> None:
        self._terminal = terminal
        self._client = client
        self._program = program
        self._as_json = as_json
        self._shows_progress = shows_progress
        self._servers = servers
        self._request = request_id()
        self._run_id: str | None = None
        self._progress: Progress | None = None
        self._in_flight: set[str] = set()
        self._calls_ended: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"<FollowedRun: {self._run_id}>"

    async def follow(self, opened: App, caller: Caller) -> bool:
        opened.auditor.add(self._listen)
        try:
            manager = await opened.manager()
            async with anyio.create_task_group() as group:
                if self._shows_progress:
                    group.start_soon(self._draw_progress, opened, manager)
                try:
                    ok = await self._rounds(opened, manager, await self._program.source(opened, caller), caller)
                    if ok:
                        self._say_not_started(await opened.pool())
                    return ok
                except ProgramError as error:
                    self._terminal.say(wrap(error.message))
                    return False
                except anyio.get_cancelled_exc_class():
                    with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                        await self._cancel(manager)
                    raise
                finally:
                    self._terminal.status = ""
                    group.cancel_scope.cancel()
        finally:
            opened.auditor.remove(self._listen)
        return False

    def _say_not_started(self, pool: UpstreamPool) -> None:
        """Name the servers that did not start, in one line. The error of a failed program names them itself."""
        down = [
            view.name
            for view in pool.views()
            if view.error and view.state != "ready" and (self._servers is None or view.name in self._servers)
        ]
        if down:
            self._terminal.say(wrap(f"not started: {', '.join(down)}; codemode-mcp doctor says why"))

    async def _cancel(self, manager: RunManager) -> None:
        """Cancel the program, and return once the ends of its calls are recorded."""
        if self._run_id is None:
            return
        await manager.operator.cancel(self._run_id)
        if self._in_flight:
            self._calls_ended = anyio.Event()
            await self._calls_ended.wait()

    async def _rounds(self, opened: App, manager: RunManager, source: str, caller: Caller) -> bool:
        """Start the program, then wait for it as often as it takes. Return whether it completed."""
        from codemode_mcp.program.prepare import Cell
        from codemode_mcp.runs.rendering import render, render_error

        run_id = None
        cancel = False
        client, program = self._client, self._program
        while True:
            outcome = None
            try:
                if run_id is None:
                    on_output = None if self._as_json else self._print_outputs
                    cell = Cell(source, program.language, caller, self._request, program.args)
                    outcome = await manager.execute(cell, client, on_output)
                else:
                    outcome = await manager.observe(run_id, caller.owner, cancel=cancel, client=client)
                if outcome.status == "waiting" and not client.decides:
                    denied = manager.operator.decide(outcome.run_id, None, approved=False, by=_UNATTENDED)
                    if denied:
                        program.note_denied()
                # No person can answer here, and without an answer it would never resume.
                cancel = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                rendered = await render(outcome, opened.settings(), opened.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, opened.settings())
            print_answer(self._terminal, rendered.structured, outcome, as_json=self._as_json)
            if rendered.structured["status"] != "waiting":
                return not rendered.is_error
            run_id = rendered.structured["runId"]

    def _print_outputs(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        print_outputs(self._terminal, outputs)

    def _listen(self, event: Event) -> None:
        if event.kind == "run_started" and event.parent == self._request:
            self._run_id = event.id
        if self._run_id is None or event.parent != self._run_id:
            return
        if self._progress is not None:
            self._progress.listen(event)
        match event.kind:
            case "call_started":
                self._in_flight.add(event.id)
            case "call_ended":
                self._in_flight.discard(event.id)
                if not self._in_flight and self._calls_ended is not None:
                    self._calls_ended.set()

    async def _draw_progress(self, opened: App, manager: RunManager) -> None:
        def call_count() -> int:
            return next((view.call_count for view in manager.operator.views() if view.id == self._run_id), 0)

        self._progress = progress_of(opened)
        await draw_progress(self._terminal, self._progress, call_count)


def print_answer(
    terminal: Terminal, answer: Mapping[str, Any], outcome: Outcome | None, *, as_json: bool = False
) -> None:
    """Print a result to stdout, so that it can be piped, and remarks to stderr.

    The output of the program is already there.
    """
    if as_json:
        terminal.print(json.dumps(answer, ensure_ascii=False))
        return
    for note in () if outcome is None else _notes(outcome):
        terminal.say(wrap(note))
    if answer["status"] == "failed":
        terminal.say(wrap(f"{answer['code']}: {answer['error']}"))
    elif answer["status"] == "completed" and outcome is not None and outcome.value is not None:
        # The whole value: a shortened one could only be loaded by a later program of this process.
        value = outcome.value
        terminal.print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def print_outputs(terminal: Terminal, outputs: Sequence[Mapping[str, Any]]) -> None:
    from codemode_mcp.runs.outputs import printed

    for item in outputs:
        terminal.print(printed(item))


def _notes(outcome: Outcome) -> Iterator[str]:
    for note in (*outcome.notes, *outcome.asked):
        # Here the call is approved or denied immediately.
        if not note.startswith("A person has to approve "):
            yield note
    if outcome.dropped and outcome.status != "waiting":
        yield f"{outcome.dropped} characters of output were dropped: a program may print up to 8 Mi characters"


# The client of programs that `codemode-mcp run` and `codemode-mcp repl` start.
#
# The client offers no folders to servers and shows no questions of servers. At a terminal, it asks a person to approve
# calls.


class UnattendedClient:
    """The implementation of `runs.questions.Client` for a process without a person to ask."""

    lasting = True
    polls = False
    supported: frozenset[QuestionMethod] = frozenset()
    decides = False
    notes: RunNotes | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def progress(self, source: str, message: str) -> None:
        """Ignore a progress message, because the progress line shows the calls in flight."""

    def way(self, question: tools.Question | ApprovalQuestion) -> Way:
        if isinstance(question, ApprovalQuestion):
            return "ask" if self.decides else "none"
        return "ask" if question.method == "roots/list" else "none"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        if not isinstance(question, ApprovalQuestion) and question.method == "roots/list":
            return {"roots": []}
        raise QuestionRefused("this command does not show questions of servers to a person")


class TerminalClient(UnattendedClient):
    """A client that asks the person at the terminal for approvals."""

    decides = True

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __repr__(self) -> str:
        return f"<TerminalClient at {self._terminal}>"

    async def ask(self, question: tools.Question | ApprovalQuestion) -> JsonObject:
        if not isinstance(question, ApprovalQuestion):
            return await super().ask(question)
        answered = anyio.Event()
        loop = asyncio.get_running_loop()

        def on_answer() -> None:
            with suppress(RuntimeError):  # the event loop is closed already
                loop.call_soon_threadsafe(answered.set)

        shown = Question(prompt(question, self._terminal.width), on_answer)
        self._terminal.ask(shown)
        try:
            await answered.wait()
        except anyio.get_cancelled_exc_class():
            self._terminal.withdraw(shown)
            raise
        return answer_to(question, shown.answer)


def client_at(terminal: Terminal, *, attended: bool) -> UnattendedClient:
    """Return the client of a program whose output is shown at a terminal. `attended`: a person can answer there."""
    return TerminalClient(terminal) if attended else UnattendedClient()


def prompt(question: ApprovalQuestion, width: int) -> str:
    """Return the text of a question: the calls, with special characters escaped, and below them the possible answers.

    A quoted line that is too wide for the terminal is wrapped, and every part gets the margin of a quoted line. Without
    the margin, the rest of the line could pass for a line of this program.
    """
    lines = [""]
    for line in question.message.split("\n"):
        if not line.startswith(QUOTED):
            lines += wrap(line).split("\n")
        elif columns(line) < width:
            lines.append(line)
        else:
            lines += wrapped(line.removeprefix(QUOTED), width, QUOTED)
    run = "run: also every later call of these tools in this program; " if "run" in question.remember else ""
    return "\n".join([*lines, "", wrap(f"Type yes: these calls only; {run}anything else: no.")])


def answer_to(question: ApprovalQuestion, typed: str) -> JsonObject:
    """Convert a typed answer into the answer that an MCP client would send for its form."""
    match typed.strip().casefold():
        case "yes" | "y":
            content = {"decision": "approve"}
        case "run" | "r" if "run" in question.remember:
            content = {"decision": "approve", "remember": "run"}
        case _:
            content = {"decision": "deny"}
    return {"action": "accept", "content": content}


class Progress:
    """The numbers of nested calls of a run in each state.

    Args:
        called: maps the id of a tool to the expression with which a program calls this tool.
    """

    def __init__(self, called: Callable[[str], str] = str) -> None:
        self._called = called
        self._running: dict[str, tuple[str, float]] = {}
        """The tool and start time of each running call, by the id of the call, in the order of their start."""
        self._asked: set[str] = set()
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        return f"<Progress: {len(self._running)} running, {self.done} done, {self.failed} failed>"

    @property
    def begun(self) -> int:
        """Return the number of calls that have left the queue."""
        return len(self._running) + self.done + self.failed

    def listen(self, event: Event) -> None:
        """Update the counts from an event. Pass this method to an auditor as a listener."""
        match event.kind:
            case "call_started":
                self._running[event.id] = str(event.fields.get("tool", "")), event.time
            case "call_asked":
                self._asked.add(event.id)
            case "call_decided":
                self._asked.discard(event.id)
            case "call_ended" if self._running.pop(event.id, None) is not None:
                self._asked.discard(event.id)
                if event.fields.get("status") == "completed":
                    self.done += 1
                else:
                    self.failed += 1

    def line(self, now: float, width: int, made: int = 0) -> str:
        """Return a line such as `3 running, 41 done, 1 failed, 12 queued · MCP.github.listIssues 1.2 s`.

        The last part is the call that has run for the longest time. The line is empty before the first call.

        Args:
            now: Unix seconds.
            width: largest number of columns.
            made: number of all calls that the program has made, including queued ones.
        """
        running = [each for call, each in self._running.items() if call not in self._asked]
        counts = {
            "running": len(running),
            "waiting for approval": len(self._asked),
            "done": self.done,
            "failed": self.failed,
            "queued": max(0, made - self.begun),
        }
        text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if running:
            tool, since = running[0]
            took = f" {duration(round(max(0.1, now - since), 1))}"
            room = width - columns(text) - len(took) - 3
            name = cut(self._called(tool), max(0, room))
            while name and columns(name) > room:
                name = cut(name[:-2], room)
            if room >= 12:
                text += f" · {name}{took}"
        return text if columns(text) <= width else cut(text, width)


def progress_of(opened: App) -> Progress:
    """Return a `Progress` without calls, which names tools as programs call them."""

    def path(tool: str) -> str:
        entry = opened.catalog_of(opened.operator).get(tool)
        return tool if entry is None else entry.path

    return Progress(path)


async def draw_progress(terminal: Terminal, progress: Progress, call_count: Callable[[], int]) -> None:
    """Update the progress line until cancelled.

    Args:
        call_count: returns the number of calls that the program has made, queued ones included.
    """
    while True:
        await anyio.sleep(TICK_SECONDS)
        terminal.status = progress.line(time.time(), terminal.width, call_count())
