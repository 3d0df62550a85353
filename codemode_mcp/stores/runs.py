"""Suspended and ended runs in a database that several processes share: `runs.store.RunStore`."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.to_thread import run_sync
from msgspec.structs import replace

from codemode_mcp.base.errors import ProgramError, StoreUnavailable
from codemode_mcp.runs.end_records import outcome_text, view_of, view_text
from codemode_mcp.runs.store import Claim, EndedRun, Fenced, News, StoredCall, SuspendedRun, Totals, already_observed
from codemode_mcp.runs.views import RunView, after_loss
from codemode_mcp.stores import claiming, suspending
from codemode_mcp.stores.suspending import (
    BATCH_SIZE,
    KEPT_MANIFESTS,
    UTF8,
    Blobs,
    batches,
    damaged,
    escaped,
    manifest_hash,
    placeholders,
    unescaped,
)
from codemode_mcp.stores.work import Alive, Database, Now, Query, Row, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import CodeModeSettings, StoreKind
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.stores.seal import Seal


log = logging.getLogger(__name__)

Result = TypeVar("Result")

OWN_CLAIM_SECONDS = 0.01
"""Poll interval for news of a run that this process is claiming."""


class DurableStore:
    """A `RunStore` over a `Database`.

    These promises hold even if any process dies at any moment:

    - Only the process that claimed a run last may write it. Each claim makes a new fencing token, and every write
      checks the token. A process with an older token gets `Fenced`, and nothing is changed.
    - A stored run consists of its snapshot and the calls that it waits for, of the same moment.
    - A call belongs to its executor, whichever process drives the run. `dispatching` returns True once, to the
      executor. The process that drives the run takes over the calls of a dead executor. It sends them again only if
      they are repeatable.
    - A settled call keeps its result until the program has received it.
    - A method makes all its changes in one transaction, or none.

    Args:
        clock: monotonic seconds, for the times in `SuspendedRun`, `Claim` and `EndedRun`. The database has a clock of
            its own, so times are passed to it as differences.
    """

    durable = True

    def __init__(
        self,
        database: Database,
        seal: Seal,
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
        """Owners whose claims are in progress, by run."""
        self._manifests: OrderedDict[str, str] = OrderedDict()
        self._ended_bytes = suspending.MAX_ENDED_BYTES
        """Bytes of ends stored since the last trim. At first it is the limit, because other processes stored ends."""

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
        # A run that is stored for the first time is being driven. `sweep` would forget it otherwise.
        known.driving = known.driving or known.token is None
        before = known.token
        try:
            token = await self._write(run, before, releases=releases)
        except BaseException:
            if known.token is None:
                self._known.pop(run.id, None)
            raise
        if known.token != before:
            return  # another request has claimed the run since, and has set this state
        known.token = token
        known.driving = not releases
        known.current = True
        # The next claim may be of this process. It must find which of these calls were sent from here.
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
                # A catalog is large and usually stored already, so it is sealed only if the database asks for it.
                for digest in missing.hashes:
                    text = run.manifest if digest == write.manifest or run.catalog is None else run.catalog.text()
                    texts[digest] = await self._blobs.seal_large("", digest, "catalog", text.encode(*UTF8))
            except Fenced:
                self._forget_token(run.id, token)
                raise

    def _forget_token(self, run_id: str, token: int | None) -> None:
        """Forget a run, unless this process has claimed it again since."""
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
        # Two claims of one owner can be in progress at the same time. The second one must fail here: for the database,
        # it would be a repeated claim of the same process.
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
            # For the claim, a call that may be stored as sent was sent. So it must not be sent from here afterwards.
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
                    self._clock() - self._opened,
                )
            )
        except (TypeError, ValueError, LookupError, AttributeError) as mistake:
            # No version of this product writes such a row.
            log.warning("a row of run %s is damaged: %r", run_id[:12], mistake)
            error = damaged("a row has a form that no version of codemode-mcp writes")
            raise ProgramError(error.code, f"{error.message}; {after_loss(None)}") from None
        now = self._clock()
        if isinstance(found, EndedRun):
            return replace(found, expires=now + found.expires)
        known = self._known.setdefault(run_id, claiming.KnownRun())
        # The state here is current if no other process has claimed the run between: each claim adds one to the token.
        current = known.current and known.token == found.token - 1
        known.token = found.token
        if found.known and not current:
            # This process has forgotten the run during the claim, so it now needs catalog and output, too. They come
            # with a second claim.
            known.driving = known.current = False
            return await self._claim(run_id, owner)
        known.driving = True
        known.current = current
        run = found.claim.run
        _note_followed(known, run.calls)
        digest = manifest_hash(run.manifest)
        self._manifests[digest] = run.manifest
        self._manifests.move_to_end(digest)
        if len(self._manifests) > KEPT_MANIFESTS:
            self._manifests.popitem(last=False)
        run = replace(run, suspended=now + run.suspended, expires=now + run.expires)
        return replace(found.claim, run=run, current=current)

    async def prolong(self, run_id: str, expires: float) -> None:
        token, left = self._token_of(run_id), expires - self._clock()
        if token is not None:
            await self._execute(lambda: suspending.prolong(run_id, token, left))

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
        # Trimming reads the sizes of all ended runs, so it is done only after some MiB of new ends.
        trims = self._ended_bytes + len(outcome) > suspending.MAX_ENDED_BYTES // 16
        try:
            await self._execute(
                lambda: suspending.end(run, self._database.process, token, run.expires - now, outcome, view, trims)
            )
        except Fenced:
            self._forget_token(run.id, token)
            raise
        self._ended_bytes = 0 if trims else self._ended_bytes + len(outcome)
        self._known.pop(run.id, None)

    async def sweep(self) -> list[str]:
        driven = {run_id: known.driving for run_id, known in self._known.items()}
        age = self._clock() - self._opened
        expired = set(
            await self._execute(lambda: suspending.expire(self._database.process, self._is_driven, age, self._blobs))
        )
        await self._execute(lambda: claiming.release_undriven(self._database.process, self._is_driven))
        await self._execute(suspending.delete_unneeded)
        await self._execute(lambda: suspending.trim_ended(suspending.MAX_ENDED, suspending.MAX_ENDED_BYTES))
        states: dict[str, str] = {}
        for some in batches([run_id for run_id, driving in driven.items() if not driving]):
            states.update(await self._execute(lambda some=some: states_of(some)))  # type: ignore[misc]
        gone = []
        for run_id, driving in driven.items():
            state = states.get(run_id, "gone")
            known = self._known.get(run_id)
            if driving or state == "waiting" or known is None or known.driving:
                continue
            # The run has ended. If it has expired, the caller must cancel its calls. Other ends are reported as news.
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
        # Set before the transaction: a claim of this process that comes right after it must find the call in flight.
        sent_before = call in known.sent
        known.sent.add(call)
        try:
            sends = await self._execute(lambda: claiming.dispatching(run_id, call, self._database.process, unsure))
        except BaseException:
            # The caller does not send the call now, but the database may have recorded it as sent.
            if not sent_before:
                known.sent.discard(call)
                known.unsure.add(call)
            raise
        known.unsure.discard(call)
        if not sends and not sent_before:
            known.sent.discard(call)
        return sends

    async def note_task(self, run_id: str, call: int, task: str) -> bool:
        return await self._execute(lambda: claiming.note_task(run_id, call, self._database.process, task, self._blobs))

    async def settle(self, run_id: str, call: int, result: str) -> bool:
        return await self._execute(lambda: claiming.settle(run_id, call, self._database.process, result, self._blobs))

    def claims_are_valid(self) -> bool:
        return self._database.is_alive()

    async def next_notification(self) -> str | None:
        run_id = await self._database.next_notification()
        return None if run_id is None else unescaped(run_id)

    async def news_of(self, run_id: str) -> News:
        # A claim of this process changes the token in the database before its answer is here. In between, the token
        # looks like that of another process. So the query is repeated until the claim is over.
        while True:
            known = self._known.get(run_id)
            before = None if known is None else known.token
            try:
                news = await self._execute(
                    lambda: claiming.news_of(run_id, self._database.process, known, self._blobs)  # noqa: B023 - it is awaited here
                )
            except StoreUnavailable:
                if known is not None:
                    known.missed_news = True
                raise
            if known is not None:
                known.missed_news = False
                _note_followed(known, news.calls)
            if not news.fenced or not self._may_have_claimed(run_id, known, before):
                return news
            await anyio.sleep(OWN_CLAIM_SECONDS)

    def _may_have_claimed(self, run_id: str, known: claiming.KnownRun | None, token: int | None) -> bool:
        """Return True if a claim of this process may have made a newer token than `token`."""
        now = self._known.get(run_id)
        return run_id in self._claiming or (now is not None and (now is not known or now.token != token))

    async def cancel(self, run_id: str, owner: str) -> bool:
        known = self._known.get(run_id)
        driving = known is not None and known.driving
        return await self._execute(lambda: claiming.cancel(run_id, owner, self._database.process, driving))

    def forget(self, run_id: str) -> None:
        # The entry stays, because a later claim needs `sent`. No stored run has the token 0.
        known = self._known.get(run_id)
        if known is not None:
            known.token = 0
            known.driving = known.current = False

    async def owner_of(self, run_id: str) -> str | None:
        return await self._execute(lambda: owner_of(run_id))

    async def state_of(self, run_id: str, owner: str) -> RunState | None:
        return await self._execute(lambda: state_of(run_id, owner))

    async def views(self) -> list[RunView]:
        rows, alive, now = await self._execute(lambda: rows_of_views(self._database.process))
        views = [view_of_row(row, alive, now, self._blobs) for row in rows[:BATCH_SIZE]]
        if len(rows) > BATCH_SIZE:
            rest = rows[BATCH_SIZE:]
            views += await run_sync(lambda: [view_of_row(row, alive, now, self._blobs) for row in rest])
        return views

    async def totals(self) -> Totals:
        return await self._execute(totals)

    async def _execute(self, work: Callable[[], Work[Result]]) -> Result:
        """Run a piece of work to its end, even if the caller is cancelled. So this process knows what was changed."""
        with anyio.CancelScope(shield=True):
            result = await self._database.execute(work)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows


def _note_followed(known: claiming.KnownRun, calls: tuple[StoredCall, ...]) -> None:
    """Note the calls whose tasks this process follows from now on. For later claims, they were sent from here."""
    known.sent |= {call.id for call in calls if call.task}


# Lists of the runs in a store.


def states_of(runs: tuple[str, ...]) -> Work[dict[str, str]]:
    plain = tuple(map(escaped, runs))
    rows = yield Query(f"SELECT id, state FROM runs WHERE id IN ({placeholders(plain)})", plain)
    return {unescaped(run): state for run, state in rows}


def owner_of(run_id: str) -> Work[str | None]:
    rows = yield Query("SELECT owner FROM runs WHERE id = ? AND state = 'waiting'", (escaped(run_id),))
    return unescaped(rows[0][0]) if rows else None


def state_of(run_id: str, owner: str) -> Work[RunState | None]:
    """Return the state of a run of this owner; None if there is no such run, or if it has expired."""
    now: float = yield Now()
    rows = yield Query(
        "SELECT state FROM runs WHERE id = ? AND owner = ? AND (expires > ? OR holder IS NOT NULL)",
        (escaped(run_id), escaped(owner), now),
    )
    return rows[0][0] if rows else None


def totals() -> Work[Totals]:
    now: float = yield Now()
    rows = yield Query("SELECT COUNT(*), MIN(parked), SUM(size) FROM runs WHERE state = 'waiting'")
    count, first, size = rows[0]
    return Totals(count, None if first is None else max(0.0, now - first), int(size or 0))


def rows_of_views(process: str) -> Work[tuple[list[Row], frozenset[str], float]]:
    """Return the arguments of `view_of_row`: all rows, the living processes among their holders, and the time."""
    now: float = yield Now()
    rows = yield Query(
        "SELECT id, owner, state, holder, began, ended, expires, code, view, CASE WHEN state = 'waiting' THEN "
        "(SELECT COUNT(*) FROM calls WHERE calls.run = runs.id AND calls.status = 'queued') ELSE 0 END "
        "FROM runs ORDER BY began DESC, id"
    )
    alive = yield Alive(frozenset(row[3] for row in rows if row[3] is not None) - {process})
    return rows, alive | {process}, now


def view_of_row(row: Row, alive: frozenset[str], now: float, blobs: Blobs) -> RunView:
    plain, plain_owner, state, holder, began, ended, expires, code, view, queued = row
    run_id, owner = unescaped(plain), unescaped(plain_owner)
    shown = RunView(run_id, "waiting", "stdio" if owner.startswith("stdio:") else "http", None, 0, made=None)
    if view is not None:
        # If the view cannot be opened, the run is shown with the data of the other columns.
        with suppress(ProgramError):
            shown = view_of(blobs.text_of(owner, run_id, "view", view))
    observed = state == "waiting" and holder in alive
    if state == "waiting":
        # The calls whose ends the program has not received yet are not part of the view.
        shown = replace(shown, made=None)
    if ended is not None:
        # The view was written before the run expired. Nothing waits for a run that has ended.
        shown = replace(shown, approvals=0, questions=0, timers=0)
    # The view is as old as the latest checkpoint. Calls that were sent or have ended since wait for no approval, also
    # if the process that stored this was killed before the next checkpoint.
    shown = replace(shown, approvals=min(shown.approvals, queued))
    return replace(
        shown,
        id=run_id,
        state="running" if observed else state,
        age_ms=_ms(now - began),
        ended_ms=None if ended is None else _ms(now - ended),
        expires_ms=_ms(expires - now) if state == "waiting" and not observed else None,
        observed=observed,
        code=code,
        calls=(),
        owner=owner,
    )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
