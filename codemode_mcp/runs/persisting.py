"""Suspensions, checkpoints and ends of runs, written to a store.

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
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.errors import CodeModeError, Exceeded, ProgramError, StoreUnavailable
from codemode_mcp.runs.answers import keeps_output
from codemode_mcp.runs.call_records import calls_of
from codemode_mcp.runs.call_storage import RETRY_SECONDS
from codemode_mcp.runs.records import printed_of, record_of
from codemode_mcp.runs.store import EndedRun, Fenced, StoredCatalog, SuspendedRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.outcome import Outcome, WaitingReason
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.services import Services
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.settings import CodeModeSettings

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
