"""Several pools that share the processes of their servers."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from counted_processes import Processes, said
from hypothesis import given
from hypothesis import strategies as st

from tests.values import replace
from upstream_clients import UpstreamPool, UpstreamSpec, UpstreamUnavailable
from upstream_clients.environment import relevant
from upstream_clients.errors import UpstreamClientError
from upstream_clients.listing import ListingCache
from upstream_clients.pool import SharedServers

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def two_pools(first: UpstreamSpec, second: UpstreamSpec) -> AsyncIterator[tuple[UpstreamPool, UpstreamPool]]:
    async with (
        SharedServers() as shared,
        UpstreamPool([first], shared=shared) as one,
        UpstreamPool([second], shared=shared) as two,
    ):
        for pool in (one, two):
            await pool.wait_settled(None, 20)
        yield one, two


async def test_two_pools_with_equal_servers_have_one_process(processes: Processes) -> None:
    async with two_pools(processes.spec(), processes.spec()) as (one, two):
        assert await said(one.source("srv")) == await said(two.source("srv"))
        assert len(processes.pids) == 1
    assert processes.alive == []


def other_path(spec: UpstreamSpec, folder: Path) -> UpstreamSpec:
    """Return a spec whose command is another program of the same name."""
    folder.mkdir()
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o700)
    return replace(spec, command="python", environ={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})


@pytest.mark.parametrize(
    "change",
    [
        lambda spec, folder: replace(spec, env={"TOKEN": "other"}),
        lambda spec, folder: replace(spec, cwd=str(folder)),
        lambda spec, folder: replace(spec, args=(*spec.args, "more")),
        lambda spec, folder: replace(spec, environ={**os.environ, "HTTPS_PROXY": "http://127.0.0.1:1"}),
        lambda spec, folder: replace(spec, environ={**os.environ, "UV_INDEX": "https://example.com"}),
        lambda spec, folder: other_path(spec, folder / "bin"),
    ],
    ids=["env", "cwd", "args", "proxy", "launcher", "program"],
)
async def test_servers_that_reach_something_else_have_processes_of_their_own(
    change: Callable[[UpstreamSpec, Path], UpstreamSpec], processes: Processes, tmp_path: Path
) -> None:
    spec = replace(processes.spec(), command="python" if shutil.which("python") else sys.executable)
    async with two_pools(spec, change(spec, tmp_path)) as (one, two):
        assert await said(one.source("srv")) != await said(two.source("srv"))
        assert len(processes.pids) == 2


async def test_variables_of_the_terminal_do_not_separate_and_a_path_does_not_if_it_finds_the_same_program(
    processes: Processes, tmp_path: Path
) -> None:
    folder = Path(sys.executable).parent
    spec = processes.spec(command=Path(sys.executable).name, environ={**os.environ, "PATH": f"{folder}:/usr/bin"})
    terminal = {"PATH": f"{tmp_path}:{folder}", "TERM": "dumb", "SHELL": "/bin/no", "LANG": "C", "LC_ALL": "C"}
    async with two_pools(spec, replace(spec, environ={**os.environ, **terminal, "MY": "1"})) as (one, two):
        assert await said(one.source("srv")) == await said(two.source("srv"))
        assert await said(two.source("srv"), "variable", name="MY") is None


async def test_a_process_inherits_from_the_environment_of_its_spec(processes: Processes) -> None:
    environ = {"PATH": os.environ["PATH"], "HTTPS_PROXY": "http://127.0.0.1:1"}
    async with UpstreamPool([processes.spec(environ=environ)]) as pool:
        assert await said(pool.source("srv"), "variable", name="HTTPS_PROXY") == "http://127.0.0.1:1"
        assert await said(pool.source("srv"), "variable", name="HOME") is None


async def test_a_pool_that_leaves_does_not_end_calls_of_another(processes: Processes, tmp_path: Path) -> None:
    pids: list[int] = []

    async def wait(pool: UpstreamPool, started: anyio.Event) -> None:
        outcome = await pool.source("srv").call_tool("wait", {"path": str(tmp_path / "go")}, on_sent=started.set)
        pids.append(json.loads(outcome.result["content"][0]["text"]))

    async with SharedServers() as shared, UpstreamPool([processes.spec()], shared=shared) as stays:
        async with anyio.create_task_group() as tasks:
            async with UpstreamPool([processes.spec()], shared=shared) as leaves:
                started, failed = anyio.Event(), anyio.Event()
                tasks.start_soon(wait, stays, started)
                await started.wait()
                tasks.start_soon(fails, leaves, failed)
                await failed.wait()
            assert [view.state for view in leaves.views()] == ["stopped"]
            with pytest.raises(UpstreamUnavailable, match="nothing was sent"):
                await said(leaves.source("srv"))
            (tmp_path / "go").touch()
        assert pids == processes.pids == processes.alive
    assert processes.alive == []


async def fails(pool: UpstreamPool, sent: anyio.Event) -> None:
    with pytest.raises(UpstreamClientError, match="server 'srv' is closed; it is unknown whether"):
        await pool.source("srv").call_tool("wait", {"path": "/nonexistent"}, on_sent=sent.set)


async def test_the_last_pool_that_leaves_ends_the_process(processes: Processes) -> None:
    async with SharedServers() as shared:
        async with UpstreamPool([processes.spec()], shared=shared) as pool:
            await said(pool.source("srv"))
        assert processes.alive == []
        async with UpstreamPool([processes.spec()], shared=shared) as pool:
            await said(pool.source("srv"))
            assert len(processes.alive) == 1
    assert (len(processes.pids), processes.alive) == (2, [])


async def test_changes_reach_every_pool_that_has_the_server(processes: Processes) -> None:
    seen: list[str] = []
    async with (
        SharedServers() as shared,
        UpstreamPool([processes.spec()], shared=shared, on_change=lambda: 1 / 0),
        UpstreamPool([processes.spec()], shared=shared, on_change=lambda: seen.append("one")) as one,
        UpstreamPool([processes.spec()], shared=shared, on_change=lambda: seen.append("two")),
    ):
        await one.connect(None, 20)
        assert seen.count("one") == seen.count("two") > 0
        async with UpstreamPool([processes.spec()], shared=shared, on_change=lambda: seen.append("late")) as late:
            assert late.views() == one.views()
        assert "late" not in seen


async def test_a_reload_of_one_pool_does_not_touch_the_other(processes: Processes) -> None:
    async with two_pools(processes.spec(), processes.spec()) as (one, two):
        before = await said(two.source("srv"))
        old = one.source("srv")
        one.apply([processes.spec(description="changed")])
        with anyio.fail_after(20):
            assert await said(one.source("srv")) != before
        assert await said(two.source("srv")) == before
        with pytest.raises(UpstreamUnavailable, match="is restarted with a new configuration; nothing was sent"):
            await said(old)
        two.apply([processes.spec(description="changed")])
        assert await said(one.source("srv")) == await said(two.source("srv")) != before
        await processes.until_alive(1)
        one.apply([])
        assert one.views() == ()
        assert await said(two.source("srv")) in processes.alive


async def test_a_server_that_no_pool_shares_starts_again_after_its_old_process_has_ended(processes: Processes) -> None:
    async with SharedServers() as shared, UpstreamPool([processes.spec()], shared=shared) as pool:
        before = await said(pool.source("srv"))
        pool.apply([])
        async with UpstreamPool([processes.spec()], shared=shared) as other:
            after = await said(other.source("srv"))
            assert (after != before, processes.alive) == (True, [after])


async def test_a_token_that_one_pool_learns_is_hidden_by_all() -> None:
    first, second = (UpstreamSpec("srv", transport="http", url="http://127.0.0.1:1/mcp") for _ in range(2))
    async with SharedServers() as shared, UpstreamPool([first], shared=shared):
        async with UpstreamPool([second], shared=shared):
            first.learn(["token-1"])
            assert second.redact("token-1") == "***"
        first.learn(["token-2"])
        assert second.redact("token-2") == "token-2"


async def test_pools_share_a_server_that_is_known_from_its_saved_listing(processes: Processes, tmp_path: Path) -> None:
    cache = ListingCache(tmp_path / "listings")
    async with UpstreamPool([processes.spec()], cache=cache) as pool:
        await said(pool.source("srv"))
    async with (
        SharedServers(cache=cache) as shared,
        UpstreamPool([processes.spec()], shared=shared) as one,
        UpstreamPool([processes.spec()], shared=shared) as two,
    ):
        assert [view.state for pool in (one, two) for view in pool.views()] == ["idle", "idle"]
        assert await said(one.source("srv")) == await said(two.source("srv"))
    assert len(processes.pids) == 2


@given(
    st.dictionaries(st.sampled_from(["PATH", "TERM", "SHELL", "LANG", "LC_TIME", "LC_ALL", "MINE", "TOKEN"]), st.text())
)
def test_variables_without_influence_never_separate(extra: dict[str, str]) -> None:
    base = {"HOME": "/home/ada", "HTTPS_PROXY": "http://proxy"}
    assert relevant({**base, **extra}) == base
