"""Claims of runs, and executors of their calls. Pure.

A run belongs to the process that claimed it last, by its fencing token. A call belongs to its executor, whichever
process has the run.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.end_records import outcome_of, view_of
from codemode_mcp.runs.store import (
    Claim,
    EndedRun,
    News,
    StoredCall,
    StoredCatalog,
    SuspendedRun,
    already_observed,
    expired_run,
    unknown_run,
)
from codemode_mcp.stores.ending import left_of
from codemode_mcp.stores.rows import Blobs, damaged, escaped, unescaped
from codemode_mcp.stores.work import Alive, Notify, Now, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.runs.store import StoredStatus
    from codemode_mcp.runs.views import RunView
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.stores.work import Work


@dataclass(slots=True)
class KnownRun:
    """A run that this process has suspended or claimed, as far as this process knows it.

    Attributes:
        token: the fencing token with which this process may write; None before the run is stored.
        driving: whether this process runs the program, so that no other request may claim the run.
        current: whether the state stored with `token` is the one in this process.
        sent: calls that this process has sent, or is about to send.
        unsure: calls that were not sent, and may be stored as sent: the answer of the database was lost.
        missed: whether the answer to the last `look` was lost. This process may have taken over calls by it.
    """

    token: int | None = None
    driving: bool = False
    current: bool = False
    sent: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    missed: bool = False


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A claimed run as it is stored.

    Attributes:
        token: the new fencing token.
        known: whether this process has catalog and output in memory, so that `claim` lacks them.
        claim: the claim. Its times are relative to now.
    """

    token: int
    known: bool
    claim: Claim


def claim(
    run_id: str,
    owner: str,
    process: str,
    known_run: KnownRun | None,
    blobs: Blobs,
    manifests: Mapping[str, str],
    settings: CodeModeSettings,
    age: float,
) -> Work[ClaimedRun | EndedRun]:
    """Claim a run as `RunStore.claim` does. Times in the result are relative to now.

    Args:
        manifests: texts of manifests by hash, as far as this process knows them.
        age: seconds since this process opened the store.
    """
    plain = escaped(run_id)
    now: float = yield Now()
    rows = yield Query(
        "SELECT owner, share, state, token, holder, parker, reason, parked, expires, size, catalog, manifest, view, "
        "outcome FROM runs WHERE id = ?",
        (plain,),
        locks=True,
    )
    if not rows or rows[0][0] != escaped(owner):
        raise unknown_run(run_id)
    _, share, state, token, holder, suspender, reason, suspended, expires, size, catalog, manifest, view, outcome = (
        rows[0]
    )
    shown = None if view is None else _readable_view(blobs.text_of(owner, run_id, "view", view))
    if state == "expired" and expires > now:
        raise expired_run(run_id, settings)
    if state != "waiting":
        if expires <= now or outcome is None:
            raise unknown_run(run_id)
        ends = outcome_of(blobs.text_of(owner, run_id, "outcome", outcome))
        return EndedRun(run_id, owner, ends, size, expires - now, state, shown)
    if holder == process:
        if known_run is not None and known_run.driving:
            raise already_observed(run_id)
    elif holder is not None and (yield Alive(frozenset((holder,)))):
        raise already_observed(run_id)
    left = left_of(suspended, expires, now, age)
    if left <= 0:
        raise expired_run(run_id, settings)
    yield Query("UPDATE runs SET token = token + 1, version = version + 1, holder = ? WHERE id = ?", (process, plain))
    calls, others = yield from _take_calls(run_id, owner, process, known_run, blobs)
    # The copy of the process that suspended it is outdated from now on.
    if others or suspender not in (None, process):
        yield Notify(plain)
    rows = yield Query("SELECT record, snapshot FROM snapshots WHERE run = ?", (plain,))
    if not rows:
        raise damaged("its snapshot is missing")
    record, snapshot = rows[0]
    if not isinstance(manifest, str):
        raise damaged("its manifest is missing")
    manifest_text = manifests.get(blobs.content_hash(manifest))
    if manifest_text is None:
        manifest_text = yield from _catalog_text(manifest, blobs)
    known = known_run is not None and known_run.current and known_run.token == token
    text = ""
    printed: tuple[str, ...] = ()
    if not known:
        if catalog is not None:
            text = yield from _catalog_text(catalog, blobs)
        printed = yield from _printed(run_id, owner, blobs)
    run = SuspendedRun(
        run_id,
        owner,
        blobs.bytes_of(owner, run_id, "snapshot", snapshot),
        manifest_text,
        "yield" if reason == "yield" else "pending_tools",
        suspended - now,
        left,
        blobs.text_of(owner, run_id, "record", record),
        calls,
        None if catalog is None else StoredCatalog(unescaped(blobs.content_hash(catalog)), lambda: text),
        shown,
        share=unescaped(share) or owner,
    )
    return ClaimedRun(token + 1, known, Claim(run, catalog=text, printed=printed))


