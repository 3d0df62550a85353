"""Suspensions, checkpoints and ends of runs and their calls, written to a store.

A run has one writer at a time (`Run.writing`). A durable store gets the snapshot, the record, the pending calls and the
output of the same moment.

The order of a first suspension matters. Calls continue during the write. A call that is sent during the write is stored
as unsent, and another process that continues the run would send it again. So the run counts as stored before the write
begins (`advance_custody("store")`), and calls wait for the store from then on.

If the store does not answer to a suspension, there are three cases:

- The run was never stored. It is suspended in the fallback store, and its calls no longer wait.
- The run was stored before. The error is raised, and this process gives the run up. A later `wait` resumes it from its
  earlier stored state, here or in another process.
- It is unknown whether the run was stored (`StoreUnavailable.unsure`). The error is raised, too, because another
  process may continue the run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp.base.errors import CodeModeError, Exceeded, ProgramError, StoreUnavailable
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.runs.answers import keeps_output
from codemode_mcp.runs.records import calls_of, completion_text, printed_of, record_of, task_text
from codemode_mcp.runs.state import Permission, may_send
from codemode_mcp.runs.store import EndedRun, Fenced, RunStore, StoredCatalog, SuspendedRun
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.runs.calls.outcome import Outcome, WaitingReason
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.manager import Services
    from codemode_mcp.runs.run import Run
    from codemode_mcp.sandbox.messages import Completion


log = logging.getLogger("codemode_mcp.runs")

LARGE_CATALOG = 200
"""A catalog with more tools is hashed in a thread."""

MIN_RECORD_LIMIT = 8 * 1024 * 1024
"""Limit in bytes of the record of a suspended program, if `maxSnapshotBytes` is smaller. The record has everything
except the memory and the calls of the program."""


class Persisting:
    """The writer of runs to stores. It holds no state of any run.

    Args:
        fallback: the store of a run that is first suspended while `Services.store` does not answer.
        spawn: starts a task that outlives the request.
    """

    def __init__(
        self,
        services: Services,
        settings: Callable[[], CodeModeSettings],
        fallback: RunStore,
        spawn: Callable[..., object],
    ) -> None:
        self._store = services.store
        self._fallback = fallback
        self._settings = settings
        self._spawn = spawn
        self._clock = services.clock
        self._wall = services.wall

    async def suspend(self, run: Run, data: bytes, manifest: str, reason: WaitingReason) -> None:
        """Store a run and suspend it.

        Args:
            data: the snapshot of its guest.

        Raises:
            CodeModeError: the run was not stored.
        """
        store, first = run.store or self._store, run.store is None
        if store.durable:
            run.advance_custody("store")  # before the write; see the top of the module
        client = None if run.observation is None else run.observation.client
        reports_output = not keeps_output(run, client)
        try:
            run.expires = await self._write(run, data, manifest, reason, store, reports_output=reports_output)
        except CodeModeError as error:
            if isinstance(error, StoreUnavailable) and error.unsure:
                raise  # another process may take the run over, so this process must not continue it
            if first:
                # The run is not stored, so its calls need not be stored before they are sent.
                if store.durable:
                    run.advance_custody("unstore")
                for live in run.calls.values():
                    live.note_recorded()
            if not first or not isinstance(error, StoreUnavailable):
                raise
            log.error("run %s is suspended in this process alone: %s", run.id[:12], error.message)
            run.note(f"The program is suspended in this process alone, and would end with it: {error.message}")
            store = self._fallback
            run.expires = await self._write(run, data, manifest, reason, store, reports_output=reports_output)
        run.store = store
        run.advance("suspend")

    async def prolong(self, run: Run) -> None:
        """Keep a suspended run for a person's time from now on, because a person is asked, or has decided."""
        async with run.writing:
            pass  # a suspension that is being written may not know of the question yet
        now, before = self._clock(), run.expires
        if run.store is None or run.has_expired(now):
            return
        until = now + self._settings().approval_ttl_seconds
        if run.prolong(until):
            try:
                await run.store.prolong(run.id, until)
            except StoreUnavailable as error:
                run.expires = before
                log.error("run %s is not kept longer: %s", run.id[:12], error.message)

    async def checkpoint(self, run: Run, data: bytes) -> None:
        """Store a run that continues, before it sends calls that must not be sent twice."""
        # A checkpoint answers no request, so the output is not reported yet.
        await self._write(run, data, run.manifest, "pending_tools", self._store, reports_output=False, checkpoint=True)
        run.advance_custody("checkpoint")

    async def end(self, run: Run, outcome: Outcome) -> None:
        """Store the end of a run, if it was ever suspended. If the store does not answer, retry later.

        Raises:
            Fenced: another process has the run.
        """
        if not run.snapshots and not run.is_durable:
            return
        whole = replace(outcome, outputs=tuple(run.history))
        size = sum(len(str(item)) for item in whole.outputs) + len(str(whole.value)) + 1000
        now = self._clock()
        expires = now + self._settings().snapshot_ttl_seconds
        view = replace(run.view(now), code=outcome.code if outcome.status == "failed" else None)
        ended = EndedRun(run.id, run.owner, (outcome, whole), size, expires, run.state, view)
        async with run.writing:
            run.check_fence()
            try:
                await (run.store or self._store).end(ended)
            except StoreUnavailable as error:
                log.error("the end of run %s is not stored yet: %s", run.id[:12], error.message)
                self._spawn(self._end_later, run, ended)
                return
            _note_end(run)

    async def _end_later(self, run: Run, ended: EndedRun) -> None:
        """Try again until the end is stored. Calls of the last turn wait for that."""
        while self._clock() < ended.expires:
            await anyio.sleep(RETRY_SECONDS)
            try:
                await self._store.end(ended)
            except StoreUnavailable:
                continue
            except Fenced:
                break
            _note_end(run)
            return
        else:
            self._store.forget(run.id)
        # Another process may continue the run from before its last turn, so the calls of that turn must not be sent.
        run.give_up()

    async def _write(
        self,
        run: Run,
        data: bytes,
        manifest: str,
        reason: WaitingReason,
        store: RunStore,
        *,
        reports_output: bool,
        checkpoint: bool = False,
    ) -> float:
        """Write a run to a store.

        Args:
            reports_output: True if the answer to the open request contains the output.

        Returns:
            The time at which the stored run expires, by the clock.
        """
        if store.durable and run.stored_catalog is None:
            run.stored_catalog = await _stored_catalog(run.context.catalog)
        async with run.writing:
            run.check_fence()
            now = self._clock()
            expires = now + run.lifetime(self._settings())
            suspended = SuspendedRun(
                run.id, run.owner, data, manifest, reason, now, expires, share=run.context.quota_share, made=run.made
            )
            # Everything from here to the write is of one moment. During the write, calls end and begin: what is written
            # is noted before, and only that is marked as stored afterwards.
            written_calls = list(run.calls.values())
            written_tasks = [live for live in written_calls if live.task and not live.recorded]
            if store.durable:
                wall = self._wall()
                suspended = replace(
                    suspended,
                    record=record_of(run, now=now, wall=wall, reports_output=reports_output),
                    calls=calls_of(run, now=now, wall=wall),
                    catalog=run.stored_catalog,
                    view=replace(run.view(now), state="waiting", observed=False, made=run.made.delivered),
                    printed=printed_of(run),
                    printed_from=run.stored_outputs,
                )
                self._check_size(suspended.record)
            printed, ends = len(run.history), frozenset(each.id for each in run.settled if each.of_call)
            await (store.checkpoint(suspended) if checkpoint else store.suspend(suspended))
            if store.durable:
                run.stored_outputs, run.stored_ends = printed, ends
                for live in written_tasks:
                    live.task_stored = True
            for live in written_calls:
                live.note_recorded()
        return expires

    def _check_size(self, record: str) -> None:
        limit = max(self._settings().max_snapshot_bytes, MIN_RECORD_LIMIT)
        if len(record) > limit:
            raise ProgramError(
                "snapshot_limit_exceeded",
                f"to suspend the program, {len(record)} bytes besides its memory have to be stored, for its text, "
                f"timers and requests; the limit is {limit}; use fewer timers and requests at the same time",
                Exceeded("maxSnapshotBytes", len(record), limit),
            )


