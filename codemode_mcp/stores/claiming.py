"""Claims of runs, and executors of their calls. Pure.

A run belongs to its last claimer, by its fencing token; a call belongs to its executor, whichever process has the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.store import News, StoredCall, already_observed, expired_run, unknown_run
from codemode_mcp.stores.ending import left_of
from codemode_mcp.stores.rows import Blobs, damaged, escaped, unescaped
from codemode_mcp.stores.work import Alive, Now, Query, Tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.runs.state import RunState
    from codemode_mcp.settings import CodeModeSettings
    from codemode_mcp.stores.work import Work


@dataclass(slots=True)
class Mine:
    """Knowledge of this process of a run that it has suspended or claimed.

    Attributes:
        token: it may write while the run has this one; None: the run is not stored yet.
        driving: this process runs it, so that no other request may.
        current: a process that resumes from `token` resumes from the state that this process knows.
        sent: calls that it has sent, or is about to.
        unsure: calls of which it is not known whether it was written down that they are sent; they were not.
        missed: the answer to its last look was lost, so that it may have taken over calls without knowing.
    """

    token: int | None = None
    driving: bool = False
    current: bool = False
    sent: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    missed: bool = False


@dataclass(frozen=True, slots=True)
class FoundEnd:
    state: RunState
    size: int
    left: float
    outcome: str
    view: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """`known`: this process knows what is left out: the catalog and what was printed."""

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
    known: bool
    printed: tuple[str, ...]
    share: str


def claim(
    run_id: str,
    owner: str,
    process: str,
    mine: Mine | None,
    blobs: Blobs,
    manifests: Mapping[str, str],
    settings: CodeModeSettings,
    age: float,
) -> Work[Found | FoundEnd]:
    """Claim a run as `RunStore.claim` does.

    Args:
        mine: what this process knows of the run, if anything.
        age: seconds since this process has opened the store.
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
    shown = None if view is None else blobs.text_of(owner, run_id, "view", view)
    if state == "expired" and expires > now:
        raise expired_run(run_id, settings)
    if state != "waiting":
        if expires <= now or outcome is None:
            raise unknown_run(run_id)
        return FoundEnd(state, size, expires - now, blobs.text_of(owner, run_id, "outcome", outcome), shown)
    if holder == process:
        if mine is not None and mine.driving:
            raise already_observed(run_id)
    elif holder is not None:
        alive = yield Alive(frozenset((holder,)))
        if holder in alive:
            raise already_observed(run_id)
    left = left_of(suspended, expires, now, age)
    if left <= 0:
        raise expired_run(run_id, settings)
    yield Query("UPDATE runs SET token = token + 1, version = version + 1, holder = ? WHERE id = ?", (process, plain))
    calls, others = yield from _take_calls(run_id, owner, process, mine, blobs)
    # The process that has suspended it may have an outdated copy.
    if others or suspender not in (None, process):
        yield Tell(plain)
    rows = yield Query("SELECT record, snapshot FROM snapshots WHERE run = ?", (plain,))
    if not rows:
        raise damaged("its snapshot is missing")
    record, snapshot = rows[0]
    if not isinstance(manifest, str):
        raise damaged("its manifest is missing")
    warm = manifests.get(blobs.content(manifest))
    if warm is None:
        warm = yield from _catalog_text(manifest, blobs)
    known = mine is not None and mine.current and mine.token == token
    text = ""
    printed: tuple[str, ...] = ()
    if not known:
        if catalog is not None:
            text = yield from _catalog_text(catalog, blobs)
        printed = yield from _printed(run_id, owner, blobs)
    return Found(
        token + 1,
        reason,
        now - suspended,
        left,
        blobs.bytes_of(owner, run_id, "snapshot", snapshot),
        blobs.text_of(owner, run_id, "record", record),
        warm,
        None if catalog is None else unescaped(blobs.content(catalog)),
        text,
        shown,
        calls,
        known,
        printed,
        unescaped(share) or owner,
    )


def _printed(run_id: str, owner: str, blobs: Blobs) -> Work[tuple[str, ...]]:
    rows = yield Query("SELECT at, body FROM outputs WHERE run = ? ORDER BY at", (escaped(run_id),))
    return tuple(blobs.text_of(owner, run_id, f"outputs {at}", body) for at, body in rows)


def _catalog_text(digest: str, blobs: Blobs) -> Work[str]:
    rows = yield Query("SELECT body FROM catalogs WHERE hash = ?", (digest,))
    if not rows:
        raise ProgramError(
            "snapshot_restore_failed",
            "the suspended program cannot be restored: the tools that it saw are not stored any more; start it again",
        )
    return blobs.text_of("", digest, "catalog", rows[0][0])


