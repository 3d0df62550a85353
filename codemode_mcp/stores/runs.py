"""Parked and ended runs in a database that several processes share: `runs.store.RunStore`."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
from anyio.to_thread import run_sync

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.records import outcome_of, outcome_text, view_of, view_text
from codemode_mcp.runs.store import (
    Claim,
    EndedRun,
    Fenced,
    News,
    ParkedRun,
    StoredCall,
    StoredCatalog,
    Totals,
    already_observed,
    check_quotas,
    expired_run,
    unknown_run,
)
from codemode_mcp.runs.views import RunView
from codemode_mcp.stores.work import Alive, Now, Query, Tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.runs.state import RunState
    from codemode_mcp.settings import CodeModeSettings, StoreKind
    from codemode_mcp.stores.work import Database, Row, Work

Result = TypeVar("Result")

MARKER_SECONDS = 24 * 3600.0
"""How long it is known of a run that it has expired."""

CATALOG_SECONDS = 3600.0
"""How long a catalog is kept that no run refers to."""

MAX_ENDED = 10_000
MAX_ENDED_BYTES = 256 * 1024 * 1024
"""Ends of runs in one store; the oldest make room."""

SWEPT = 1000
"""Rows of a kind that one `sweep` drops at most."""

_TOGETHER = 200
"""Ids in one statement."""

_APART = 256 * 1024
"""Bytes from which a blob is sealed on a thread."""

_MANIFESTS = 16


class Sealing(Protocol):
    """What makes blobs that open for the same owner, run and field alone; see `stores.seal`."""

    def seal(self, data: bytes, *, owner: str, run: str, field: str) -> bytes: ...

    def open(self, sealed: bytes, *, owner: str, run: str, field: str) -> bytes: ...


@dataclass(slots=True)
class _Mine:
    """What this process knows of a run that it has parked or claimed.

    Attributes:
        token: it may write while the run has this one; None: the run is not stored yet.
        driving: it goes on with it, so that no other request may.
        current: whoever goes on from `token` goes on from what this process knows.
        sent: calls that it has sent, or is about to.
        unsure: calls of which it is not known whether it was written down that they are sent; they were not.
    """

    token: int | None = None
    driving: bool = False
    current: bool = False
    sent: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)


class DurableStore:
    """`RunStore` over a `Database`.

    What holds, whatever processes die and whenever:

    - Of a run, only the process that has claimed it last may write: each claim gives it another token, and what is
      written is conditional on the token. Whoever has another one is told `Fenced`, and nothing is changed.
    - What is stored of a run is a snapshot with the calls that it waits for, of the same moment.
    - A call is somebody's: its carrier's, whoever drives the run. `dispatching` says yes once, to the carrier; one
      that is dead is followed by the driver, who sends again only what is repeatable.
    - A call that has an end keeps it until the program has got it.
    - A method changes everything it should, in one transaction, or nothing.

    Args:
        clock: monotonic seconds: of times in `ParkedRun`, `Claim` and `EndedRun`. Those of the database are its own.
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
        self._blobs = _Blobs(seal)
        self._settings = settings
        self._clock = clock
        self._mine: dict[str, _Mine] = {}
        self._manifests: OrderedDict[str, str] = OrderedDict()
        self._ended_bytes = MAX_ENDED_BYTES

    def __repr__(self) -> str:
        return f"<DurableStore: {self._database.name}, {len(self._mine)} runs known>"

    @property
    def name(self) -> str:
        return self._database.name

    def apply(self, settings: CodeModeSettings) -> None:
        self._settings = settings

    async def park(self, run: ParkedRun) -> None:
        await self._keep(run, lets_go=True)

    async def checkpoint(self, run: ParkedRun) -> None:
        await self._keep(run, lets_go=False)

    async def _keep(self, run: ParkedRun, *, lets_go: bool) -> None:
        mine = self._mine.setdefault(run.id, _Mine())
        # Nothing forgets it meanwhile.
        mine.driving = mine.driving or mine.token is None
        try:
            token = await self._write_down(run, mine, lets_go=lets_go)
        except BaseException:
            if mine.token is None:
                self._mine.pop(run.id, None)
            raise
        mine.token = token
        mine.driving = not lets_go
        mine.current = True
        pending = {call.id for call in run.calls}
        mine.sent &= pending
        mine.sent |= {call.id for call in run.calls if call.status == "dispatched" and call.carrier == "here"}
        mine.unsure &= pending

    async def _write_down(self, run: ParkedRun, mine: _Mine, *, lets_go: bool) -> int:
        now = self._clock()
        sealed = await self._seal_run(run)
        texts: dict[str, bytes] = {}
        write = _Write(
            run=run,
            lets_go=lets_go,
            token=mine.token,
            left=run.expires - now,
            age=now - run.parked,
            manifest=_manifest_hash(run.manifest),
            sealed=sealed,
            texts=texts,
            settings=self._settings,
        )
        while True:
            try:
                return await self._do(lambda: _write(write, self._database.process, self._blobs))
            except _Wanted as wanted:
                for missing in wanted.hashes:
                    text = run.manifest if missing == write.manifest or run.catalog is None else run.catalog.text()
                    texts[missing] = await self._blobs.sealed_apart("", missing, "catalog", text.encode(*_UTF8))
            except Fenced:
                self.forget(run.id)
                raise

    async def _seal_run(self, run: ParkedRun) -> _Sealed:
        blobs = self._blobs
        view = None if run.view is None else replace(run.view, calls=())
        return _Sealed(
            snapshot=await blobs.sealed_apart(run.owner, run.id, "snapshot", run.snapshot),
            record=await blobs.sealed_apart(run.owner, run.id, "record", run.record.encode(*_UTF8)),
            view=None if view is None else blobs.seal(run.owner, run.id, "view", view_text(view)),
        )

    async def claim(self, run_id: str, owner: str) -> Claim | EndedRun:
        mine = self._mine.get(run_id)
        if mine is not None:
            mine.unsure.clear()
        found = await self._do(
            lambda: _claim(run_id, owner, self._database.process, mine, self._blobs, self._manifests, self._settings)
        )
        now = self._clock()
        if isinstance(found, _FoundEnd):
            return EndedRun(
                run_id,
                owner,
                outcome_of(found.outcome),
                found.size,
                now + found.left,
                found.state,
                _known_view(found.view),
            )
        mine = self._mine.setdefault(run_id, _Mine())
        current = mine.current and mine.token == found.token - 1
        mine.token = found.token
        mine.driving = True
        mine.current = current
        digest = _manifest_hash(found.manifest)
        self._manifests[digest] = found.manifest
        self._manifests.move_to_end(digest)
        if len(self._manifests) > _MANIFESTS:
            self._manifests.popitem(last=False)
        run = ParkedRun(
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
        )
        return Claim(run, current, "" if current else found.text)

    async def release(self, run_id: str, owner: str) -> None:
        mine = self._mine.get(run_id)
        token = None if mine is None else mine.token
        if mine is None or token is None:
            return
        mine.driving, mine.current = False, True
        await self._do(lambda: _release(run_id, owner, token))

    async def end(self, run: EndedRun) -> None:
        mine = self._mine.get(run.id)
        now = self._clock()
        outcome = await self._blobs.sealed_apart(
            run.owner, run.id, "outcome", outcome_text(run.outcome, now=now).encode(*_UTF8)
        )
        view = None if run.view is None else replace(run.view, calls=())
        sealed_view = None if view is None else self._blobs.seal(run.owner, run.id, "view", view_text(view))
        token = None if mine is None else mine.token
        # Adding up what all ends take is not done for each of them.
        trims = self._ended_bytes + len(outcome) > MAX_ENDED_BYTES // 16
        try:
            await self._do(
                lambda: _end(run, self._database.process, token, run.expires - now, outcome, sealed_view, trims)
            )
        except Fenced:
            self.forget(run.id)
            raise
        self._ended_bytes = 0 if trims else self._ended_bytes + len(outcome)
        self._mine.pop(run.id, None)

    async def sweep(self) -> list[str]:
        known = {run_id: mine.driving for run_id, mine in self._mine.items()}
        driven = frozenset(run_id for run_id, driving in known.items() if driving)
        expired = set(await self._do(lambda: _expire(self._database.process, driven)))
        await self._do(_drop)
        await self._do(lambda: _trim(MAX_ENDED, MAX_ENDED_BYTES))
        states: dict[str, str] = {}
        for some in _portions([run_id for run_id, driving in known.items() if not driving]):
            states.update(await self._do(lambda some=some: _states(some)))  # type: ignore[misc]
        gone = []
        for run_id, driving in known.items():
            state = states.get(run_id, "gone")
            mine = self._mine.get(run_id)
            if driving or state == "waiting" or mine is None or mine.driving:
                continue
            # Whoever has dropped it; an end is told as news.
            if state == "expired" or run_id in expired:
                gone.append(run_id)
            del self._mine[run_id]
        return [*gone, *sorted(expired - set(gone))]

    async def dispatching(self, run_id: str, call: int) -> bool:
        mine = self._mine.setdefault(run_id, _Mine())
        unsure = call in mine.unsure
        # Whoever claims it from now on finds out that it is under way here.
        known = call in mine.sent
        mine.sent.add(call)
        try:
            sends = await self._do(lambda: _dispatching(run_id, call, self._database.process, unsure))
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
        return await self._do(lambda: _settle(run_id, call, self._database.process, result, self._blobs))

    def holds(self) -> bool:
        return self._database.holds()

    async def news(self) -> str | None:
        told = await self._database.news()
        return None if told is None else _text(told)

    async def look(self, run_id: str) -> News:
        mine = self._mine.get(run_id)
        return await self._do(lambda: _look(run_id, self._database.process, mine, self._blobs))

    async def cancel(self, run_id: str, owner: str) -> bool:
        mine = self._mine.get(run_id)
        driving = mine is not None and mine.driving
        return await self._do(lambda: _cancel(run_id, owner, self._database.process, driving))

    def forget(self, run_id: str) -> None:
        mine = self._mine.get(run_id)
        if mine is not None:
            mine.token = 0
            mine.driving = mine.current = False

    async def owner_of(self, run_id: str) -> str | None:
        return await self._do(lambda: _owner_of(run_id))

    async def views(self) -> list[RunView]:
        rows, alive, now = await self._do(lambda: _rows_of_views(self._database.process))
        views = [_view(row, alive, now, self._blobs) for row in rows[:_TOGETHER]]
        if len(rows) > _TOGETHER:
            rest = rows[_TOGETHER:]
            views += await run_sync(lambda: [_view(row, alive, now, self._blobs) for row in rest])
        return views

    async def totals(self) -> Totals:
        return await self._do(_totals)

    async def _do(self, work: Callable[[], Work[Result]]) -> Result:
        """What is written is known here too, whatever becomes of who asked for it."""
        with anyio.CancelScope(shield=True):
            result = await self._database.do(work)
        return result  # noqa: RET504 - mypy takes the scope for one that swallows


