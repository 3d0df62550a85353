"""`store`/`load` values, and results too large to show, in a database: they outlive the process.

Bounds and wording are those of `values`. What is in the database of a key, a value or a result is sealed; an entry is
found by a digest of its key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from codemode_mcp.errors import ProgramError
from codemode_mcp.runs.values import REF_PREFIX, Get, Listed, Page, Put, full, new_ref, ours, preview_of, size_of
from codemode_mcp.stores.rows import escaped
from codemode_mcp.stores.seal import Refused
from codemode_mcp.stores.work import Now, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, TypeVar

    from codemode_mcp.runs.values import Answer
    from codemode_mcp.stores.seal import Seal
    from codemode_mcp.stores.work import Asked, Database, Work

    Result = TypeVar("Result")

DAY = 86_400.0

RESULT_DAYS = 7
"""Days without a load after which results are swept away."""

STORED_DAYS = 90
"""Days without use after which values of programs are swept away."""

MAX_OWNERS = 10_000

FULL_OWNERS = 64
"""Owners that may fill their whole share; many more may have little."""

SWEPT_OWNERS = 20
"""Owners of each kind that one sweep looks at."""

SWEPT = 50
"""Entries of one of them that it drops."""

LARGE = 100_000
"""Characters from which on texts are sealed and opened in a thread."""

_RESULT: Final = "result"
_STORED: Final = "stored"


class StoredValues:
    """`Values` of all processes that share a database.

    Args:
        max_bytes: see `MemoryValues`.
    """

    def __init__(self, database: Database, seal: Seal, max_bytes: int) -> None:
        self._database = database
        self._seal = seal
        self._max = max_bytes

    async def execute(self, owner: str, asked: Sequence[Put | Get], room: int) -> list[Answer]:
        orders: list[_Entry | Get | ProgramError] = []
        for each in asked:
            if isinstance(each, Get):
                orders.append(each)
            elif each.key.startswith(REF_PREFIX):
                orders.append(ours())
            else:
                orders.append(await self._sealed(owner, each, _STORED))
        found = await self._database.do(partial(_carry_out, escaped(owner), orders, room, self._max))
        answers: list[Answer] = []
        for each, answer in zip(asked, found, strict=False):
            answers.append(await self._answer(owner, each.key, answer) if isinstance(answer, _Body) else answer)
        return answers

    async def offload(self, owner: str, text: str) -> str | None:
        put = Put(new_ref(), text)
        entry = await self._sealed(owner, put, _RESULT)
        return put.key if await self._database.do(partial(_offload, escaped(owner), entry, self._max)) else None

    async def load(self, owner: str, key: str) -> str | None:
        answers = await self.execute(owner, [Get(key)], 1)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        total, rows = await self._database.do(partial(_listed, escaped(owner), offset, limit))
        return Page(total, tuple(self._shown(owner, *row) for row in rows))

    async def sweep(self) -> None:
        await self._database.do(_sweep)

    async def _sealed(self, owner: str, put: Put, kind: str) -> _Entry:
        return await _worked_out(len(put.text), partial(self._seal_entry, owner, put, kind))

    def _seal_entry(self, owner: str, put: Put, kind: str) -> _Entry:
        name = _name(put.key)
        label = json.dumps([put.key, preview_of(put.text)]).encode()
        return _Entry(
            put,
            name,
            kind,
            self._seal.seal(label, owner=owner, run=name, field="label"),
            self._seal.seal(put.text.encode("utf-8", "surrogatepass"), owner=owner, run=name, field="value"),
        )

    async def _answer(self, owner: str, key: str, found: _Body) -> Answer:
        def opened() -> str:
            data = self._seal.open(found.data, owner=owner, run=_name(key), field="value")
            return data.decode("utf-8", "surrogatepass")

        try:
            return await _worked_out(found.characters, opened)
        except Refused as error:
            return ProgramError(
                "nested_tool_failed",
                f"load({key[:100]!r}): what is kept there cannot be read: {error.why}; store it again",
            )

    def _shown(self, owner: str, name: str, characters: int, label: bytes) -> Listed:
        try:
            key, preview = json.loads(self._seal.open(bytes(label), owner=owner, run=name, field="label"))
        except Refused as error:
            return Listed("", characters, f"(cannot be read: {error.why})")
        return Listed(key, characters, preview)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value to keep, sealed."""

    put: Put
    name: str
    kind: str
    label: bytes
    body: bytes

    @property
    def size(self) -> int:
        return size_of(self.put.key, self.put.text)


