"""Writes of suspended, checkpointed and ended runs. Pure.

All parts are written in one transaction, so that a stored run is of one moment. The answer of the database can be lost.
Then the caller repeats the write, and each step accepts what the first attempt has stored.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.runs.end_records import view_of, view_text
from codemode_mcp.runs.records import made_of_stored
from codemode_mcp.runs.store import EndedRun, Fenced, StoredCall, StoredStatus, SuspendedRun, check_quotas
from codemode_mcp.stores.work import Alive, Notify, Now, Query, Row, Work, insert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.stores.seal import Seal


class SealedRun(Struct, frozen=True):
    """The sealed parts of a run."""

    snapshot: bytes
    record: bytes
    view: bytes | None
    printed: bytes | None

    @property
    def size(self) -> int:
        return len(self.snapshot) + len(self.record)


class RunWrite(Struct, frozen=True):
    """A run to be stored as suspended or checkpointed.

    Attributes:
        releases: True to suspend the run, False to checkpoint it and keep the claim.
        token: the fencing token of this process; None for a run that it has not stored yet.
        left: seconds until the run expires.
        age: seconds since it was suspended.
        manifest: the name of its manifest.
        texts: the sealed catalogs that were missing in the database, by name.
    """

    run: SuspendedRun
    releases: bool
    token: int | None
    left: float
    age: float
    manifest: str
    sealed: SealedRun
    texts: Mapping[str, bytes]
    settings: CodeModeSettings


class MissingCatalogs(Exception):
    """Error for catalogs that are not stored. The caller adds their texts and repeats the write."""

    def __init__(self, hashes: tuple[str, ...]) -> None:
        super().__init__(hashes)
        self.hashes = hashes


def write_run(write: RunWrite, process: str, blobs: Blobs) -> Work[int]:
    """Store a run, and return its fencing token.

    Raises:
        Fenced: another process has taken over the run.
        MissingCatalogs: `write.texts` lacks a catalog that is not stored.
    """
    run = write.run
    run_id, owner = escaped(run.id), escaped(run.owner)
    now: float = yield Now()
    rows = yield Query("SELECT state, token FROM runs WHERE id = ?", (run_id,), locks=True)
    # A run without a token was begun by this process, and gets the token 1. If its row exists, an earlier attempt has
    # stored it.
    token = write.token if write.token is not None else 1
    if rows:
        if tuple(rows[0]) != ("waiting", token):
            raise Fenced(run.id)
    elif write.token is not None:
        raise Fenced(run.id)
    else:
        yield from _check_room(run.counts_for, write.settings, now)
    catalog = None if run.catalog is None else blobs.shared_name(escaped(run.catalog.hash))
    yield from _store_catalogs((write.manifest,) if catalog is None else (write.manifest, catalog), write.texts, now)
    suspended, expires = now - write.age, now + write.left
    sealed = write.sealed
    added = 0 if sealed.printed is None else len(sealed.printed)
    if rows and added:
        # The row exists if an earlier attempt has stored it. The program may have printed more since.
        before = yield Query("SELECT LENGTH(body) FROM outputs WHERE run = ? AND at = ?", (run_id, run.printed_from))
        added -= before[0][0] if before else 0
    row: dict[str, object] = {
        "holder": None if write.releases else process,
        "parker": process,
        "reason": run.reason,
        "parked": suspended,
        "expires": expires,
        "manifest": write.manifest,
        "view": sealed.view,
    }
    if rows:
        changes = "".join(f"{column} = ?, " for column in row)
        yield Query(
            f"UPDATE runs SET {changes}version = version + 1, size = ? + printed, printed = printed + ? WHERE id = ?",
            (*row.values(), sealed.size + added, added, run_id),
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
        row |= {"id": run_id, "owner": owner, "share": escaped(run.counts_for), "state": "waiting", "version": 1}
        row |= {"token": token, "cancel": 0, "began": began, "size": sealed.size + added, "printed": added}
        yield insert("runs", {**row, "catalog": catalog})
        yield insert("snapshots", {"run": run_id, "record": sealed.record, "snapshot": sealed.snapshot})
    if sealed.printed is not None:
        yield Query(
            "INSERT INTO outputs (run, at, body) VALUES (?, ?, ?) "
            "ON CONFLICT (run, at) DO UPDATE SET body = excluded.body",
            (run_id, run.printed_from, sealed.printed),
        )
    yield from _write_calls(run, process, bool(rows), blobs)
    return token


def prolong(run_id: str, token: int, left: float) -> Work[None]:
    """Implement `RunStore.prolong`.

    Args:
        token: the fencing token of this process.
        left: seconds from now.
    """
    now: float = yield Now()
    until = now + left
    yield Query(
        "UPDATE runs SET expires = ?, version = version + 1 "
        "WHERE id = ? AND state = 'waiting' AND token = ? AND expires > ? AND expires < ?",
        (until, escaped(run_id), token, now, until),
    )


def _write_calls(run: SuspendedRun, process: str, known: bool, blobs: Blobs) -> Work[None]:
    run_id = escaped(run.id)
    rows: list[Row] = []
    if known:
        rows = yield Query("SELECT id, status, carrier FROM calls WHERE run = ?", (run_id,))
    found = {call: (status, executor) for call, status, executor in rows}
    pending = {call.id for call in run.calls}
    for call in found:
        if call not in pending:
            yield Query("DELETE FROM calls WHERE run = ? AND id = ?", (run_id, call))
    for each in run.calls:
        if each.id not in found:
            body = None if not each.body else blobs.seal(run.owner, run.id, f"call {each.id}", each.body)
            result = None if each.result is None else _sealed_result(run, each.id, each.result, blobs)
            task = blobs.seal(run.owner, run.id, f"task {each.id}", each.task) if each.task else None
            yield Query(
                "INSERT INTO calls (run, id, tool, status, repeatable, carrier, body, result, task) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, each.id, escaped(each.tool), each.status, int(each.repeatable), process, body, result, task),
            )
            continue
        # The stored state of a call only moves forward. It may be ahead of the state here: other executors store the
        # ends of their calls, and this process stores that it sends a call before it does so.
        status, executor = found[each.id]
        if each.task and executor == process:
            task = blobs.seal(run.owner, run.id, f"task {each.id}", each.task)
            yield Query("UPDATE calls SET task = ? WHERE run = ? AND id = ?", (task, run_id, each.id))
        if each.result is not None and status != "settled":
            result = _sealed_result(run, each.id, each.result, blobs)
            yield Query(
                "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?", (result, run_id, each.id)
            )
        elif each.status == "dispatched" and status == "queued" and executor == process:
            yield Query("UPDATE calls SET status = 'dispatched' WHERE run = ? AND id = ?", (run_id, each.id))


def _sealed_result(run: SuspendedRun, call: int, result: str, blobs: Blobs) -> bytes:
    return blobs.seal(run.owner, run.id, f"result {call}", result)


def _check_room(share: str, settings: CodeModeSettings, now: float) -> Work[None]:
    # The lock lets only one process at a time count and insert. Otherwise two could take the last place.
    yield Query("SELECT version FROM schema_version", locks=True)
    rows = yield Query(
        "SELECT COUNT(*) FROM runs WHERE state = 'waiting' AND (expires > ? OR holder IS NOT NULL)", (now,)
    )
    # Runs stored by an earlier version have no share and count for their owner.
    own = yield Query(
        "SELECT COUNT(*) FROM runs WHERE state = 'waiting' AND (expires > ? OR holder IS NOT NULL) "
        "AND (share = ? OR (share = '' AND owner = ?))",
        (now, escaped(share), escaped(share)),
    )
    check_quotas(settings, share, own[0][0], rows[0][0])


def _store_catalogs(hashes: tuple[str, ...], texts: Mapping[str, bytes], now: float) -> Work[None]:
    """Store the catalogs that are missing in the database.

    Raises:
        MissingCatalogs: some catalogs are neither stored nor in `texts`.
    """
    rows = yield Query(f"SELECT hash, kept FROM catalogs WHERE hash IN ({placeholders(hashes)})", hashes)
    kept = dict(rows)
    for digest in hashes:
        # A sweep deletes unused catalogs after `CATALOG_SECONDS`. The time is updated early enough, but not in every
        # write, because that would lock the catalog for all runs that use it.
        if digest in kept and kept[digest] < now - CATALOG_SECONDS / 6:
            # A sweep may have deleted the catalog since the query above.
            still = yield Query("SELECT hash FROM catalogs WHERE hash = ?", (digest,), locks=True)
            if still:
                yield Query("UPDATE catalogs SET kept = ? WHERE hash = ?", (now, digest))
            else:
                del kept[digest]
    missing = tuple(digest for digest in hashes if digest not in kept)
    if needed := tuple(digest for digest in missing if digest not in texts):
        raise MissingCatalogs(needed)
    for digest in missing:
        yield Query(
            "INSERT INTO catalogs (hash, kept, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (digest, now, texts[digest]),
        )


# Ends of runs, and expiry.


MARKER_SECONDS = 24 * 3600.0
"""Seconds for which an expired run is remembered."""

CATALOG_SECONDS = 3600.0
"""Seconds for which a catalog without runs is kept."""

GRACE_SECONDS = 300.0
"""Seconds after opening the store for which a process drops no run that was suspended before. The clock may have been
set forward since."""

STEP_SECONDS = 24 * 3600.0
"""Seconds after its expiry from which a run is dropped even within `GRACE_SECONDS`."""

MAX_ENDED = 10_000
"""Maximum number of ended runs in one store. The oldest are deleted first."""

MAX_ENDED_BYTES = 256 * 1024 * 1024
"""Maximum size of the ended runs in one store."""

MAX_SWEPT = 1000
"""Maximum number of rows of a table that one sweep deletes."""


def end(
    run: EndedRun, process: str, token: int | None, left: float, outcome: bytes, view: bytes | None, trims: bool
) -> Work[None]:
    """Replace a run by its end.

    Args:
        token: the fencing token of this process; None if it has not stored the run.
        left: seconds until the end is forgotten.
        trims: True to delete the oldest ended runs beyond the limits.

    Raises:
        Fenced: another process has the run, or it has expired.
    """
    plain = escaped(run.id)
    now: float = yield Now()
    rows = yield Query("SELECT state, token FROM runs WHERE id = ?", (plain,), locks=True)
    code = None if run.view is None else run.view.code
    if rows:
        state, found = rows[0]
        if found != (1 if token is None else token) or state == "expired":
            raise Fenced(run.id)
        if state != "waiting":
            # An earlier attempt of this process has stored the end, and the answer was lost.
            return
        executors = yield Query("SELECT DISTINCT carrier FROM calls WHERE run = ?", (plain,))
        yield from _forget_calls((plain,))
        yield Query(
            "UPDATE runs SET state = ?, version = version + 1, holder = NULL, cancel = 0, ended = ?, expires = ?, "
            "size = ?, printed = 0, code = ?, catalog = NULL, manifest = NULL, view = ?, outcome = ? WHERE id = ?",
            (run.state, now, now + left, run.size, code, view, outcome, plain),
        )
        # Other processes may still execute calls of the run.
        if any(executor != process for (executor,) in executors):
            yield Notify(plain)
    elif token is not None:
        raise Fenced(run.id)
    else:
        began = now if run.view is None else now - run.view.age_ms / 1000
        yield Query(
            "INSERT INTO runs (id, owner, state, version, token, cancel, reason, began, parked, ended, expires, size, "
            "printed, code, view, outcome) VALUES (?, ?, ?, 1, 1, 0, '', ?, ?, ?, ?, ?, 0, ?, ?, ?)",
            (plain, escaped(run.owner), run.state, began, now, now, now + left, run.size, code, view, outcome),
        )
    if trims:
        yield from trim_ended(MAX_ENDED, MAX_ENDED_BYTES)


def _forget_calls(runs: tuple[str, ...]) -> Work[None]:
    yield Query(f"DELETE FROM calls WHERE run IN ({placeholders(runs)})", runs)
    yield Query(f"DELETE FROM snapshots WHERE run IN ({placeholders(runs)})", runs)
    yield Query(f"DELETE FROM outputs WHERE run IN ({placeholders(runs)})", runs)


def seconds_left(suspended: float, expires: float, now: float, age: float) -> float:
    """Return the seconds until a suspended run is dropped, 0 or less if it may be dropped. See `GRACE_SECONDS`.

    Args:
        suspended, expires, now: seconds since the epoch.
        age: seconds since this process opened the store.
    """
    suspended_since, expired_before = _grace_bounds(now, age)
    if expires > now or suspended >= suspended_since or expires <= expired_before:
        return expires - now
    return GRACE_SECONDS - age


def _grace_bounds(now: float, age: float) -> tuple[float, float]:
    """Return two times. An expired run is dropped if it was suspended since the first or had expired by the second."""
    if age >= GRACE_SECONDS:
        return 0.0, 0.0  # all expired runs were suspended since
    return now - age, now - age - STEP_SECONDS


def expire(process: str, driven: Callable[[str], bool], age: float, blobs: Blobs) -> Work[list[str]]:
    """Drop expired runs that no process drives. Return the runs with calls whose executor is this process.

    While the process that suspended a run is alive, only that process drops the run. Other processes cannot know
    whether the clock was set since the suspension.

    Args:
        driven: returns True for the id of a run that this process drives now. A claim may begin during this work, so
            it is called while the rows are locked.
        age: seconds since this process opened the store.
    """
    now: float = yield Now()
    expired = "state = 'waiting' AND expires <= ? AND (parked >= ? OR expires <= ?)"
    times = (now, *_grace_bounds(now, age))
    rows = yield Query(
        f"SELECT id, holder, parker FROM runs WHERE {expired} ORDER BY expires LIMIT ?", (*times, MAX_SWEPT)
    )
    if not rows:
        return []
    others = frozenset(each for _, *both in rows for each in both if each is not None) - {process}
    alive = yield Alive(others)
    executed_here: list[str] = []
    holder_before = {run: holder for run, holder, suspender in rows if holder not in alive and suspender not in alive}
    for some in batches(list(holder_before)):
        # Nothing was locked so far. A run that was claimed or suspended since then is left for the next sweep.
        rows = yield Query(
            f"SELECT id, holder FROM runs WHERE {expired} AND id IN ({placeholders(some)})", (*times, *some), locks=True
        )
        ids = tuple(
            run
            for run, holder in rows
            if holder == holder_before[run] and not (holder == process and driven(unescaped(run)))
        )
        if not ids:
            continue
        executors = yield Query(f"SELECT DISTINCT run, carrier FROM calls WHERE run IN ({placeholders(ids)})", ids)
        executed_here += [unescaped(run) for run, executor in executors if executor == process]
        yield from _note_made(ids, blobs)
        yield from _forget_calls(ids)
        yield Query(
            "UPDATE runs SET state = 'expired', version = version + 1, holder = NULL, "
            "ended = CASE WHEN expires > parked THEN expires ELSE ? END, expires = ?, "
            f"code = 'snapshot_expired', catalog = NULL, manifest = NULL, size = 0, printed = 0 "
            f"WHERE id IN ({placeholders(ids)})",
            (now, now + MARKER_SECONDS, *ids),
        )
        for run in sorted({run for run, executor in executors if executor != process}):
            yield Notify(run)
    return executed_here


def _note_made(ids: tuple[str, ...], blobs: Blobs) -> Work[None]:
    """Add the calls of expired runs that may have had effects to the views of the runs, before they are forgotten."""
    rows = yield Query(
        f"SELECT id, owner FROM runs WHERE id IN ({placeholders(ids)}) AND id IN "
        "(SELECT run FROM calls WHERE repeatable = 0 AND status <> 'queued')",
        ids,
    )
    for plain, plain_owner in rows:
        run_id, owner = unescaped(plain), unescaped(plain_owner)
        view = yield from view_of_all_calls(run_id, owner, blobs)
        if view is not None:
            text = blobs.seal(owner, run_id, "view", view_text(view))
            yield Query("UPDATE runs SET view = ? WHERE id = ?", (text, plain))


def view_of_all_calls(run_id: str, owner: str, blobs: Blobs) -> Work[RunView | None]:
    """Return the stored view of a run, with all its calls that may have had effects; None if it cannot be read."""
    views = yield Query("SELECT view FROM runs WHERE id = ?", (escaped(run_id),))
    rows = yield Query(
        "SELECT id, tool, status, repeatable, NULL, result FROM calls WHERE run = ? ORDER BY id", (escaped(run_id),)
    )
    with suppress(ProgramError):
        view = view_of(blobs.text_of(owner, run_id, "view", views[0][0]))
        return structs.replace(
            view, made=made_of_stored(view.made, [call_of_row(run_id, owner, blobs, *row) for row in rows])
        )
    return None


def call_of_row(
    run_id: str,
    owner: str,
    blobs: Blobs,
    number: int,
    tool: str,
    status: StoredStatus,
    repeatable: int,
    body: bytes | None,
    result: bytes | None,
) -> StoredCall:
    return StoredCall(
        number,
        unescaped(tool),
        status,
        bool(repeatable),
        "" if body is None else blobs.text_of(owner, run_id, f"call {number}", body),
        None if result is None else blobs.text_of(owner, run_id, f"result {number}", result),
        "nobody",
    )


def delete_unneeded() -> Work[None]:
    """Delete the ends of runs after their time, and catalogs that no run refers to."""
    now: float = yield Now()
    rows = yield Query("SELECT id FROM runs WHERE state <> 'waiting' AND expires <= ? LIMIT ?", (now, MAX_SWEPT))
    for some in batches([run for (run,) in rows]):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({placeholders(some)})", some)
    yield Query(
        "DELETE FROM catalogs WHERE kept <= ? AND hash IN (SELECT hash FROM catalogs WHERE kept <= ? "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.manifest = catalogs.hash) LIMIT ?)",
        (now - CATALOG_SECONDS, now - CATALOG_SECONDS, MAX_SWEPT),
    )


def trim_ended(max_runs: int, max_bytes: int) -> Work[None]:
    rows = yield Query("SELECT COUNT(*), SUM(size) FROM runs WHERE state NOT IN ('waiting', 'expired')")
    count, size = rows[0][0], int(rows[0][1] or 0)
    if count <= max_runs and size <= max_bytes:
        return
    rows = yield Query(
        "SELECT id, size FROM runs WHERE state NOT IN ('waiting', 'expired') ORDER BY ended LIMIT ?", (MAX_SWEPT,)
    )
    dropped: list[str] = []
    for run, run_size in rows:
        if count <= max_runs and size <= max_bytes:
            break
        dropped.append(run)
        count, size = count - 1, size - run_size
    for some in batches(dropped):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({placeholders(some)})", some)


# Stored forms of texts and bytes of runs: escaped for every database, and sealed.


BATCH_SIZE = 200
"""Maximum number of ids in one statement."""

KEPT_MANIFESTS = 16
"""Number of manifests that are remembered, with their hashes."""

UTF8 = ("utf-8", "surrogatepass")

_LARGE = 256 * 1024
"""Blobs of at least so many bytes are sealed in a thread."""

_KEY_MARK = re.compile("#[0-9a-f]{16}$")


class Blobs:
    """The stored form of texts and bytes of runs: sealed."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        derived = seal.derived("catalogs")
        self._key_mark = f"#{derived[0][:8].hex()}" if derived else ""

    def shared_name(self, digest: str) -> str:
        """Return the name under which a text that several runs share is stored, from the hash of the text.

        The name depends on the encryption key. So a run that is stored with a new key never needs a text that was
        sealed with the previous key.
        """
        return digest + self._key_mark

    @staticmethod
    def content_hash(name: str) -> str:
        """Return the hash from which `shared_name` made a name."""
        return _KEY_MARK.sub("", name)

    def seal(self, owner: str, run: str, name: str, text: str) -> bytes:
        return self._seal.seal(text.encode(*UTF8), owner=owner, run=run, field=name)

    async def seal_large(self, owner: str, run: str, name: str, data: bytes) -> bytes:
        """Return the sealed form of bytes. Large ones are sealed in a thread."""
        if len(data) < _LARGE:
            return self._seal.seal(data, owner=owner, run=run, field=name)
        return await run_sync(lambda: self._seal.seal(data, owner=owner, run=run, field=name))

    def bytes_of(self, owner: str, run: str, name: str, blob: object) -> bytes:
        """Return the bytes of a sealed form. Raises `ProgramError` if it is damaged."""
        if not isinstance(blob, bytes):
            raise damaged(f"its {name} is missing or not a blob")
        return self._seal.open(blob, owner=owner, run=run, field=name)

    def text_of(self, owner: str, run: str, name: str, blob: object) -> str:
        return self.bytes_of(owner, run, name, blob).decode(*UTF8)


def damaged(why: str) -> ProgramError:
    return ProgramError(
        "snapshot_restore_failed",
        f"the suspended program cannot be restored: its stored data is damaged ({why})",
    )


def escaped(text: str) -> str:
    """Return a text in an ASCII form that every database accepts. `unescaped` is the inverse."""
    return json.dumps(text)[1:-1]


def unescaped(plain: str) -> str:
    text: str = json.loads(f'"{plain}"')
    return text


@lru_cache(maxsize=KEPT_MANIFESTS)
def manifest_hash(manifest: str) -> str:
    return "manifest:" + hashlib.sha256(manifest.encode(*UTF8)).hexdigest()


def batches(ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(ids[start : start + BATCH_SIZE]) for start in range(0, len(ids), BATCH_SIZE))


def placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
