"""Claims of runs, and executors of their calls. Pure.

A run belongs to the process that claimed it last, by its fencing token. A call belongs to its executor, whichever
process has the run.

Three rules for the work in this module:

- Before it changes a run or a call, it locks the row of the run. So the calls of a run do not change between a read and
  a write, and all processes lock in the same order.
- The answer of the database can be lost. Then a process does not know whether its work was committed, and may repeat
  it. `KnownRun` has what the lost work may have changed.
- `news_of` and `release_undriven` usually change nothing. They read first, and lock only if there is something to
  change, because only one process at a time can lock a SQLite database.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.runs import store
from codemode_mcp.runs.end_records import outcome_of, view_of
from codemode_mcp.runs.views import RunView, after_loss
from codemode_mcp.stores import suspending
from codemode_mcp.stores.work import Alive, Notify, Now, Query, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.runs.calls.outcome import MadeCall


class KnownRun(Struct):
    """The knowledge of this process about a run that it has suspended or claimed.

    Attributes:
        token: the fencing token with which this process may write; None before the run is stored.
        driving: True while this process runs the program. Then no other request may claim the run.
        current: True if the state stored with `token` is the state in this process.
        sent: calls that this process has sent, or is about to send.
        unsure: calls that were not sent, but may be stored as sent, because the answer to `dispatching` was lost.
        missed_news: True if the answer to the last `news_of` was lost. It may have made this process the executor of
            further calls.
    """

    token: int | None = None
    driving: bool = False
    current: bool = False
    sent: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    missed_news: bool = False


class ClaimedRun(Struct, frozen=True):
    """A claimed run as it is stored.

    Attributes:
        token: the new fencing token.
        known: True if this process has catalog and output in memory, so that they are not in `claim`.
        claim: the claim. Its times are relative to now.
    """

    token: int
    known: bool
    claim: store.Claim


def claim(
    run_id: str,
    owner: str,
    process: str,
    known_run: KnownRun | None,
    blobs: suspending.Blobs,
    manifests: Mapping[str, str],
    age: float,
) -> Work[ClaimedRun | store.EndedRun]:
    """Implement `RunStore.claim`. Times in the result are relative to now.

    Args:
        manifests: the texts of manifests that this process knows, by hash.
        age: seconds since this process opened the store.
    """
    try:
        return (yield from _claim(run_id, owner, process, known_run, blobs, manifests, age))
    except ProgramError as error:
        if error.code != "snapshot_restore_failed":
            raise
        made = yield from _made(run_id, owner, blobs)
        raise ProgramError(error.code, f"{error.message}; {after_loss(made)}") from None


def _made(run_id: str, owner: str, blobs: suspending.Blobs) -> Work[tuple[MadeCall, ...] | None]:
    view = yield from suspending.view_of_all_calls(run_id, owner, blobs)
    return None if view is None else view.made


def _claim(
    run_id: str,
    owner: str,
    process: str,
    known_run: KnownRun | None,
    blobs: suspending.Blobs,
    manifests: Mapping[str, str],
    age: float,
) -> Work[ClaimedRun | store.EndedRun]:
    plain = suspending.escaped(run_id)
    now: float = yield Now()
    rows = yield Query(
        "SELECT owner, share, state, token, holder, parker, reason, parked, ended, expires, size, catalog, manifest, "
        "view, outcome FROM runs WHERE id = ?",
        (plain,),
        locks=True,
    )
    if not rows or rows[0][0] != suspending.escaped(owner):
        raise store.unknown_run(run_id)
    _, share, state, token, holder, suspender, reason, suspended, ended = rows[0][:9]
    expires, size, catalog, manifest, view, outcome = rows[0][9:]
    shown = None if view is None else _readable_view(blobs.text_of(owner, run_id, "view", view))
    if state == "expired" and expires > now:
        raise store.expired_run(run_id, ended - suspended, (yield from _made(run_id, owner, blobs)))
    if state != "waiting":
        if expires <= now or outcome is None:
            raise store.unknown_run(run_id)
        ends = outcome_of(blobs.text_of(owner, run_id, "outcome", outcome))
        return store.EndedRun(run_id, owner, ends, size, expires - now, state, shown)
    if holder == process:
        # If this process does not drive the run, the answer to its earlier claim was lost. It may claim the run again.
        if known_run is not None and known_run.driving:
            raise store.already_observed(run_id)
    elif holder is not None and (yield Alive(frozenset((holder,)))):
        raise store.observed_elsewhere(run_id)
    left = suspending.seconds_left(suspended, expires, now, age)
    if left <= 0:
        raise store.expired_run(run_id, expires - suspended, (yield from _made(run_id, owner, blobs)))
    yield Query("UPDATE runs SET token = token + 1, version = version + 1, holder = ? WHERE id = ?", (process, plain))
    calls, others = yield from _take_calls(run_id, owner, process, known_run, blobs)
    # From now on, the copy in the process that suspended the run is outdated. Executors of its calls are fenced.
    if others or suspender not in (None, process):
        yield Notify(plain)
    rows = yield Query("SELECT record, snapshot FROM snapshots WHERE run = ?", (plain,))
    if not rows:
        raise suspending.damaged("its snapshot is missing")
    record, snapshot = rows[0]
    if not isinstance(manifest, str):
        raise suspending.damaged("its manifest is missing")
    manifest_text = manifests.get(blobs.content_hash(manifest))
    if manifest_text is None:
        manifest_text = yield from _catalog_text(manifest, blobs)
    # Catalog and output may be large. A process that has them need not read them from the database.
    known = known_run is not None and known_run.current and known_run.token == token
    text = ""
    printed: tuple[str, ...] = ()
    if not known:
        if catalog is not None:
            text = yield from _catalog_text(catalog, blobs)
        printed = yield from _printed(run_id, owner, blobs)
    run = store.SuspendedRun(
        run_id,
        owner,
        blobs.bytes_of(owner, run_id, "snapshot", snapshot),
        manifest_text,
        "yield" if reason == "yield" else "pending_tools",
        suspended - now,
        left,
        blobs.text_of(owner, run_id, "record", record),
        calls,
        None
        if catalog is None
        else store.StoredCatalog(suspending.unescaped(blobs.content_hash(catalog)), lambda: text),
        shown,
        share=suspending.unescaped(share) or owner,
    )
    return ClaimedRun(token + 1, known, store.Claim(run, catalog=text, printed=printed))


def _readable_view(text: str) -> RunView | None:
    """Return a stored view. Return None for a view of another version, so that the run can still be claimed."""
    with suppress(ProgramError):
        return view_of(text)
    return None


def _printed(run_id: str, owner: str, blobs: suspending.Blobs) -> Work[tuple[str, ...]]:
    rows = yield Query("SELECT at, body FROM outputs WHERE run = ? ORDER BY at", (suspending.escaped(run_id),))
    return tuple(blobs.text_of(owner, run_id, f"outputs {at}", body) for at, body in rows)


def _catalog_text(digest: str, blobs: suspending.Blobs) -> Work[str]:
    rows = yield Query("SELECT body FROM catalogs WHERE hash = ?", (digest,))
    if not rows:
        raise ProgramError(
            "snapshot_restore_failed",
            "the suspended program cannot be restored: its list of tools is no longer stored",
        )
    return blobs.text_of("", digest, "catalog", rows[0][0])


def _take_calls(
    run_id: str, owner: str, process: str, known_run: KnownRun | None, blobs: suspending.Blobs
) -> Work[tuple[tuple[store.StoredCall, ...], bool]]:
    """Make this process the executor of the unsent calls of a run, and of the calls of dead executors.

    A call of a dead executor with a task keeps its state, and this process follows the task.

    The row of the run must be locked.

    Returns:
        All calls of the run; and True if some had other executors.
    """
    plain = suspending.escaped(run_id)
    rows = yield Query(
        "SELECT id, tool, status, repeatable, carrier, body, result, task FROM calls WHERE run = ? ORDER BY id",
        (plain,),
    )
    others = frozenset(row[4] for row in rows) - {process}
    alive = yield Alive(others)
    sent = known_run.sent if known_run is not None else set()
    calls: list[store.StoredCall] = []
    for number, tool, status, repeatable, executor, body, result, task in rows:
        call = suspending.call_of_row(run_id, owner, blobs, number, tool, status, repeatable, body, result)
        if status == "settled":
            pass
        elif status == "queued" or (executor == process and number in sent):
            # No process has sent a queued call. If its executor is alive, `dispatching` refuses it there from now on.
            call = structs.replace(call, executor="here")
        elif executor != process and executor in alive:
            call = structs.replace(call, executor="elsewhere")
        elif task is not None:
            call = structs.replace(call, executor="here", task=blobs.text_of(owner, run_id, f"task {number}", task))
        elif repeatable:
            call = structs.replace(call, status="queued", executor="here")
        # All other calls may have been sent, and no living process knows their ends. They stay without an executor.
        if call.status != status or (executor != process and status != "settled" and call.executor != "elsewhere"):
            yield Query(
                "UPDATE calls SET status = ?, carrier = ? WHERE run = ? AND id = ?",
                (call.status, process, plain, number),
            )
        calls.append(call)
    return tuple(calls), bool(others)


def release(run_id: str, owner: str, token: int) -> Work[None]:
    """Release a run if it still has this token."""
    rows = yield Query("SELECT owner, state, token FROM runs WHERE id = ?", (suspending.escaped(run_id),), locks=True)
    if rows and tuple(rows[0]) == (suspending.escaped(owner), "waiting", token):
        yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (suspending.escaped(run_id),))


def release_undriven(process: str, driven: Callable[[str], bool]) -> Work[None]:
    """Release the runs that this process has claimed but does not drive. Otherwise no other process could claim them.

    Such a run is left if the answer to a claim was lost, or if the run could not be stored.

    Args:
        driven: returns True for the id of a run that this process drives now. A claim may begin during this work, so
            it is called again while the row is locked.
    """
    rows = yield Query("SELECT id FROM runs WHERE state = 'waiting' AND holder = ?", (process,))
    for (plain,) in rows:
        if driven(suspending.unescaped(plain)):
            continue
        held = yield Query("SELECT holder FROM runs WHERE id = ? AND state = 'waiting'", (plain,), locks=True)
        if held and held[0][0] == process and not driven(suspending.unescaped(plain)):
            yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (plain,))


def dispatching(run_id: str, call: int, process: str, unsure: bool) -> Work[bool]:
    """Implement `RunStore.dispatching`.

    Args:
        unsure: True if the answer to an earlier attempt was lost. The call was not sent then.
    """
    key = (suspending.escaped(run_id), call)
    yield Query("SELECT id FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, repeatable, carrier FROM calls WHERE run = ? AND id = ?", key)
    if not rows:
        return False
    status, repeatable, executor = rows[0]
    if executor != process:
        return False
    if status == "queued":
        yield Query("UPDATE calls SET status = 'dispatched' WHERE run = ? AND id = ?", key)
        return True
    # This process has recorded the call as sent before. It may send the call if it did not do so then, or if sending
    # it twice does no harm.
    return status == "dispatched" and (unsure or bool(repeatable))


def note_task(run_id: str, call: int, process: str, task: str, blobs: suspending.Blobs) -> Work[bool]:
    key = (suspending.escaped(run_id), call)
    runs = yield Query("SELECT owner FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, carrier FROM calls WHERE run = ? AND id = ?", key)
    if not runs or not rows or tuple(rows[0]) != ("dispatched", process):
        return False
    sealed = blobs.seal(suspending.unescaped(runs[0][0]), run_id, f"task {call}", task)
    yield Query("UPDATE calls SET task = ? WHERE run = ? AND id = ?", (sealed, *key))
    return True


def settle(run_id: str, call: int, process: str, result: str, blobs: suspending.Blobs) -> Work[bool]:
    key = (suspending.escaped(run_id), call)
    runs = yield Query("SELECT owner, holder FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, carrier, result FROM calls WHERE run = ? AND id = ?", key)
    if not runs or not rows or rows[0][1] != process:
        return False
    owner, holder = suspending.unescaped(runs[0][0]), runs[0][1]
    name = f"result {call}"
    if rows[0][0] == "settled":
        # With the same result, this is another attempt, because the answer to the first one was lost.
        return rows[0][2] is not None and blobs.text_of(owner, run_id, name, rows[0][2]) == result
    yield Query(
        "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?",
        (blobs.seal(owner, run_id, name, result), *key),
    )
    # The process that has the run waits for this result.
    if holder not in (None, process):
        yield Notify(key[0])
    return True


def news_of(run_id: str, process: str, known_run: KnownRun | None, blobs: suspending.Blobs) -> Work[store.News]:
    """Implement `RunStore.news_of`, and take over calls of dead processes."""
    plain = suspending.escaped(run_id)
    rows = yield Query("SELECT owner, state, token, holder, cancel FROM runs WHERE id = ?", (plain,))
    if not rows:
        return store.News(fenced=True, ended="expired")
    owner, state, token, holder, cancel = rows[0]
    fenced = known_run is None or known_run.token != token
    if state != "waiting":
        return store.News(fenced=fenced, ended=state)
    # Only the process that drives the run delivers results and takes over calls.
    if fenced or known_run is None or holder != process or not known_run.driving:
        return store.News(fenced=fenced, cancelled=bool(cancel) and not fenced)
    calls = yield Query("SELECT id, status, carrier FROM calls WHERE run = ?", (plain,))
    calls = [
        (number, status, executor)
        for number, status, executor in calls
        # After a lost answer, calls of this process that it has not sent may have been taken over without its
        # knowledge. They are reported again.
        if status == "settled" or executor != process or (known_run.missed_news and number not in known_run.sent)
    ]
    if not calls:
        return store.News(cancelled=bool(cancel))
    others = frozenset(executor for _, status, executor in calls if status == "dispatched" and executor != process)
    alive = yield Alive(others)
    taken_before = any(status != "settled" and executor == process for _, status, executor in calls)
    if others <= alive and not taken_before:
        settled = yield from _settled(run_id, suspending.unescaped(owner), blobs)
        return store.News(cancelled=bool(cancel), calls=settled)
    # There are calls to take over. This needs the lock, and the run must still be that of the first query.
    rows = yield Query("SELECT token, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or tuple(rows[0]) != (token, process):
        return store.News(fenced=True)
    before = {
        number
        for number, status, executor in calls
        if (status == "dispatched" and executor not in alive) or (status == "queued" and executor == process)
    }
    taken, _ = yield from _take_calls(run_id, suspending.unescaped(owner), process, known_run, blobs)
    changed = tuple(
        structs.replace(call, executor="here") if call.status != "settled" else call
        for call in taken
        if call.status == "settled" or (call.id in before and call.executor != "elsewhere")
    )
    return store.News(cancelled=bool(cancel), calls=changed)


def _settled(run_id: str, owner: str, blobs: suspending.Blobs) -> Work[tuple[store.StoredCall, ...]]:
    rows = yield Query(
        "SELECT id, tool, status, repeatable, NULL, result FROM calls WHERE run = ? AND status = 'settled' ORDER BY id",
        (suspending.escaped(run_id),),
    )
    return tuple(suspending.call_of_row(run_id, owner, blobs, *row) for row in rows)


def cancel(run_id: str, owner: str, process: str, driving: bool) -> Work[bool]:
    """Implement `RunStore.cancel`.

    Args:
        driving: True if this process drives the run.
    """
    plain = suspending.escaped(run_id)
    rows = yield Query("SELECT owner, state, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or rows[0][0] != suspending.escaped(owner) or rows[0][1] != "waiting" or rows[0][2] is None:
        return False
    holder = rows[0][2]
    if not (driving if holder == process else (yield Alive(frozenset((holder,))))):
        return False
    yield Query("UPDATE runs SET cancel = 1 WHERE id = ?", (plain,))
    if holder != process:
        yield Notify(plain)
    return True
