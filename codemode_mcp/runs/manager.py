"""What the server sees of runs: `execute`, `observe`, and one task group that outlives requests."""

from __future__ import annotations

import logging
import re
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from codemode_mcp.errors import CodeModeError, InternalError, ProgramError, RuntimeUnavailable
from codemode_mcp.hints import PYTHON, fenced, looks_like_python, syntax_hint
from codemode_mcp.localize import fault_column, regex_offsets, stray_await
from codemode_mcp.preflight import check_members, inspect, looks_like_shell
from codemode_mcp.runs import program as programs
from codemode_mcp.runs.driver import Driver, SyntaxFault
from codemode_mcp.runs.run import Observation, Run
from codemode_mcp.runs.store import EndedRun, holder_of, unknown_run
from codemode_mcp.syntax import LINE_END, Lines, utf16_units

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from anyio.abc import TaskGroup

    from codemode_mcp.bridge import Thrown
    from codemode_mcp.callers import Caller
    from codemode_mcp.catalog import Catalog
    from codemode_mcp.dispatch import Dispatcher
    from codemode_mcp.outcome import Outcome
    from codemode_mcp.positions import Positions
    from codemode_mcp.preflight import Preflight
    from codemode_mcp.runs.program import Program, Transform
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.store import ParkedRun, RunStore
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.settings import CodeModeSettings, Language
    from codemode_mcp.values import Values
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.runs")

SWEEP_SECONDS = 5.0
"""How often runs past their time are dropped."""

MAX_SOURCE = 1_100_000
"""Characters of one program."""

_LARGE_SOURCE = 20_000
"""Characters from which on the preflight is not worth doing on the event loop."""


