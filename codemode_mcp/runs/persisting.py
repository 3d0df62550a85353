"""Suspensions, checkpoints and ends of runs, written to a store.

A run has one writer at a time (`Run.writing`). A durable store gets the snapshot, the record, the pending calls and the
output of the same moment. The order of a first suspension matters: the run counts as stored even before the write, so
that no call is sent meanwhile without the store's knowledge.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.errors import CodeModeError, Exceeded, ProgramError, StoreUnavailable
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
"""Tools of a catalog that is hashed in a thread."""

MIN_RECORD_LIMIT = 8 * 1024 * 1024
"""Least limit, in bytes, of the record of a suspended program: everything except its memory and its calls.

Where `maxSnapshotBytes` is larger, it is the limit."""


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
        home, first = run.home or self._store, run.home is None
        # From now on, no call is sent without the store's knowledge.
        if home.durable:
            run.advance_custody("store")
        client = None if run.observation is None else run.observation.client
        told = not run.questions.returned_to(client)
        try:
            run.expires = await self._write(run, data, manifest, reason, home, told=told)
        except CodeModeError as error:
            if isinstance(error, StoreUnavailable) and error.unsure:
                raise  # another process may take it over, so this process must not continue it
            if first:
                # The run is not stored, so its calls need not be stored before they are sent.
                if home.durable:
                    run.advance_custody("unstore")
                for live in run.calls.values():
                    live.note_recorded()
            if not first or not isinstance(error, StoreUnavailable):
                raise
            log.error("run %s is suspended in this process alone: %s", run.id[:12], error.message)
            run.note(f"The program is suspended in this process alone, and would end with it: {error.message}")
            home = self._fallback
            run.expires = await self._write(run, data, manifest, reason, home, told=told)
        run.home = home
        run.advance("suspend")

    async def checkpoint(self, run: Run, data: bytes) -> None:
        """Store a run that continues, before it sends calls that must not be sent twice."""
        await self._write(run, data, run.manifest, "pending_tools", self._store, told=False, checkpoint=True)
        run.advance_custody("checkpoint")

    async def end(self, run: Run, outcome: Outcome) -> None:
        """Store the end of a run that was ever suspended. If the store does not answer, retry later.

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
                await (run.home or self._store).end(ended)
            except StoreUnavailable as error:
                log.error("the end of run %s is not written down yet: %s", run.id[:12], error.message)
                self._spawn(self._end_later, run, ended)
                return
            _note_end(run)

    async def _end_later(self, run: Run, ended: EndedRun) -> None:
        """Retry until the end is stored. Calls of the last turn wait for that."""
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
        home: RunStore,
        *,
        told: bool,
        checkpoint: bool = False,
    ) -> float:
        """Write a run to a store.

        Args:
            told: the answer to the open request contains the output.

        Returns:
            The time at which the stored run expires, by the clock.
        """
        if home.durable and run.stored_catalog is None:
            run.stored_catalog = await _stored_catalog(run.context.catalog)
        async with run.writing:
            run.check_fence()
            now = self._clock()
            expires = now + self._settings().snapshot_ttl_seconds
            suspended = SuspendedRun(run.id, run.owner, data, manifest, reason, now, expires, share=run.share)
            noted = list(run.calls.values())
            if home.durable:
                wall = self._wall()
                suspended = replace(
                    suspended,
                    record=record_of(run, now=now, wall=wall, told=told),
                    calls=calls_of(run, now=now, wall=wall),
                    catalog=run.stored_catalog,
                    view=replace(run.view(now), state="waiting", observed=False),
                    printed=printed_of(run),
                    printed_from=run.written,
                )
                self._check_size(suspended.record)
            printed, ends = len(run.history), frozenset(each.id for each in run.settled if each.of_call)
            await (home.checkpoint(suspended) if checkpoint else home.suspend(suspended))
            if home.durable:
                run.written, run.ends_kept = printed, ends
            for live in noted:
                live.note_recorded()
        return expires

    def _check_size(self, record: str) -> None:
        most = max(self._settings().max_snapshot_bytes, MIN_RECORD_LIMIT)
        if len(record) > most:
            raise ProgramError(
                "snapshot_limit_exceeded",
                f"suspending the program takes {len(record)} bytes besides its memory, for its text, timers and "
                "requests; use fewer of these while waiting",
                Exceeded("maxSnapshotBytes", len(record), most),
            )


def _note_end(run: Run) -> None:
    # Now no process can continue the run from before its end, so calls of the last turn may be sent.
    run.advance_custody("end")
    for live in run.calls.values():
        live.note_recorded()


async def _stored_catalog(catalog: Catalog) -> StoredCatalog:
    # The hash of a large catalog takes time when it is first computed.
    large = len(catalog) > LARGE_CATALOG
    found = await anyio.to_thread.run_sync(catalog_hash, catalog) if large else catalog_hash(catalog)
    return StoredCatalog(found, lambda: catalog_text(catalog))
