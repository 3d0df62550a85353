"""Values of `store` and `load`, and results too large to show, in a database that outlives the process.

Limits and messages are those of `runs.values`. Keys, values and results are sealed. Entries are found by a digest of
their keys.

The row of an owner in `keepers` is the lock for all entries of the owner: a writer locks it first, and updates the
owner's total size in the same transaction.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio.to_thread
from msgspec import Struct, structs

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.runs import values
from codemode_mcp.stores.seal import Refused, Seal
from codemode_mcp.stores.suspending import escaped
from codemode_mcp.stores.work import Database, Now, Query, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Result = TypeVar("Result")

DAY = 86_400.0

RESULT_DAYS = 7
"""Days without a `load` after which results are deleted."""

STORED_DAYS = 90
"""Days without use after which values of programs are deleted."""

MAX_OWNERS = 10_000
"""Maximum number of owners with values in one database."""

FULL_OWNERS = 64
"""Maximum size of all values together, as a multiple of the limit of one owner."""

MAX_SWEPT_OWNERS = 20
"""Maximum number of owners whose entries of a kind one sweep checks."""

MAX_SWEPT = 50
"""Maximum number of entries of one owner that one sweep deletes."""

LARGE = 100_000
"""Texts with more characters are sealed and opened in a thread."""

_RESULT: Final = "result"
_STORED: Final = "stored"


class StoredValues:
    """The `Values` of all processes that share a database.

    Args:
        max_bytes: maximum size of the values of one owner, as in `MemoryValues`.
    """

    def __init__(self, database: Database, seal: Seal, max_bytes: int) -> None:
        self._database = database
        self._seal = seal
        self._max = max_bytes

    async def execute(self, owner: str, requests: Sequence[values.Put | values.Get], room: int) -> list[values.Answer]:
        # Sealing takes time, so it is done before the transaction.
        sealed: list[_Entry | values.Get | ProgramError] = []
        for each in requests:
            if isinstance(each, values.Get):
                sealed.append(each)
            elif each.key.startswith(values.REF_PREFIX):
                sealed.append(values.reserved_key())
            else:
                sealed.append(await self._sealed(owner, each, _STORED))
        found = await self._database.execute(partial(_execute_all, escaped(owner), sealed, room, self._max))
        answers: list[values.Answer] = []
        for each, answer in zip(requests, found, strict=False):
            answers.append(await self._answer(owner, each.key, answer) if isinstance(answer, _Body) else answer)
        return answers

    async def offload(self, owner: str, text: str) -> str | None:
        put = values.Put(values.new_ref(), text)
        entry = await self._sealed(owner, put, _RESULT)
        return put.key if await self._database.execute(partial(_offload, escaped(owner), entry, self._max)) else None

    async def load(self, owner: str, key: str) -> str | None:
        answers = await self.execute(owner, [values.Get(key)], 1)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    async def remove(self, owner: str, key: str) -> None:
        await self._database.execute(partial(_remove, escaped(owner), _name(key)))

    async def listed(self, owner: str, offset: int, limit: int) -> values.Page:
        total, rows = await self._database.execute(partial(_listed, escaped(owner), offset, limit))
        return values.Page(total, tuple(self._shown(owner, *row) for row in rows))

    async def results(self, owner: str, before: int | None, limit: int) -> Sequence[values.ListedResult]:
        rows = await self._database.execute(partial(_results, escaped(owner), before, limit))
        return [self._listed_result(owner, *row) for row in rows]

    async def sweep(self) -> None:
        await self._database.execute(_sweep)

    async def _sealed(self, owner: str, put: values.Put, kind: str) -> _Entry:
        return await _in_thread_if_large(len(put.text), partial(self._seal_entry, owner, put, kind))

    def _seal_entry(self, owner: str, put: values.Put, kind: str) -> _Entry:
        name = _name(put.key)
        form = [*structs.astuple(values.contents_of(put.text).form)] if kind == _RESULT else []
        label = json.dumps([put.key, values.preview_of(put.text), *form]).encode()
        return _Entry(
            put,
            name,
            kind,
            self._seal.seal(label, owner=owner, run=name, field="label"),
            self._seal.seal(put.text.encode("utf-8", "surrogatepass"), owner=owner, run=name, field="value"),
        )

    async def _answer(self, owner: str, key: str, found: _Body) -> values.Answer:
        def opened() -> str:
            data = self._seal.open(found.data, owner=owner, run=_name(key), field="value")
            return data.decode("utf-8", "surrogatepass")

        try:
            return await _in_thread_if_large(found.characters, opened)
        except Refused as error:
            return ProgramError(
                "nested_tool_failed",
                f"load({key[:100]!r}): the stored value cannot be read: {error.why}; store it again",
            )

    def _shown(self, owner: str, name: str, characters: int, label: bytes) -> values.Listed:
        try:
            key, preview, *_ = self._opened_label(owner, name, label)
        except Refused as error:
            return values.Listed("", characters, f"(cannot be read: {error.why})")
        return values.Listed(key, characters, preview)

    def _listed_result(self, owner: str, name: str, number: int, label: bytes) -> values.ListedResult:
        try:
            key, _, *form = self._opened_label(owner, name, label)
        except Refused:
            return values.ListedResult("", number, None)
        return values.ListedResult(key, number, values.ResultForm(*form) if form else None)

    def _opened_label(self, owner: str, name: str, label: bytes) -> list[Any]:
        """Return a key, a preview, and for results of this version the members of a `ResultForm`."""
        opened: list[Any] = json.loads(self._seal.open(bytes(label), owner=owner, run=name, field="label"))
        return opened


class _Entry(Struct, frozen=True):
    """A sealed value to be stored."""

    put: values.Put
    name: str
    kind: str
    label: bytes
    body: bytes

    @property
    def size(self) -> int:
        return values.size_of(self.put.key, self.put.text)


class _Body(Struct, frozen=True):
    """A sealed value as it is stored."""

    data: bytes
    characters: int


class _Usage(Struct):
    """The row of an owner in `keepers`, locked against changes by other processes.

    Attributes:
        size: total size of the owner's values.
        latest: the number of the newest entry.
        used: time of the last use, to the day.
    """

    owner: str
    size: int
    latest: int
    used: float


# work for the database


def _execute_all(
    owner: str, requests: Sequence[_Entry | values.Get | ProgramError], room: int, limit: int
) -> Work[list[_Body | ProgramError | None]]:
    now = yield Now()
    usage: _Usage | None = None
    answers: list[_Body | ProgramError | None] = []
    for each in requests:
        if answers and room <= 0:
            break
        match each:
            case _Entry():
                if usage is None:
                    usage = yield from _lock_usage(owner, now)
                kept = yield from _insert(usage, each, now, limit)
                answers.append(None if kept else values.full(each.put, usage.size, limit))
            case values.Get(key):
                body = yield from _load(owner, _name(key), now)
                room -= 0 if body is None else body.characters
                answers.append(body)
            case _:
                answers.append(each)
    if usage is not None:
        yield from _write_and_trim(usage, now, limit)
    return answers


def _offload(owner: str, entry: _Entry, limit: int) -> Work[bool]:
    if entry.size > limit:
        return False
    now = yield Now()
    usage = yield from _lock_usage(owner, now)
    kept = yield from _insert(usage, entry, now, limit)
    yield from _write_and_trim(usage, now, limit)
    return kept


def _remove(owner: str, name: str) -> Work[None]:
    usage = yield from _find_usage(owner)
    if usage is None:
        return
    rows = yield Query("SELECT size FROM kept WHERE owner = ? AND name = ?", (owner, name))
    for (size,) in rows:
        yield from _delete(usage, name, size)
        yield from _write_usage(usage, usage.used)


def _listed(owner: str, offset: int, limit: int) -> Work[tuple[int, list[tuple[str, int, bytes]]]]:
    [(total,)] = yield Query("SELECT COUNT(*) FROM kept WHERE owner = ?", (owner,))
    rows = yield Query(
        "SELECT name, characters, label FROM kept WHERE owner = ? ORDER BY kind, number LIMIT ? OFFSET ?",
        (owner, limit, offset),
    )
    return total, rows


def _results(owner: str, before: int | None, limit: int) -> Work[list[tuple[str, int, bytes]]]:
    older = "" if before is None else "AND number < ? "
    rows: list[tuple[str, int, bytes]] = yield Query(
        f"SELECT name, number, label FROM kept WHERE owner = ? AND kind = ? {older}ORDER BY number DESC LIMIT ?",
        (owner, _RESULT, *(() if before is None else (before,)), limit),
    )
    return rows


def _sweep() -> Work[None]:
    now = yield Now()
    for kind, days in ((_RESULT, RESULT_DAYS), (_STORED, STORED_DAYS)):
        until = now - days * DAY
        owners = yield Query(
            "SELECT DISTINCT owner FROM kept WHERE kind = ? AND used <= ? LIMIT ?", (kind, until, MAX_SWEPT_OWNERS)
        )
        for (owner,) in owners:
            usage = yield from _find_usage(owner)
            if usage is None:
                continue
            rows = yield Query(
                "SELECT name, size FROM kept WHERE owner = ? AND kind = ? AND used <= ? ORDER BY number LIMIT ?",
                (owner, kind, until, MAX_SWEPT),
            )
            for name, size in rows:
                yield from _delete(usage, name, size)
            yield from _write_usage(usage, usage.used)


def _find_usage(owner: str) -> Work[_Usage | None]:
    rows = yield Query("SELECT size, latest, used FROM keepers WHERE owner = ?", (owner,), locks=True)
    return _Usage(owner, *rows[0]) if rows else None


def _lock_usage(owner: str, now: float) -> Work[_Usage]:
    # Another process may delete the row between the insertion and the lock, if the owner has no values left.
    while (usage := (yield from _find_usage(owner))) is None:
        yield Query(
            "INSERT INTO keepers (owner, size, latest, used) VALUES (?, 0, 0, ?) ON CONFLICT (owner) DO NOTHING",
            (owner, now),
        )
    return usage


def _insert(usage: _Usage, entry: _Entry, now: float, limit: int) -> Work[bool]:
    rows = yield Query("SELECT number, size FROM kept WHERE owner = ? AND name = ?", (usage.owner, entry.name))
    number, freed = rows[0] if rows else (usage.latest + 1, 0)
    needed = entry.size - freed
    if not (yield from _make_room(usage, needed, limit)):
        return False
    yield Query(
        "INSERT INTO kept (owner, name, kind, number, label, body, characters, size, used) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, name) DO UPDATE SET label = excluded.label, "
        "body = excluded.body, characters = excluded.characters, size = excluded.size, used = excluded.used",
        (usage.owner, entry.name, entry.kind, number, entry.label, entry.body, len(entry.put.text), entry.size, now),
    )
    usage.size += needed
    usage.latest = max(usage.latest, number)
    return True


def _make_room(usage: _Usage, needed: int, limit: int) -> Work[bool]:
    over = usage.size + needed - limit
    if needed <= 0 or over <= 0:
        return True
    results = yield Query(
        "SELECT name, size FROM kept WHERE owner = ? AND kind = ? ORDER BY number", (usage.owner, _RESULT)
    )
    if sum(size for _, size in results) < over:
        return False
    for name, size in results:
        if over <= 0:
            break
        yield from _delete(usage, name, size)
        over -= size
    return True


def _delete(usage: _Usage, name: str, size: int) -> Work[None]:
    yield Query("DELETE FROM kept WHERE owner = ? AND name = ?", (usage.owner, name))
    usage.size -= size


def _write_usage(usage: _Usage, used: float) -> Work[None]:
    if usage.size:
        yield Query(
            "UPDATE keepers SET size = ?, latest = ?, used = ? WHERE owner = ?",
            (usage.size, usage.latest, used, usage.owner),
        )
    else:
        yield Query("DELETE FROM keepers WHERE owner = ?", (usage.owner,))


def _write_and_trim(usage: _Usage, now: float, limit: int) -> Work[None]:
    """Store the usage of an owner, and delete the values of the least recently used other owners beyond the limits."""
    yield from _write_usage(usage, now)
    [(owners, total)] = yield Query("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM keepers")
    while owners > MAX_OWNERS or (total > FULL_OWNERS * limit and owners > 1):
        rows = yield Query("SELECT owner, size FROM keepers WHERE owner <> ? ORDER BY used LIMIT 1", (usage.owner,))
        if not rows:
            return
        [(oldest, size)] = rows
        # The row in `keepers` first, as every writer does. Two processes would wait for each other otherwise.
        yield Query("DELETE FROM keepers WHERE owner = ?", (oldest,))
        yield Query("DELETE FROM kept WHERE owner = ?", (oldest,))
        owners -= 1
        total -= size


def _load(owner: str, name: str, now: float) -> Work[_Body | None]:
    """Return a stored value; None if there is none. Its use is recorded once a day, so that most loads only read."""
    rows = yield Query("SELECT body, characters, used FROM kept WHERE owner = ? AND name = ?", (owner, name))
    if not rows:
        return None
    [(body, characters, used)] = rows
    if now - used >= DAY:
        yield Query("UPDATE keepers SET used = ? WHERE owner = ?", (now, owner))
        yield Query("UPDATE kept SET used = ? WHERE owner = ? AND name = ?", (now, owner, name))
    return _Body(bytes(body), characters)


def _name(key: str) -> str:
    """Return the digest of a key, under which its value is stored.

    A key itself may be longer than an index entry of a database can be, and has text that must be sealed.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


async def _in_thread_if_large(characters: int, work: Callable[[], Result]) -> Result:
    return await anyio.to_thread.run_sync(work) if characters > LARGE else work()