class Upstreams(Protocol):
    """What runs need to know of the upstream servers."""

    def server_of(self, name: str) -> str | None:
        """The configured name of the server that a program calls by this one; None: there is none."""
        ...

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        """What a program of this caller sees that begins now; the tools that the client offers itself included."""
        ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        """Wait until these servers (configured names; None: all) are up or known to be down, or the time is over."""
        ...


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of one `exec`.

    Attributes:
        language: None when the client named none.
        caller: of somebody unknown, the run belongs to whoever holds its id, and nothing outlives it.
    """

    source: str
    language: Language | None
    caller: Caller


class RunManager:
    """See the module. Use `open_manager`."""

    def __init__(
        self,
        *,
        group: TaskGroup,
        engine: Callable[[], Awaitable[Engine]],
        dispatcher: Dispatcher,
        store: RunStore,
        values: Values,
        upstreams: Upstreams,
        transform: Transform,
        settings: CodeModeSettings,
        clock: Callable[[], float],
    ) -> None:
        self._group = group
        self._engine = engine
        self._dispatcher = dispatcher
        self._store = store
        self._upstreams = upstreams
        self._transform = transform
        self._settings = settings
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._closing = False
        # The tree of a large program takes a few hundred times its size.
        self._inspecting = anyio.CapacityLimiter(1)
        self._driver = Driver(
            engine=engine,
            dispatcher=dispatcher,
            store=store,
            values=values,
            settings=settings,
            spawn=group.start_soon,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"<RunManager: {len(self._runs)} runs>"

    def apply(self, settings: CodeModeSettings) -> None:
        """These limits count from now on, except for how many runs compute at once."""
        self._settings = settings
        self._driver.apply(settings)
        self._store.apply(settings)

    async def execute(self, cell: Cell, client: Client | None = None) -> Outcome:
        """Run a program. Cancelling this aborts the run and cancels its calls.

        Raises:
            CodeModeError: nothing of the program has run.
        """
        arrived = self._clock()
        if len(cell.source) > MAX_SOURCE:
            raise ProgramError(
                "invalid_input",
                f"the program has {len(cell.source)} characters, more than {MAX_SOURCE}; write a shorter one",
            )
        guidance = looks_like_shell(cell.source) or fenced(cell.source)
        if guidance is not None:
            raise ProgramError("invalid_input", guidance)
        try:
            found = await self._inspect(cell)
        except ProgramError:
            if looks_like_python(cell.source):
                raise ProgramError("invalid_input", PYTHON) from None
            raise
        catalog = await self._catalog_for(found, cell.caller, client)
        check_members(found, catalog.members, cell.language or "javascript")
        # The engine is compiled outside the program's time.
        await self._engine()
        run_id = "run_" + secrets.token_urlsafe(18)
        context = self._dispatcher.context(run_id, cell.caller.owner or holder_of(run_id), cell.caller, catalog)
        run = Run(context, catalog.manifest, self._clock())
        if cell.language == "typescript":
            with anyio.move_on_after(arrived + self._settings.max_request_ms / 1000 - self._clock()) as scope:
                first = await programs.typescript(found, self._transform)
            if scope.cancelled_caught:
                raise ProgramError("timeout", "transforming the TypeScript took too long; write a shorter program")
        else:
            first = programs.javascript(found)
        now = self._clock()
        latest = arrived + self._settings.max_request_ms / 1000
        observation = Observation(min(now + self._settings.timeout_ms / 1000, latest), client, latest=latest)
        if self._closing:
            raise ProgramError("aborted", "the server is shutting down")
        # Already here, not when its task begins: closing or cancelling in between must find it.
        run.observation = observation
        self._runs[run.id] = run
        self._group.start_soon(self._drive_cell, run, cell, found, first, observation)
        try:
            return await observation.outcome()
        except anyio.get_cancelled_exc_class():
            self._stop(run, observation)
            raise

    async def observe(
        self,
        run_id: str,
        owner: str | None,
        *,
        cancel: bool = False,
        from_start: bool = False,
        client: Client | None = None,
        answers: Mapping[str, JsonObject] | None = None,
    ) -> Outcome:
        """Continue a run, or give its end again. Cancelling this only lets go of it.

        `owner`: None for whoever holds the id. `answers`: to the questions that an earlier answer came with, by key.

        Raises:
            CodeModeError: there is no such run, it has expired, or it is observed already.
        """
        owner = owner or holder_of(run_id)
        live = self._runs.get(run_id)
        if cancel and live is not None and live.owner == owner and live.observation is not None:
            # Somebody waits for it; that request gets the end, and this one the same.
            observation = live.observation
            self._stop(live, observation)
            return await observation.outcome()
        claimed = await self._store.claim(run_id, owner)
        if isinstance(claimed, EndedRun):
            since, whole = claimed.outcome
            outcome: Outcome = whole if from_start else since
            return outcome
        run = self._runs.get(run_id)
        if run is None:
            await self._store.release(run_id, owner)
            raise unknown_run(run_id)
        if self._closing:
            raise ProgramError("aborted", "the server is shutting down")
        now = self._clock()
        latest = now + self._settings.max_request_ms / 1000
        observation = Observation(min(now + self._settings.timeout_ms / 1000, latest), client, latest=latest)
        observation.aborted = cancel
        run.observation = observation
        run.questions.answer((answers or {}).items())
        earlier = tuple(run.history[: len(run.history) - len(run.outputs)]) if from_start else ()
        self._group.start_soon(self._drive_parked, run, claimed, observation)
        try:
            outcome = await observation.outcome()
        except anyio.get_cancelled_exc_class():
            observation.released = True
            run.change()
            if observation.queueing is not None:
                observation.queueing.cancel()
            raise
        return replace(outcome, outputs=(*earlier, *outcome.outputs)) if earlier else outcome

    # in tasks of the group

    async def _drive_cell(
        self, run: Run, cell: Cell, found: Preflight, first: Program, observation: Observation
    ) -> None:
        async def drive() -> Outcome:
            ended = await self._driver.start(run, first, observation)
            if not isinstance(ended, SyntaxFault):
                return ended
            refused: ProgramError | None = None
            if cell.language is None and "typescript" in self._settings.languages:
                second = None
                with suppress(RuntimeUnavailable), anyio.move_on_after(observation.deadline - self._clock()):
                    try:
                        second = await programs.typescript(found, self._transform)
                    except ProgramError as error:
                        refused = error
                if second is not None:
                    again = await self._driver.start(run, second, observation)
                    if not isinstance(again, SyntaxFault):
                        return again
            verdict = await self._refuse(ended.error, first.positions, found)
            # It is TypeScript with a mistake when esbuild gets further than the engine.
            raise refused if refused is not None and 0 < _line_of(verdict) < _line_of(refused) else verdict

        await self._settle(run, observation, drive)

    async def _drive_parked(self, run: Run, parked: ParkedRun, observation: Observation) -> None:
        async def drive() -> Outcome:
            return await self._driver.resume(run, parked, observation)

        await self._settle(run, observation, drive)

    async def _settle(self, run: Run, observation: Observation, drive: Callable[[], Awaitable[Outcome]]) -> None:
        try:
            outcome: Outcome | CodeModeError = await drive()
            if observation.aborted and run.state == "waiting":
                outcome = await self._driver.abort_parked(run)
        except CodeModeError as error:
            run.cancel_calls()
            outcome = error
        except Exception:
            log.exception("run %s failed in an unexpected way", run.id[:12])
            run.cancel_calls()
            outcome = InternalError("the program failed inside codemode-mcp; see its log")
        except BaseException:
            # The group is being cancelled: whoever still waits is told before the end.
            observation.settle(ProgramError("aborted", "the server is shutting down"))
            raise
        if run.state != "waiting":
            self._runs.pop(run.id, None)
        observation.settle(outcome)

    async def sweep_forever(self) -> None:
        """Drop runs past their time, again and again."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Drop runs past their time; calls they still wait for are cancelled."""
        for run_id in await self._store.sweep():
            run = self._runs.pop(run_id, None)
            if run is not None:
                run.advance("expire")
                run.cancel_calls()

    # details

    def _stop(self, run: Run, observation: Observation) -> None:
        observation.aborted = True
        if observation.queueing is not None:
            observation.queueing.cancel()
        if run.guest is not None:
            run.guest.interrupt()
        run.change()

    async def _refuse(self, error: Thrown, positions: Positions, found: Preflight) -> ProgramError:
        if len(found.source) > _LARGE_SOURCE:
            return await anyio.to_thread.run_sync(_syntax_error, error, positions, found, limiter=self._inspecting)
        return _syntax_error(error, positions, found)

    async def _inspect(self, cell: Cell) -> Preflight:
        if cell.language is not None and cell.language not in self._settings.languages:
            raise _unsupported(cell.language, self._settings.languages)
        language = cell.language or "javascript"
        if len(cell.source) > _LARGE_SOURCE:
            return await anyio.to_thread.run_sync(inspect, cell.source, language, limiter=self._inspecting)
        return inspect(cell.source, language)

    async def _catalog_for(self, found: Preflight, caller: Caller, client: Client | None) -> Catalog:
        """The catalog, once the servers that the program names have had their chance to come up."""
        if found.servers is None or found.servers:
            names = None
            if found.servers is not None:
                known = map(self._upstreams.server_of, found.servers)
                names = {name for name in known if name is not None}
            await self._upstreams.wait_settled(names, self._settings.connect_wait_ms / 1000)
        return await self._upstreams.catalog_for(caller, client)