# what goes into the database


class _Blobs:
    """Texts and bytes of runs, as they are stored."""

    def __init__(self, seal: Sealing) -> None:
        self._seal = seal

    def seal(self, owner: str, run: str, name: str, text: str) -> bytes:
        return self._seal.seal(text.encode(*_UTF8), owner=owner, run=run, field=name)

    async def sealed_apart(self, owner: str, run: str, name: str, data: bytes) -> bytes:
        """Bytes, on a thread where that would take long."""
        if len(data) < _APART:
            return self._seal.seal(data, owner=owner, run=run, field=name)
        return await run_sync(lambda: self._seal.seal(data, owner=owner, run=run, field=name))

    def bytes_of(self, owner: str, run: str, name: str, blob: bytes) -> bytes:
        return self._seal.open(blob, owner=owner, run=run, field=name)

    def text_of(self, owner: str, run: str, name: str, blob: bytes) -> str:
        return self.bytes_of(owner, run, name, blob).decode(*_UTF8)


_UTF8 = ("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Sealed:
    snapshot: bytes
    record: bytes
    view: bytes | None

    @property
    def size(self) -> int:
        return len(self.snapshot) + len(self.record)


@dataclass(frozen=True, slots=True)
class _Write:
    """A run that is parked or checkpointed.

    Attributes:
        token: the one that this process goes by; None for a run that it has not stored yet.
        left, age: seconds until it expires, and since it was parked.
        manifest: the hash of it.
        texts: catalogs by hash, sealed, where they were missing.
    """

    run: ParkedRun
    lets_go: bool
    token: int | None
    left: float
    age: float
    manifest: str
    sealed: _Sealed
    texts: Mapping[str, bytes]
    settings: CodeModeSettings


class _Wanted(Exception):
    """Catalogs that have to be stored with a run."""

    def __init__(self, hashes: tuple[str, ...]) -> None:
        super().__init__(hashes)
        self.hashes = hashes


def _known_view(text: str | None) -> RunView | None:
    """None also where another version has written it: a run is not lost for it."""
    with suppress(ProgramError):
        return None if text is None else view_of(text)
    return None


def _plain(text: str) -> str:
    """Any text as one that every database takes; different for different ones."""
    return json.dumps(text)[1:-1]


def _text(plain: str) -> str:
    text: str = json.loads(f'"{plain}"')
    return text


@lru_cache(maxsize=_MANIFESTS)
def _manifest_hash(manifest: str) -> str:
    return "manifest:" + hashlib.sha256(manifest.encode(*_UTF8)).hexdigest()


def _stored_catalog(digest: str, text: str) -> StoredCatalog:
    return StoredCatalog(digest, lambda: text)


def _portions(ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(ids[start : start + _TOGETHER]) for start in range(0, len(ids), _TOGETHER))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


# parking


def _write(write: _Write, process: str, blobs: _Blobs) -> Work[int]:
    """The token of the run."""
    run = write.run
    run_id, owner = _plain(run.id), _plain(run.owner)
    now: float = yield Now()
    rows = yield Query("SELECT state, token FROM runs WHERE id = ?", (run_id,), locks=True)
    # A run that is new to this process is nobody else's; it is there if an answer to this was lost.
    token = write.token if write.token is not None else 1
    if rows:
        if tuple(rows[0]) != ("waiting", token):
            raise Fenced(run.id)
    elif write.token is not None:
        raise Fenced(run.id)
    else:
        yield from _check_room(owner, run.owner, write.settings, now)
    catalog = None if run.catalog is None else _plain(run.catalog.hash)
    yield from _keep_catalogs((write.manifest,) if catalog is None else (write.manifest, catalog), write.texts, now)
    parked, expires = now - write.age, now + write.left
    sealed = write.sealed
    holder = None if write.lets_go else process
    if rows:
        yield Query(
            "UPDATE runs SET version = version + 1, holder = ?, parker = ?, reason = ?, parked = ?, expires = ?, "
            "size = ?, manifest = ?, view = ? WHERE id = ?",
            (
                holder,
                process,
                run.reason,
                parked,
                expires,
                sealed.size,
                write.manifest,
                sealed.view,
                run_id,
            ),
        )
        if catalog is not None:
            yield Query(
                "UPDATE runs SET catalog = ? WHERE id = ? AND (catalog IS NULL OR catalog <> ?)",
                (catalog, run_id, catalog),
            )
        yield Query(
            "UPDATE snapshots SET record = ?, snapshot = ? WHERE run = ?", (sealed.record, sealed.snapshot, run_id)
        )
    else:
        began = now if run.view is None else now - run.view.age_ms / 1000
        yield Query(
            "INSERT INTO runs (id, owner, state, version, token, holder, parker, cancel, reason, began, parked, "
            "expires, size, catalog, manifest, view) VALUES (?, ?, 'waiting', 1, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run_id,
                owner,
                token,
                holder,
                process,
                run.reason,
                began,
                parked,
                expires,
                sealed.size,
                catalog,
                write.manifest,
                sealed.view,
            ),
        )
        yield Query(
            "INSERT INTO snapshots (run, record, snapshot) VALUES (?, ?, ?)", (run_id, sealed.record, sealed.snapshot)
        )
    yield from _write_calls(run, process, bool(rows), blobs)
    return token


