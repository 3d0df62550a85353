"""Secrets that all processes of a store have, any caller that has configured what."""

from __future__ import annotations

import time
from pathlib import Path

from codemode_mcp.base.settings import CodeModeSettings, StoreSettings
from codemode_mcp.stores.opening import open_store
from codemode_mcp.stores.seal import Seal, shared_secret
from tests.stores.shared_database import Process


async def secrets(settings: StoreSettings, folder: Path) -> list[bytes]:
    async with open_store(settings, CodeModeSettings(), clock=time.monotonic, wall=time.time, folder=folder) as opened:
        found = await opened.secrets("state")
        assert await opened.secrets("state") == found
        assert found == [] or await opened.secrets("other") != found
    return found


async def test_all_processes_agree_on_the_one_that_was_made_first(first: Process, second: Process) -> None:
    assert await first.database.execute(lambda: shared_secret("state", b"1" * 32)) == b"1" * 32
    assert await second.database.execute(lambda: shared_secret("state", b"2" * 32)) == b"1" * 32
    assert await second.database.execute(lambda: shared_secret("other", b"3" * 32)) == b"3" * 32


async def test_a_store_without_a_key_keeps_one_and_memory_has_none(tmp_path: Path) -> None:
    (found,) = await secrets(StoreSettings("sqlite"), tmp_path)
    assert len(found) == 32
    assert await secrets(StoreSettings("sqlite"), tmp_path) == [found]
    assert await secrets(StoreSettings("memory"), tmp_path) == []


async def test_with_keys_they_come_from_these_in_their_order_and_nothing_is_kept(tmp_path: Path) -> None:
    old, new = b"o" * 32, b"n" * 32
    (before,) = await secrets(StoreSettings("sqlite", encryption_keys=(old,)), tmp_path)
    after, still = await secrets(StoreSettings("sqlite", encryption_keys=(new, old)), tmp_path)
    assert (still, len({before, after, old, new})) == (before, 4)
    assert Seal((old,)).derived("state") == [before]
    (kept,) = await secrets(StoreSettings("sqlite"), tmp_path)
    assert kept not in (before, after)
