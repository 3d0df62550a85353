"""Values that are kept for an owner between programs, in every kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from codemode_mcp import stores
from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.runs.values import ENTRY, FULL_OWNERS, PREVIEW, Get, MemoryValues, Put, ResultForm, Values
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from tests.waiting import refusal

PLENTY = 1_000_000


class OpenValues(Protocol):
    """Values that are kept somewhere, with so much room for each owner."""

    def __call__(self, max_bytes: int) -> AbstractAsyncContextManager[Values]: ...


class Ticking:
    """Seconds since the epoch; each look at them takes one."""

    def __init__(self) -> None:
        self._now = 1_800_000_000.0

    def __call__(self) -> float:
        self._now += 1
        return self._now


@pytest.fixture(params=["memory", "sqlite", "sqlite, encrypted"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenValues:
    monkeypatch.setattr(stores.values, "FULL_OWNERS", FULL_OWNERS)

    @asynccontextmanager
    async def opened(max_bytes: int) -> AsyncIterator[Values]:
        if request.param == "memory":
            yield MemoryValues(max_bytes)
            return
        seal = Seal([b"k" * 32]) if "encrypted" in request.param else Seal()
        async with open_sqlite(tmp_path / "runs.sqlite3", monotonic=Ticking()) as database:
            yield StoredValues(database, seal, max_bytes)

    return opened


async def store(values: Values, owner: str, key: str, text: str) -> None:
    [answer] = await values.execute(owner, [Put(key, text)], PLENTY)
    if isinstance(answer, CodeModeError):
        raise answer
    assert answer is None


async def test_values_belong_to_their_owner_and_the_last_one_counts(kept: OpenValues) -> None:
    async with kept(10_000) as values:
        await store(values, "ann", "k", "1")
        await store(values, "ann", "k", "2")
        assert await values.load("ann", "k") == "2"
        assert await values.load("bob", "k") is None


async def test_what_does_not_fit_is_refused_and_changes_nothing(kept: OpenValues) -> None:
    async with kept(2000) as values:
        await store(values, "ann", "k", "x" * 1000)
        assert (await refusal(store(values, "ann", "k2", "x" * 1000))).message == (
            "store('k2'): 1000 bytes do not fit; 1257 of 2000 are in use; "
            "store less, or replace a stored value by a smaller one"
        )
        assert await values.load("ann", "k") == "x" * 1000
        await store(values, "ann", "k", "small")
        await store(values, "ann", "k2", "x" * 1000)
        await store(values, "bob", "k", "x" * 1000)


async def test_many_small_values_are_bounded_too(kept: OpenValues) -> None:
    async with kept(100 * ENTRY) as values:
        answers = await values.execute("ann", [Put(str(n), "") for n in range(99)], PLENTY)
        assert answers == [None] * 99
        with pytest.raises(ProgramError):
            await store(values, "ann", "one more", "")


async def test_results_make_room_and_stored_values_do_not(kept: OpenValues) -> None:
    async with kept(3000) as values:
        await store(values, "ann", "k", "x" * 500)
        first = await values.offload("ann", "a" * 800)
        second = await values.offload("ann", "b" * 800)
        assert first is not None
        assert second is not None
        third = await values.offload("ann", "c" * 800)
        assert third is not None
        assert await values.load("ann", first) is None
        assert await values.load("ann", second) == "b" * 800
        assert await values.load("ann", "k") == "x" * 500
        assert await values.offload("ann", "d" * 5000) is None
        assert await values.load("ann", third) == "c" * 800
        # All results together would not make room for it.
        with pytest.raises(ProgramError, match="do not fit"):
            await store(values, "ann", "large", "x" * 2500)
        assert await values.load("ann", second) == "b" * 800


async def test_refs_cannot_be_stored_under(kept: OpenValues) -> None:
    async with kept(1000) as values:
        with pytest.raises(ProgramError, match="belong to results"):
            await store(values, "ann", "result:1", "1")


async def test_orders_are_executed_in_sequence_and_what_is_refused_stops_nothing(kept: OpenValues) -> None:
    async with kept(2000) as values:
        asked = [Get("k"), Put("k", "1"), Get("k"), Put("result:1", "1"), Put("k", "x" * 3000), Put("k", "2"), Get("k")]
        answers = await values.execute("ann", asked, PLENTY)
        refused = [answers.pop(4), answers.pop(3)]
        assert answers == [None, None, "1", None, "2"]
        assert ["do not fit" in str(refused[0]), "belong to results" in str(refused[1])] == [True, True]


async def test_no_more_is_loaded_in_one_go_than_there_is_room_for(kept: OpenValues) -> None:
    async with kept(10_000) as values:
        await store(values, "ann", "k", "x" * 1000)
        asked = [Get("k"), Get("k"), Get("k"), Put("k", "1")]
        assert await values.execute("ann", asked, 1500) == ["x" * 1000] * 2
        assert await values.execute("ann", asked, 0) == ["x" * 1000]
        assert await values.load("ann", "k") == "x" * 1000


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", '""'),
        ("\0", r'"\u0000"'),
        ("a\ud800", '"\U0001f600"'),
        ("k" * 5000, '"\ud800"'),
        ("__proto__", '"' + "é" * 200_000 + '"'),
        ("'; DROP TABLE kept --", "1"),
    ],
    ids=["empty", "NUL", "half a character", "long", "large", "SQL"],
)
async def test_any_key_and_any_text_come_back_as_they_were(kept: OpenValues, key: str, text: str) -> None:
    async with kept(PLENTY) as values:
        await store(values, "ann", key, text)
        assert await values.load("ann", key) == text
        [listed] = (await values.listed("ann", 0, 10)).entries
        assert (listed.key, listed.characters) == (key, len(text))


async def test_entries_are_listed_page_by_page_results_first_and_each_oldest_first(kept: OpenValues) -> None:
    async with kept(PLENTY) as values:
        await store(values, "bob", "theirs", "1")
        await store(values, "ann", "b", '"' + "x" * 500 + '"')
        await store(values, "ann", "a", "2")
        first = await values.offload("ann", "[1]")
        second = await values.offload("ann", "[2]")
        await store(values, "ann", "b", '"' + "y" * 500 + '"')
        whole = await values.listed("ann", 0, 50)
        assert [each.key for each in whole.entries] == [first, second, "b", "a"]
        assert [each.characters for each in whole.entries] == [3, 3, 502, 1]
        assert (whole.entries[2].preview, whole.entries[3].preview) == ('"' + "y" * (PREVIEW - 2) + "…", "2")
        page = await values.listed("ann", 1, 2)
        assert (page.total, page.entries) == (4, whole.entries[1:3])
        assert await values.listed("ann", 4, 2) == type(page)(4, ())
        assert await values.listed("nobody", 0, 2) == type(page)(0, ())


async def test_results_are_listed_with_the_latest_first_and_their_forms(kept: OpenValues) -> None:
    async with kept(PLENTY) as values:
        await store(values, "ann", "k", "1")
        refs = [await values.offload("ann", text) for text in ('"é"', "[1]", '"two"')]
        await values.offload("bob", "1")
        found = await values.results("ann", None, 10)
        assert [each.ref for each in found] == refs[::-1]
        facts = [each.form for each in found]
        assert facts == [ResultForm("text/plain", 3), ResultForm("application/json", 3), ResultForm("text/plain", 2)]
        assert list(await values.results("ann", None, 2)) == list(found[:2])
        assert list(await values.results("ann", found[0].number, 1)) == [found[1]]
        await values.remove("ann", found[1].ref)
        assert list(await values.results("ann", found[0].number, 10)) == [found[2]]
        assert list(await values.results("nobody", None, 10)) == []


async def test_owners_that_were_not_here_for_longest_make_room_for_others(kept: OpenValues) -> None:
    async with kept(10_000) as values:
        await store(values, "early", "kept", "1")
        for number in range(FULL_OWNERS + 1):
            await store(values, f"owner {number}", "large", "x" * 9_000)
            await store(values, "early", "kept", "1")
        assert await values.load("early", "kept") == "1"
        assert await values.load("owner 0", "large") is None
        assert await values.load("owner 1", "large") is not None
        assert await values.load(f"owner {FULL_OWNERS}", "large") is not None


async def test_room_that_an_owner_gives_back_is_there_for_others(kept: OpenValues) -> None:
    async with kept(10_000) as values:
        for number in range(FULL_OWNERS):
            await values.execute(f"owner {number}", [Put("large", "x" * 9_000)] * 100, PLENTY)
        for number in range(FULL_OWNERS):
            assert await values.load(f"owner {number}", "large")
