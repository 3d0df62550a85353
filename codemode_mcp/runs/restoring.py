"""The restoring of a run from a store: its catalog, its namespaces and its calls in flight."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import structs

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.catalog.serialize import read_catalog
from codemode_mcp.runs import records
from codemode_mcp.runs.answers import counted
from codemode_mcp.runs.calls.outcome import CallRecord, Outcome, Usage, stored_outcome
from codemode_mcp.runs.live_call import begins_program
from codemode_mcp.runs.namespaces import open_namespaces
from codemode_mcp.runs.store import Claim, EndedRun, StoredCall, SuspendedRun
from codemode_mcp.runs.views import Ledger, after_loss, repeat_note
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.images import beside_program
from codemode_mcp.sandbox.messages import Completion, GuestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.manager import Services
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.run_calls import Calls

KEPT_CATALOGS = 16
"""Maximum number of catalogs of restored runs that are kept in memory."""


class Restoring:
    """The restorer of runs from a store. It holds no state of any run, except their catalogs.

    Args:
        remember: see `Run`.
    """

    def __init__(
        self,
        services: Services,
        calls: Calls,
        ledger: Ledger,
        remember: Callable[[Run, Collection[str]], None] | None,
    ) -> None:
        self._engine = services.engine
        self._dispatcher = services.dispatcher
        self._store = services.store
        self._clock = services.clock
        self._wall = services.wall
        self._registered = services.registered
        self._meaning = services.meaning
        self._recordings = services.recordings
        self._calls = calls
        self._ledger = ledger
        self._remember = remember
        self._catalogs: OrderedDict[str, Catalog] = OrderedDict()
        """Catalogs by their hashes."""

    async def run_of(self, claimed: Claim, caller: Caller | None, settings: CodeModeSettings) -> Run:
        """Return the suspended run of a claim, with its calls in flight.

        Args:
            caller: the owner as known now; None to use the owner as known when the run was stored. The restrictions of
                the run are always those that were stored.
            settings: the current limits.

        Raises:
            CodeModeError: `snapshot_restore_failed`, or this process cannot continue the run now.
        """
        suspended = claimed.run
        # The snapshot is checked before the calls of the run begin. Their results would be lost if the run could not
        # continue.
        base = (await self._engine()).base
        made = snapshot.check(suspended.snapshot, prelude=base.prelude)
        limit = settings.memory_limit_bytes
        snapshot.check_limits(
            suspended.snapshot,
            made.pages,
            image_bytes=base.size,
            beside=beside_program(suspended.manifest),
            made_within=records.memory_limit_in(suspended.record),
            memory_limit=limit,
            max_bytes=settings.max_snapshot_bytes,
        )
        catalog = await self._catalog_of(claimed)
        recorded = records.caller_in(suspended.record, suspended.owner)
        known = recorded if caller is None else caller.bound_as(recorded)
        if suspended.counts_for != suspended.owner:
            known = replace(known, share=suspended.counts_for)
        elif known.client is None:
            known = replace(known, share=None)
        context = self._dispatcher.context(suspended.id, suspended.owner, known, catalog)
        context = structs.replace(context, counts=records.counts_in(suspended.record))
        run = records.restore(
            suspended.record,
            printed=claimed.printed,
            context=context,
            manifest=suspended.manifest,
            now=self._clock(),
            wall=self._wall(),
            ledger=self._ledger,
            remember=self._remember,
        )
        for record in records.programs_in(suspended.record, run):
            if run.track.tool(record.id) == "":
                run.track.add_program(record)
            run.programs.begin(record, self._calls.events_of(run, record.id))
        run.memory_limit = min(run.memory_limit, limit)
        run.store = self._store
        run.sent = context.counts.call > 0
        run.advance_custody("store")  # so that its calls wait for the store before they are sent
        run.snapshot_size, run.taken_over = len(suspended.snapshot), True
        run.stored_catalog, run.expires = suspended.catalog, suspended.expires
        run.made.restore((suspended.view and suspended.view.made) or ())
        run.namespaces = await open_namespaces(
            catalog.namespaces,
            self._registered,
            run_id=run.id,
            owner=run.owner,
            aborted=lambda: run.given_up,
            memory_limit=run.memory_limit,
        )
        run.namespaces.forget_text()
        if self._recordings is not None:
            run.recorder = self._recordings.take_over(run.id, suspended.snapshot)
        run.declare_scopes()
        try:
            for stored in suspended.calls:
                self._restore_call(run, stored)
        except ProgramError:
            run.cancel_calls()
            raise
        return run

    def accept_news(self, run: Run, calls: Iterable[StoredCall]) -> None:
        """Accept news of calls for which this process waits and which other processes execute."""
        for stored in calls:
            waiting = run.calls.get(stored.id)
            # The same news may come twice, and a call of this process ends without news.
            if waiting is None or waiting.executor != "elsewhere" or stored.executor == "elsewhere":
                continue
            del run.calls[stored.id]
            if stored.result is not None or stored.executor == "nobody":
                waiting.record.status, waiting.record.ended = "completed", self._clock()
            try:
                self._restore_call(run, stored)
            except ProgramError as error:
                # A later version of codemode-mcp has stored the call. The program continues, with an error for it.
                run.settled.append(Completion(stored.id, error=GuestError.of(error)))
            run.change()

    def _restore_call(self, run: Run, stored: StoredCall) -> None:
        """Continue a call from its stored state. Raises `ProgramError`, `snapshot_restore_failed`.

        A call with a result is delivered. If a dead process has sent a call, its task is followed. Without a task, and
        if it must not be sent again, it fails with an unknown outcome. An unsent call is queued here. For all other
        calls, wait for their executors.
        """
        if stored.result is not None:
            completion = records.completion_of(stored.result)
            if begins_program(stored.tool, completion):
                record = CallRecord(stored.id, stored.tool, self._clock(), dispatched=True)
                run.programs.restore(record, self._calls.events_of(run, stored.id))
            elif not stored.repeatable and (outcome := stored_outcome(completion)) is not None:
                run.made.end(stored.id, stored.tool, outcome)
            run.settled.append(completion)
        elif stored.task:
            call, handle = records.task_of(stored)
            began = records.began_of(stored, now=self._clock(), wall=self._wall())
            self._calls.follow(run, call, began, handle)
        elif stored.executor == "nobody":
            run.made.end(stored.id, stored.tool, "outcome unknown")
            run.settled.append(records.unknown_outcome(stored))
        else:
            call = records.call_of(stored, run.namespaces)
            began = records.began_of(stored, now=self._clock(), wall=self._wall())
            if stored.status == "queued":
                self._calls.requeue(run, call, began)
            else:
                self._calls.await_other_executor(run, call, began)

    def end_of(self, suspended: SuspendedRun, error: CodeModeError, seconds: float) -> EndedRun:
        """Return the end of a run that cannot be restored. `seconds`: the time for which the end is kept."""
        pending = [each.tool for each in suspended.calls if each.result is None]
        notes = (f"Pending when it was suspended: {counted(pending)}",) if pending else ()
        view = suspended.view
        made = records.made_of_stored(None if view is None else view.made, suspended.calls)
        outcome = Outcome(
            suspended.id,
            suspended.owner,
            "failed",
            Usage(exceeded=error.exceeded),
            notes=(*repeat_note(made or ()), *notes),
            error=error.message if made else f"{error.message}; {after_loss(made)}",
            code=error.code,
        )
        expires = self._clock() + seconds
        view = None if view is None else structs.replace(view, made=made)
        return EndedRun(suspended.id, suspended.owner, (outcome, outcome), 1000, expires, "failed", view)

    async def _catalog_of(self, claimed: Claim) -> Catalog:
        key = "" if claimed.run.catalog is None else claimed.run.catalog.hash
        if key not in self._catalogs:
            found = await anyio.to_thread.run_sync(read_catalog, claimed.catalog, self._meaning)
            self._catalogs[key] = found
            while len(self._catalogs) > KEPT_CATALOGS:
                self._catalogs.popitem(last=False)
        self._catalogs.move_to_end(key)
        return self._catalogs[key]