def _take_calls(
    run_id: str, owner: str, process: str, mine: Mine | None, blobs: Blobs
) -> Work[tuple[tuple[StoredCall, ...], bool]]:
    """Return all calls, those without a living executor for this process; and whether others carry, or carried,
    some."""
    plain = escaped(run_id)
    rows = yield Query(
        "SELECT id, tool, status, repeatable, carrier, body, result FROM calls WHERE run = ? ORDER BY id", (plain,)
    )
    others = frozenset(row[4] for row in rows) - {process}
    alive: frozenset[str] = frozenset()
    if others:
        alive = yield Alive(others)
    sent = mine.sent if mine is not None else set()
    calls: list[StoredCall] = []
    for number, tool, status, repeatable, executor, body, result in rows:
        call = StoredCall(
            number,
            unescaped(tool),
            status,
            bool(repeatable),
            "" if body is None else blobs.text_of(owner, run_id, f"call {number}", body),
            None if result is None else blobs.text_of(owner, run_id, f"result {number}", result),
            "nobody",
        )
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


def release(run_id: str, owner: str, token: int) -> Work[None]:
    """Let go of a run, if it still has this token."""
    rows = yield Query("SELECT owner, state, token FROM runs WHERE id = ?", (escaped(run_id),), locks=True)
    if rows and tuple(rows[0]) == (escaped(owner), "waiting", token):
        yield Query("UPDATE runs SET holder = NULL, version = version + 1 WHERE id = ?", (escaped(run_id),))


def let_go(process: str, driven: Callable[[str], bool]) -> Work[None]:
    """Release runs that this process has claimed and does not run: others would wait for their end.

    It has lost the answer to its claim, or could not store the run.

    Args:
        driven: of ids, at the time of asking.
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
        unsure: this process has asked before, and does not know what came of it; it has not sent the call.
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
        # By this process itself, if an answer to this was lost.
        return rows[0][2] is not None and blobs.text_of(owner, run_id, name, rows[0][2]) == result
    yield Query(
        "UPDATE calls SET status = 'settled', result = ? WHERE run = ? AND id = ?",
        (blobs.seal(owner, run_id, name, result), *key),
    )
    if holder not in (None, process):
        yield Tell(key[0])
    return True


def look(run_id: str, process: str, mine: Mine | None, blobs: Blobs) -> Work[News]:
    """Implement `RunStore.look`; calls of dead processes become this one's."""
    plain = escaped(run_id)
    rows = yield Query("SELECT owner, state, token, holder, cancel FROM runs WHERE id = ?", (plain,))
    if not rows:
        return News(fenced=True, ended="expired")
    owner, state, token, holder, cancel = rows[0]
    fenced = mine is None or mine.token != token
    if state != "waiting":
        return News(fenced=fenced, ended=state)
    if fenced or mine is None or holder != process or not mine.driving:
        return News(fenced=fenced, cancelled=bool(cancel) and not fenced)
    calls = yield Query("SELECT id, status, carrier FROM calls WHERE run = ?", (plain,))
    calls = [
        (number, status, executor)
        for number, status, executor in calls
        if status == "settled" or executor != process or (mine.missed and number not in mine.sent)
    ]
    if not calls:
        return News(cancelled=bool(cancel))
    others = frozenset(executor for _, status, executor in calls if status == "dispatched" and executor != process)
    alive: frozenset[str] = frozenset()
    if others:
        alive = yield Alive(others)
    taken_before = any(status != "settled" and executor == process for _, status, executor in calls)
    if others <= alive and not taken_before:
        settled = yield from _settled(run_id, unescaped(owner), blobs)
        return News(cancelled=bool(cancel), calls=settled)
    # Some executor is dead: no other process may have taken the run meanwhile.
    rows = yield Query("SELECT token, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or tuple(rows[0]) != (token, process):
        return News(fenced=True)
    before = {
        number
        for number, status, executor in calls
        if (status == "dispatched" and executor not in alive) or (status == "queued" and executor == process)
    }
    taken, _ = yield from _take_calls(run_id, unescaped(owner), process, mine, blobs)
    told = tuple(
        replace(call, executor="here") if call.status != "settled" else call
        for call in taken
        if call.status == "settled" or (call.id in before and call.executor != "elsewhere")
    )
    return News(cancelled=bool(cancel), calls=told)


def _settled(run_id: str, owner: str, blobs: Blobs) -> Work[tuple[StoredCall, ...]]:
    rows = yield Query(
        "SELECT id, tool, repeatable, result FROM calls WHERE run = ? AND status = 'settled' ORDER BY id",
        (escaped(run_id),),
    )
    return tuple(
        StoredCall(
            number,
            unescaped(tool),
            "settled",
            bool(repeatable),
            "",
            None if result is None else blobs.text_of(owner, run_id, f"result {number}", result),
            "nobody",
        )
        for number, tool, repeatable, result in rows
    )


def cancel(run_id: str, owner: str, process: str, driving: bool) -> Work[bool]:
    """Implement `RunStore.cancel`; `driving`: this process runs it."""
    plain = escaped(run_id)
    rows = yield Query("SELECT owner, state, holder FROM runs WHERE id = ?", (plain,), locks=True)
    if not rows or rows[0][0] != escaped(owner) or rows[0][1] != "waiting" or rows[0][2] is None:
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
