"""Ends of runs, and expiry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.runs.store import EndedRun, Fenced
from codemode_mcp.stores.rows import escaped, marks, portions, unescaped
from codemode_mcp.stores.work import Alive, Now, Query, Tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.stores.work import Work


MARKER_SECONDS = 24 * 3600.0
"""Seconds for which an expired run is remembered."""


CATALOG_SECONDS = 3600.0
"""Seconds for which a catalog without runs is kept."""


GRACE_SECONDS = 300.0
"""Time for which a process spares runs suspended before it opened the store: the clock may have been set forward."""


STEP_SECONDS = 24 * 3600.0
"""Runs that are past their time by more than this are not spared."""


MAX_ENDED = 10_000


MAX_ENDED_BYTES = 256 * 1024 * 1024
"""Ends of runs in one store; the oldest make room."""


SWEPT = 1000
"""Rows of a kind that one `sweep` drops at most."""


def end(
    run: EndedRun, process: str, token: int | None, left: float, outcome: bytes, view: bytes | None, trims: bool
) -> Work[None]:
    """Put the end of a run in its place.

    Args:
        token: the one that this process goes by; None: the run is not stored yet.
        left: seconds until it is forgotten.
        trims: whether the oldest ends make room.
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
            # By this process itself, if an answer to this was lost.
            return
        executors = yield Query("SELECT DISTINCT carrier FROM calls WHERE run = ?", (plain,))
        yield from _forget_calls((plain,))
        yield Query(
            "UPDATE runs SET state = ?, version = version + 1, holder = NULL, cancel = 0, ended = ?, expires = ?, "
            "size = ?, printed = 0, code = ?, catalog = NULL, manifest = NULL, view = ?, outcome = ? WHERE id = ?",
            (run.state, now, now + left, run.size, code, view, outcome, plain),
        )
        if any(executor != process for (executor,) in executors):
            yield Tell(plain)
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
    yield Query(f"DELETE FROM calls WHERE run IN ({marks(runs)})", runs)
    yield Query(f"DELETE FROM snapshots WHERE run IN ({marks(runs)})", runs)
    yield Query(f"DELETE FROM outputs WHERE run IN ({marks(runs)})", runs)


def left_of(suspended: float, expires: float, now: float, age: float) -> float:
    """Return the seconds that a suspended run has left, 0 or less where its time is over; see `GRACE_SECONDS`.

    Args:
        age: seconds since this process has opened the store.
    """
    since, before = _spared(now, age)
    if expires > now or suspended >= since or expires <= before:
        return expires - now
    return GRACE_SECONDS - age


def _spared(now: float, age: float) -> tuple[float, float]:
    """Return since when a run must have been suspended, or before when its time must have been over, to be dropped."""
    return (now - age, now - age - STEP_SECONDS) if age < GRACE_SECONDS else (0.0, 0.0)


def expire(process: str, driven: Callable[[str], bool], age: float) -> Work[list[str]]:
    """Drop suspended runs past their time, unless a process drives them; return those whose calls this one carries.

    A run is dropped by the process that has suspended it while that lives: only its clock is known to have gone evenly
    since.

    Args:
        driven: whether this process does, at the time of asking.
        age: seconds since this process has opened the store.
    """
    now: float = yield Now()
    over = "state = 'waiting' AND expires <= ? AND (parked >= ? OR expires <= ?)"
    times = (now, *_spared(now, age))
    rows = yield Query(f"SELECT id, holder, parker FROM runs WHERE {over} ORDER BY expires LIMIT ?", (*times, SWEPT))
    if not rows:
        return []
    others = frozenset(each for _, *both in rows for each in both if each is not None) - {process}
    alive: frozenset[str] = frozenset()
    if others:
        alive = yield Alive(others)
    mine: list[str] = []
    past = {run: holder for run, holder, suspender in rows if holder not in alive and suspender not in alive}
    for some in portions(list(past)):
        # They may have been claimed, or suspended again, since: those are for the next time.
        rows = yield Query(
            f"SELECT id, holder FROM runs WHERE {over} AND id IN ({marks(some)})",
            (*times, *some),
            locks=True,
        )
        ids = tuple(
            run for run, holder in rows if holder == past[run] and not (holder == process and driven(unescaped(run)))
        )
        if not ids:
            continue
        carried = yield Query(f"SELECT DISTINCT run, carrier FROM calls WHERE run IN ({marks(ids)})", ids)
        mine += [unescaped(run) for run, executor in carried if executor == process]
        yield from _forget_calls(ids)
        yield Query(
            "UPDATE runs SET state = 'expired', version = version + 1, holder = NULL, ended = ?, expires = ?, "
            f"code = 'snapshot_expired', catalog = NULL, manifest = NULL, size = 0, printed = 0 "
            f"WHERE id IN ({marks(ids)})",
            (now, now + MARKER_SECONDS, *ids),
        )
        for run in sorted({run for run, executor in carried if executor != process}):
            yield Tell(run)
    return mine


def drop() -> Work[None]:
    """Ends past their time, and catalogs that nothing refers to."""
    now: float = yield Now()
    rows = yield Query("SELECT id FROM runs WHERE state <> 'waiting' AND expires <= ? LIMIT ?", (now, SWEPT))
    for some in portions([run for (run,) in rows]):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({marks(some)})", some)
    yield Query(
        "DELETE FROM catalogs WHERE kept <= ? AND hash IN (SELECT hash FROM catalogs WHERE kept <= ? "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) "
        "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.manifest = catalogs.hash) LIMIT ?)",
        (now - CATALOG_SECONDS, now - CATALOG_SECONDS, SWEPT),
    )


def trim(most: int, most_bytes: int) -> Work[None]:
    """Delete the oldest ended runs beyond the limits."""
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
    for some in portions(dropped):
        yield Query(f"DELETE FROM runs WHERE state <> 'waiting' AND id IN ({marks(some)})", some)