def _write_calls(run: ParkedRun, process: str, known: bool, blobs: _Blobs) -> Work[None]:
    run_id = _plain(run.id)
    rows: list[Row] = []
    if known:
        rows = yield Query("SELECT id, status, carrier FROM calls WHERE run = ?", (run_id,))
    found = {call: (status, carrier) for call, status, carrier in rows}
    pending = {call.id for call in run.calls}
    for call in found:
        if call not in pending:
            yield Query("DELETE FROM calls WHERE run = ? AND id = ?", (run_id, call))
    for each in run.calls:
        result = None if each.result is None else blobs.seal(run.owner, run.id, f"result {each.id}", each.result)
        if each.id not in found:
            body = None if not each.body else blobs.seal(run.owner, run.id, f"call {each.id}", each.body)
            yield Query(
                "INSERT INTO calls (run, id, tool, status, repeatable, carrier, body, result) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, each.id, _plain(each.tool), each.status, int(each.repeatable), process, body, result),
            )
            continue
        # What is stored of a call only ever goes on: others write its end, and this process before it sends it.
        status, carrier = found[each.id]
        if result is not None and status != "settled":
            yield Query(
                "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?", (result, run_id, each.id)
            )
        elif each.status == "dispatched" and status == "queued" and carrier == process:
            yield Query("UPDATE calls SET status = 'dispatched' WHERE run = ? AND id = ?", (run_id, each.id))


