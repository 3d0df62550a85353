"""Values in a database: sealed, within their bounds any caller that writes, and swept when no one uses them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError, StoreUnavailable
from codemode_mcp.runs.values import ENTRY, REF_PREFIX, Get, MemoryValues, Put, Values
from codemode_mcp.stores import values as stored
from codemode_mcp.stores.postgres import open_postgres
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import DAY, RESULT_DAYS, STORED_DAYS, StoredValues
from codemode_mcp.stores.work import Database
from tests.stores.direct import Direct

PLENTY = 1_000_000


@pytest.fixture
def database() -> Iterator[Direct]:
    direct = Direct()
    yield direct
    direct.connection.close()


def refs(values: Any) -> list[str]:
    return [each.key for each in values.entries]


# where they are


class OpenDatabase(Protocol):
    """The database of a test, as another process opens it."""

    def __call__(self) -> AbstractAsyncContextManager[Database]: ...


@pytest.fixture(params=["sqlite", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> OpenDatabase:
    if request.param == "sqlite":
        return partial(open_sqlite, tmp_path / "runs.sqlite3")
    return partial(open_postgres, request.getfixturevalue("postgres_url"))


async def test_values_and_results_outlive_the_process(opens: OpenDatabase) -> None:
    async with opens() as first:
        values = StoredValues(first, Seal(), PLENTY)
        assert await values.execute("ann", [Put("k", "[1]")], 1) == [None]
        ref = await values.offload("ann", '"large"')
        assert ref is not None
    async with opens() as second:
        values = StoredValues(second, Seal(), PLENTY)
        assert [await values.load("ann", "k"), await values.load("ann", ref)] == ["[1]", '"large"']
        assert [each.preview for each in (await values.listed("ann", 0, 5)).entries] == ['"large"', "[1]"]


async def test_results_of_earlier_versions_are_listed_without_a_form(database: Direct) -> None:
    seal = Seal()
    values = StoredValues(database, seal, PLENTY)
    ref = await values.offload("ann", '"large"')
    [[name]] = database.connection.execute("SELECT name FROM kept").fetchall()
    label = seal.seal(json.dumps([ref, '"large"']).encode(), owner="ann", run=name, field="label")
    database.connection.execute("UPDATE kept SET label = ?", (label,))
    assert [(each.ref, each.form) for each in await values.results("ann", None, 5)] == [(ref, None)]
    assert [each.preview for each in (await values.listed("ann", 0, 5)).entries] == ['"large"']


async def test_a_value_or_a_result_is_removed_with_its_room(opens: OpenDatabase) -> None:
    async with opens() as database:
        for values in (StoredValues(database, Seal(), 1000), MemoryValues(1000)):
            for _ in range(5):
                await values.execute("ann", [Put("k", "x" * 300)], 1)
                ref = await values.offload("ann", "y" * 100)
                assert ref is not None
                for key in ("k", ref, "k", "absent"):
                    await values.remove("ann", key)
                    await values.remove("bob", key)
                assert (await values.listed("ann", 0, 5)).total == 0
            assert await values.execute("ann", [Put("k", "x" * 700)], 1) == [None]


async def test_owners_may_be_called_anything(opens: OpenDatabase) -> None:
    """A path of a configuration, or a subject of a token, may hold what no database takes."""
    owners = ["http:\ud800", "http:\0", "http:\\u0000", 'http:["\u00e9"]']
    async with opens() as database:
        values = StoredValues(database, Seal(), PLENTY)
        for owner in owners:
            await values.execute(owner, [Put("key", f'"{owners.index(owner)}"')], 1)
        for number, owner in enumerate(owners):
            assert await values.load(owner, "key") == f'"{number}"'
            assert (await values.listed(owner, 0, 5)).total == 1


async def test_two_processes_of_one_owner_stay_within_its_room(opens: OpenDatabase) -> None:
    limit = 10 * (ENTRY + 102)
    refused = 0
    async with opens() as one, opens() as other:

        async def fill(values: StoredValues, name: str) -> None:
            nonlocal refused
            for number in range(10):
                [answer] = await values.execute("ann", [Put(f"{name}{number}", "x" * 100)], 1)
                refused += isinstance(answer, ProgramError)

        both = [StoredValues(database, Seal(), limit) for database in (one, other)]
        async with anyio.create_task_group() as group:
            group.start_soon(fill, both[0], "a")
            group.start_soon(fill, both[1], "b")
        assert refused == 10
        assert [(await values.listed("ann", 0, 1)).total for values in both] == [10, 10]
        # Results of both make room for each other as they come, and nothing is lost of the count.
        refs: list[str | None] = []

        async def offload(values: StoredValues) -> None:
            refs.extend([await values.offload("bob", "x" * (90 + number)) for number in range(8)])

        async with anyio.create_task_group() as group:
            group.start_soon(offload, both[0])
            group.start_soon(offload, both[1])
        assert None not in refs
        page = await both[0].listed("bob", 0, 50)
        used = sum(len(each.key) + each.characters + ENTRY for each in page.entries)
        assert limit - ENTRY - 130 < used <= limit
        [answer] = await both[1].execute("bob", [Put("k", "x" * (limit - ENTRY - 1))], 1)
        assert answer is None
        assert (await both[0].listed("bob", 0, 5)).total == 1


async def test_owners_make_room_and_old_values_go(opens: OpenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_OWNERS", 2)
    async with opens() as database:
        values = StoredValues(database, Seal(), PLENTY)
        for owner in ("ann", "bob", "cora"):
            await values.execute(owner, [Put("k", "1"), Get("k")], 1)
            assert await values.offload(owner, "2")
        assert [(await values.listed(owner, 0, 5)).total for owner in ("ann", "bob", "cora")] == [0, 2, 2]
        await values.sweep()
        monkeypatch.setattr(stored, "RESULT_DAYS", -1)
        await values.sweep()
        assert [refs(await values.listed(owner, 0, 5)) for owner in ("bob", "cora")] == [["k"], ["k"]]
        monkeypatch.setattr(stored, "DAY", -1.0)
        assert await values.load("bob", "k") == "1"
        monkeypatch.setattr(stored, "DAY", 1.0)
        monkeypatch.setattr(stored, "STORED_DAYS", -1)
        await values.sweep()
        assert [(await values.listed(owner, 0, 5)).total for owner in ("bob", "cora")] == [0, 0]


# what they are


def whole(database: Direct) -> bytes:
    """Return all that the tables hold."""
    return b"".join(line.encode() for line in database.connection.iterdump())


async def test_with_a_key_nothing_of_keys_and_values_can_be_read(database: Direct) -> None:
    values = StoredValues(database, Seal([b"k" * 32]), PLENTY)
    await values.execute("ann", [Put("password-of-the-bank", '"open sesame"')], 1)
    ref = await values.offload("ann", '"the plan"')
    assert ref is not None
    dump = whole(database)
    for secret in ("password-of-the-bank", "open sesame", "the plan", ref):
        assert secret.encode() not in dump
        assert secret.encode().hex().upper().encode() not in dump
    assert b"ann" in dump


async def test_what_was_put_elsewhere_or_changed_is_not_taken_for_a_value(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    await values.execute("ann", [Put("mine", "1"), Put("other", "2")], 1)
    await values.execute("bob", [Put("mine", "3")], 1)
    [(body,)] = database.connection.execute("SELECT body FROM kept WHERE owner = 'bob'")
    database.connection.execute("UPDATE kept SET body = ?, label = body WHERE owner = 'ann'", (body,))
    for key in ("mine", "other"):
        [refused, absent] = await values.execute("ann", [Get(key), Get("absent")], PLENTY)
        assert isinstance(refused, ProgramError)
        assert refused.message.startswith(f"load('{key}'): the stored value cannot be read: ")
        assert refused.message.endswith("; store it again")
        assert absent is None
    with pytest.raises(ProgramError, match="store it again"):
        await values.load("ann", "mine")
    page = await values.listed("ann", 0, 5)
    assert [each.preview.startswith("(cannot be read: ") for each in page.entries] == [True, True]
    await values.execute("ann", [Put("mine", "4")], 1)
    assert await values.load("ann", "mine") == "4"


async def test_a_list_reads_no_values(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    await values.execute("ann", [Put("k", "1")], 1)
    database.asked.clear()
    await values.listed("ann", 0, 10)
    assert not [sql for sql in database.asked if "body" in sql]


# bounds


OWNERS = st.sampled_from(["ann", "bob"])
KEYS = st.sampled_from(["a", "b", "c"])
SIZES = st.integers(0, 900)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), OWNERS, KEYS, SIZES),
        st.tuples(st.just("offload"), OWNERS, st.just(""), SIZES),
        st.tuples(st.just("again"), OWNERS, KEYS, st.just(0)),
        st.tuples(st.just("remove"), OWNERS, KEYS, st.just(0)),
    ),
    max_size=40,
)
LIMIT = 2500


class Model:
    """Entries that an owner must have, with their sizes, the oldest first."""

    def __init__(self) -> None:
        self.results: dict[str, int] = {}
        self.stored: dict[str, int] = {}

    @property
    def used(self) -> int:
        return sum(self.results.values()) + sum(self.stored.values())

    def takes(self, key: str, size: int) -> bool:
        """Keep this, if it can be."""
        wanted = len(key) + size + ENTRY
        lasting = sum(self.stored.values()) - self.stored.get(key, 0)
        if lasting + wanted > LIMIT and wanted > self.stored.get(key, 0):
            return False
        while self.used - self.stored.get(key, 0) + wanted > LIMIT:
            del self.results[next(iter(self.results))]
        (self.results if key.startswith(REF_PREFIX) else self.stored)[key] = wanted
        return True


async def play(values: Values, steps: list[tuple[str, str, str, int]]) -> None:
    models = {"ann": Model(), "bob": Model()}
    for kind, owner, key, size in steps:
        model = models[owner]
        match kind:
            case "put":
                [answer] = await values.execute(owner, [Put(key, "x" * size)], PLENTY)
                assert (answer is None) == model.takes(key, size)
            case "offload":
                ref = await values.offload(owner, "y" * size)
                assert model.takes(ref or REF_PREFIX + "x" * 16, size) == (ref is not None)
            case "remove":
                await values.remove(owner, key)
                model.stored.pop(key, None)
            case _:
                assert (await values.load(owner, key) is None) == (key not in model.stored)
        page = await values.listed(owner, 0, 100)
        assert model.used <= LIMIT
        found = [(each.key, len(each.key) + each.characters + ENTRY) for each in page.entries]
        assert found == [*model.results.items(), *model.stored.items()]


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_is_kept_is_what_a_model_keeps(steps: list[tuple[str, str, str, int]]) -> None:
    anyio.run(play, MemoryValues(LIMIT), steps)
    direct = Direct()
    try:
        anyio.run(play, StoredValues(direct, Seal(), LIMIT), steps)
        rows = direct.connection.execute(
            "SELECT size, (SELECT SUM(size) FROM kept WHERE kept.owner = keepers.owner) FROM keepers"
        ).fetchall()
        assert all(size == found for size, found in rows)
        numbers = direct.connection.execute("SELECT owner, number FROM kept").fetchall()
        assert len(numbers) == len(set(numbers))
    finally:
        direct.connection.close()


async def test_there_are_no_more_owners_than_there_may_be(database: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_OWNERS", 3)
    values = StoredValues(database, Seal(), PLENTY)
    for number in range(6):
        await values.execute(f"owner {number}", [Put("k", "1")], 1)
    for table in ("keepers", "kept"):
        owners = database.connection.execute(f"SELECT owner FROM {table} ORDER BY owner").fetchall()
        assert owners == [("owner 3",), ("owner 4",), ("owner 5",)]


async def test_a_refused_value_of_an_owner_without_any_leaves_no_row(database: Direct) -> None:
    values = StoredValues(database, Seal(), 1000)
    [answer] = await values.execute("ann", [Put("k", "x" * 2000)], 1)
    assert isinstance(answer, ProgramError)
    assert database.connection.execute("SELECT * FROM keepers").fetchall() == []


async def test_with_less_room_than_is_in_use_values_may_still_become_smaller(database: Direct) -> None:
    await StoredValues(database, Seal(), PLENTY).execute("ann", [Put("k", "x" * 2000), Put("l", "1")], 1)
    values = StoredValues(database, Seal(), 1000)
    [same, larger, new, smaller, loaded] = await values.execute(
        "ann", [Put("k", "y" * 2000), Put("k", "y" * 2001), Put("m", "1"), Put("l", ""), Get("k")], PLENTY
    )
    assert [same, smaller, loaded] == [None, None, "y" * 2000]
    assert "do not fit" in str(larger)
    assert "do not fit" in str(new)


# time


async def test_that_a_value_was_used_is_written_down_once_a_day(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    await values.execute("ann", [Put("k", "1")], 1)
    for later, writes in ((0.0, 0), (DAY, 2), (0.0, 0)):
        database.now += later
        database.asked.clear()
        assert await values.load("ann", "k") == "1"
        assert len([sql for sql in database.asked if not sql.startswith("SELECT")]) == writes


async def test_values_unused_for_long_is_swept(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    await values.execute("ann", [Put("used", "1"), Put("unused", "2")], 1)
    used, unused = await values.offload("ann", "3"), await values.offload("ann", "4")
    await values.execute("bob", [Put("k", "1")], 1)
    database.now += (RESULT_DAYS - 1) * DAY
    assert used is not None
    await values.load("ann", used)
    await values.sweep()
    assert refs(await values.listed("ann", 0, 9)) == [used, unused, "used", "unused"]
    database.now += DAY
    await values.sweep()
    assert refs(await values.listed("ann", 0, 9)) == [used, "used", "unused"]
    database.now += (STORED_DAYS - RESULT_DAYS - 1) * DAY
    await values.load("ann", "used")
    database.now += DAY
    await values.sweep()
    assert refs(await values.listed("ann", 0, 9)) == ["used"]
    assert database.connection.execute("SELECT owner, size FROM keepers").fetchall() == [("ann", ENTRY + 5)]


async def test_one_sweep_does_a_bounded_part_of_the_work(database: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_SWEPT", 2)
    monkeypatch.setattr(stored, "MAX_SWEPT_OWNERS", 2)
    values = StoredValues(database, Seal(), PLENTY)
    for owner in ("ann", "bob", "cora"):
        await values.execute(owner, [Put(str(number), "1") for number in range(3)], 1)
    database.now += STORED_DAYS * DAY
    left = []
    for _ in range(3):
        await values.sweep()
        left += database.connection.execute("SELECT COUNT(*) FROM kept").fetchone()
    assert left == [5, 3, 1]


# trouble


async def test_work_that_fails_in_the_middle_changes_nothing(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    await values.execute("ann", [Put("k", "1")], 1)
    before = whole(database)
    database.connection.execute("CREATE TRIGGER no BEFORE UPDATE ON keepers BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(sqlite3.IntegrityError):
        await values.execute("ann", [Put("k", "2"), Put("l", "3")], 1)
    database.connection.execute("DROP TRIGGER no")
    assert whole(database) == before


async def test_a_store_that_is_away_says_so(database: Direct) -> None:
    values = StoredValues(database, Seal(), PLENTY)
    database.failing = StoreUnavailable("the store is away")
    with pytest.raises(StoreUnavailable):
        await values.load("ann", "k")
    with pytest.raises(StoreUnavailable):
        await values.offload("ann", "1")
