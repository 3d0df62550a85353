"""Writes of suspended and checkpointed runs: snapshot, calls and catalog. Pure.

All parts are written in one transaction, so that a stored run is of one moment. The answer of the database can be lost.
Then the caller repeats the write, and each step accepts what the first attempt has stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.runs.store import Fenced, check_quotas
from codemode_mcp.stores.ending import CATALOG_SECONDS
from codemode_mcp.stores.rows import Blobs, escaped, placeholders
from codemode_mcp.stores.work import Now, Query, insert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.runs.store import SuspendedRun
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.stores.work import Row, Work


@dataclass(frozen=True, slots=True)
class SealedRun:
    """The sealed parts of a run."""

    snapshot: bytes
    record: bytes
    view: bytes | None
    printed: bytes | None

    @property
    def size(self) -> int:
        return len(self.snapshot) + len(self.record)


@dataclass(frozen=True, slots=True)
class RunWrite:
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