def _readable_view(text: str) -> RunView | None:
    """Return a stored view; None for one of another version, which must not stop the run."""
    with suppress(ProgramError):
        return view_of(text)
    return None


def _printed(run_id: str, owner: str, blobs: Blobs) -> Work[tuple[str, ...]]:
    rows = yield Query("SELECT at, body FROM outputs WHERE run = ? ORDER BY at", (escaped(run_id),))
    return tuple(blobs.text_of(owner, run_id, f"outputs {at}", body) for at, body in rows)


def _catalog_text(digest: str, blobs: Blobs) -> Work[str]:
    rows = yield Query("SELECT body FROM catalogs WHERE hash = ?", (digest,))
    if not rows:
        raise ProgramError(
            "snapshot_restore_failed",
            "the suspended program cannot be restored: the tools that it saw are no longer stored; start it again",
        )
    return blobs.text_of("", digest, "catalog", rows[0][0])


def _take_calls(
    run_id: str, owner: str, process: str, known_run: KnownRun | None, blobs: Blobs
) -> Work[tuple[tuple[StoredCall, ...], bool]]:
    """Make this process the executor of calls whose executor is dead.

    Returns:
        All calls of the run, and whether other processes were executors of some.
    """
    plain = escaped(run_id)
    rows = yield Query(
        "SELECT id, tool, status, repeatable, carrier, body, result FROM calls WHERE run = ? ORDER BY id", (plain,)
    )
    others = frozenset(row[4] for row in rows) - {process}
    alive = yield Alive(others)
    sent = known_run.sent if known_run is not None else set()
    calls: list[StoredCall] = []
    for number, tool, status, repeatable, executor, body, result in rows:
        call = _call_of_row(run_id, owner, blobs, number, tool, status, repeatable, body, result)
        if status == "settled":
            pass
        elif status == "queued" or (executor == process and number in sent):
            call = replace(call, executor="here")
        elif executor != process and executor in alive:
            call = replace(call, executor="elsewhere")
        elif repeatable:
            call = replace(call, status="queued", executor="here")
        if call.status != status or (executor != process and status != "settled" and call.executor != "elsewhere"):
            yield Query(
                "UPDATE calls SET status = ?, carrier = ? WHERE run = ? AND id = ?",
                (call.status, process, plain, number),
            )
        calls.append(call)
    return tuple(calls), bool(others)


def _call_of_row(
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


def release(run_id: str, owner: str, token: int) -> Work[None]:
    """Release a run if it still has this token."""
    rows = yield Query("SELECT owner, state, token FROM runs WHERE id = ?", (escaped(run_id),), locks=True)
    if rows and tuple(rows[0]) == (escaped(owner), "waiting", token):
        yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (escaped(run_id),))


def let_go(process: str, driven: Callable[[str], bool]) -> Work[None]:
    """Release runs that this process has claimed and does not drive: other processes could not claim them.

    This happens when the answer to a claim was lost, or when a run could not be stored.

    Args:
        driven: returns True for the id of a run that this process drives now.
    """
    rows = yield Query("SELECT id FROM runs WHERE state = 'waiting' AND holder = ?", (process,))
    for (plain,) in rows:
        if driven(unescaped(plain)):
            continue
        held = yield Query("SELECT holder FROM runs WHERE id = ? AND state = 'waiting'", (plain,), locks=True)
        if held and held[0][0] == process and not driven(unescaped(plain)):
            yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (plain,))