def _note_end(run: Run) -> None:
    # No process can continue the run any more, so calls of the last turn may be sent.
    run.advance_custody("end")
    for live in run.calls.values():
        live.note_recorded()


async def _stored_catalog(catalog: Catalog) -> StoredCatalog:
    # The hash of a large catalog takes time, when it is first computed.
    large = len(catalog) > LARGE_CATALOG
    found = await anyio.to_thread.run_sync(catalog_hash, catalog) if large else catalog_hash(catalog)
    return StoredCatalog(found, lambda: catalog_text(catalog))


# The calls of stored runs in their store: the permission to send a call, and its end.
#
# `runs.state.may_send` decides by the custody of the run and the state of the call. If it needs the store, this module
# asks the store.


RETRY_SECONDS = 1.0
"""Interval between attempts to store an end while the store does not answer."""


class CallStorage:
    """The recorder of calls of stored runs. It holds no state of any run.

    Args:
        spawn: starts a task that outlives the request.
        clock: monotonic seconds.
        on_late: called with the id of a run that another process has, after the end of a call that this process sent
            was stored.
    """

    def __init__(
        self,
        store: RunStore,
        settings: Callable[[], CodeModeSettings],
        spawn: Callable[..., object],
        clock: Callable[[], float],
        on_late: Callable[[str], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._spawn = spawn
        self._clock = clock
        self._on_late = on_late

    def is_away(self, run: Run) -> bool:
        """Return True if the store of a run does not answer. Another process may have taken the run over then."""
        return run.is_durable and not self._store.claims_are_valid()

    def permission(self, run: Run, live: LiveCall) -> Permission:
        return may_send(run.custody, live.state, recorded=live.recorded, repeatable=live.record.repeatable)

    async def permit(self, run: Run, live: LiveCall) -> None:
        """Get the permission to send a call, right before it is sent.

        A call of a stored run waits until the store has it, unless it is repeatable. It is not sent if another process
        has the run.

        Raises:
            CodeModeError: the call must not be sent.
        """
        live.admit()
        record = live.record
        while True:
            permission = self.permission(run, live)
            if permission != "wait":
                break
            await live.wait()
        if permission == "claim":
            # If the store agrees, no other process sends the call from here on, whichever process continues the run.
            live.advance("claim")
            try:
                ours = await self._store.dispatching(run.id, live.call.id)
            except StoreUnavailable as error:
                live.advance("retract")
                raise StoreUnavailable(f"{escape_line(record.tool)}: the call was not sent: {error.message}") from None
            except CodeModeError:
                live.advance("retract")
                raise
            if not ours:
                live.advance("retract")
                if run.state not in ("running", "waiting"):
                    return  # the run has ended
                permission = "never"
        if permission == "never":
            # Another process sends the call, or has sent it. So it has the run, too.
            run.advance_custody("lose")
            run.change()
            # The checkpoint raises the cancellation in this task, so that nothing is sent.
            live.cancel()
            await anyio.lowlevel.checkpoint()
        elif self.is_away(run):
            raise StoreUnavailable(
                f"{escape_line(record.tool)}: the call was not sent: the store of this server does not answer, so "
                "that another process may have taken the program over; try again later"
            )

    async def record_task(self, run: Run, live: LiveCall) -> None:
        """Store the task of a call, so that a later process can follow it. If the store does not answer, retry later.

        If the store does not have the call yet, the task is stored with it.
        """
        async with run.writing:
            pass  # a write in progress may have begun before there was a task
        if run.is_durable and live.recorded and not await self._try_record_task(run, live):
            self._spawn(self._record_task_later, run, live)

    async def _try_record_task(self, run: Run, live: LiveCall) -> bool:
        try:
            live.task_stored = await self._store.note_task(run.id, live.call.id, task_text(live))
        except StoreUnavailable:
            return False
        return True

    async def _record_task_later(self, run: Run, live: LiveCall) -> None:
        while live.state == "dispatched" and run.is_durable:
            await anyio.sleep(RETRY_SECONDS)
            if await self._try_record_task(run, live):
                return

    async def record_end(self, run: Run, live: LiveCall, completion: Completion) -> None:
        # A write in progress stores the call as not ended. The end must be stored after it.
        async with run.writing:
            pass
        if live.recorded and run.is_durable and not await self._try_record(run, live, completion):
            # The program here can continue without the store. A process that restores the run needs this end.
            self._spawn(self._record_later, run, live, completion, not live.is_unsent)

    async def _try_record(self, run: Run, live: LiveCall, completion: Completion) -> bool:
        try:
            await self._store.settle(run.id, live.call.id, completion_text(completion))
        except StoreUnavailable:
            return False
        if run.fenced:
            self._on_late(run.id)
        return True

    async def _record_later(self, run: Run, live: LiveCall, completion: Completion, sent: bool) -> None:
        until = self._clock() + self._settings().snapshot_ttl_seconds
        while self._clock() < until:
            await anyio.sleep(RETRY_SECONDS)
            if not run.is_durable or (run.fenced and not sent):
                return  # the end is no longer needed, or another process sends the call
            if await self._try_record(run, live, completion):
                return
        log.error("the end of a call of run %s was not stored: the store does not answer", run.id[:12])
