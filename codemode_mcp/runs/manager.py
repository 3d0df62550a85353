"""The runs as the server sees them: `execute`, `observe`, and the task group of the drivers, which outlive requests.

A request never drives its run. It makes an `Observation`, starts a driver in the task group, and waits for the outcome.
So a request can be cancelled at any time: for an `exec` the driver is told to abort the run, for a `wait` it is told to
suspend it. The driver does so as soon as its guest is at rest.

The module is long because requests, claims and drivers share the task group and the order in which it ends.
"""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct, field, structs
from msgspec.structs import asdict

from codemode_mcp.audit.events import Auditor, name_to_record
from codemode_mcp.audit.recordings.format import End
from codemode_mcp.base.errors import CodeModeError, InternalError, ShuttingDown, StoreUnavailable
from codemode_mcp.catalog.saved_programs.folder import EMPTY, Library
from codemode_mcp.program.prepare import Cell, Preparer, Program
from codemode_mcp.rules.policy.approval import RememberFn, remember_approval
from codemode_mcp.runs.driver import Driver
from codemode_mcp.runs.namespaces import open_namespaces
from codemode_mcp.runs.observation import Observation, Operator, Polling
from codemode_mcp.runs.restoring import Restoring
from codemode_mcp.runs.run import Run
from codemode_mcp.runs.run_recording import begin_recording
from codemode_mcp.runs.store import EndedRun, MemoryStore, RunStore, SuspendedRun, bearer_of
from codemode_mcp.runs.takeover import LiveRuns, Takeover, release, stop
from codemode_mcp.runs.verdicts import SyntaxFault
from codemode_mcp.runs.views import repeat_note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from anyio.abc import TaskGroup

    from codemode_mcp.audit.recordings.recordings import Recordings
    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.plugins.host import Plugins
    from codemode_mcp.catalog.saved_programs.proposing import Proposer
    from codemode_mcp.catalog.search.finder import Meaning
    from codemode_mcp.extension_points import Checker
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.prepare import Hook, Prepared, Transform
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.dispatch import Dispatcher
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import OnOutput
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from upstream_clients.tools import JsonObject


__all__ = ["Cell", "RunManager", "Services", "open_manager"]

log = logging.getLogger("codemode_mcp.runs")

CLAIM_SECONDS = 5.0
"""Seconds for which a manager that closes waits until requests that claim runs have done so."""

SWEEP_SECONDS = 5.0
"""Interval at which expired runs are dropped."""