@asynccontextmanager
async def open_manager(
    *,
    engine: Callable[[], Awaitable[Engine]],
    dispatcher: Dispatcher,
    store: RunStore,
    values: Values,
    upstreams: Upstreams,
    transform: Transform,
    settings: CodeModeSettings,
    clock: Callable[[], float],
) -> AsyncIterator[RunManager]:
    """A manager with its task group. Leaving aborts what still runs."""
    async with anyio.create_task_group() as group:
        manager = RunManager(
            group=group,
            engine=engine,
            dispatcher=dispatcher,
            store=store,
            values=values,
            upstreams=upstreams,
            transform=transform,
            settings=settings,
            clock=clock,
        )
        group.start_soon(manager.sweep_forever)
        try:
            yield manager
        finally:
            manager._closing = True
            for run in manager._runs.values():
                if run.observation is not None:
                    manager._stop(run, run.observation)
            group.cancel_scope.cancel()


def _unsupported(language: str, languages: Collection[str]) -> ProgramError:
    return ProgramError(
        "unsupported_language", f"language {language!r} is not enabled here; enabled: {', '.join(languages)}"
    )


def _syntax_error(error: Thrown, positions: Positions, found: Preflight) -> ProgramError:
    source = found.source
    frames = positions.frames(error)
    message = f"{error.name}: {error.message}"
    if error.name != "SyntaxError":
        return ProgramError("invalid_input", message)  # the engine's stack overflows: there is no one place
    if frames:
        line = int(frames[0].split(":")[1])
        column = stray_await(source, line) or fault_column(source, line, error.message)
    elif found.broken:
        # What it stumbled on comes after the program: something was not closed.
        line = positions.lines
        column = len(LINE_END.split(source)[-1]) + 1
        if "string" not in error.message and "comment" not in error.message:
            # What the engine names there is not the author's.
            message = "SyntaxError: the program ends before everything in it is closed: a }, ) or ] is missing"
        else:
            message += ", at the end of the program"
    else:
        message += ", in a regular expression"
        expressions = regex_offsets(source)
        if len(expressions) != 1:
            return ProgramError("invalid_input", message)
        line, column = Lines(utf16_units(source)).position(expressions[0])
    place = f"{positions.file}:{line}:{column}"
    message += syntax_hint(source, line, column, error.message)
    return ProgramError("invalid_input", f"{message} ({place})\n{excerpt(source, line, column)}")


def _line_of(error: ProgramError) -> int:
    """The first line that a message names; 0 when it names none."""
    place = re.search(r"cell\.[jt]s:([0-9]+)", error.message)
    return 0 if place is None else int(place[1])


def excerpt(source: str, line: int, column: int) -> str:
    """The line of `source` in question with a mark under the column; both count from 1."""
    lines = LINE_END.split(source)
    if not 1 <= line <= len(lines):
        return ""
    text = lines[line - 1].rstrip("\r")
    start = max(0, column - 80)
    shown = text[start : start + 120]
    number = f"{line} | "
    return f"{number}{shown}\n{' ' * (len(number) + max(0, column - 1 - start))}^"
