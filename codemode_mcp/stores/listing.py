"""Lists of the runs in a store. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.end_records import view_of
from codemode_mcp.runs.store import Totals
from codemode_mcp.runs.views import RunView
from codemode_mcp.stores.rows import Blobs, escaped, placeholders, unescaped
from codemode_mcp.stores.work import Alive, Now, Query

if TYPE_CHECKING:
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.stores.work import Row, Work


def states(runs: tuple[str, ...]) -> Work[dict[str, str]]:
    """Return the states of existing runs, by id."""
    plain = tuple(map(escaped, runs))
    rows = yield Query(f"SELECT id, state FROM runs WHERE id IN ({placeholders(plain)})", plain)
    return {unescaped(run): state for run, state in rows}


def owner_of(run_id: str) -> Work[str | None]:
    """Return the owner of a suspended run; None if there is no such run."""
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
    """Return the totals of suspended runs."""
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
    """Return the view of a run for the operator."""
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