@dataclass(frozen=True, slots=True)
class _Body:
    """A stored value, sealed."""

    data: bytes
    characters: int


@dataclass(slots=True)
class _Drawer:
    """Values of an owner, locked against changes by others.

    Attributes:
        latest: the number of the newest entry.
        used: when it was last used, to the day.
    """

    owner: str
    size: int
    latest: int
    used: float


# what is asked of the database


def _carry_out(
    owner: str, orders: Sequence[_Entry | Get | ProgramError], room: int, limit: int
) -> Work[list[_Body | ProgramError | None]]:
    now = yield Now()
    drawer: _Drawer | None = None
    answers: list[_Body | ProgramError | None] = []
    for each in orders:
        if answers and room <= 0:
            break
        match each:
            case _Entry():
                if drawer is None:
                    drawer = yield from _opened(owner, now)
                kept = yield from _keep(drawer, each, now, limit)
                answers.append(None if kept else full(each.put, drawer.size, limit))
            case Get(key):
                body = yield from _load(owner, _name(key), now)
                room -= 0 if body is None else body.characters
                answers.append(body)
            case _:
                answers.append(each)
    if drawer is not None:
        yield from _close(drawer, now, limit)
    return answers


def _offload(owner: str, entry: _Entry, limit: int) -> Work[bool]:
    if entry.size > limit:
        return False
    now = yield Now()
    drawer = yield from _opened(owner, now)
    kept = yield from _keep(drawer, entry, now, limit)
    yield from _close(drawer, now, limit)
    return kept


def _listed(owner: str, offset: int, limit: int) -> Work[tuple[int, list[tuple[str, int, bytes]]]]:
    [(total,)] = yield Query("SELECT COUNT(*) FROM kept WHERE owner = ?", (owner,))
    rows = yield Query(
        "SELECT name, characters, label FROM kept WHERE owner = ? ORDER BY kind, number LIMIT ? OFFSET ?",
        (owner, limit, offset),
    )
    return total, rows


def _sweep() -> Work[None]:
    now = yield Now()
    for kind, days in ((_RESULT, RESULT_DAYS), (_STORED, STORED_DAYS)):
        until = now - days * DAY
        owners = yield Query(
            "SELECT DISTINCT owner FROM kept WHERE kind = ? AND used <= ? LIMIT ?", (kind, until, SWEPT_OWNERS)
        )
        for (owner,) in owners:
            drawer = yield from _found(owner)
            if drawer is None:
                continue
            rows = yield Query(
                "SELECT name, size FROM kept WHERE owner = ? AND kind = ? AND used <= ? ORDER BY number LIMIT ?",
                (owner, kind, until, SWEPT),
            )
            for name, size in rows:
                yield from _drop(drawer, name, size)
            yield from _write(drawer, drawer.used)


def _found(owner: str) -> Generator[Asked, Any, _Drawer | None]:
    rows = yield Query("SELECT size, latest, used FROM keepers WHERE owner = ?", (owner,), locks=True)
    return _Drawer(owner, *rows[0]) if rows else None


def _opened(owner: str, now: float) -> Generator[Asked, Any, _Drawer]:
    while True:
        drawer = yield from _found(owner)
        if drawer is not None:
            return drawer
        yield Query(
            "INSERT INTO keepers (owner, size, latest, used) VALUES (?, 0, 0, ?) ON CONFLICT (owner) DO NOTHING",
            (owner, now),
        )


