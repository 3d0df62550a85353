"""Runs one program and follows it until it ends, for `codemode-mcp run` and `codemode-mcp call`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import typer

from codemode_mcp.cli.loading import log_filter, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import say, stop, wrap
from codemode_mcp.cli.terminal import Screen
from codemode_mcp.errors import CodeModeError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.audit.events import Event
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.cli.terminal_client import UnattendedClient
    from codemode_mcp.cli.trace.progress import Record
    from codemode_mcp.config import Config
    from codemode_mcp.runs.manager import RunManager
    from codemode_mcp.settings import Language
    from upstream_clients.pool import UpstreamPool

_UNATTENDED = "`codemode-mcp run`, which cannot ask here; tools.approved lets a call pass"

CANCEL_SECONDS = 3.0
"""Timeout for an interrupted program to end and for its calls to be cancelled."""


def execute(
    config: Config,
    program: Callable[[App], Awaitable[str]],
    language: Language | None = None,
    args: tuple[str, ...] = (),
    *,
    record: Record | None = None,
    as_json: bool = False,
    quiet: bool = False,
    log_start_failures: bool = False,
) -> bool | None:
    """Run a program and print its output. Return whether it completed; None if a person interrupted it.

    Args:
        program: returns the text of the program once everything is open.
        log_start_failures: log why servers do not start, instead of one line that names them.
    """

    def is_logged(entry: logging.LogRecord) -> bool:
        is_start_failure = entry.levelno == logging.WARNING and " did not start: " in entry.getMessage()
        return log_start_failures or not is_start_failure

    screen = Screen()
    ok: bool | None = False
    try:
        with (
            screen,
            logging_of(config),
            plugins_on_stderr(),
            log_filter("upstream_clients.connection", is_logged),
        ):
            shows_progress = screen.draws and not quiet
            followed = _FollowedRun(config, screen, record, args, as_json, shows_progress)
            ok = anyio.run(partial(followed.follow, program, language))
    except KeyboardInterrupt:
        if screen.is_stuck:
            os._exit(130)  # the reader of our output does not read; everything else is closed
        say("interrupted: the program was cancelled, and its calls in flight")
        ok = None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error is not screen.gone:
            raise
        stop(1, f"cannot write the output: {error.strerror}; the program was cancelled")
    return ok


def exit_after(ok: bool | None) -> None:
    """End the command with the exit code for what `execute` returned."""
    if ok is not True:
        raise typer.Exit(130 if ok is None else 1)


@dataclass(slots=True)
class _FollowedRun:
    """One program from its start to its end, and the printing of its output. The fields with defaults change."""

    _config: Config
    _screen: Screen
    _record: Record | None
    _args: tuple[str, ...]
    _as_json: bool
    _shows_progress: bool
    _run_id: str | None = None
    _in_flight: set[str] = field(default_factory=set)
    _calls_ended: anyio.Event | None = None

    async def follow(self, program: Callable[[App], Awaitable[str]], language: Language | None) -> bool:
        """Run the program. Return whether it completed."""
        from codemode_mcp.app.app import open_app
        from codemode_mcp.cli.terminal_client import client_at

        client = client_at(self._screen)
        loop = asyncio.get_running_loop()
        async with open_app(self._config) as opened:
            opened.auditor.add(self._listen)
            if self._record is not None:
                opened.auditor.add(self._record.listen)
            manager = await opened.manager()
            async with anyio.create_task_group() as group:
                self._screen.when_gone(partial(loop.call_soon_threadsafe, group.cancel_scope.cancel))
                if self._shows_progress:
                    group.start_soon(self._draw_progress, opened, manager)
                try:
                    ok = await self._rounds(opened, manager, await program(opened), language, client)
                    if ok:
                        self._say_not_started(await opened.pool())
                    return ok
                except ProgramError as error:
                    self._screen.say(wrap(error.message))
                    return False
                except anyio.get_cancelled_exc_class():
                    with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                        await self._cancel(manager)
                    raise
                finally:
                    self._screen.status = ""
                    group.cancel_scope.cancel()
        return False

    def _say_not_started(self, pool: UpstreamPool) -> None:
        """Name the servers that did not start, in one line. The error of a failed program names them itself."""
        down = [view.name for view in pool.views() if view.error and view.state != "ready"]
        if down:
            self._screen.say(wrap(f"not started: {', '.join(down)}; codemode-mcp doctor says why"))

    async def _cancel(self, manager: RunManager) -> None:
        """Cancel the program, and return once the ends of its calls are recorded."""
        if self._run_id is None:
            return
        await manager.operator.cancel(self._run_id)
        if self._in_flight:
            self._calls_ended = anyio.Event()
            await self._calls_ended.wait()

    async def _rounds(
        self, opened: App, manager: RunManager, source: str, language: Language | None, client: UnattendedClient
    ) -> bool:
        """Start the program, then wait for it as often as it takes. Return whether it completed."""
        from codemode_mcp.runs.rendering import render, render_error

        run_id = None
        cancel = False
        while True:
            outcome = None
            try:
                if run_id is None:
                    on_output = None if self._as_json else self._print_outputs
                    outcome = await opened.execute(
                        source, language, opened.operator, client, on_output=on_output, args=self._args
                    )
                else:
                    outcome = await opened.observe(run_id, opened.operator.owner, cancel=cancel, client=client)
                if outcome.status == "waiting" and not client.decides:
                    manager.operator.decide(outcome.run_id, None, approved=False, by=_UNATTENDED)
                # No person can answer here, and without an answer it would never resume.
                cancel = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                rendered = await render(outcome, self._config.tools, opened.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, self._config.tools)
            self._print_answer(rendered.structured, outcome)
            if rendered.structured["status"] != "waiting":
                return not rendered.is_error
            run_id = rendered.structured["runId"]

    def _print_answer(self, answer: Mapping[str, Any], outcome: Outcome | None) -> None:
        """Print the result to stdout, so that it can be piped, and remarks to stderr.

        The output of the program is already there.
        """
        if self._as_json:
            self._screen.print(json.dumps(answer, ensure_ascii=False))
            return
        for note in () if outcome is None else _notes(outcome):
            self._screen.say(wrap(note))
        if answer["status"] == "failed":
            self._screen.say(wrap(f"{answer['code']}: {answer['error']}"))
        elif answer["status"] == "completed" and outcome is not None and outcome.value is not None:
            # The whole value: a shortened one could only be loaded by a later program of this process.
            value = outcome.value
            self._screen.print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def _print_outputs(self, outputs: Sequence[Mapping[str, Any]]) -> None:
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
                if not self._in_flight and self._calls_ended is not None:
                    self._calls_ended.set()

    async def _draw_progress(self, opened: App, manager: RunManager) -> None:
        from codemode_mcp.cli.progress_line import draw_progress, progress_of

        def call_count() -> int:
            return next((view.call_count for view in manager.operator.views() if view.id == self._run_id), 0)

        progress = progress_of(opened)
        opened.auditor.add(progress.listen)
        await draw_progress(self._screen, progress, call_count)


def _notes(outcome: Outcome) -> Iterator[str]:
    for note in (*outcome.notes, *outcome.asked):
        # Here the call is approved or denied immediately.
        if not note.startswith("A person has to approve "):
            yield note
    if outcome.dropped and outcome.status != "waiting":
        yield f"{outcome.dropped} characters of output were dropped: a program may print up to 8 Mi characters"