def _check_room(owner: str, name: str, settings: CodeModeSettings, now: float) -> Work[None]:
    # One at a time, since each makes the number another.
    yield Query("SELECT version FROM schema_version", locks=True)
    rows = yield Query(
        "SELECT COUNT(*) FROM runs WHERE state = 'waiting' AND (expires > ? OR holder IS NOT NULL)", (now,)
    )
    own = yield Query(
        "SELECT COUNT(*) FROM runs WHERE state = 'waiting' AND (expires > ? OR holder IS NOT NULL) AND owner = ?",
        (now, owner),
    )
    check_quotas(settings, name, own[0][0], rows[0][0])


def _keep_catalogs(hashes: tuple[str, ...], texts: Mapping[str, bytes], now: float) -> Work[None]:
    """Raises `_Wanted`: some are not there, nor among `texts`."""
    rows = yield Query(f"SELECT hash, kept FROM catalogs WHERE hash IN ({_marks(hashes)})", hashes)
    kept = dict(rows)
    for digest in hashes:
        # The time is written again long before `sweep` could drop what it takes for forgotten.
        if digest in kept and kept[digest] < now - CATALOG_SECONDS / 6:
            still = yield Query("SELECT hash FROM catalogs WHERE hash = ?", (digest,), locks=True)
            if still:
                yield Query("UPDATE catalogs SET kept = ? WHERE hash = ?", (now, digest))
            else:
                del kept[digest]
    missing = tuple(digest for digest in hashes if digest not in kept)
    wanted = tuple(digest for digest in missing if digest not in texts)
    if wanted:
        raise _Wanted(wanted)
    for digest in missing:
        yield Query(
            "INSERT INTO catalogs (hash, kept, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (digest, now, texts[digest]),
        )


