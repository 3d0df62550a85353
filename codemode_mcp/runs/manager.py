"""What the server sees of runs: `execute`, `observe`, and one task group that outlives requests."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections import deque
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from codemode_mcp.audit.events import MAX_NAME, Auditor
from codemode_mcp.errors import (
    CodeModeError,
    Exceeded,
    InternalError,
    ProgramError,
    RuntimeUnavailable,
    StoreUnavailable,
)
from codemode_mcp.policy.approval import Verdict
from codemode_mcp.program import compile as programs
from codemode_mcp.program.hints import PYTHON, looks_like_python, syntax_hint
from codemode_mcp.program.preflight import check_members, has_types, inspect, looks_like_shell
from codemode_mcp.program.program_form import take_fence
from codemode_mcp.program.syntax import LINE_END, Lines, utf16_units
from codemode_mcp.runs.driver import Driver, SyntaxFault
from codemode_mcp.runs.namespaces import open_namespaces
from codemode_mcp.runs.restoring import Restoring
from codemode_mcp.runs.run import Observation, Run
from codemode_mcp.runs.store import EndedRun, MemoryStore, bearer_of, unknown_run
from codemode_mcp.runs.views import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.policy.approval import ApprovalRequest, Remember, RememberFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.program.compile import Program, Transform
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.program.preflight import Preflight
    from codemode_mcp.runs.namespaces import Registered
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.run import OnOutput
    from codemode_mcp.runs.store import Claim, RunStore, SuspendedRun, Totals
    from codemode_mcp.runs.values import Values
    from codemode_mcp.runs.views import RunView, Track
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.messages import Thrown
    from codemode_mcp.search.finder import Meaning
    from codemode_mcp.settings import CodeModeSettings, Language, StoreKind
    from upstream_clients.tools import JsonObject

log = logging.getLogger("codemode_mcp.runs")

SWEEP_SECONDS = 5.0
"""How often runs past their time are dropped."""

MAX_SOURCE = 1_100_000
"""Characters of one program."""

WATCH_SECONDS = 1.0
"""How often it is looked whether the processes still live that have sent calls of programs which are waited for."""

ADOPTED_SECONDS = 2.0
"""For the calls of a run that was adopted to come to wait for an approval."""

MAX_LATE = 5
"""Sentences kept for an owner about calls that failed after their program was over."""

MAX_LATE_OWNERS = 200

LOOKS_AT_ONCE = 4
"""Of runs that others may have done something to."""

CANCEL_SECONDS = 0.05
"""How often it is looked whether a program has ended elsewhere, or been suspended, that is waited for."""

SHOWN_ENDED = 200
"""Runs that are listed after their end, the latest ones."""

_LARGE_SOURCE = 20_000
"""Characters from which on the preflight is not worth doing on the event loop."""


class Upstreams(Protocol):
    """What runs need to know of the upstream servers."""

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """The configured names of those servers that a program of this caller calls by these names; of all that it can
        see for None. None where these are all there are."""
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
        request: the id of its request in events.
        args: what the program finds in `args`.
    """

    source: str
    language: Language | None
    caller: Caller
    request: str | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, for listings. Nothing of it but its calls' records is kept."""

    last: RunView
    track: Track
    began: float
    ended: float

    def view(self, now: float) -> RunView:
        age, since = (round((now - then) * 1000) for then in (self.began, self.ended))
        return replace(self.last, age_ms=age, ended_ms=since)


