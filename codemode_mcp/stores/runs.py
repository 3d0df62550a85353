"""Suspended and ended runs in a database that several processes share: `runs.store.RunStore`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.to_thread import run_sync

from codemode_mcp.errors import StoreUnavailable
from codemode_mcp.runs.end_records import outcome_text, view_text
from codemode_mcp.runs.store import Claim, EndedRun, Fenced, SuspendedRun, already_observed
from codemode_mcp.stores import claiming, ending, listing, suspending
from codemode_mcp.stores.rows import BATCH_SIZE, KEPT_MANIFESTS, UTF8, Blobs, batches, damaged, manifest_hash, unescaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.runs.store import News, Totals
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.settings import CodeModeSettings, StoreKind
    from codemode_mcp.stores.rows import Sealing
    from codemode_mcp.stores.work import Database, Work

log = logging.getLogger(__name__)

Result = TypeVar("Result")

OWN_CLAIM_SECONDS = 0.01
"""Poll interval for a run that this process is claiming."""


class DurableStore:
    """A `RunStore` over a `Database`.

    Promises that hold whichever processes die, at any moment:

    - Only the process that claimed a run last may write it. Each claim makes a new fencing token, and every write is
      conditional on the token. A process with an older one gets `Fenced`, and nothing is changed.
    - A stored run is a snapshot and the calls that it waits for, of the same moment.
    - A call belongs to its executor, whichever process drives the run. `dispatching` returns True once, to the
      executor. The driver takes over the calls of a dead executor, and sends only repeatable ones again.
    - A settled call keeps its result until the program has received it.
    - A method makes all its changes in one transaction, or none.

    Args:
        clock: monotonic seconds, for the times in `SuspendedRun`, `Claim` and `EndedRun`. The database has its own.
    """

    durable = True

    def __init__(
        self,
        database: Database,
        seal: Sealing,
        settings: CodeModeSettings,
        *,
        clock: Callable[[], float],
        kind: StoreKind = "sqlite",
    ) -> None:
        self.kind = kind
        self._database = database
        self._blobs = Blobs(seal)
        self._settings = settings
        self._clock = clock
        self._opened = clock()
        self._known: dict[str, claiming.KnownRun] = {}
        self._claiming: dict[str, set[str]] = {}
        self._manifests: OrderedDict[str, str] = OrderedDict()
        self._ended_bytes = ending.MAX_ENDED_BYTES

    def __repr__(self) -> str:
        return f"<DurableStore: {self._database.name}, {len(self._known)} runs known>"

    @property
    def name(self) -> str:
        return self._database.name

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def suspend(self, run: SuspendedRun) -> None:
        await self._store(run, releases=True)

    async def checkpoint(self, run: SuspendedRun) -> None:
        await self._store(run, releases=False)

    async def _store(self, run: SuspendedRun, *, releases: bool) -> None:
        known = self._known.setdefault(run.id, claiming.KnownRun())
        # A run that is driven is not forgotten in the meantime.
        known.driving = known.driving or known.token is None
        before = known.token
        try:
            token = await self._write(run, before, releases=releases)
        except BaseException:
            if known.token is None:
                self._known.pop(run.id, None)
            raise
        if known.token != before:
            return  # claimed again since
        known.token = token
        known.driving = not releases
        known.current = True
        pending = {call.id for call in run.calls}
        known.sent &= pending
        known.sent |= {call.id for call in run.calls if call.status == "dispatched" and call.executor == "here"}
        known.unsure &= pending

    async def _write(self, run: SuspendedRun, token: int | None, *, releases: bool) -> int:
        now = self._clock()
        sealed = await self._seal_run(run)
        texts: dict[str, bytes] = {}
        write = suspending.RunWrite(
            run=run,
            releases=releases,
            token=token,
            left=run.expires - now,
            age=now - run.suspended,
            manifest=self._blobs.shared_name(manifest_hash(run.manifest)),
            sealed=sealed,
            texts=texts,
            settings=self._settings,
        )
        while True:
            try:
                return await self._execute(lambda: suspending.write_run(write, self._database.process, self._blobs))
            except suspending.MissingCatalogs as missing:
                for digest in missing.hashes:
                    text = run.manifest if digest == write.manifest or run.catalog is None else run.catalog.text()
                    texts[digest] = await self._blobs.seal_large("", digest, "catalog", text.encode(*UTF8))
            except Fenced:
                self._forget_token(run.id, token)
                raise

    def _forget_token(self, run_id: str, token: int | None) -> None:
        """Forget a run, unless it was claimed again since."""
        if self._token_of(run_id) == token:
            self.forget(run_id)

    def _token_of(self, run_id: str) -> int | None:
        known = self._known.get(run_id)
        return None if known is None else known.token

    async def _seal_run(self, run: SuspendedRun) -> suspending.SealedRun:
        blobs = self._blobs
        printed = None
        if run.printed:
            field = f"outputs {run.printed_from}"
            printed = await blobs.seal_large(run.owner, run.id, field, run.printed.encode(*UTF8))
        return suspending.SealedRun(
            snapshot=await blobs.seal_large(run.owner, run.id, "snapshot", run.snapshot),
            record=await blobs.seal_large(run.owner, run.id, "record", run.record.encode(*UTF8)),
            view=self._sealed_view(run),
            printed=printed,
        )

    def _sealed_view(self, run: SuspendedRun | EndedRun) -> bytes | None:
        if run.view is None:
            return None
        return self._blobs.seal(run.owner, run.id, "view", view_text(replace(run.view, calls=())))

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        # Of two simultaneous claims of one owner, the second must fail before the first has its answer.
        owners = self._claiming.setdefault(run_id, set())
        if owner in owners:
            raise already_observed(run_id)
        owners.add(owner)
        try:
            return await self._claim(run_id, owner)
        finally:
            owners.discard(owner)
            if not owners:
                self._claiming.pop(run_id, None)

    async def _claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        known = self._known.get(run_id)
        if known is not None:
            known.unsure.clear()
        try:
            found = await self._execute(
                lambda: claiming.claim(
                    run_id,
                    owner,
                    self._database.process,
                    known,
                    self._blobs,
                    self._manifests,
                    self._settings,
                    self._clock() - self._opened,
                )
            )
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # No version of this product writes such a row.
            log.warning("a row of run %s is damaged: %r", run_id[:12], error)
            raise damaged("a row has a form that no version of codemode-mcp writes") from None
        now = self._clock()
        if isinstance(found, EndedRun):
            return replace(found, expires=now + found.expires)
        known = self._known.setdefault(run_id, claiming.KnownRun())
        current = known.current and known.token == found.token - 1
        known.token = found.token
        if found.known and not current:
            # The run was forgotten in the meantime, so this process needs catalog and output too.
            known.driving = known.current = False
            return await self._claim(run_id, owner)
        known.driving = True
        known.current = current
        run = found.claim.run
        digest = manifest_hash(run.manifest)
        self._manifests[digest] = run.manifest
        self._manifests.move_to_end(digest)
        if len(self._manifests) > KEPT_MANIFESTS:
            self._manifests.popitem(last=False)
        run = replace(run, suspended=now + run.suspended, expires=now + run.expires)
        return replace(found.claim, run=run, current=current)

    async def release(self, run_id: str, owner: str) -> None:
        known = self._known.get(run_id)
        if known is None or (token := known.token) is None:
            return
        known.driving, known.current = False, True
        await self._execute(lambda: claiming.release(run_id, owner, token))

    async def end(self, run: EndedRun) -> None:
        token = self._token_of(run.id)
        now = self._clock()
        outcome = await self._blobs.seal_large(
            run.owner, run.id, "outcome", outcome_text(run.outcome, now=now).encode(*UTF8)
        )
        view = self._sealed_view(run)
        # The size of all ended runs is summed up only once in a while.
        trims = self._ended_bytes + len(outcome) > ending.MAX_ENDED_BYTES // 16
        try:
            await self._execute(
                lambda: ending.end(run, self._database.process, token, run.expires - now, outcome, view, trims)
            )
        except Fenced:
            self._forget_token(run.id, token)
            raise
        self._ended_bytes = 0 if trims else self._ended_bytes + len(outcome)
        self._known.pop(run.id, None)

    async def sweep(self) -> list[str]:
        driven = {run_id: known.driving for run_id, known in self._known.items()}
        age = self._clock() - self._opened
        expired = set(await self._execute(lambda: ending.expire(self._database.process, self._is_driven, age)))
        await self._execute(lambda: claiming.let_go(self._database.process, self._is_driven))
        await self._execute(ending.drop)
        await self._execute(lambda: ending.trim(ending.MAX_ENDED, ending.MAX_ENDED_BYTES))
        states: dict[str, str] = {}
        for some in batches([run_id for run_id, driving in driven.items() if not driving]):
            states.update(await self._execute(lambda some=some: listing.states(some)))  # type: ignore[misc]
        gone = []
        for run_id, driving in driven.items():
            state = states.get(run_id, "gone")
            known = self._known.get(run_id)
            if driving or state == "waiting" or known is None or known.driving:
                continue
            # Another process has dropped the run. The end of a run is reported as news.
            if state == "expired" or run_id in expired:
                gone.append(run_id)
            del self._known[run_id]
        return [*gone, *sorted(expired - set(gone))]

    def _is_driven(self, run_id: str) -> bool:
        """Return True if this process drives a run, or is about to."""
        known = self._known.get(run_id)
        return (known is not None and known.driving) or run_id in self._claiming

    async def dispatching(self, run_id: str, call: int) -> bool:
        known = self._known.setdefault(run_id, claiming.KnownRun())
        unsure = call in known.unsure
        # A later claim must find that the call is in flight here.
        sent_before = call in known.sent
        known.sent.add(call)
        try:
            sends = await self._execute(lambda: claiming.dispatching(run_id, call, self._database.process, unsure))
        except BaseException:
            if not sent_before:
                known.sent.discard(call)
                known.unsure.add(call)
            raise
        known.unsure.discard(call)
        if not sends and not sent_before:
            known.sent.discard(call)
        return sends

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        return await self._execute(lambda: claiming.settle(run_id, call, self._database.process, result, self._blobs))

    def holds(self) -> bool:
        return self._database.is_alive()

    async def news(self) -> str | None:
        run_id = await self._database.next_notification()
        return None if run_id is None else unescaped(run_id)

    async def look(self, run_id: str) -> News:
        while True:
            known = self._known.get(run_id)
            before = None if known is None else known.token
            try:
                news = await self._execute(lambda: claiming.look(run_id, self._database.process, known, self._blobs))  # noqa: B023 - it is awaited here
            except StoreUnavailable:
                if known is not None:
                    known.missed = True
                raise
            if known is not None:
                known.missed = False
            if not news.fenced or not self._has_claimed(run_id, known, before):
                return news
            await anyio.sleep(OWN_CLAIM_SECONDS)

    def _has_claimed(self, run_id: str, known: claiming.KnownRun | None, token: int | None) -> bool:
        """Return True if this process may have a newer token than `token` by a claim of its own."""
        now = self._known.get(run_id)
        return run_id in self._claiming or (now is not None and (now is not known or now.token != token))

    async def cancel(self, run_id: str, owner: str) -> bool:
        known = self._known.get(run_id)
        driving = known is not None and known.driving
        return await self._execute(lambda: claiming.cancel(run_id, owner, self._database.process, driving))

    def forget(self, run_id: str) -> None:
        known = self._known.get(run_id)
        if known is not None:
            known.token = 0
            known.driving = known.current = False

    async def owner_of(self, run_id: str) -> str | None:
        return await self._execute(lambda: listing.owner_of(run_id))

    async def views(self) -> list[RunView]:
        rows, alive, now = await self._execute(lambda: listing.rows_of_views(self._database.process))
        views = [listing.view_of_row(row, alive, now, self._blobs) for row in rows[:BATCH_SIZE]]
        if len(rows) > BATCH_SIZE:
            rest = rows[BATCH_SIZE:]
            views += await run_sync(lambda: [listing.view_of_row(row, alive, now, self._blobs) for row in rest])
        return views

    async def totals(self) -> Totals:
        return await self._execute(listing.totals)

    async def _execute(self, work: Callable[[], Work[Result]]) -> Result:
        """Run a piece of work to its end even if the caller is cancelled, so that its change is known here."""
        with anyio.CancelScope(shield=True):
            result = await self._database.execute(work)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows
