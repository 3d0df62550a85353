"""Ends of runs, and expiry. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.call_records import made_of_stored
from codemode_mcp.runs.end_records import view_of, view_text
from codemode_mcp.runs.store import EndedRun, Fenced, StoredCall
from codemode_mcp.stores.rows import Blobs, batches, escaped, placeholders, unescaped
from codemode_mcp.stores.work import Alive, Notify, Now, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.runs.store import StoredStatus
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.stores.work import Work


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
        return replace(view, made=made_of_stored(view.made, [call_of_row(run_id, owner, blobs, *row) for row in rows]))
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
    """Return the call of a row, without an executor."""
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
    """Delete the oldest ended runs beyond the limits."""
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
