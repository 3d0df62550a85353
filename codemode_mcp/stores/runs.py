"""Suspended and ended runs in a database that several processes share: `runs.store.RunStore`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.to_thread import run_sync

from codemode_mcp.errors import ProgramError, StoreUnavailable
from codemode_mcp.runs.end_records import outcome_of, outcome_text, view_of, view_text
from codemode_mcp.runs.store import Claim, EndedRun, Fenced, StoredCatalog, SuspendedRun, already_observed
from codemode_mcp.stores import claiming, ending, listing, suspending
from codemode_mcp.stores.rows import MANIFESTS, TOGETHER, UTF8, Blobs, damaged, manifest_hash, portions, unescaped

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
"""Interval between two looks at a run that this process is claiming."""


class DurableStore:
    """`RunStore` over a `Database`.

    What holds, whatever processes die and whenever:

    - Of a run, only the process that has claimed it last may write: each claim gives it another token, and what is
      written is conditional on the token. A process with another one gets `Fenced`, and nothing is changed.
    - What is stored of a run is a snapshot with the calls that it waits for, of the same moment.
    - A call belongs to its executor, whichever process drives the run. `dispatching` says yes once, to the
      executor. The driver follows a dead executor, and sends only repeatable calls again.
    - A call that has an end keeps it until the program has got it.
    - A method changes everything it should, in one transaction, or nothing.

    Args:
        clock: monotonic seconds: of times in `SuspendedRun`, `Claim` and `EndedRun`. Those of the database are its own.
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
        self._mine: dict[str, claiming.Mine] = {}
        self._claiming: dict[str, set[str]] = {}
        self._manifests: OrderedDict[str, str] = OrderedDict()
        self._ended_bytes = ending.MAX_ENDED_BYTES

    def __repr__(self) -> str:
        return f"<DurableStore: {self._database.name}, {len(self._mine)} runs known>"

    @property
    def name(self) -> str:
        return self._database.name

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def suspend(self, run: SuspendedRun) -> None:
        await self._keep(run, lets_go=True)

    async def checkpoint(self, run: SuspendedRun) -> None:
        await self._keep(run, lets_go=False)

    async def _keep(self, run: SuspendedRun, *, lets_go: bool) -> None:
        mine = self._mine.setdefault(run.id, claiming.Mine())
        # Nothing forgets it meanwhile.
        mine.driving = mine.driving or mine.token is None
        before = mine.token
        try:
            token = await self._write_down(run, before, lets_go=lets_go)
        except BaseException:
            if mine.token is None:
                self._mine.pop(run.id, None)
            raise
        if mine.token != before:
            return  # claimed again since
        mine.token = token
        mine.driving = not lets_go
        mine.current = True
        pending = {call.id for call in run.calls}
        mine.sent &= pending
        mine.sent |= {call.id for call in run.calls if call.status == "dispatched" and call.executor == "here"}
        mine.unsure &= pending

    async def _write_down(self, run: SuspendedRun, known: int | None, *, lets_go: bool) -> int:
        now = self._clock()
        sealed = await self._seal_run(run)
        texts: dict[str, bytes] = {}
        write = suspending.Write(
            run=run,
            lets_go=lets_go,
            token=known,
            left=run.expires - now,
            age=now - run.suspended,
            manifest=self._blobs.shared(manifest_hash(run.manifest)),
            sealed=sealed,
            texts=texts,
            settings=self._settings,
        )
        while True:
            try:
                return await self._do(lambda: suspending.write_down(write, self._database.process, self._blobs))
            except suspending.Wanted as wanted:
                for missing in wanted.hashes:
                    text = run.manifest if missing == write.manifest or run.catalog is None else run.catalog.text()
                    texts[missing] = await self._blobs.sealed_apart("", missing, "catalog", text.encode(*UTF8))
            except Fenced:
                self._lost(run.id, known)
                raise

    def _lost(self, run_id: str, token: int | None) -> None:
        """Forget a run, unless it was claimed again since."""
        mine = self._mine.get(run_id)
        if mine is not None and mine.token == token:
            self.forget(run_id)

    async def _seal_run(self, run: SuspendedRun) -> suspending.Sealed:
        blobs = self._blobs
        view = None if run.view is None else replace(run.view, calls=())
        printed = None
        if run.printed:
            field = f"outputs {run.printed_from}"
            printed = await blobs.sealed_apart(run.owner, run.id, field, run.printed.encode(*UTF8))
        return suspending.Sealed(
            snapshot=await blobs.sealed_apart(run.owner, run.id, "snapshot", run.snapshot),
            record=await blobs.sealed_apart(run.owner, run.id, "record", run.record.encode(*UTF8)),
            view=None if view is None else blobs.seal(run.owner, run.id, "view", view_text(view)),
            printed=printed,
        )

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        # What the first of two has found is known here only after the second could have asked.
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
        mine = self._mine.get(run_id)
        if mine is not None:
            mine.unsure.clear()
        try:
            found = await self._do(
                lambda: claiming.claim(
                    run_id,
                    owner,
                    self._database.process,
                    mine,
                    self._blobs,
                    self._manifests,
                    self._settings,
                    self._clock() - self._opened,
                )
            )
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # Only a program other than this one writes what cannot be read so.
            log.warning("a row of run %s is damaged: %r", run_id[:12], error)
            raise damaged("a row has another form than any version writes") from None
        now = self._clock()
        if isinstance(found, claiming.FoundEnd):
            return EndedRun(
                run_id,
                owner,
                outcome_of(found.outcome),
                found.size,
                now + found.left,
                found.state,
                _known_view(found.view),
            )
        mine = self._mine.setdefault(run_id, claiming.Mine())
        current = mine.current and mine.token == found.token - 1
        mine.token = found.token
        if found.known and not current:
            # Forgotten meanwhile: all of it is wanted.
            mine.driving = mine.current = False
            return await self._claim(run_id, owner)
        mine.driving = True
        mine.current = current
        digest = manifest_hash(found.manifest)
        self._manifests[digest] = found.manifest
        self._manifests.move_to_end(digest)
        if len(self._manifests) > MANIFESTS:
            self._manifests.popitem(last=False)
        run = SuspendedRun(
            run_id,
            owner,
            found.snapshot,
            found.manifest,
            "yield" if found.reason == "yield" else "pending_tools",
            now - found.age,
            now + found.left,
            found.record,
            found.calls,
            None if found.catalog is None else _stored_catalog(found.catalog, found.text),
            _known_view(found.view),
            share=found.share,
        )
        return Claim(run, current, found.text, found.printed)

    async def release(self, run_id: str, owner: str) -> None:
        mine = self._mine.get(run_id)
        token = None if mine is None else mine.token
        if mine is None or token is None:
            return
        mine.driving, mine.current = False, True
        await self._do(lambda: claiming.release(run_id, owner, token))

    async def end(self, run: EndedRun) -> None:
        mine = self._mine.get(run.id)
        token = None if mine is None else mine.token
        now = self._clock()
        outcome = await self._blobs.sealed_apart(
            run.owner, run.id, "outcome", outcome_text(run.outcome, now=now).encode(*UTF8)
        )
        view = None if run.view is None else replace(run.view, calls=())
        sealed_view = None if view is None else self._blobs.seal(run.owner, run.id, "view", view_text(view))
        # Adding up what all ends take is not done for each of them.
        trims = self._ended_bytes + len(outcome) > ending.MAX_ENDED_BYTES // 16
        try:
            await self._do(
                lambda: ending.end(run, self._database.process, token, run.expires - now, outcome, sealed_view, trims)
            )
        except Fenced:
            self._lost(run.id, token)
            raise
        self._ended_bytes = 0 if trims else self._ended_bytes + len(outcome)
        self._mine.pop(run.id, None)

    async def sweep(self) -> list[str]:
        known = {run_id: mine.driving for run_id, mine in self._mine.items()}
        age = self._clock() - self._opened
        expired = set(await self._do(lambda: ending.expire(self._database.process, self._is_driven, age)))
        await self._do(lambda: claiming.let_go(self._database.process, self._is_driven))
        await self._do(ending.drop)
        await self._do(lambda: ending.trim(ending.MAX_ENDED, ending.MAX_ENDED_BYTES))
        states: dict[str, str] = {}
        for some in portions([run_id for run_id, driving in known.items() if not driving]):
            states.update(await self._do(lambda some=some: listing.states(some)))  # type: ignore[misc]
        gone = []
        for run_id, driving in known.items():
            state = states.get(run_id, "gone")
            mine = self._mine.get(run_id)
            if driving or state == "waiting" or mine is None or mine.driving:
                continue
            # Another process has dropped it; an end is reported as news.
            if state == "expired" or run_id in expired:
                gone.append(run_id)
            del self._mine[run_id]
        return [*gone, *sorted(expired - set(gone))]

    def _is_driven(self, run_id: str) -> bool:
        """Return True if this process drives a run, or is about to."""
        mine = self._mine.get(run_id)
        return (mine is not None and mine.driving) or run_id in self._claiming

    async def dispatching(self, run_id: str, call: int) -> bool:
        mine = self._mine.setdefault(run_id, claiming.Mine())
        unsure = call in mine.unsure
        # A later claimer finds out that it is in flight here.
        known = call in mine.sent
        mine.sent.add(call)
        try:
            sends = await self._do(lambda: claiming.dispatching(run_id, call, self._database.process, unsure))
        except BaseException:
            if not known:
                mine.sent.discard(call)
                mine.unsure.add(call)
            raise
        mine.unsure.discard(call)
        if not sends and not known:
            mine.sent.discard(call)
        return sends

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        return await self._do(lambda: claiming.settle(run_id, call, self._database.process, result, self._blobs))

    def holds(self) -> bool:
        return self._database.holds()

    async def news(self) -> str | None:
        told = await self._database.news()
        return None if told is None else unescaped(told)

    async def look(self, run_id: str) -> News:
        while True:
            mine = self._mine.get(run_id)
            before = None if mine is None else mine.token
            try:
                news = await self._do(lambda: claiming.look(run_id, self._database.process, mine, self._blobs))  # noqa: B023 - it is awaited here
            except StoreUnavailable:
                if mine is not None:
                    mine.missed = True
                raise
            if mine is not None:
                mine.missed = False
            if not news.fenced or not self._claims_itself(run_id, mine, before):
                return news
            await anyio.sleep(OWN_CLAIM_SECONDS)

    def _claims_itself(self, run_id: str, mine: claiming.Mine | None, before: int | None) -> bool:
        """Tell whether the token that the store has may be one that this process got since it had `before`."""
        now = self._mine.get(run_id)
        return run_id in self._claiming or (now is not None and (now is not mine or now.token != before))

    async def cancel(self, run_id: str, owner: str) -> bool:
        mine = self._mine.get(run_id)
        driving = mine is not None and mine.driving
        return await self._do(lambda: claiming.cancel(run_id, owner, self._database.process, driving))

    def forget(self, run_id: str) -> None:
        mine = self._mine.get(run_id)
        if mine is not None:
            mine.token = 0
            mine.driving = mine.current = False

    async def owner_of(self, run_id: str) -> str | None:
        return await self._do(lambda: listing.owner_of(run_id))

    async def views(self) -> list[RunView]:
        rows, alive, now = await self._do(lambda: listing.rows_of_views(self._database.process))
        views = [listing.view_of_row(row, alive, now, self._blobs) for row in rows[:TOGETHER]]
        if len(rows) > TOGETHER:
            rest = rows[TOGETHER:]
            views += await run_sync(lambda: [listing.view_of_row(row, alive, now, self._blobs) for row in rest])
        return views

    async def totals(self) -> Totals:
        return await self._do(listing.totals)

    async def _do(self, work: Callable[[], Work[Result]]) -> Result:
        """Return what is written is known here too, whatever becomes of who asked for it."""
        with anyio.CancelScope(shield=True):
            result = await self._database.do(work)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows


def _known_view(text: str | None) -> RunView | None:
    """None also where another version has written it: a run is not lost for it."""
    with suppress(ProgramError):
        return None if text is None else view_of(text)
    return None


def _stored_catalog(digest: str, text: str) -> StoredCatalog:
    return StoredCatalog(digest, lambda: text)