class RunManager:
    """The manager of all runs of this process. Use `open_manager`.

    Attributes:
        operator: the operator's access to the runs of all owners.
        polling: the access of clients that poll the state of a run.
    """

    def __init__(self, services: Services, settings: CodeModeSettings, group: TaskGroup) -> None:
        self._services = services
        self._settings = settings
        self._group = group
        self._closed = False  # the group has ended
        self._clock = services.clock
        self._store = services.store
        self._fallback = MemoryStore(settings, services.clock) if services.store.durable else services.store
        self._preparer = Preparer(services.transform, settings, services.clock)
        self._live = live = LiveRuns(services.store, self._fallback, services.auditor, services.clock)
        self._driver = Driver(
            services,
            self.settings,
            fallback=self._fallback,
            spawn=group.start_soon,
            on_late=lambda run_id: self._takeover.look_up(run_id),
            on_late_failure=live.note_late_failure,
        )
        self._remember = None if services.remember is None else self._remember_soon
        restoring = Restoring(services, self._driver.calls, live.ledger, self._remember)
        self._takeover = Takeover(services, self.settings, live, restoring, group.start_soon)
        self.operator = Operator(services, self.settings, live, self._takeover, partial(self.observe, cancel=True))
        self.polling = Polling(self, live, services.clock)

    def __repr__(self) -> str:
        return f"<RunManager: {len(self._live.runs)} runs>"

    def _with_late_notes(self, outcome: Outcome, caller: Caller | None) -> Outcome:
        if outcome.questions:
            return outcome  # such an answer shows no notes
        notes = self._live.take_late_notes(outcome.owner, None if caller is None else caller.client)
        return structs.replace(outcome, notes=(*outcome.notes, *notes)) if notes else outcome

    def late_notes(self, caller: Caller) -> tuple[str, ...]:
        """Return notes about calls that failed after the programs of a caller had ended, and forget them."""
        return self._live.take_late_notes(caller.owner, caller.client)

    def settings(self) -> CodeModeSettings:
        return self._settings

    def apply(self, settings: CodeModeSettings) -> None:
        """Use these settings from now on. The number of runs that compute at the same time does not change."""
        self._settings = settings
        for each in (self._preparer, self._store, self._fallback):
            each.apply(settings)

    async def execute(self, cell: Cell, client: Client | None = None, on_output: OnOutput | None = None) -> Outcome:
        """Run a program. Cancelling this aborts the run and cancels its calls.

        Args:
            on_output: called with the output of the program, during this request and later requests for the run.

        Raises:
            CodeModeError: the program was refused, and nothing of it has run.
        """
        latest = self._latest()
        run_id = "run_" + secrets.token_urlsafe(18)
        owner = cell.caller.owner or bearer_of(run_id)
        catalog: Catalog | None = None

        async def members(found: Preflight) -> Catalog:
            nonlocal catalog
            catalog = await self._catalog_for(found, cell.caller, client)
            return catalog

        notes: list[str] = []
        dispatcher = self._services.dispatcher
        hook = partial(dispatcher.admit_program, run_id, owner, cell.caller) if dispatcher.admits_programs else None
        prepared = await self._preparer.prepare(cell, hook=hook, members=members, note=notes.append, deadline=latest)
        assert catalog is not None
        checker = self._services.checker
        if checker is not None and self._settings.check == "note":
            found = await checker.note_on(prepared, catalog)
            notes += [] if found is None else [found]
        # Before the deadline is set: compiling the engine does not count as the program's time.
        engine = await self._services.engine()
        manifest = catalog.manifest
        if prepared.preflight.intl or catalog.toolset.programs.use_intl(prepared.preflight.source):
            manifest = engine.with_intl(manifest)
        run = await self._new_run(run_id, owner, prepared.cell, catalog, manifest, on_output)
        for note in notes:
            run.note(note)
        observation = self._observation(client, latest)
        if self._live.closing:
            raise ShuttingDown
        # Set here and not in the task. If this request is cancelled or the manager closes before the task begins, the
        # run must be found.
        run.begin_request(observation)
        self._live.runs[run.id] = run
        self._group.start_soon(self._drive_cell, run, prepared, hook, observation)
        try:
            return self._with_late_notes(await observation.outcome(), cell.caller)
        except anyio.get_cancelled_exc_class():
            stop(run, observation)
            raise

    def _latest(self) -> float:
        """Return the latest time at which a request that arrives now has to be answered."""
        return self._clock() + self._settings.max_request_ms / 1000

    def _observation(self, client: Client | None, latest: float) -> Observation:
        return Observation(min(self._clock() + self._settings.timeout_ms / 1000, latest), client, latest=latest)

    async def _catalog_for(self, found: Preflight, caller: Caller, client: Client | None) -> Catalog:
        """Return the catalog. First wait, within a limit, until the servers that the program names have started."""
        upstreams = self._services.upstreams
        servers = found.servers
        if (library := self._services.library()).programs:
            servers = library.servers_in(found.source, servers)
        if servers is None or servers:
            names = upstreams.servers_for(caller, servers)
            await upstreams.wait_settled(names, self._settings.connect_wait_ms / 1000)
        return await upstreams.catalog_for(caller, client)

    async def _new_run(
        self, run_id: str, owner: str, cell: Cell, catalog: Catalog, manifest: str, on_output: OnOutput | None
    ) -> Run:
        limit = self._settings.memory_limit_bytes
        context = self._services.dispatcher.context(run_id, owner, cell.caller, catalog)
        run = Run(context, manifest, self._clock(), self._live.ledger, self._remember, on_output, limit)
        run.args = cell.args
        run.source = cell.source
        run.namespaces = await open_namespaces(
            catalog.namespaces,
            self._services.registered,
            run_id=run_id,
            owner=owner,
            aborted=lambda: run.given_up,
            memory_limit=limit,
        )
        run.declare_scopes()
        if self._services.recordings is not None:
            begin_recording(self._services.recordings, run, cell, self._services.wall())
        return run

    async def observe(
        self,
        run_id: str,
        owner: str | None,
        *,
        cancel: bool = False,
        from_start: bool = False,
        client: Client | None = None,
        answers: Mapping[str, JsonObject] | None = None,
        caller: Caller | None = None,
    ) -> Outcome:
        """Resume a suspended run, or return the outcome of an ended run again. Cancelling this suspends the run.

        Args:
            owner: None for a caller that is known only by the id of the run.
            cancel: abort the run.
            from_start: include the output of earlier answers.
            answers: the client's answers to questions that it got as an earlier answer, by key.
            caller: the owner as known now. The owner's groups may have changed since the run began. They decide what
                the program may call from now on, within the restrictions with which the run began.

        Raises:
            CodeModeError: there is no such run, it has expired, or it is observed already.
        """
        owner = owner or bearer_of(run_id)
        live = self._live.runs.get(run_id)
        if cancel and live is not None and live.owner == owner and live.observation is not None:
            # Another request waits for the run. Both requests get the same outcome.
            observation = live.observation
            stop(live, observation)
            return self._with_late_notes(await observation.outcome(), caller)
        begun = await self.begin(run_id, owner, caller, client=client, answers=answers, cancel=cancel)
        if isinstance(begun, EndedRun):
            since, whole = begun.outcome
            return self._with_late_notes(whole if from_start else since, caller)
        run, observation = begun
        earlier = tuple(run.history[: len(run.history) - len(run.outputs)]) if from_start else ()
        try:
            outcome = await observation.outcome()
        except anyio.get_cancelled_exc_class():
            release(run, observation)
            raise
        outcome = structs.replace(outcome, outputs=(*earlier, *outcome.outputs)) if earlier else outcome
        return self._with_late_notes(outcome, caller)

    async def begin(
        self,
        run_id: str,
        owner: str,
        caller: Caller | None,
        *,
        client: Client | None,
        answers: Mapping[str, JsonObject] | None = None,
        cancel: bool = False,
    ) -> tuple[Run, Observation] | EndedRun:
        """Claim a suspended run and start its driver, or return the end of the run. See `observe`.

        The driver has not begun yet when this returns.
        """
        if self._live.closing:
            raise ShuttingDown
        found = await self._takeover.claim(run_id, owner, caller, cancel=cancel)
        if isinstance(found, EndedRun):
            return found
        run, suspended = found
        if self._closed:  # during the claim, for which closing does not wait for ever
            self._takeover.forget(run)
            raise ShuttingDown
        observation = self._observation(client, self._latest())
        observation.aborted = cancel
        # The manager may have begun to close during the claim. The driver then suspends the run immediately.
        observation.released = self._live.closing
        run.begin_request(observation)
        self._takeover.note_observed()
        if caller is not None:
            # The run keeps its restrictions, whichever client waits for it. It keeps its share until its driver begins;
            # see `_drive_suspended`.
            before = run.context.caller
            run.context = structs.replace(run.context, caller=replace(caller.bound_as(before), share=before.share))
        run.questions.accept_answers(answers or {})
        share = None if caller is None else caller.client
        self._group.start_soon(self._drive_suspended, run, suspended, observation, share)
        return run, observation

    def is_busy(self) -> bool:
        """Return True if a request is open for a run, or a call of a run is in flight."""
        return any(run.observation is not None or run.calls for run in self._live.runs.values())

    async def retire(self) -> None:
        """Accept no more requests, and suspend the programs of open requests. Do nothing without a durable store."""
        if not self._store.durable:
            return
        self._live.closing = True
        for run in list(self._live.runs.values()):
            if run.observation is not None:
                release(run, run.observation)
        for run in list(self._live.runs.values()):
            async with run.driving:
                pass  # wait for the driver, which suspends the run

    def give_up_calls(self) -> None:
        """Give up all calls in flight. Otherwise they would fail with a misleading error when connections close."""
        self._driver.calls.close()

    def close(self) -> None:
        """Abort the runs, except for runs in a durable store. Any other process may claim those."""
        self._live.closing = True
        for run in list(self._live.runs.values()):
            if run.is_durable:
                self._services.auditor.emit("left", run.id, pending=len(run.calls))
                run.give_up()
                if run.guest is not None:
                    run.guest.interrupt()
            elif run.observation is not None:
                stop(run, run.observation)
            elif run.state == "waiting":
                self._live.end(run, "aborted")
        self._driver.calls.close()

    def _after_drivers(self) -> None:
        self._closed = True
        self._driver.close()

    # approvals for later programs

    def _remember_soon(self, run: Run, tools: Collection[str]) -> None:
        self._group.start_soon(self._remember_approvals, run, tools)

    async def _remember_approvals(self, run: Run, tools: Collection[str]) -> None:
        assert self._services.remember is not None
        caller = run.context.caller
        note = await remember_approval(self._services.remember, tools, caller, log, otherwise="this program")
        if note is not None:
            run.note(note)

    # in tasks of the group

    async def _drive_cell(self, run: Run, prepared: Prepared, hook: Hook | None, observation: Observation) -> None:
        cell = prepared.cell
        principal = cell.caller.principal
        self._services.auditor.emit(
            "run_started",
            run.id,
            cell.request,
            language=cell.language or "javascript",
            transport=cell.caller.kind,
            principal=None if principal is None else name_to_record(principal),
            catalog=len(run.context.catalog),
        )

        async def drive() -> Outcome:
            ended = await self._driver.start(run, prepared.program, observation)
            if not isinstance(ended, SyntaxFault):
                return ended
            # The engine refuses the text as JavaScript. It may be TypeScript that was sent without `language`.
            seconds = observation.deadline - self._clock()
            second = await self._preparer.as_typescript(prepared, hook, run.note, seconds)
            if isinstance(second, Program):
                again = await self._driver.start(run, second, observation)
                if not isinstance(again, SyntaxFault):
                    return again
                second = None
            raise await self._preparer.syntax_error(prepared, ended.error, second)

        with self._services.auditor.scope(run.id):
            await self._settle(run, observation, drive)
        run.namespaces.forget_text()

    async def _drive_suspended(
        self, run: Run, suspended: SuspendedRun, observation: Observation, share: str | None
    ) -> None:
        async def drive() -> Outcome:
            if share is not None:
                # The run counts for the client that waits for it. This must not change before the driver that suspended
                # the run has given back its room and its turn.
                run.context = structs.replace(run.context, caller=replace(run.context.caller, share=share))
            return await self._driver.resume(run, suspended, observation)

        await self._settle(run, observation, drive)

    async def _settle(self, run: Run, observation: Observation, drive: Callable[[], Awaitable[Outcome]]) -> None:
        outcome: Outcome | CodeModeError
        try:
            async with run.driving:
                outcome = await drive()
            if observation.aborted and run.state == "waiting":
                # The run was cancelled while it was being suspended. Another request or process may have claimed it
                # already, so it is cancelled like any suspended run.
                outcome = await self.observe(run.id, run.owner, cancel=True)
        except CodeModeError as error:
            outcome = error
        except Exception:
            log.exception("run %s failed in an unexpected way", run.id[:12])
            made = " ".join(repeat_note(run.made()))
            outcome = InternalError(f"the program failed inside codemode-mcp; see its log. {made}".rstrip(". "))
        except BaseException:
            # The task group is being cancelled. An open request must still get an answer.
            observation.settle(ShuttingDown("" if run.is_durable else " ".join(repeat_note(run.made()))))
            if not run.is_durable:
                self._live.end(run, "aborted")
            raise
        if isinstance(outcome, CodeModeError) and run.is_durable:
            # The stored run can still be resumed or cancelled, here or by another process.
            self._takeover.forget(run)
        else:
            if isinstance(outcome, CodeModeError):
                run.cancel_calls()
                if run.recorder is not None:
                    run.recorder.end(End("failed", error=outcome.message, code=outcome.code))
            if run.state != "waiting":
                failed = isinstance(outcome, CodeModeError) or outcome.status == "failed"
                ended = None if isinstance(outcome, CodeModeError) else outcome
                self._live.end(run, outcome.code if failed else None, ended)
        observation.settle(outcome)

    async def sweep_forever(self) -> None:
        auditor = self._services.auditor
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
                if auditor.measuring:
                    auditor.measure("store_swept", self._store.kind, **asdict(await self._store.totals()))
            except StoreUnavailable as error:
                self._takeover.report_failure(error)
            else:
                self._takeover.report_success()

    async def sweep(self) -> None:
        """Drop expired runs, and cancel their calls."""
        for store in dict.fromkeys((self._fallback, self._store)):
            for run_id in await store.sweep():
                run = self._live.runs.get(run_id)
                if run is not None and run.state == "waiting":
                    run.advance("expire")
                    run.cancel_calls()
                    self._live.end(run, "snapshot_expired")
        await self._services.values.sweep()
        if self._store.durable:
            self._takeover.look_up_expired()


