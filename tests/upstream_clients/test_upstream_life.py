"""Tests of when servers are started and stopped: the listings kept on disk, idleness, and a configuration that
changes."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_link import admitted

from tests.values import replace
from upstream_clients import (
    Asking,
    JsonObject,
    Question,
    UpstreamCallError,
    UpstreamPool,
    UpstreamSpec,
    UpstreamUnavailable,
)
from upstream_clients.fair_limiter import FairLimiter
from upstream_clients.listing import FORMAT, FRESH_SECONDS, MAX_FILE_BYTES, MAX_FILES, ListingCache
from upstream_clients.tools import Annotations, Tool, UpstreamView

pytestmark = pytest.mark.anyio

VIEW = UpstreamView(
    "srv",
    "ready",
    instructions="Be gentle.",
    server_version="1",
    era="modern",
    protocol_version="2026-07-28",
    tools=(
        Tool("a", "does a", "A", {"type": "object", "properties": {"x": True}}, {"type": "object"}),
        Tool("b", title="B", annotations=Annotations(read_only=True, open_world=False, title="B")),
        Tool("c", meta={"ui": {"resourceUri": "ui://c"}}, icons=({"src": "https://example.com/c.png"},)),
    ),
    resources=True,
    completions=True,
    problems=("tool 'c' has no name",),
    server_name="Server",
    logged_in=True,
    prompt_list=({"name": "p", "arguments": [{"name": "x", "required": True}], "_meta": {"a": 1}},),
    template_list=({"uriTemplate": "a:{b}", "annotations": {"priority": 1}, "icons": [{"src": "data:,"}]},),
)


def text(outcome: Any) -> str:
    return str(outcome.result["content"][0]["text"])


@pytest.fixture
def cache(tmp_path: Path) -> ListingCache:
    return ListingCache(tmp_path / "cache" / "listings")


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """Return a file in which servers with the flag `pid=FILE` note each start."""
    return tmp_path / "starts"


def pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().split()] if starts.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def spec_of(**more: Any) -> UpstreamSpec:
    return UpstreamSpec("srv", **{"command": "server", **more})


def kept(cache: ListingCache) -> list[Path]:
    return sorted(cache.folder.glob("*.json"))


# The file.


async def test_a_listing_comes_back_as_it_was(cache: ListingCache) -> None:
    cache.save(spec_of(), VIEW)
    found = cache.load(spec_of())
    assert found is not None
    assert found.fresh
    assert replace(found.view, state="ready") == VIEW


@pytest.mark.parametrize(
    "other",
    [
        {"command": "another"},
        {"args": ("x",)},
        {"cwd": "/"},
        {"env": {"TOKEN": "another"}},
        {"secrets": ("x",)},
        {"transport": "http", "url": "http://a/"},
        {"transport": "http", "url": "http://a/", "headers": {"Authorization": "Bearer x"}},
    ],
)
async def test_a_listing_is_for_its_own_definition_only(cache: ListingCache, other: dict[str, Any]) -> None:
    cache.save(spec_of(), VIEW)
    assert cache.load(spec_of(**other)) is None
    assert cache.load(replace(spec_of(), name="other")) is None


async def test_settings_that_do_not_change_what_is_listed_leave_it_valid(cache: ListingCache) -> None:
    cache.save(spec_of(), VIEW)
    found = cache.load(spec_of(timeout_ms=5, idle_seconds=3.0, start="eager", description="New."))
    assert found is not None
    assert found.view.description == "New."


async def test_no_file_holds_a_secret_or_a_plain_hash_of_it(cache: ListingCache) -> None:
    spec = spec_of(env={"TOKEN": "hunter2222"}, headers={"A": "Bearer hunter3333"}, args=("hunter4444",))
    cache.save(spec, VIEW)
    other = ListingCache(cache.folder.parent / "other")
    other.save(spec, VIEW)
    for path in cache.folder.iterdir():
        assert b"hunter" not in path.read_bytes()
    assert kept(cache)[0].name != kept(other)[0].name


async def test_a_listing_that_quotes_a_secret_is_not_kept_and_the_one_before_goes(cache: ListingCache) -> None:
    spec = spec_of(env={"TOKEN": 'hun"ter222'})
    cache.save(spec, VIEW)
    assert len(kept(cache)) == 1
    cache.save(spec, replace(VIEW, tools=(Tool("a", input_schema={"type": "object", "default": 'my hun"ter222'}),)))
    assert kept(cache) == []


@pytest.mark.parametrize("text", ["my hun'ter222", "x" * MAX_FILE_BYTES])
async def test_resources_that_cannot_be_kept_leave_the_rest(cache: ListingCache, text: str) -> None:
    spec = spec_of(env={"TOKEN": "hun'ter222"})
    cache.save(spec, replace(VIEW, resource_list=({"uri": "a:", "description": text},)))
    found = cache.load(spec)
    assert found is not None
    assert replace(found.view, state="ready") == VIEW


@pytest.mark.skipif(os.name == "nt", reason="modes of files are POSIX")
async def test_only_the_user_can_read_the_files(cache: ListingCache) -> None:
    cache.save(spec_of(), VIEW)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in cache.folder.iterdir()} == {0o600}


def _damages() -> Iterator[Any]:
    whole = {
        "format": FORMAT,
        "tools": [],
        "problems": [],
        "era": "modern",
        "instructions": None,
        "server_version": None,
    }
    whole |= {"protocol_version": "x", "resources": True, "prompts": True, "completions": True}
    whole |= {"asks_for_roots": False, "server_name": None, "logged_in": False}
    whole |= {"prompt_list": None, "template_list": None}
    yield pytest.param(b"", id="empty")
    yield pytest.param(b'{"format": 3, "tools": [{"name"', id="half")
    yield pytest.param(b"[" * 100_000, id="deep")
    yield pytest.param(b"\xff\xfe", id="binary")
    yield pytest.param(b"[]", id="list")
    yield pytest.param(b" " * (MAX_FILE_BYTES + 1), id="large")
    for change in (
        {"format": FORMAT + 1},
        {"format": 1},
        {"era": "future"},
        {"tools": [{"name": 7}]},
        {"tools": 7},
        {"problems": [7]},
        {"resources": "yes"},
        {"instructions": {}},
        {"prompt_list": [7]},
        {"template_list": {}},
    ):
        yield pytest.param(json.dumps({**whole, **change}).encode(), id=str(change))


@pytest.mark.parametrize("content", list(_damages()))
async def test_a_damaged_or_foreign_file_is_ignored_and_written_again(cache: ListingCache, content: bytes) -> None:
    cache.save(spec_of(), VIEW)
    (path,) = kept(cache)
    path.write_bytes(content)
    assert cache.load(spec_of()) is None
    cache.save(spec_of(), VIEW)
    assert cache.load(spec_of()) is not None


@pytest.mark.skipif(os.name == "nt", reason="named pipes and links of POSIX")
async def test_two_that_list_first_at_the_same_time_agree_about_the_key(
    cache: ListingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.urandom
    others = iter([cache])

    def while_another_saves(size: int) -> bytes:
        for other in others:
            other.save(spec_of(), VIEW)
        return made(size)

    monkeypatch.setattr("upstream_clients.listing.secrets.token_bytes", while_another_saves)
    cache.save(spec_of(), VIEW)
    assert len(kept(cache)) == 1
    assert cache.load(spec_of()) is not None


async def test_what_is_no_file_in_the_place_of_one_is_ignored(cache: ListingCache, tmp_path: Path) -> None:
    cache.save(spec_of(), VIEW)
    (path,) = kept(cache)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert cache.load(spec_of()) is None
    path.unlink()
    os.mkfifo(path)
    assert cache.load(spec_of()) is None


async def test_a_damaged_key_is_made_again(cache: ListingCache) -> None:
    cache.save(spec_of(), VIEW)
    (cache.folder / "key").write_bytes(b"short")
    assert cache.load(spec_of()) is None
    cache.save(spec_of(), VIEW)
    assert cache.load(spec_of()) is not None


async def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ListingCache(tmp_path / "file" / "listings")
    cache.save(spec_of(), VIEW)
    assert cache.load(spec_of()) is None


async def test_the_oldest_files_go_first(cache: ListingCache) -> None:
    for number in range(MAX_FILES + 3):
        cache.save(spec_of(args=(str(number),)), VIEW)
        for path in kept(cache):
            os.utime(path, (path.stat().st_mtime - 60,) * 2)
    assert len(kept(cache)) == MAX_FILES
    assert [cache.load(spec_of(args=(str(number),))) is None for number in range(5)] == [True] * 3 + [False] * 2


async def test_a_listing_of_yesterday_is_used_and_not_fresh(cache: ListingCache) -> None:
    cache.save(spec_of(), VIEW)
    (path,) = kept(cache)
    later = ListingCache(cache.folder, clock=lambda: path.stat().st_mtime + FRESH_SECONDS + 1)
    found = later.load(spec_of())
    assert found is not None
    assert not found.fresh


# Starting.


async def test_a_server_whose_tools_are_known_is_started_by_its_first_call(
    raw_server: Any, pool_of: Any, cache: ListingCache, starts: Path
) -> None:
    spec = raw_server(f"pid={starts}")
    async with pool_of(spec, cache=cache) as pool:
        first = pool.views()[0]
    assert len(pids(starts)) == 1
    async with UpstreamPool([spec], cache=cache) as pool:
        assert pool.views()[0] == replace(first, state="idle")
        with anyio.fail_after(5):
            await pool.wait_settled(None, timeout=60)
        assert pool.views()[0].state == "idle"
        assert len(pids(starts)) == 1
        assert text(await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=20)) == "hi"
        assert pool.views()[0].state == "ready"
    assert len(pids(starts)) == 2
    assert not any(map(alive, pids(starts)))


async def test_a_pool_of_idle_servers_does_not_load_the_sdk(raw_server: Any, pool_of: Any, cache: ListingCache) -> None:
    async with pool_of(raw_server(), cache=cache):
        pass
    program = (
        "import anyio, sys, pathlib\n"
        "from upstream_clients import UpstreamPool, UpstreamSpec\n"
        "from upstream_clients.listing import ListingCache\n"
        "async def main():\n"
        "    spec = UpstreamSpec('srv', command=sys.executable, args=(sys.argv[1],))\n"
        "    async with UpstreamPool([spec], cache=ListingCache(pathlib.Path(sys.argv[2]))) as pool:\n"
        "        await pool.wait_settled(None, 60)\n"
        "        print(pool, 'mcp' in sys.modules)\n"
        "anyio.run(main)\n"
    )
    (script,) = raw_server().args
    done = await anyio.run_process([sys.executable, "-c", program, script, str(cache.folder)])
    assert done.stdout.decode().split("> ") == [
        "<UpstreamPool: 0 ready, 1 idle, 0 connecting, 0 down, 0 stopped",
        "False\n",
    ]


async def test_an_eager_server_is_started_immediately_and_shows_its_known_tools_meanwhile(
    raw_server: Any, pool_of: Any, cache: ListingCache, changes: Any
) -> None:
    async with pool_of(raw_server(), cache=cache):
        pass
    async with UpstreamPool([raw_server(start="eager")], cache=cache, on_change=changes) as pool:
        view = pool.views()[0]
        assert (view.state, len(view.tools)) == ("connecting", 7)
        with anyio.fail_after(5):
            await pool.wait_settled(None, timeout=60)
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")


async def test_a_listing_of_yesterday_is_shown_and_refreshed(
    raw_server: Any, pool_of: Any, cache: ListingCache, changes: Any
) -> None:
    async with pool_of(raw_server(), cache=cache):
        pass
    later = ListingCache(cache.folder, clock=lambda: kept(cache)[0].stat().st_mtime + FRESH_SECONDS + 1)
    async with UpstreamPool([raw_server()], cache=later, on_change=changes) as pool:
        assert len(pool.views()[0].tools) == 7
        await changes.until(pool.source("srv"), lambda view: view.state == "ready")


async def test_a_listing_that_has_changed_since_is_replaced_at_the_first_connection(
    raw_server: Any, pool_of: Any, cache: ListingCache, tmp_path: Path
) -> None:
    wishes = tmp_path / "tools"
    wishes.write_text("old")
    spec = raw_server(f"tools={wishes}")
    async with pool_of(spec, cache=cache):
        pass
    wishes.write_text("new newer")
    async with pool_of(spec, cache=cache) as pool:
        assert [tool.name for tool in pool.views()[0].tools] == ["old"]
        await pool.connect(None, timeout=20)
        assert [tool.name for tool in pool.views()[0].tools] == ["new", "newer"]
    async with pool_of(spec, cache=cache) as pool:
        assert [tool.name for tool in pool.views()[0].tools] == ["new", "newer"]


async def test_a_change_announced_while_connected_is_kept_too(
    raw_server: Any, pool_of: Any, cache: ListingCache, changes: Any
) -> None:
    async with pool_of(raw_server(), cache=cache, on_change=changes) as pool:
        await pool.source("srv").call_tool("grow", {})
        await changes.until(pool.source("srv"), lambda view: len(view.tools) == 8)
    async with UpstreamPool([raw_server()], cache=cache) as pool:
        assert len(pool.views()[0].tools) == 8


async def test_of_two_lists_that_are_kept_at_the_same_time_the_newer_stays(
    raw_server: Any, pool_of: Any, tmp_path: Path, changes: Any
) -> None:
    newer_is_kept = threading.Event()

    class Slow(ListingCache):
        def save(self, spec: UpstreamSpec, view: UpstreamView) -> None:
            if len(view.tools) == 7:
                newer_is_kept.wait(1)  # times out, since a newer list waits for this one
            super().save(spec, view)
            if len(view.tools) == 8:
                newer_is_kept.set()

    cache = Slow(tmp_path / "kept")
    async with pool_of(raw_server(), cache=cache, on_change=changes) as pool:
        await pool.source("srv").call_tool("grow", {})
        await changes.until(pool.source("srv"), lambda view: len(view.tools) == 8)
    async with UpstreamPool([raw_server()], cache=cache) as pool:
        assert len(pool.views()[0].tools) == 8


async def test_a_server_over_http_is_connected_by_its_first_call_too(
    http_server: Any, pool_of: Any, cache: ListingCache
) -> None:
    async with http_server() as server:
        async with pool_of(server.spec(), cache=cache):
            pass
        async with pool_of(server.spec(), cache=cache) as pool:
            assert pool.views()[0].state == "idle"
            assert text(await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=20)) == "hi"
    async with pool_of(server.spec(), cache=cache) as pool:
        assert pool.views()[0].state == "idle"
        await pool.connect(None, timeout=20)
        assert pool.views()[0].state == "down"
        assert len(pool.views()[0].tools) > 0


async def test_an_idle_server_that_does_not_start_says_why_to_its_caller(
    raw_server: Any, pool_of: Any, cache: ListingCache, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.touch()
    spec = raw_server(f"missing={disk}")
    async with pool_of(spec, cache=cache):
        pass
    disk.unlink()
    async with pool_of(spec, cache=cache) as pool:
        with pytest.raises(UpstreamUnavailable, match="the disk is not there yet"):
            await pool.source("srv").call_tool("echo", {})


# Stopping.


async def test_a_server_without_calls_is_stopped_and_started_again_by_the_next_call(
    raw_server: Any, pool_of: Any, changes: Any, starts: Path
) -> None:
    async with pool_of(raw_server(f"pid={starts}", idle_seconds=0.2), on_change=changes) as pool:
        source = pool.source("srv")
        view = await changes.until(source, lambda view: view.state == "idle")
        assert len(view.tools) == 7
        assert text(await source.call_tool("echo", {"text": "again"}, timeout=20)) == "again"
        await changes.until(source, lambda view: view.state == "idle")
    assert len(pids(starts)) == 2
    assert not any(map(alive, pids(starts)))


async def test_a_server_with_a_call_in_flight_is_not_idle(raw_server: Any, pool_of: Any, starts: Path) -> None:
    async with pool_of(raw_server(f"pid={starts}", idle_seconds=0.2)) as pool:
        with pytest.raises(UpstreamCallError, match="timed out"):
            await pool.source("srv").call_tool("hang", {}, timeout=1.5)
        assert len(pids(starts)) == 1


async def test_an_open_stream_of_changes_keeps_no_server_from_being_idle(
    sdk_server: Any, pool_of: Any, changes: Any
) -> None:
    async with pool_of(sdk_server(idle_seconds=0.2), on_change=changes) as pool:
        await changes.until(pool.source("srv"), lambda view: view.state == "idle")


async def test_a_local_server_is_idle_after_ten_minutes_and_others_never() -> None:
    assert spec_of().idle_after == 600
    assert spec_of(idle_seconds=0).idle_after == float("inf")
    assert spec_of(transport="http", url="http://a/").idle_after == float("inf")
    assert spec_of(transport="http", url="http://a/", idle_seconds=5).idle_after == 5


# Turns.


async def test_no_more_calls_are_sent_together_than_allowed(sdk_server: Any, pool_of: Any) -> None:
    async with pool_of(sdk_server(max_concurrent_calls=2)) as pool:
        source = pool.source("srv")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.call_tool, "wait_cancelled", {})
            tasks.start_soon(source.call_tool, "wait_cancelled", {})
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(UpstreamUnavailable, match=r"had 2 other calls in flight after 0\.3 s; nothing was"):
                await source.call_tool("echo", {}, timeout=0.3)
            tasks.cancel_scope.cancel()
        assert text(await source.call_tool("echo", {"text": "free"}, timeout=10)) == "free"


async def test_who_waits_is_admitted_in_order_and_runs_take_turns() -> None:
    gate = FairLimiter(1)
    order: list[str] = []

    async def call(run: str, name: str) -> None:
        async with admitted(gate, "owner", run):
            order.append(name)
            await anyio.wait_all_tasks_blocked()

    async with anyio.create_task_group() as tasks:
        for run, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")):
            tasks.start_soon(call, run, name)
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2"]


@pytest.mark.parametrize("limit", [1, None])
async def test_a_caller_with_many_runs_does_not_delay_another_by_more_than_one_call(limit: int | None) -> None:
    gate = FairLimiter(limit)
    order: list[str] = []

    async def call(caller: str, run: str) -> None:
        async with admitted(gate, caller, run):
            order.append(caller)
            await anyio.wait_all_tasks_blocked()

    async with anyio.create_task_group() as tasks:
        for number in range(2 * gate.limit + 20):
            tasks.start_soon(call, "flood", f"run {number}")
        for _ in range(3):
            tasks.start_soon(call, "other", "run")
    assert [index for index, caller in enumerate(order) if caller == "other"] == (
        [2, 4, 6] if limit else [gate.limit + each for each in range(3)]
    )


async def test_a_place_given_to_one_who_has_just_left_goes_to_the_next() -> None:
    gate = FairLimiter(1)
    order = []

    async def call(name: str) -> None:
        async with admitted(gate, "owner", "run"):
            order.append(name)

    async with anyio.create_task_group() as tasks:
        async with admitted(gate, "owner", "run"), anyio.create_task_group() as leaving:
            leaving.start_soon(call, "leaves while waiting")
            await anyio.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        quitter = anyio.CancelScope()

        async def quits() -> None:
            with quitter:
                await call("leaves when given")

        async with admitted(gate, "owner", "run"):
            tasks.start_soon(quits)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(call, "stays")
            await anyio.wait_all_tasks_blocked()
            quitter.cancel()
    assert order == ["stays"]


# A configuration that changes.


async def test_only_what_differs_is_started_stopped_or_restarted(
    raw_server: Any, pool_of: Any, changes: Any, tmp_path: Path
) -> None:
    logs = {name: tmp_path / name for name in ("same", "changed", "gone", "new")}

    def spec(name: str, **more: Any) -> UpstreamSpec:
        made: UpstreamSpec = raw_server(f"pid={logs[name]}", name=name, **more)
        return made

    async with pool_of(spec("gone"), spec("same"), spec("changed"), on_change=changes) as pool:
        same, changed = pool.source("same"), pool.source("changed")
        before = changes.count
        pool.apply([spec("new"), spec("changed", env={"A": "1"}), spec("same")])
        assert changes.count > before
        assert [view.name for view in pool.views()] == ["new", "changed", "same"]
        assert pool.source("same") is same
        assert pool.source("changed") is not changed
        assert same.view().state == "ready"
        with pytest.raises(KeyError):
            pool.source("gone")
        await pool.wait_settled(None, timeout=20)
        assert [view.state for view in pool.views()] == ["ready"] * 3
        assert {name: len(pids(log)) for name, log in logs.items()} == {"same": 1, "changed": 2, "gone": 1, "new": 1}
        assert not alive(pids(logs["changed"])[0])
        with pytest.raises(UpstreamUnavailable, match="'changed' is restarted with a new configuration"):
            await changed.call_tool("echo", {})
    assert not any(alive(pid) for log in logs.values() for pid in pids(log))


async def test_the_same_configuration_again_changes_nothing(raw_server: Any, pool_of: Any, changes: Any) -> None:
    async with pool_of(raw_server(), on_change=changes) as pool:
        before = changes.count
        pool.apply([raw_server()])
        assert changes.count == before


async def test_calls_in_flight_to_a_server_that_is_removed_end_immediately(raw_server: Any, pool_of: Any) -> None:
    failures: list[UpstreamCallError] = []
    ended = anyio.Event()

    async def hang(source: Any) -> None:
        with pytest.raises(UpstreamCallError) as caught:
            await source.call_tool("hang", {})
        failures.append(caught.value)
        ended.set()

    async with pool_of(raw_server("stubborn", name="gone"), raw_server(name="same")) as pool:
        same = pool.source("same")
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(10):
                async with anyio.create_task_group() as doomed:
                    doomed.start_soon(hang, pool.source("gone"))
                    await pool.source("gone").call_tool("echo", {})
                    tasks.start_soon(same.call_tool, "hang", {})
                    await same.call_tool("echo", {})
                    with anyio.move_on_after(1) as prompt:
                        # A stubborn server takes two seconds to stop; its callers do not wait for that.
                        pool.apply([raw_server(name="same")])
                        await ended.wait()
                    assert not prompt.cancelled_caught
            assert text(await same.call_tool("echo", {"text": "still here"})) == "still here"
            tasks.cancel_scope.cancel()
    assert failures[0].dispatched
    assert failures[0].message == (
        "server 'gone' was removed from the configuration; it is unknown whether the server acted on tool 'hang'"
    )


async def test_a_call_that_waits_for_a_server_that_is_removed_was_never_sent(raw_server: Any) -> None:
    async with UpstreamPool([raw_server("silent", "probe_silent")]) as pool, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(UpstreamUnavailable, match="nothing was sent"):
                await pool.source("srv").call_tool("echo", {})

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        pool.apply([])
        assert pool.views() == ()


async def test_a_broken_set_of_servers_changes_nothing(raw_server: Any, pool_of: Any) -> None:
    async with pool_of(raw_server()) as pool:
        with pytest.raises(ValueError, match="same name"):
            pool.apply([raw_server(name="a"), raw_server(name="a")])
        assert pool.views()[0].state == "ready"
    with pytest.raises(RuntimeError, match="while it is open"):
        pool.apply([])


async def test_changes_in_quick_succession_leave_the_last_one(raw_server: Any, pool_of: Any, starts: Path) -> None:
    async with pool_of(raw_server(f"pid={starts}")) as pool:
        for number in range(10):
            pool.apply([raw_server(f"pid={starts}", env={"NUMBER": str(number)})])
        await pool.wait_settled(None, timeout=20)
        environment = json.loads(text(await pool.source("srv").call_tool("environment", {}, timeout=20)))
        assert environment["NUMBER"] == "9"
        assert sum(map(alive, pids(starts))) == 1
    assert not any(map(alive, pids(starts)))


async def test_runs_are_told_apart_by_who_asks(raw_server: Any, pool_of: Any) -> None:
    async def ask(question: Question) -> JsonObject:
        raise AssertionError(question)

    async with pool_of(raw_server(max_concurrent_calls=1)) as pool:
        outcome = await pool.source("srv").call_tool("echo", {"text": "hi"}, asking=Asking("run", ask))
        assert text(outcome) == "hi"