# claiming


@dataclass(frozen=True, slots=True)
class _FoundEnd:
    state: RunState
    size: int
    left: float
    outcome: str
    view: str | None


@dataclass(frozen=True, slots=True)
class _Found:
    token: int
    reason: str
    age: float
    left: float
    snapshot: bytes
    record: str
    manifest: str
    catalog: str | None
    text: str
    view: str | None
    calls: tuple[StoredCall, ...]


def _claim(
    run_id: str,
    owner: str,
    process: str,
    mine: _Mine | None,
    blobs: _Blobs,
    manifests: Mapping[str, str],
    settings: CodeModeSettings,
) -> Work[_Found | _FoundEnd]:
    plain = _plain(run_id)
    now: float = yield Now()
    rows = yield Query(
        "SELECT owner, state, token, holder, parker, reason, parked, expires, size, catalog, manifest, view, outcome "
        "FROM runs WHERE id = ?",
        (plain,),
        locks=True,
    )
    if not rows or rows[0][0] != _plain(owner):
        raise unknown_run(run_id)
    _, state, token, holder, parker, reason, parked, expires, size, catalog, manifest, view, outcome = rows[0]
    shown = None if view is None else blobs.text_of(owner, run_id, "view", view)
    if state == "expired" and expires > now:
        raise expired_run(run_id, settings)
    if state != "waiting":
        if expires <= now or outcome is None:
            raise unknown_run(run_id)
        return _FoundEnd(state, size, expires - now, blobs.text_of(owner, run_id, "outcome", outcome), shown)
    if holder == process:
        if mine is not None and mine.driving:
            raise already_observed(run_id)
    elif holder is not None:
        alive = yield Alive(frozenset((holder,)))
        if holder in alive:
            raise already_observed(run_id)
    if expires <= now:
        raise expired_run(run_id, settings)
    yield Query("UPDATE runs SET token = token + 1, version = version + 1, holder = ? WHERE id = ?", (process, plain))
    calls, others = yield from _take_calls(run_id, owner, process, mine, blobs)
    # Whoever has parked it may have a copy that does not count any more.
    if others or parker not in (None, process):
        yield Tell(plain)
    rows = yield Query("SELECT record, snapshot FROM snapshots WHERE run = ?", (plain,))
    record, snapshot = rows[0]
    warm = manifests.get(manifest)
    if warm is None:
        warm = yield from _catalog_text(manifest, blobs)
    text = ""
    # Its own is known to a process.
    if catalog is not None and not (mine is not None and mine.current and mine.token == token):
        text = yield from _catalog_text(catalog, blobs)
    return _Found(
        token + 1,
        reason,
        now - parked,
        expires - now,
        blobs.bytes_of(owner, run_id, "snapshot", snapshot),
        blobs.text_of(owner, run_id, "record", record),
        warm,
        None if catalog is None else _text(catalog),
        text,
        shown,
        calls,
    )