@asynccontextmanager
async def open_manager(services: Services, settings: CodeModeSettings) -> AsyncIterator[RunManager]:
    """Open a manager with its task group. Leaving the context aborts the runs; see `RunManager.close`."""
    with ExitStack() as stack:
        async with anyio.create_task_group() as group:
            manager = RunManager(services, settings, group)
            # The stack is left after the group, when all drivers have given their guests back.
            stack.callback(manager._after_drivers)
            group.start_soon(manager.sweep_forever)
            if services.store.durable:
                group.start_soon(manager._takeover.listen_forever)
                group.start_soon(manager._takeover.watch_executors_forever)
            try:
                yield manager
            finally:
                manager.close()
                # Claims are never cancelled, and begin calls that other processes have left.
                with anyio.move_on_after(CLAIM_SECONDS, shield=True):
                    await manager._takeover.claims_ended()
                group.cancel_scope.cancel()


class Upstreams(Protocol):
    """The upstream servers, as runs see them."""

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Return the configured names of the servers that a program names.

        Args:
            names: the names in the program; None for all servers that its caller can see.

        Returns:
            None for all configured servers.
        """
        ...

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog: ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        """Wait until servers are up or known to be down, for at most `seconds`.

        This counts as use of the servers: an expired list is requested again. If something of an idle server is
        held, the server is connected.

        Args:
            names: configured names; None for all servers.
        """
        ...


class Services(Struct, frozen=True, kw_only=True):
    """The services that all runs share.

    Attributes:
        engine: returns the compiled engine, after loading it.
        store: the store of suspended runs.
        values: the stored values of programs.
        transform: compiles TypeScript.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        registered: the plugins and their namespaces.
        remember: stores an approval for later programs; None if approvals cannot be stored.
        meaning: ranks tools by meaning; None without the extra `semantic`.
        terminal_command: the command that runs codemode-mcp in a terminal, quoted for a shell.
        page_address: returns the address of the page about the approvals of a run; None if no page is open.
        recordings: the recordings of runs; None if no run is recorded.
        notify: called with the id of a run when its calls begin to wait for a person.
        library: returns the saved programs as they are now.
        checker: checks the types of programs; None without checks.
        proposer: keeps programs that are proposed to be saved; None if none can be.
        keeps_finished_calls: True to keep the results of finished calls of a failed program for the next program; False
            for a command that runs one program.
    """

    engine: Callable[[], Awaitable[Engine]]
    dispatcher: Dispatcher
    store: RunStore
    values: Values
    upstreams: Upstreams
    transform: Transform
    clock: Callable[[], float]
    wall: Callable[[], float] = time.time
    auditor: Auditor = field(default_factory=Auditor)
    registered: Plugins | None = None
    remember: RememberFn | None = None
    meaning: Meaning | None = None
    recordings: Recordings | None = None
    terminal_command: str = "codemode-mcp"
    page_address: Callable[[str], str | None] = lambda _: None
    notify: Callable[[str], None] = lambda _: None
    library: Callable[[], Library] = lambda: EMPTY
    checker: Checker | None = None
    proposer: Proposer | None = None
    keeps_finished_calls: bool = True