class RunManager:
    """See the module. Use `open_manager`.

    Args:
        remember: None where approvals cannot be remembered for ever.
    """

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
        auditor: Auditor | None = None,
        registered: Registered | None = None,
        remember: RememberFn | None = None,
        wall: Callable[[], float] = time.time,
        meaning: Meaning | None = None,
        program: str = "codemode-mcp",
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._group = group
        self._engine = engine
        self._dispatcher = dispatcher
        self._store = store
        self._shelter: RunStore = MemoryStore(settings, clock) if store.durable else store
        self._values = values
        self._upstreams = upstreams
        self._transform = transform
        self._settings = settings
        self._clock = clock
        self._auditor = auditor or Auditor()
        self._remember = remember
        self._registered = registered
        self._runs: dict[str, Run] = {}
        self._ledger = Ledger()
        self._late: dict[str, list[str]] = {}
        self._ended: deque[_Ended] = deque(maxlen=SHOWN_ENDED)
        self._closing = False
        self._looking = anyio.CapacityLimiter(LOOKS_AT_ONCE)
        self._observed = anyio.Event()
        self._trouble: str | None = None
        # Runs that have ended and were never written down.
        self._sheltered: deque[str] = deque(maxlen=SHOWN_ENDED)
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
            auditor=self._auditor,
            wall=wall,
            on_late=self._heard,
            on_late_failure=self._failed_late,
            shelter=self._shelter,
            program=program,
            notify=notify,
        )
        self._restoring = Restoring(
            engine=engine,
            dispatcher=dispatcher,
            store=store,
            calls=self._driver.calls,
            ledger=self._ledger,
            clock=clock,
            wall=wall,
            registered=registered,
            meaning=meaning,
            keep=None if remember is None else self._keep,
        )

    def __repr__(self) -> str:
        return f"<RunManager: {len(self._runs)} runs>"

    def _failed_late(self, owner: str, note: str) -> None:
        """Keep, for the next answer to an owner, what failed after a program was over."""
        notes = self._late.pop(owner, [])
        if len(notes) < MAX_LATE:
            notes.append(note)
        self._late[owner] = notes
        if len(self._late) > MAX_LATE_OWNERS:
            del self._late[next(iter(self._late))]

    def _with_late(self, outcome: Outcome) -> Outcome:
        if outcome.questions:
            return outcome  # such an answer shows no notes
        notes = self.late_notes(outcome.owner)
        return replace(outcome, notes=(*outcome.notes, *notes)) if notes else outcome

    def late_notes(self, owner: str | None) -> tuple[str, ...]:
        """Return, once, what failed after programs of an owner were over."""
        return tuple(self._late.pop(owner, ())) if owner is not None else ()

    def apply(self, settings: CodeModeSettings) -> None:
        """These limits count from now on, except for how many runs compute at once."""
        self._settings = settings
        self._driver.apply(settings)
        self._store.apply(settings)
        self._shelter.apply(settings)

    async def execute(self, cell: Cell, client: Client | None = None, on_output: OnOutput | None = None) -> Outcome:
        """Run a program. Cancelling this aborts the run and cancels its calls.

        `on_output`: is shown what the program prints, in this request and in those that continue the run.

        Raises:
            CodeModeError: nothing of the program has run.
        """
        arrived = self._clock()
        _check_size(cell.source)
        run_id = "run_" + secrets.token_urlsafe(18)
        notes: list[str] = []
        cell = await self._admit(cell, run_id, arrived, notes.append)
        _refuse_shell(cell.source)
        cell = await self._unfence(cell, notes.append)
        try:
            found = await self._inspect(cell)
        except ProgramError:
            if looks_like_python(cell.source):
                raise ProgramError("invalid_input", PYTHON) from None
            raise
        if found.called is not None:
            notes.append(found.called.note)
        catalog = await self._catalog_for(found, cell.caller, client)
        check_members(found, catalog.members, cell.language or "javascript")
        # The engine is compiled outside the program's time.
        await self._engine()
        context = self._dispatcher.context(run_id, cell.caller.owner or bearer_of(run_id), cell.caller, catalog)
        keep = None if self._remember is None else self._keep
        memory_limit = self._settings.memory_limit_bytes
        run = Run(context, catalog.manifest, self._clock(), self._ledger, keep, on_output, memory_limit)
        run.args = cell.args
        for note in notes:
            run.note(note)
        if cell.language == "typescript":
            with anyio.move_on_after(arrived + self._settings.max_request_ms / 1000 - self._clock()) as scope:
                first = await programs.typescript(found, self._transform)
            if scope.cancelled_caught:
                raise ProgramError("timeout", "transforming the TypeScript took too long; write a shorter program")
        else:
            first = programs.javascript(found)
        run.namespaces = await open_namespaces(
            catalog.namespaces,
            self._registered,
            run_id=run_id,
            owner=context.owner,
            aborted=lambda: run.given_up,
            memory_limit=self._settings.memory_limit_bytes,
        )
        run.know_scopes()
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
            return self._with_late(await observation.outcome())
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
        caller: Caller | None = None,
    ) -> Outcome:
        """Continue a run, or give its end again. Cancelling this only lets go of it.

        `owner`: None for whoever holds the id. `answers`: to the questions that an earlier answer came with, by key.
        `caller`: the owner as it is known now, who may be in other groups than when the run began: what the program
        calls from now on is decided by these.

        Raises:
            CodeModeError: there is no such run, it has expired, or it is observed already.
        """
        owner = owner or bearer_of(run_id)
        live = self._runs.get(run_id)
        if cancel and live is not None and live.owner == owner and live.observation is not None:
            # Somebody waits for it; that request gets the end, and this one the same.
            observation = live.observation
            self._stop(live, observation)
            return self._with_late(await observation.outcome())
        if self._closing:
            raise ProgramError("aborted", "the server is shutting down")
        found = await self._take(run_id, owner, caller, cancel=cancel)
        if isinstance(found, EndedRun):
            since, whole = found.outcome
            return self._with_late(whole if from_start else since)
        run, suspended = found
        now = self._clock()
        latest = now + self._settings.max_request_ms / 1000
        observation = Observation(min(now + self._settings.timeout_ms / 1000, latest), client, latest=latest)
        observation.aborted = cancel
        observation.released = self._closing
        run.observation = observation
        self._observed.set()
        if caller is not None:
            # It counts for the share that it began in, wherever it is waited for.
            caller = replace(caller, share=run.context.caller.share)
            run.context = replace(run.context, caller=caller)
        run.questions.bring(answers or {})
        earlier = tuple(run.history[: len(run.history) - len(run.outputs)]) if from_start else ()
        self._group.start_soon(self._drive_suspended, run, suspended, observation)
        try:
            outcome = await observation.outcome()
        except anyio.get_cancelled_exc_class():
            observation.released = True
            run.change()
            if observation.queueing is not None:
                observation.queueing.cancel()
            raise
        outcome = replace(outcome, outputs=(*earlier, *outcome.outputs)) if earlier else outcome
        return self._with_late(outcome)

    # runs that outlive a process

    async def _take(
        self, run_id: str, owner: str, caller: Caller | None, *, cancel: bool = False
    ) -> tuple[Run, SuspendedRun] | EndedRun:
        """A run that is this process's to go on with from now on, or its end."""
        found: tuple[Run, SuspendedRun] | EndedRun | None = None
        # Not cancelled half-way: a claim that nobody knows of would keep all others from the run.
        with anyio.CancelScope(shield=True):
            claimed = await self._claim(run_id, owner, cancel=cancel)
            if isinstance(claimed, EndedRun):
                found = claimed
            else:
                try:
                    run = await self._take_over(claimed, caller)
                except BaseException:
                    # Nobody goes on with it.
                    with suppress(StoreUnavailable):
                        await self._store.release(run_id, owner)
                    self._store.forget(run_id)
                    raise
                found = run if isinstance(run, EndedRun) else (run, claimed.run)
        assert found is not None
        return found

    async def _claim(self, run_id: str, owner: str, *, cancel: bool) -> Claim | EndedRun:
        until = self._clock() + self._settings.max_request_ms / 1000
        asked = cancel
        while True:
            try:
                return await self._home_of(run_id).claim(run_id, owner)
            except ProgramError:
                # Another process may be driving it, which ends it then; nobody does who has just let go.
                if not asked or self._closing or self._clock() > until:
                    raise
            run = self._runs.get(run_id)
            if run is not None and run.owner == owner and run.observation is not None:
                self._stop(run, run.observation)  # another request of this process has been faster
            else:
                asked = await self._store.cancel(run_id, owner)
            await anyio.sleep(CANCEL_SECONDS)

    def _home_of(self, run_id: str) -> RunStore:
        """What has a run that was suspended, or its end."""
        run = self._runs.get(run_id)
        if run is not None and run.home is not None:
            return run.home
        return self._shelter if run_id in self._sheltered else self._store

    async def _take_over(self, claimed: Claim, caller: Caller | None) -> Run | EndedRun:
        """The run that was claimed, as it is in this process or made of what a store has. Where that cannot be, its
        end."""
        suspended = claimed.run
        run = self._runs.get(suspended.id)
        if run is not None and claimed.current:
            if self._store.durable:
                async with run.driving:
                    pass  # who suspended it may still be on the way out
                self._restoring.take_in(run, suspended.calls)
            return run
        if run is not None:
            self._set_aside(run)
        if not self._store.durable:
            raise unknown_run(suspended.id)
        try:
            return await self._revive(claimed, caller)
        except CodeModeError as error:
            if error.code != "snapshot_restore_failed":
                raise
            ended = self._restoring.end_of(suspended, error, self._settings.snapshot_ttl_seconds)
            await self._store.end(ended)
            return ended

    async def _revive(self, claimed: Claim, caller: Caller | None) -> Run:
        run = await self._restoring.run_of(claimed, caller, self._settings)
        self._runs[run.id] = run
        self._auditor.emit("taken_over", run.id, pending=len(run.calls))
        return run

    def _let_go(self, run: Run) -> None:
        """Another process has the run, or a store that cannot be reached has more of it than this one."""
        if self._runs.get(run.id) is run:  # otherwise this process may have claimed it anew since
            self._store.forget(run.id)
        self._set_aside(run)

    def _set_aside(self, run: Run) -> None:
        """It is no run of this process any more; calls that were sent go on."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._auditor.emit("left", run.id, pending=len(run.calls))
        run.track.forget()
        run.give_up()

    def _heard(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.kept:
            self._group.start_soon(self._look, run)

    async def _look(self, run: Run) -> None:
        """Take in what others have done to a run."""
        if run.home is None:
            # It is being stored for the first time: a store that does not have it yet looks as if it had dropped it.
            async with run.driving:
                pass
            if not run.kept:
                return
        try:
            # Of many at once, when news may have been missed: others want something of the store too.
            async with self._looking:
                if self._runs.get(run.id) is not run:
                    return
                news = await self._store.look(run.id)
        except StoreUnavailable as error:
            self._store_failed(error)
            return
        except CodeModeError as error:
            log.warning("what became of run %s elsewhere is not known: %s", run.id[:12], error.message)
            return
        if self._runs.get(run.id) is not run:
            return
        if news.fenced or news.ended is not None:
            self._let_go(run)
            if run.guest is not None:
                run.guest.interrupt()
            if news.ended in ("aborted", "expired", "failed"):
                run.cancel_calls()
            elif news.ended == "completed":
                for live in list(run.calls.values()):
                    if live.record.read_only:
                        live.cancel()
            return
        if news.cancelled and run.observation is not None:
            self._stop(run, run.observation)
        self._restoring.take_in(
            run,
            [
                replace(each, executor="nobody") if each.result is None and each.status == "dispatched" else each
                for each in news.calls
            ],
        )

    async def hear_forever(self) -> None:
        """Hear of what other processes do, again and again; only now and then where no request waits for that, since to
        look for it wakes the machine."""
        while True:
            observed = any(run.observation is not None for run in self._runs.values() if run.kept)
            if not observed:
                with anyio.move_on_after(WATCH_SECONDS):
                    await self._observed.wait()
                self._observed = anyio.Event()
                if not any(run.kept for run in self._runs.values()):
                    continue
            try:
                with anyio.move_on_after(WATCH_SECONDS if observed else 0):
                    while True:
                        run_id = await self._store.news()
                        for each in list(self._runs) if run_id is None else (run_id,):
                            self._heard(each)
            except CodeModeError:
                await anyio.sleep(WATCH_SECONDS)

    async def watch_forever(self) -> None:
        """See to calls whose processes have died without a word."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            for run in list(self._runs.values()):
                if run.observation is not None and run.elsewhere:
                    self._heard(run.id)

    async def adopt(self, run_id: str, adopts: Callable[[str], bool] = bool) -> bool:
        """Have a suspended run that nobody drives in this process, with its calls, for an operator who wants to decide
        something. False: there is none.

        Args:
            adopts: whether this process serves an owner; the calls of others are not for its servers.
        """
        if run_id in self._runs:
            return True
        owner = await self._store.owner_of(run_id) if self._store.durable and not self._closing else None
        if owner is None or not adopts(owner):
            return False
        found = await self._take(run_id, owner, None)
        if isinstance(found, EndedRun):
            return False
        await self._store.release(run_id, owner)
        run = self._runs.get(run_id)
        with anyio.move_on_after(ADOPTED_SECONDS):
            # While it is nobody's: its driver, if there is one, hears of changes in its place.
            while run is not None and run.observation is None and run.approaching and run.id in self._runs:
                await run.hear_change()
        return True

    async def stored_views(self) -> list[RunView]:
        """Runs that a store has and this process has not, the newest first; without their calls."""
        if not self._store.durable:
            return []
        if not self._store.holds():
            # Asking it may take longer than a person waits.
            raise StoreUnavailable(
                "the store{at} does not answer: what is only there is not shown", at=f" {self._store.name}"
            )
        here = {each.last.id for each in self._ended} | self._runs.keys()
        return [view for view in await self._store.views() if view.id not in here]

    @property
    def store(self) -> tuple[StoreKind, str]:
        """Of which kind the store is, and what it is called."""
        return self._store.kind, self._store.name

    async def totals(self) -> Totals:
        """What the store has of suspended runs."""
        return await self._store.totals()

    # for whoever operates the server

    def decide(
        self, run_id: str, calls: Collection[int] | None, *, approved: bool, remember: Remember = "no", by: str
    ) -> list[int]:
        """Decide calls of a run that wait for an approval, all for None, and say which they were. Others are passed
        over. A question about them that a client has is taken back.

        Whoever calls this is the operator: no owner is checked.

        Args:
            by: who has decided, in words.

        Raises:
            ProgramError: `invalid_input`: there is no such run, or an approval cannot be remembered for ever.
        """
        run = self._runs.get(run_id)
        if run is None or run.is_past(self._clock()):
            raise unknown_run(run_id)
        verdict = Verdict(approved, "" if approved else f"denied by {by}", remember if approved else "no", "terminal")
        try:
            return run.approvals.decide(calls, verdict, by)
        except ValueError as error:
            raise ProgramError("invalid_input", str(error)) from None

    def _keep(self, run: Run, tools: Collection[str]) -> None:
        self._group.start_soon(self._keep_approvals, run, tools)

    async def _keep_approvals(self, run: Run, tools: Collection[str]) -> None:
        assert self._remember is not None
        try:
            await self._remember(tools, run.context.caller)
        except CodeModeError as error:
            log.error("an approval could not be remembered: %s", error.message)
        except Exception:
            log.exception("an approval could not be remembered")
        else:
            return
        run.note(
            "The approval counts for this program alone: the configuration file could not be changed; "
            "see the log of codemode-mcp"
        )

    def views(self) -> list[RunView]:
        """All runs, those that have ended lately included, the newest first; without their calls."""
        now = self._clock()
        found: list[Run | _Ended] = [*self._runs.values(), *self._ended]
        found.sort(key=lambda each: each.began, reverse=True)
        return [each.view(now) for each in found]

    def view(self, run_id: str) -> RunView | None:
        """One of them with its calls; None: it is not known, or was forgotten."""
        now = self._clock()
        run = self._runs.get(run_id)
        if run is not None:
            return replace(run.view(now), calls=run.call_views(now))
        for each in self._ended:
            if each.last.id == run_id:
                return replace(each.view(now), calls=each.track.views(now))
        return None

    def approvals(self, run_id: str) -> Sequence[ApprovalRequest]:
        """The calls of a run that wait for a person, in order; none of a run that there is not."""
        run = self._runs.get(run_id)
        return () if run is None else run.approvals.requests

    async def cancel(self, run_id: str, adopts: Callable[[str], bool] = bool) -> bool:
        """End a run, whoever it belongs to; False when there is none, or it has ended by itself. `adopts`: see
        `adopt`."""
        run = self._runs.get(run_id)
        if run is not None:
            owner: str | None = run.owner
        else:
            # Whoever goes on with it ends it; if nobody does, it is this process's to end.
            owner = await self._store.owner_of(run_id) if self._store.durable else None
        if owner is None:
            return False
        if run is None and not adopts(owner):
            return await self._store.cancel(run_id, owner)
        try:
            outcome = await self.observe(run_id, owner, cancel=True)
        except StoreUnavailable:
            raise
        except CodeModeError:
            return False
        return outcome.code == "aborted" if run is None else run.state == "aborted" or outcome.code == "aborted"

    def _over(self, run: Run, code: ErrorCode | None) -> None:
        """It is no run any more, but still listed for a while."""
        if self._runs.pop(run.id, None) is None:
            return
        if run.home is self._shelter is not self._store:
            self._sheltered.append(run.id)
        self._tell_end(run, code)
        last = run.view(self._clock())
        if last.state == "running":  # nothing of it has run
            last = replace(last, state="failed")
        # Calls that nobody waits for any more may go on.
        last = replace(last, code=code, observed=False, timers=0)
        run.track.pack(run.calls)
        if len(self._ended) == self._ended.maxlen:
            self._ended[0].track.forget()
        self._ended.append(_Ended(last, run.track, run.began, self._clock()))

    async def retire(self) -> None:
        """Take no more requests, and have those that are open answered: their programs are suspended, where a store
        keeps them for the next process."""
        if self._store.durable:
            await self._suspend_all()

    def give_up_calls(self) -> None:
        """Give up all calls in flight, before connections close, which would end them with another reason."""
        self._driver.calls.close()

    async def _suspend_all(self) -> None:
        self._closing = True
        for run in list(self._runs.values()):
            if run.observation is not None:
                run.observation.released = True
                if run.observation.queueing is not None:
                    run.observation.queueing.cancel()
                run.change()
        for run in list(self._runs.values()):
            async with run.driving:
                pass

    # in tasks of the group

    async def _drive_cell(
        self, run: Run, cell: Cell, found: Preflight, first: Program, observation: Observation
    ) -> None:
        principal = cell.caller.principal
        self._auditor.emit(
            "run_started",
            run.id,
            cell.request,
            language=cell.language or "javascript",
            transport=cell.caller.kind,
            principal=None if principal is None else principal[:MAX_NAME],
            catalog=len(run.context.catalog),
        )

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
                    await self._admit_as_typescript(run, cell)
                    again = await self._driver.start(run, second, observation)
                    if not isinstance(again, SyntaxFault):
                        return again
            verdict = await self._refuse(ended.error, first.positions, found)
            # It is TypeScript with a mistake when esbuild gets further than the engine.
            raise refused if refused is not None and 0 < _line_of(verdict) < _line_of(refused) else verdict

        await self._settle(run, observation, drive)
        run.namespaces.forget_text()

    async def _drive_suspended(self, run: Run, suspended: SuspendedRun, observation: Observation) -> None:
        async def drive() -> Outcome:
            return await self._driver.resume(run, suspended, observation)

        await self._settle(run, observation, drive)

    async def _settle(self, run: Run, observation: Observation, drive: Callable[[], Awaitable[Outcome]]) -> None:
        try:
            async with run.driving:
                outcome: Outcome | CodeModeError = await drive()
            if observation.aborted and run.state == "waiting":
                # Cancelled while it was being suspended: another request, or process, may have it already.
                outcome = await self.observe(run.id, run.owner, cancel=True)
        except CodeModeError as error:
            outcome = error
            if run.kept or run.fenced:
                self._let_go(run)
                observation.settle(outcome)
                return
            run.cancel_calls()
        except Exception:
            log.exception("run %s failed in an unexpected way", run.id[:12])
            outcome = InternalError("the program failed inside codemode-mcp; see its log")
            if run.kept:
                # What is stored of it can still be waited for, or cancelled.
                self._let_go(run)
                observation.settle(outcome)
                return
            run.cancel_calls()
        except BaseException:
            # The group is being cancelled: whoever still waits is told before the end.
            observation.settle(ProgramError("aborted", "the server is shutting down"))
            if not run.kept:
                self._over(run, "aborted")
            raise
        if run.state != "waiting":
            self._over(run, outcome.code if isinstance(outcome, CodeModeError) or outcome.status == "failed" else None)
        observation.settle(outcome)

    async def sweep_forever(self) -> None:
        """Drop runs past their time, again and again."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
                if self._auditor.measuring:
                    self._auditor.measure("store_swept", self._store.kind, **asdict(await self.totals()))
            except StoreUnavailable as error:
                self._store_failed(error)
            else:
                if self._trouble is not None:
                    self._trouble = None
                    log.info("the store of suspended runs works again")

    def _store_failed(self, error: StoreUnavailable) -> None:
        """Log that the store fails: once, since it is asked every second and for every run."""
        if error.message != self._trouble:
            self._trouble = error.message
            log.warning(
                "suspended runs are not dropped when their time is over, and what others do to them is not known: %s",
                error.detail,
            )

    async def sweep(self) -> None:
        """Drop runs past their time; calls they still wait for are cancelled."""
        for store in dict.fromkeys((self._shelter, self._store)):
            for run_id in await store.sweep():
                run = self._runs.get(run_id)
                if run is not None and run.state == "waiting":
                    run.advance("expire")
                    run.cancel_calls()
                    self._over(run, "snapshot_expired")
        await self._values.sweep()
        if self._store.durable:
            now = self._clock()
            for run in list(self._runs.values()):
                if run.is_past(now):
                    self._heard(run.id)  # others may have gone on with it

    # details

    def _tell_end(self, run: Run, code: ErrorCode | None) -> None:
        status = {None: "completed", "aborted": "aborted", "snapshot_expired": "expired"}.get(code, "failed")
        self._auditor.emit(
            "run_ended",
            run.id,
            status=status,
            outcome=_OUTCOMES.get(status, status) if not run.empty else "empty",
            code=code,
            ms=round((self._clock() - run.began) * 1000),
            calls=run.context.counts.call,
            waits=run.waits,
            snapshots=run.snapshots,
        )

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

    async def _admit(self, cell: Cell, run_id: str, arrived: float, note: Callable[[str], None]) -> Cell:
        """What is run for this: hooks of plugins may have changed it. Raises `CodeModeError`."""
        if not self._dispatcher.admits_programs:
            return cell
        owner = cell.caller.owner or bearer_of(run_id)
        if cell.language is None and await self._is_typescript(cell.source):
            cell = replace(cell, language="typescript")  # it runs as what it was shown as
        language = cell.language or "javascript"
        with anyio.move_on_after(arrived + self._settings.max_request_ms / 1000 - self._clock()):
            source = await self._dispatcher.admit_program(run_id, owner, cell.caller, cell.source, language, note)
            if source == cell.source:
                return cell
            _check_size(source)
            return replace(cell, source=source)
        raise ProgramError("timeout", "plugins took too long to look at the program; nothing of it has run")

    async def _admit_as_typescript(self, run: Run, cell: Cell) -> None:
        """Have hooks judge a program, which they saw as JavaScript, as what runs. Raises `CodeModeError`."""
        if not self._dispatcher.admits_programs:
            return
        admitted = await self._dispatcher.admit_program(
            run.id, run.owner, cell.caller, cell.source, "typescript", run.note
        )
        if admitted != cell.source:
            raise ProgramError("invalid_input", 'a hook changes this program; send it with language: "typescript"')

    async def _is_typescript(self, source: str) -> bool:
        if "typescript" not in self._settings.languages:
            return False
        if len(source) > _LARGE_SOURCE:
            return await anyio.to_thread.run_sync(_is_typescript, source, limiter=self._inspecting)
        return _is_typescript(source)

    async def _unfence(self, cell: Cell, note: Callable[[str], None]) -> Cell:
        """Return the program in the fence, where there is one. Raises `ProgramError`."""
        if len(cell.source) > _LARGE_SOURCE:
            fenced = await anyio.to_thread.run_sync(take_fence, cell.source, limiter=self._inspecting)
        else:
            fenced = take_fence(cell.source)
        if fenced is None:
            return cell
        _refuse_shell(fenced.source)
        note(fenced.note)
        labelled = fenced.language if fenced.language in self._settings.languages else None
        return replace(cell, source=fenced.source, language=cell.language or labelled)

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
            names = self._upstreams.servers_for(caller, found.servers)
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
    auditor: Auditor | None = None,
    registered: Registered | None = None,
    remember: RememberFn | None = None,
    wall: Callable[[], float] = time.time,
    meaning: Meaning | None = None,
    program: str = "codemode-mcp",
    notify: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[RunManager]:
    """Open a manager with its task group. Leaving aborts what still runs.

    Args:
        program: the command that runs this program at a terminal, quoted for a shell.
    """
    with ExitStack() as stack:
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
                auditor=auditor,
                registered=registered,
                remember=remember,
                wall=wall,
                meaning=meaning,
                program=program,
                notify=notify,
            )
            stack.callback(manager._driver.close)  # once programs have given their guests back
            group.start_soon(manager.sweep_forever)
            if store.durable:
                group.start_soon(manager.hear_forever)
                group.start_soon(manager.watch_forever)
            try:
                yield manager
            finally:
                manager._closing = True
                for run in list(manager._runs.values()):
                    if run.kept:
                        manager._auditor.emit("left", run.id, pending=len(run.calls))
                        run.give_up()  # the next process that claims it resumes it
                        if run.guest is not None:
                            run.guest.interrupt()
                    elif run.observation is not None:
                        manager._stop(run, run.observation)
                    elif run.state == "waiting":
                        manager._over(run, "aborted")
                manager._driver.calls.close()
                group.cancel_scope.cancel()


_OUTCOMES = {"completed": "ok", "expired": "aborted"}
"""Classes of ends by their status. A program that has completed and produced nothing is `empty`."""


def _is_typescript(source: str) -> bool:
    try:
        fenced = take_fence(source)
    except ProgramError:
        return False  # it is refused later
    if fenced is not None and fenced.language is not None:
        return fenced.language == "typescript"
    return has_types(source if fenced is None else fenced.source)


def _refuse_shell(source: str) -> None:
    guidance = looks_like_shell(source)
    if guidance is not None:
        raise ProgramError("invalid_input", guidance)


def _check_size(source: str) -> None:
    if len(source) > MAX_SOURCE:
        raise ProgramError(
            "invalid_input",
            f"the program has {len(source)} characters, more than {MAX_SOURCE}; write a shorter one",
            Exceeded("programCharacters", len(source), MAX_SOURCE),
        )


def _unsupported(language: str, languages: Collection[str]) -> ProgramError:
    return ProgramError(
        "unsupported_language", f"language {language!r} is not enabled here; enabled: {', '.join(languages)}"
    )


def _syntax_error(error: Thrown, positions: Positions, found: Preflight) -> ProgramError:
    from codemode_mcp.program.error_location import (  # a server starts without it
        fault_column,
        regex_offsets,
        stray_await,
    )

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