def _catalog_text(digest: str, blobs: _Blobs) -> Work[str]:
    rows = yield Query("SELECT body FROM catalogs WHERE hash = ?", (digest,))
    if not rows:
        raise ProgramError(
            "snapshot_restore_failed",
            "the suspended program cannot be restored: the tools that it saw are not stored any more; start it again",
        )
    return blobs.text_of("", digest, "catalog", rows[0][0])


def _take_calls(
    run_id: str, owner: str, process: str, mine: _Mine | None, blobs: _Blobs
) -> Work[tuple[tuple[StoredCall, ...], bool]]:
    """All calls, those without a living carrier for this process; and whether others carry, or carried, some."""
    plain = _plain(run_id)
    rows = yield Query(
        "SELECT id, tool, status, repeatable, carrier, body, result FROM calls WHERE run = ? ORDER BY id", (plain,)
    )
    others = frozenset(row[4] for row in rows) - {process}
    alive: frozenset[str] = frozenset()
    if others:
        alive = yield Alive(others)
    sent = mine.sent if mine is not None else set()
    calls: list[StoredCall] = []
    for number, tool, status, repeatable, carrier, body, result in rows:
        call = StoredCall(
            number,
            _text(tool),
            status,
            bool(repeatable),
            "" if body is None else blobs.text_of(owner, run_id, f"call {number}", body),
            None if result is None else blobs.text_of(owner, run_id, f"result {number}", result),
            "nobody",
        )
        if status == "settled":
            pass
        elif status == "queued" or (carrier == process and number in sent):
            call = replace(call, carrier="here")
        elif carrier != process and carrier in alive:
            call = replace(call, carrier="elsewhere")
        elif repeatable:
            call = replace(call, status="queued", carrier="here")
        if call.status != status or (carrier != process and status != "settled" and call.carrier != "elsewhere"):
            yield Query(
                "UPDATE calls SET status = ?, carrier = ? WHERE run = ? AND id = ?",
                (call.status, process, plain, number),
            )
        calls.append(call)
    return tuple(calls), bool(others)


def _release(run_id: str, owner: str, token: int) -> Work[None]:
    rows = yield Query("SELECT owner, state, token FROM runs WHERE id = ?", (_plain(run_id),), locks=True)
    if rows and tuple(rows[0]) == (_plain(owner), "waiting", token):
        yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (_plain(run_id),))


# calls


def _dispatching(run_id: str, call: int, process: str, unsure: bool) -> Work[bool]:
    key = (_plain(run_id), call)
    yield Query("SELECT id FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, repeatable, carrier FROM calls WHERE run = ? AND id = ?", key)
    if not rows:
        return False
    status, repeatable, carrier = rows[0]
    if carrier != process:
        return False
    if status == "queued":
        yield Query("UPDATE calls SET status = 'dispatched' WHERE run = ? AND id = ?", key)
        return True
    return status == "dispatched" and (unsure or bool(repeatable))


def _settle(run_id: str, call: int, process: str, result: str, blobs: _Blobs) -> Work[bool]:
    key = (_plain(run_id), call)
    runs = yield Query("SELECT owner, holder FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, carrier, result FROM calls WHERE run = ? AND id = ?", key)
    if not runs or not rows or rows[0][1] != process:
        return False
    owner, holder = _text(runs[0][0]), runs[0][1]
    name = f"result {call}"
    if rows[0][0] == "settled":
        # By this process itself, if an answer to this was lost.
        return rows[0][2] is not None and blobs.text_of(owner, run_id, name, rows[0][2]) == result
    yield Query(
        "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?",
        (blobs.seal(owner, run_id, name, result), *key),
    )
    if holder not in (None, process):
        yield Tell(key[0])
    return True