def dispatching(run_id: str, call: int, process: str, unsure: bool) -> Work[bool]:
    """Implement `RunStore.dispatching`.

    Args:
        unsure: whether the answer to an earlier request was lost. The call was not sent then.
    """
    key = (escaped(run_id), call)
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
    return status == "dispatched" and (unsure or bool(repeatable))


def settle(run_id: str, call: int, process: str, result: str, blobs: Blobs) -> Work[bool]:
    """Implement `RunStore.settle`."""
    key = (escaped(run_id), call)
    runs = yield Query("SELECT owner, holder FROM runs WHERE id = ?", key[:1], locks=True)
    rows = yield Query("SELECT status, carrier, result FROM calls WHERE run = ? AND id = ?", key)
    if not runs or not rows or rows[0][1] != process:
        return False
    owner, holder = unescaped(runs[0][0]), runs[0][1]
    name = f"result {call}"
    if rows[0][0] == "settled":
        # This process settled it before, if the answer was lost.
        return rows[0][2] is not None and blobs.text_of(owner, run_id, name, rows[0][2]) == result
    yield Query(
        "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?",
        (blobs.seal(owner, run_id, name, result), *key),
    )
    if holder not in (None, process):
        yield Notify(key[0])
    return True


def look(run_id: str, process: str, known_run: KnownRun | None, blobs: Blobs) -> Work[News]:
    """Implement `RunStore.look`, and take over calls of dead processes."""
    plain = escaped(run_id)
    rows = yield Query("SELECT owner, state, token, holder, cancel FROM runs WHERE id = ?", (plain,))
    if not rows:
        return News(fenced=True, ended="expired")
    owner, state, token, holder, cancel = rows[0]
    fenced = known_run is None or known_run.token != token
    if state != "waiting":
        return News(fenced=fenced, ended=state)
    if fenced or known_run is None or holder != process or not known_run.driving:
        return News(fenced=fenced, cancelled=bool(cancel) and not fenced)
    calls = yield Query("SELECT id, status, carrier FROM calls WHERE run = ?", (plain,))
    calls = [
        (number, status, executor)
        for number, status, executor in calls
        if status == "settled" or executor != process or (known_run.missed and number not in known_run.sent)
    ]
    if not calls:
        return News(cancelled=bool(cancel))
    others = frozenset(executor for _, status, executor in calls if status == "dispatched" and executor != process)
    alive = yield Alive(others)
    taken_before = any(status != "settled" and executor == process for _, status, executor in calls)
    if others <= alive and not taken_before:
        settled = yield from _settled(run_id, unescaped(owner), blobs)
        return News(cancelled=bool(cancel), calls=settled)
    # Some executor is dead. Its calls are taken over only if no other process has taken over the run.
    rows = yield Query("SELECT token, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or tuple(rows[0]) != (token, process):
        return News(fenced=True)
    before = {
        number
        for number, status, executor in calls
        if (status == "dispatched" and executor not in alive) or (status == "queued" and executor == process)
    }
    taken, _ = yield from _take_calls(run_id, unescaped(owner), process, known_run, blobs)
    changed = tuple(
        replace(call, executor="here") if call.status != "settled" else call
        for call in taken
        if call.status == "settled" or (call.id in before and call.executor != "elsewhere")
    )
    return News(cancelled=bool(cancel), calls=changed)


def _settled(run_id: str, owner: str, blobs: Blobs) -> Work[tuple[StoredCall, ...]]:
    rows = yield Query(
        "SELECT id, tool, status, repeatable, NULL, result FROM calls WHERE run = ? AND status = 'settled' ORDER BY id",
        (escaped(run_id),),
    )
    return tuple(_call_of_row(run_id, owner, blobs, *row) for row in rows)


def cancel(run_id: str, owner: str, process: str, driving: bool) -> Work[bool]:
    """Implement `RunStore.cancel`.

    Args:
        driving: whether this process drives the run.
    """
    plain = escaped(run_id)
    rows = yield Query("SELECT owner, state, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or rows[0][0] != escaped(owner) or rows[0][1] != "waiting" or rows[0][2] is None:
        return False
    holder = rows[0][2]
    if not (driving if holder == process else (yield Alive(frozenset((holder,))))):
        return False
    yield Query("UPDATE runs SET cancel = 1 WHERE id = ?", (plain,))
    if holder != process:
        yield Notify(plain)
    return True
