"""SIGHUP in a process with several applications: each of them reads its configuration again."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from codemode_mcp.config import Config, Reading, load_config, reload

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")]


async def test_every_application_reads_its_configuration_and_one_that_ends_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_has_terminal", lambda: False)
    monkeypatch.setattr(reload, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(reload, "POLL_SECONDS", 60)
    before = signal.getsignal(signal.SIGHUP)
    path = tmp_path / "config.json"
    path.write_text("{}", "utf-8")
    applied: list[str] = []

    def load(reading: Reading) -> Config:
        return load_config(path, environ={}, reading=reading)

    async def hang_up(count: int) -> None:
        applied.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        with anyio.fail_after(10):
            while len(applied) < count:  # noqa: ASYNC110 - a signal sets no event
                await anyio.sleep(0.01)
        await anyio.sleep(0.05)

    async def watch(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await reload.Reloader(load(reload.Reading()), load, lambda _: applied.append(name)).run()

    scopes = {name: anyio.CancelScope() for name in ("first", "second")}
    async with anyio.create_task_group() as group:
        for name, scope in scopes.items():
            group.start_soon(partial(watch, name, scope))
        await anyio.wait_all_tasks_blocked()
        await hang_up(2)
        assert sorted(applied) == ["first", "second"]
        scopes["second"].cancel()
        await anyio.wait_all_tasks_blocked()
        await hang_up(1)
        assert applied == ["first"]
        scopes["first"].cancel()
    assert signal.getsignal(signal.SIGHUP) == before
