"""Ends of runs, and expiry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.runs.store import EndedRun, Fenced
from codemode_mcp.stores.rows import batches, escaped, placeholders, unescaped
from codemode_mcp.stores.work import Alive, Notify, Now, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.stores.work import Work


MARKER_SECONDS = 24 * 3600.0
"""Seconds for which an expired run is remembered."""

CATALOG_SECONDS = 3600.0
"""Seconds for which a catalog without runs is kept."""

GRACE_SECONDS = 300.0
"""Seconds for which a process spares runs suspended before it opened the store, since the clock may have been set
forward."""

STEP_SECONDS = 24 * 3600.0
"""Seconds past its expiry after which a run is not spared."""

MAX_ENDED = 10_000
"""Maximum number of ended runs in one store. The oldest are deleted first."""

MAX_ENDED_BYTES = 256 * 1024 * 1024
"""Maximum size of the ended runs in one store."""

SWEPT = 1000
"""Maximum number of rows of a kind that one sweep deletes."""


def end(
    run: EndedRun, process: str, token: int | None, left: float, outcome: bytes, view: bytes | None, trims: bool
) -> Work[None]:
    """Replace a run by its end.

    Args:
        token: the fencing token of this process; None if it has not stored the run.
        left: seconds until the end is forgotten.
        trims: whether to delete the oldest ended runs beyond the limits.
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
            # This process stored the end before, if the answer was lost.
            return
        executors = yield Query("SELECT DISTINCT carrier FROM calls WHERE run = ?", (plain,))
        yield from _forget_calls((plain,))
        yield Query(
            "UPDATE runs SET state = ?, version = version + 1, holder = NULL, cancel = 0, ended = ?, expires = ?, "
            "size = ?, printed = 0, code = ?, catalog = NULL, manifest = NULL, view = ?, outcome = ? WHERE id = ?",
            (run.state, now, now + left, run.size, code, view, outcome, plain),
        )
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
        yield from trim(MAX_ENDED, MAX_ENDED_BYTES)


def _forget_calls(runs: tuple[str, ...]) -> Work[None]:
    yield Query(f"DELETE FROM calls WHERE run IN ({placeholders(runs)})", runs)
    yield Query(f"DELETE FROM snapshots WHERE run IN ({placeholders(runs)})", runs)
    yield Query(f"DELETE FROM outputs WHERE run IN ({placeholders(runs)})", runs)


def left_of(suspended: float, expires: float, now: float, age: float) -> float:
    """Return the seconds until a suspended run expires, 0 or less if it has expired. See `GRACE_SECONDS`.

    Args:
        age: seconds since this process opened the store.
    """
    since, before = _spared(now, age)
    if expires > now or suspended >= since or expires <= before:
        return expires - now
    return GRACE_SECONDS - age


def _spared(now: float, age: float) -> tuple[float, float]:
    """Return two times: an expired run is dropped if it was suspended after the first or expired before the second."""
    return (now - age, now - age - STEP_SECONDS) if age < GRACE_SECONDS else (0.0, 0.0)


def expire(process: str, driven: Callable[[str], bool], age: float) -> Work[list[str]]:
    """Drop expired runs that no process drives, and return those of whose calls this process is an executor.

    While the process that suspended a run lives, only that process drops it: no other one knows that the clock was not
    set since.

    Args:
        driven: returns True for the id of a run that this process drives now.
        age: seconds since this process opened the store.
    """
    now: float = yield Now()
    expired = "state = 'waiting' AND expires <= ? AND (parked >= ? OR expires <= ?)"
    times = (now, *_spared(now, age))
    rows = yield Query(f"SELECT id, holder, parker FROM runs WHERE {expired} ORDER BY expires LIMIT ?", (*times, SWEPT))
    if not rows:
        return []
    others = frozenset(each for _, *both in rows for each in both if each is not None) - {process}
    alive = yield Alive(others)
    executed_here: list[str] = []
    past = {run: holder for run, holder, suspender in rows if holder not in alive and suspender not in alive}
    for some in batches(list(past)):
        # A run that was claimed or suspended again since is left for the next sweep.
        rows = yield Query(
            f"SELECT id, holder FROM runs WHERE {expired} AND id IN ({placeholders(some)})", (*times, *some), locks=True
        )
        ids = tuple(
            run for run, holder in rows if holder == past[run] and not (holder == process and driven(unescaped(run)))
        )
        if not ids:
            continue
        executors = yield Query(f"SELECT DISTINCT run, carrier FROM calls WHERE run IN ({placeholders(ids)})", ids)
        executed_here += [unescaped(run) for run, executor in executors if executor == process]
        yield from _forget_calls(ids)
        yield Query(
            "UPDATE runs SET state = 'expired', version = version + 1, holder = NULL, ended = ?, expires = ?, "
            f"code = 'snapshot_expired', catalog = NULL, manifest = NULL, size = 0, printed = 0 "
            f"WHERE id IN ({placeholders(ids)})",
            (now, now + MARKER_SECONDS, *ids),
        )
        for run in sorted({run for run, executor in executors if executor != process}):
            yield Notify(run)
    return executed_here


def drop() -> Work[None]:
    """Delete ends of runs past their time, and catalogs without a reference."""
    now: float = yield Now()
    rows = yield Query("SELECT id FROM runs WHERE state <> 'waiting' AND expires <= ? LIMIT ?", (now, SWEPT))
    for some in batches([run for (run,) in rows]):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({placeholders(some)})", some)
    yield Query(
        "DELETE FROM catalogs WHERE kept <= ? AND hash IN (SELECT hash FROM catalogs WHERE kept <= ? "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.manifest = catalogs.hash) LIMIT ?)",
        (now - CATALOG_SECONDS, now - CATALOG_SECONDS, SWEPT),
    )


def trim(max_runs: int, max_bytes: int) -> Work[None]:
    """Delete the oldest ended runs beyond the limits."""
    rows = yield Query("SELECT COUNT(*), SUM(size) FROM runs WHERE state NOT IN ('waiting', 'expired')")
    count, size = rows[0][0], int(rows[0][1] or 0)
    if count <= max_runs and size <= max_bytes:
        return
    rows = yield Query(
        "SELECT id, size FROM runs WHERE state NOT IN ('waiting', 'expired') ORDER BY ended LIMIT ?", (SWEPT,)
    )
    dropped: list[str] = []
    for run, run_size in rows:
        if count <= max_runs and size <= max_bytes:
            break
        dropped.append(run)
        count, size = count - 1, size - run_size
    for some in batches(dropped):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({placeholders(some)})", some)