def _look(run_id: str, process: str, mine: _Mine | None, blobs: _Blobs) -> Work[News]:
    plain = _plain(run_id)
    rows = yield Query("SELECT owner, state, token, holder, cancel FROM runs WHERE id = ?", (plain,))
    if not rows:
        return News(fenced=True, ended="expired")
    owner, state, token, holder, cancel = rows[0]
    fenced = mine is None or mine.token != token
    if state != "waiting":
        return News(fenced=fenced, ended=state)
    if fenced or mine is None or holder != process or not mine.driving:
        return News(fenced=fenced, cancelled=bool(cancel) and not fenced)
    calls = yield Query(
        "SELECT id, status, carrier FROM calls WHERE run = ? AND (status = 'settled' OR carrier <> ?)", (plain, process)
    )
    if not calls:
        return News(cancelled=bool(cancel))
    others = frozenset(carrier for _, status, carrier in calls if status == "dispatched" and carrier != process)
    alive: frozenset[str] = frozenset()
    if others:
        alive = yield Alive(others)
    if others <= alive:
        settled = yield from _settled(run_id, _text(owner), blobs)
        return News(cancelled=bool(cancel), calls=settled)
    # Some carrier is dead: now nobody else may have taken the run meanwhile.
    rows = yield Query("SELECT token, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or tuple(rows[0]) != (token, process):
        return News(fenced=True)
    before = {number for number, status, carrier in calls if status == "dispatched" and carrier not in alive}
    taken, _ = yield from _take_calls(run_id, _text(owner), process, mine, blobs)
    told = tuple(
        replace(call, carrier="here") if call.status != "settled" else call
        for call in taken
        if call.status == "settled" or (call.id in before and call.carrier != "elsewhere")
    )
    return News(cancelled=bool(cancel), calls=told)


def _settled(run_id: str, owner: str, blobs: _Blobs) -> Work[tuple[StoredCall, ...]]:
    rows = yield Query(
        "SELECT id, tool, repeatable, result FROM calls WHERE run = ? AND status = 'settled' ORDER BY id",
        (_plain(run_id),),
    )
    return tuple(
        StoredCall(
            number,
            _text(tool),
            "settled",
            bool(repeatable),
            "",
            None if result is None else blobs.text_of(owner, run_id, f"result {number}", result),
            "nobody",
        )
        for number, tool, repeatable, result in rows
    )


# ends


def _end(
    run: EndedRun, process: str, token: int | None, left: float, outcome: bytes, view: bytes | None, trims: bool
) -> Work[None]:
    plain = _plain(run.id)
    now: float = yield Now()
    rows = yield Query("SELECT state, token FROM runs WHERE id = ?", (plain,), locks=True)
    code = None if run.view is None else run.view.code
    if rows:
        if tuple(rows[0]) != ("waiting", 1 if token is None else token):
            raise Fenced(run.id)
        carriers = yield Query("SELECT DISTINCT carrier FROM calls WHERE run = ?", (plain,))
        yield from _forget_calls((plain,))
        yield Query(
            "UPDATE runs SET state = ?, version = version + 1, holder = NULL, cancel = 0, ended = ?, expires = ?, "
            "size = ?, code = ?, catalog = NULL, manifest = NULL, view = ?, outcome = ? WHERE id = ?",
            (run.state, now, now + left, run.size, code, view, outcome, plain),
        )
        if any(carrier != process for (carrier,) in carriers):
            yield Tell(plain)
    elif token is not None:
        raise Fenced(run.id)
    else:
        began = now if run.view is None else now - run.view.age_ms / 1000
        yield Query(
            "INSERT INTO runs (id, owner, state, version, token, cancel, reason, began, parked, ended, expires, size, "
            "code, view, outcome) VALUES (?, ?, ?, 1, 1, 0, '', ?, ?, ?, ?, ?, ?, ?, ?)",
            (plain, _plain(run.owner), run.state, began, now, now, now + left, run.size, code, view, outcome),
        )
    if trims:
        yield from _trim(MAX_ENDED, MAX_ENDED_BYTES)


def _forget_calls(runs: tuple[str, ...]) -> Work[None]:
    yield Query(f"DELETE FROM calls WHERE run IN ({_marks(runs)})", runs)
    yield Query(f"DELETE FROM snapshots WHERE run IN ({_marks(runs)})", runs)


def _expire(process: str, driven: frozenset[str]) -> Work[list[str]]:
    """Suspended runs past their time, unless somebody goes on with them; those whose calls this process carries."""
    now: float = yield Now()
    rows = yield Query(
        "SELECT id, holder FROM runs WHERE state = 'waiting' AND expires <= ? ORDER BY expires LIMIT ?", (now, SWEPT)
    )
    if not rows:
        return []
    holders = frozenset(holder for _, holder in rows if holder is not None) - {process}
    alive: frozenset[str] = frozenset()
    if holders:
        alive = yield Alive(holders)
    mine: list[str] = []
    past = [run for run, holder in rows if holder not in alive and not (holder == process and _text(run) in driven)]
    for some in _portions(past):
        # They may have been claimed, or parked anew, since.
        rows = yield Query(
            f"SELECT id, holder FROM runs WHERE state = 'waiting' AND expires <= ? AND id IN ({_marks(some)})",
            (now, *some),
            locks=True,
        )
        ids = tuple(run for run, holder in rows if holder is None or holder == process or holder not in alive)
        if not ids:
            continue
        carried = yield Query(f"SELECT DISTINCT run, carrier FROM calls WHERE run IN ({_marks(ids)})", ids)
        mine += [_text(run) for run, carrier in carried if carrier == process]
        yield from _forget_calls(ids)
        yield Query(
            "UPDATE runs SET state = 'expired', version = version + 1, holder = NULL, ended = ?, expires = ?, "
            f"code = 'snapshot_expired', catalog = NULL, manifest = NULL, size = 0 WHERE id IN ({_marks(ids)})",
            (now, now + MARKER_SECONDS, *ids),
        )
        for run in sorted({run for run, carrier in carried if carrier != process}):
            yield Tell(run)
    return mine


def _drop() -> Work[None]:
    """Ends past their time, and catalogs that nothing refers to."""
    now: float = yield Now()
    rows = yield Query("SELECT id FROM runs WHERE state <> 'waiting' AND expires <= ? LIMIT ?", (now, SWEPT))
    for some in _portions([run for (run,) in rows]):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({_marks(some)})", some)
    yield Query(
        "DELETE FROM catalogs WHERE kept <= ? AND hash IN (SELECT hash FROM catalogs WHERE kept <= ? "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.manifest = catalogs.hash) LIMIT ?)",
        (now - CATALOG_SECONDS, now - CATALOG_SECONDS, SWEPT),
    )