def _keep(drawer: _Drawer, entry: _Entry, now: float, limit: int) -> Generator[Asked, Any, bool]:
    """Put an entry into a drawer, if there is room for it."""
    rows = yield Query("SELECT number, size FROM kept WHERE owner = ? AND name = ?", (drawer.owner, entry.name))
    number, freed = rows[0] if rows else (drawer.latest + 1, 0)
    needed = entry.size - freed
    if not (yield from _make_room(drawer, needed, limit)):
        return False
    yield Query(
        "INSERT INTO kept (owner, name, kind, number, label, body, characters, size, used) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, name) DO UPDATE SET label = excluded.label, "
        "body = excluded.body, characters = excluded.characters, size = excluded.size, used = excluded.used",
        (
            drawer.owner,
            entry.name,
            entry.kind,
            number,
            entry.label,
            entry.body,
            len(entry.put.text),
            entry.size,
            now,
        ),
    )
    drawer.size += needed
    drawer.latest = max(drawer.latest, number)
    return True


def _make_room(drawer: _Drawer, needed: int, limit: int) -> Generator[Asked, Any, bool]:
    """Drop the oldest results, if that makes room enough; whether there is."""
    over = drawer.size + needed - limit
    if needed <= 0 or over <= 0:
        return True
    results = yield Query(
        "SELECT name, size FROM kept WHERE owner = ? AND kind = ? ORDER BY number", (drawer.owner, _RESULT)
    )
    if sum(size for _, size in results) < over:
        return False
    for name, size in results:
        if over <= 0:
            break
        yield from _drop(drawer, name, size)
        over -= size
    return True


def _drop(drawer: _Drawer, name: str, size: int) -> Generator[Asked, Any, None]:
    yield Query("DELETE FROM kept WHERE owner = ? AND name = ?", (drawer.owner, name))
    drawer.size -= size


def _write(drawer: _Drawer, used: float) -> Generator[Asked, Any, None]:
    if drawer.size:
        yield Query(
            "UPDATE keepers SET size = ?, latest = ?, used = ? WHERE owner = ?",
            (drawer.size, drawer.latest, used, drawer.owner),
        )
    else:
        yield Query("DELETE FROM keepers WHERE owner = ?", (drawer.owner,))


def _close(drawer: _Drawer, now: float, limit: int) -> Generator[Asked, Any, None]:
    """Write down what a drawer has become; of all the others, the oldest make room for it."""
    yield from _write(drawer, now)
    [(owners, total)] = yield Query("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM keepers")
    while owners > MAX_OWNERS or (total > FULL_OWNERS * limit and owners > 1):
        rows = yield Query("SELECT owner, size FROM keepers WHERE owner <> ? ORDER BY used LIMIT 1", (drawer.owner,))
        if not rows:
            return
        [(oldest, size)] = rows
        # In this order: a writer has locked the first.
        yield Query("DELETE FROM keepers WHERE owner = ?", (oldest,))
        yield Query("DELETE FROM kept WHERE owner = ?", (oldest,))
        owners -= 1
        total -= size


def _load(owner: str, name: str, now: float) -> Generator[Asked, Any, _Body | None]:
    """Yield what is kept under a name. That it was used is written down once a day: otherwise this only reads."""
    rows = yield Query("SELECT body, characters, used FROM kept WHERE owner = ? AND name = ?", (owner, name))
    if not rows:
        return None
    [(body, characters, used)] = rows
    if now - used >= DAY:
        yield Query("UPDATE keepers SET used = ? WHERE owner = ?", (now, owner))
        yield Query("UPDATE kept SET used = ? WHERE owner = ? AND name = ?", (now, owner, name))
    return _Body(bytes(body), characters)


# details


def _name(key: str) -> str:
    """Return a key as the database has it: of any length and with any characters, it is no text that all databases
    take."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


async def _worked_out(characters: int, work: Callable[[], Result]) -> Result:
    return await anyio.to_thread.run_sync(work) if characters > LARGE else work()