def _trim(most: int, most_bytes: int) -> Work[None]:
    """The oldest ends make room for the others."""
    rows = yield Query("SELECT COUNT(*), SUM(size) FROM runs WHERE state NOT IN ('waiting', 'expired')")
    count, size = rows[0][0], int(rows[0][1] or 0)
    if count <= most and size <= most_bytes:
        return
    rows = yield Query(
        "SELECT id, size FROM runs WHERE state NOT IN ('waiting', 'expired') ORDER BY ended LIMIT ?", (SWEPT,)
    )
    dropped: list[str] = []
    for run, each in rows:
        if count <= most and size <= most_bytes:
            break
        dropped.append(run)
        count, size = count - 1, size - each
    for some in _portions(dropped):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({_marks(some)})", some)


# what is told


def _states(runs: tuple[str, ...]) -> Work[dict[str, str]]:
    plain = tuple(map(_plain, runs))
    rows = yield Query(f"SELECT id, state FROM runs WHERE id IN ({_marks(plain)})", plain)
    return {_text(run): state for run, state in rows}


def _cancel(run_id: str, owner: str, process: str, driving: bool) -> Work[bool]:
    plain = _plain(run_id)
    rows = yield Query("SELECT owner, state, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or rows[0][0] != _plain(owner) or rows[0][1] != "waiting" or rows[0][2] is None:
        return False
    holder = rows[0][2]
    if holder == process:
        if not driving:
            return False
    else:
        alive = yield Alive(frozenset((holder,)))
        if holder not in alive:
            return False
    yield Query("UPDATE runs SET cancel = 1 WHERE id = ?", (plain,))
    if holder != process:
        yield Tell(plain)
    return True


def _owner_of(run_id: str) -> Work[str | None]:
    rows = yield Query("SELECT owner FROM runs WHERE id = ? AND state = 'waiting'", (_plain(run_id),))
    return _text(rows[0][0]) if rows else None


def _totals() -> Work[Totals]:
    now: float = yield Now()
    rows = yield Query("SELECT COUNT(*), MIN(parked), SUM(size) FROM runs WHERE state = 'waiting'")
    count, first, size = rows[0]
    return Totals(count, None if first is None else max(0.0, now - first), int(size or 0))


def _rows_of_views(process: str) -> Work[tuple[list[Row], frozenset[str], float]]:
    now: float = yield Now()
    rows = yield Query(
        "SELECT id, owner, state, holder, began, ended, expires, code, view FROM runs ORDER BY began DESC, id"
    )
    holders = frozenset(row[3] for row in rows if row[3] is not None)
    alive: frozenset[str] = frozenset()
    if holders - {process}:
        alive = yield Alive(holders - {process})
    return rows, alive | {process}, now


def _view(row: Row, alive: frozenset[str], now: float, blobs: _Blobs) -> RunView:
    plain, plain_owner, state, holder, began, ended, expires, code, view = row
    run_id, owner = _text(plain), _text(plain_owner)
    shown = RunView(run_id, "waiting", "stdio" if owner.startswith("stdio:") else "http", None, 0)
    if view is not None:
        # Where it cannot be opened, the columns tell something.
        with suppress(ProgramError):
            shown = view_of(blobs.text_of(owner, run_id, "view", view))
    observed = state == "waiting" and holder in alive
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
    )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
