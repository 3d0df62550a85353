"""The control socket with real connections: its admission, its limits, and its cleanup."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import ProgramError, StoreUnavailable
from codemode_mcp.rules.policy.approval import ApprovalRequest, Remember
from codemode_mcp.rules.policy.rule_patterns import Effects
from codemode_mcp.runs.store import Totals
from codemode_mcp.runs.views import CallView, RunView
from codemode_mcp.server.control import client, endpoints, server
from codemode_mcp.server.control.answers import Control, ServerFacts
from codemode_mcp.server.control.client import NoAnswer, ask, ask_all
from codemode_mcp.server.control.endpoints import Endpoint
from codemode_mcp.server.control.protocol import MAX_ANSWER, MAX_REQUEST, Request, digest_of, encode, encode_request
from codemode_mcp.server.control.server import listening

KINDS = [False, True] if sys.platform != "win32" else [True]
"""True for a port of loopback: the way of Windows, which works everywhere."""

BOUND = 30.0
"""Timeout in seconds, far longer than any step takes."""


def call_view(number: int, text: str | None = '{"secret": "hunter2"}') -> CallView:
    return CallView(number, "mcp:a:b", "executing", 1, 2, 3, True, False, text, len(text or ""))


class FakeRuns:
    """Runs that a test sets up."""

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {"run_one": RunView("run_one", "waiting", "stdio", "me", 5)}
        self.waiting: list[ApprovalRequest] = []
        self.decisions: list[tuple[Any, ...]] = []
        self.cancelled: list[str] = []
        self.fails: Exception | None = None
        self.stored: dict[str, RunView] = {}
        self.adopted: list[str] = []
        self.store = ("sqlite", "/runs.sqlite3")
        self.unavailable = False

    def wait_for(self, number: int, arguments: dict[str, Any]) -> None:
        self.waiting.append(
            ApprovalRequest(number, "mcp:a:b", "MCP.a.b", arguments, Effects.of(None), "the rule 'destructive'")
        )

    def views(self) -> list[RunView]:
        return list(self.runs.values())

    def view(self, run_id: str) -> RunView | None:
        return self.runs.get(run_id)

    def approvals(self, run_id: str) -> Sequence[ApprovalRequest]:
        return tuple(self.waiting) if run_id in self.runs else ()

    def decide(
        self, run_id: str, calls: Collection[int] | None, *, approved: bool, remember: Remember = "no", by: str
    ) -> list[int]:
        if self.fails is not None:
            raise self.fails
        assert calls is not None
        self.decisions.append((run_id, list(calls), approved, remember))
        return list(calls)

    async def cancel(self, run_id: str, serves: Callable[[str], bool]) -> bool:
        self.cancelled.append(run_id)
        return True

    async def stored_views(self) -> list[RunView]:
        if self.unavailable:
            raise StoreUnavailable("the store{at} does not answer", at=" /runs.sqlite3")
        return [view for run_id, view in self.stored.items() if run_id not in self.runs]

    async def take_over(self, run_id: str, serves: Callable[[str], bool]) -> bool:
        stored = self.stored.get(run_id)
        if stored is None or stored.ended_ms is not None or not serves(stored.owner):
            return False
        if stored.observed:
            raise ProgramError("invalid_input", "another client waits for this run already")
        self.adopted.append(run_id)
        self.runs[run_id] = stored
        return True

    async def totals(self) -> Totals:
        return Totals(2, 7.5, 1000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(dir=None if sys.platform == "win32" else "/tmp") as made:
        found = Path(made) / "control"
        found.mkdir(mode=0o700)
        yield found


def listed(folder: Path) -> set[Path]:
    return set(folder.iterdir())


def opened_up(folder: Path) -> None:
    folder.chmod(0o755)
    folder.parent.chmod(0o755)


def closed_off(folder: Path) -> None:
    """Replace the folder by a file, so that not even root can create something in it."""
    folder.rmdir()
    folder.write_text("not a folder", "utf-8")


@asynccontextmanager
async def serving(runs: FakeRuns, folder: Path, *, loopback: bool = False) -> AsyncIterator[Endpoint]:
    facts = ServerFacts("stdio", "code", None, "1")
    control = Control(runs, facts, lambda text: {"shape": f"{len(text)} characters"}, may_take_over="me".__eq__)
    with anyio.fail_after(BOUND):
        async with listening(control, loopback=loopback, folders=[folder]) as place:
            assert place is not None
            yield place


@asynccontextmanager
async def pretended(folder: Path, behave: Callable[[anyio.abc.SocketStream], Any]) -> AsyncIterator[Endpoint]:
    """Yield the endpoint of a process that behaves in some way of its own."""
    path = folder / "000000-1-aa.sock"
    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, behave)
        with anyio.fail_after(BOUND):
            yield Endpoint(path, 1, "sock", local=True)
        group.cancel_scope.cancel()


@asynccontextmanager
async def connected(place: Endpoint) -> AsyncIterator[anyio.abc.SocketStream]:
    if place.kind == "sock":
        stream: anyio.abc.SocketStream = await anyio.connect_unix(place.path)
    else:
        stream = await anyio.connect_tcp("127.0.0.1", json.loads(place.path.read_bytes())["port"])
    async with stream:
        yield stream


async def rest_of(stream: anyio.abc.SocketStream) -> bytes:
    """Return the remaining bytes."""
    found = b""
    try:
        async for chunk in stream:
            found += chunk
    except anyio.BrokenResourceError:
        pass  # closed with something of ours unread
    return found


async def answers_again(place: Endpoint) -> None:
    """Wait until there is room for a connection, which is the only sign that another one has ended."""
    while True:
        try:
            assert (await ask(place, Request("list")))["ok"]
            return
        except NoAnswer:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("loopback", KINDS)
async def test_a_server_is_found_asked_and_leaves_nothing_behind(folder: Path, loopback: bool) -> None:
    runs = FakeRuns()
    async with serving(runs, folder, loopback=loopback) as place:
        if sys.platform != "win32":
            assert place.path.stat().st_mode & 0o077 == 0
        found = await ask_all(Request("list"), [folder])
        assert found.problems == ()
        ((where, answer),) = found.answers
        assert where == place
        assert answer["server"]["pid"] == os.getpid()
        assert [run["id"] for run in answer["runs"]] == ["run_one"]
        assert (await ask(place, Request("cancel", "run_one")))["cancelled"] is True
    assert listed(folder) == set()
    assert (await ask_all(Request("list"), [folder])).answers == ()


async def test_what_is_only_in_a_store_is_taken_over_once_a_user_looks_at_it(folder: Path) -> None:
    runs = FakeRuns()
    runs.stored = {
        "run_one": RunView("run_one", "waiting", "stdio", "me", 5),
        "run_parked": RunView("run_parked", "waiting", "http", None, 6, owner="me"),
        "run_of_others": RunView("run_of_others", "waiting", "http", None, 6, owner="them"),
        "run_driven": RunView("run_driven", "running", "http", None, 7, observed=True, owner="them"),
        "run_over": RunView("run_over", "completed", "http", None, 8, ended_ms=1),
    }
    async with serving(runs, folder) as place:
        answer = await ask(place, Request("list"))
        assert {run["id"]: (run["where"], run["adoptable"]) for run in answer["runs"]} == {
            "run_one": ("here", False),
            "run_parked": ("stored", True),
            "run_of_others": ("stored", False),
            "run_driven": ("elsewhere", False),
            "run_over": ("stored", False),
        }
        assert "them" not in str(answer)
        facts = {"suspended": 2, "oldestMs": 7500, "bytes": 1000}
        assert answer["store"] == {"kind": "sqlite", "name": "/runs.sqlite3", **facts}
        places = {"run_parked": "here", "run_of_others": "stored", "run_driven": "elsewhere", "run_over": "stored"}
        for run_id, where in places.items():
            assert (await ask(place, Request("show", run_id)))["run"]["where"] == where
        assert runs.adopted == ["run_parked"]
        with pytest.raises(NoAnswer, match="no run 'run_nobodys'"):
            await ask(place, Request("show", "run_nobodys"))


async def test_a_decision_adopts_the_run_and_is_refused_where_another_process_has_it(folder: Path) -> None:
    runs = FakeRuns()
    runs.stored = {
        "run_parked": RunView("run_parked", "waiting", "http", None, 6, owner="me"),
        "run_driven": RunView("run_driven", "running", "http", None, 7, observed=True, owner="me"),
    }
    runs.wait_for(1, {})
    calls = ((1, digest_of("{}")),)
    async with serving(runs, folder) as place:
        assert (await ask(place, Request("decide", "run_parked", calls, approved=True)))["decided"] == [1]
        assert runs.decisions == [("run_parked", [1], True, "no")]
        with pytest.raises(NoAnswer, match="waits for this run already"):
            await ask(place, Request("decide", "run_driven", calls, approved=True))
        assert (await ask(place, Request("cancel", "run_driven")))["cancelled"] is True
        assert runs.cancelled == ["run_driven"], "its process is told to end it"


async def test_a_store_that_does_not_answer_hides_no_run_of_the_process(folder: Path) -> None:
    runs = FakeRuns()
    runs.unavailable = True
    async with serving(runs, folder) as place:
        answer = await ask(place, Request("list"))
        assert [run["id"] for run in answer["runs"]] == ["run_one"]
        assert answer["store"]["problem"] == "the store /runs.sqlite3 does not answer"
        assert (await ask(place, Request("show", "run_one")))["run"]["where"] == "here"


@pytest.mark.parametrize("loopback", KINDS)
async def test_two_servers_in_one_folder_answer_for_themselves(folder: Path, loopback: bool) -> None:
    first, second = FakeRuns(), FakeRuns()
    second.runs = {"run_two": RunView("run_two", "running", "http", None, 5)}
    async with serving(first, folder, loopback=loopback), serving(second, folder, loopback=loopback):
        found = await ask_all(Request("list"), [folder])
        assert sorted(run["id"] for _, answer in found.answers for run in answer["runs"]) == ["run_one", "run_two"]


async def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(folder: Path) -> None:
    async with serving(FakeRuns(), folder) as alive:
        host = alive.path.name.split("-")[0]
        ended = await anyio.run_process([sys.executable, "-c", "import os; print(os.getpid())"])
        stale = folder / f"{host}-{int(ended.stdout)}-aa.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.fspath(stale))
        async with serving(FakeRuns(), folder) as other:
            assert listed(folder) == {alive.path, other.path}
        # One that is found by a terminal, too.
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.fspath(stale))
        found = await ask_all(Request("list"), [folder])
        assert (len(found.answers), found.problems) == (1, ())
        assert not stale.exists()


async def test_a_process_of_another_user_gets_no_word(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FakeRuns(), folder) as place:
        monkeypatch.setattr(server, "peer_user", lambda _: os.geteuid() + 1)
        async with connected(place) as stream:
            await stream.send(encode_request(Request("list")))
            assert await rest_of(stream) == b""
        monkeypatch.setattr(server, "peer_user", lambda _: None)
        async with connected(place) as stream:
            assert await rest_of(stream) == b""


@pytest.mark.skipif(sys.platform == "win32", reason="the endpoint is a Unix socket")
async def test_a_terminal_says_that_a_process_closed_the_connection_with_the_request_unread(folder: Path) -> None:
    async def refuse(stream: anyio.abc.SocketStream) -> None:
        await anyio.wait_readable(stream.extra(anyio.abc.SocketAttribute.raw_socket))
        await stream.aclose()

    async with pretended(folder, refuse) as place:
        with pytest.raises(NoAnswer, match="no answer from process 1: it closed the connection"):
            await ask(place, Request("list"))


async def test_a_terminal_believes_no_server_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FakeRuns(), folder) as place:
        monkeypatch.setattr(client, "peer_user", lambda _: os.geteuid() + 1)
        with pytest.raises(NoAnswer, match="another user"):
            await ask(place, Request("list"))


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can become another user")
async def test_the_system_says_who_is_at_the_other_end(folder: Path) -> None:
    opened_up(folder)
    program = (
        "import os, socket, sys\n"
        "os.setuid(12345)\n"
        "with socket.socket(socket.AF_UNIX) as s:\n"
        "    s.connect(sys.argv[1])\n"
        "    sys.stdin.read()\n"
    )
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(folder / "s"))
        os.chmod(folder / "s", 0o777)
        listening.listen(1)
        process = await anyio.open_process([sys.executable, "-c", program, str(folder / "s")])
        async with process:
            accepted, _ = await anyio.to_thread.run_sync(listening.accept)
            with accepted:
                assert endpoints.peer_user(accepted) == 12345
            await process.stdin.aclose()  # type: ignore[union-attr]


@pytest.mark.parametrize("loopback", KINDS)
async def test_a_process_that_connects_and_says_nothing_is_let_go_and_delays_no_other(
    folder: Path, loopback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 0.5)
    async with serving(FakeRuns(), folder, loopback=loopback) as place, connected(place) as silent:
        assert (await ask(place, Request("list")))["ok"]
        heard = await rest_of(silent)
        assert heard.count(b"\n") == (1 if loopback else 0), "the nonce alone"


async def test_a_process_that_never_reads_is_let_go_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 0.5)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    runs = FakeRuns()
    runs.wait_for(1, {"text": "x" * 4_000_000})
    async with serving(runs, folder) as place, connected(place) as deaf:
        await deaf.send(encode_request(Request("show", "run_one")))
        await answers_again(place)
        data = await rest_of(deaf)
        assert 0 < len(data) < 300_000
        assert not data.endswith(b"\n"), "the answer was cut off"


async def test_connections_beyond_the_limit_are_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with serving(FakeRuns(), folder) as place:
        async with connected(place), connected(place), connected(place) as third:
            assert await rest_of(third) == b""
        await answers_again(place)


@pytest.mark.parametrize(
    "data", [b"x" * (MAX_REQUEST + 100_000) + b"\n", b"{}\n", b"\n", b'{"version":1}\n', b"\xff\n"]
)
async def test_what_is_no_request_is_answered_and_harms_nothing(folder: Path, data: bytes) -> None:
    async with serving(FakeRuns(), folder) as place:
        async with connected(place) as stream:
            with suppress(anyio.BrokenResourceError):
                await stream.send(data)
            answer = await rest_of(stream)
            if answer or len(data) < MAX_REQUEST:
                assert json.loads(answer)["ok"] is False
        assert (await ask(place, Request("list")))["ok"]


async def test_a_port_answers_no_client_without_the_token(folder: Path) -> None:
    runs = FakeRuns()
    runs.wait_for(1, {})
    async with serving(runs, folder, loopback=True) as place:
        for first in (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            encode({"nonce": "x", "proof": "0" * 64}),
            encode({"nonce": 7, "proof": None}),
            encode_request(Request("list")),
        ):
            async with connected(place) as stream:
                await stream.send(first + encode_request(Request("decide", "run_one", ((1, "x"),), approved=True)))
                heard = await rest_of(stream)
                assert b"run_one" not in heard
                assert b"proof" not in heard
        assert runs.decisions == []


async def test_a_stranger_at_the_port_of_a_server_that_has_ended_learns_neither_token_nor_request(folder: Path) -> None:
    heard = b""

    async def pretend(stream: anyio.abc.SocketStream) -> None:
        nonlocal heard
        async with stream:
            await stream.send(encode({"nonce": "a"}))
            heard += await stream.receive()
            await stream.send(encode({"proof": "0" * 64}))
            heard += await rest_of(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, pretend)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        path = folder / "000000-1-aa.json"
        path.write_bytes(encode({"port": port, "token": "t" * 64}))
        with anyio.fail_after(BOUND), pytest.raises(NoAnswer, match="does not know its own token"):
            await ask(Endpoint(path, 1, "json", local=False), Request("cancel", "run_one"))
        group.cancel_scope.cancel()
    assert b"t" * 64 not in heard
    assert b"cancel" not in heard


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"port": 0, "token": ""}', b'{"port": "1"}', b"x" * 100_000])
async def test_a_damaged_file_with_a_token_is_told(folder: Path, text: bytes) -> None:
    path = folder / "000000-1-aa.json"
    path.write_bytes(text)
    with pytest.raises(NoAnswer, match="damaged"):
        await ask(Endpoint(path, 1, "json", local=False), Request("list"))


@pytest.mark.parametrize("answer", [b"", b'{"ok": tr', b"[]\n", b"nonsense\n", b'{"ok": 1}\n', b'{"ok": "true"}\n'])
async def test_a_server_that_dies_or_lies_while_it_answers_is_reported(folder: Path, answer: bytes) -> None:
    async def die(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer:
                await stream.send(answer)

    async with pretended(folder, die) as place:
        with pytest.raises(NoAnswer):
            await ask(place, Request("list"))


async def test_a_server_that_never_answers_or_ends_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    endless = False

    async def never(stream: anyio.abc.SocketStream) -> None:
        try:
            async with stream:
                while endless:
                    await stream.send(b"x" * 65536)
                await anyio.sleep_forever()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async with pretended(folder, never) as place:
        with pytest.raises(NoAnswer, match="has not answered"):
            await ask(place, Request("list"))
        endless = True
        monkeypatch.setattr(client, "ANSWER_SECONDS", BOUND)
        with pytest.raises(NoAnswer, match=f"more than {MAX_ANSWER} bytes"):
            await ask(place, Request("list"))


# what is asked and decided


async def decide(place: Endpoint, *calls: dict[str, Any], approved: bool = True) -> list[int]:
    pairs = tuple((call["call"], call["digest"]) for call in calls)
    return (await ask(place, Request("decide", "run_one", pairs, approved)))["decided"]


async def test_only_calls_that_were_shown_are_decided(folder: Path) -> None:
    runs = FakeRuns()
    runs.wait_for(1, {"n": 1})
    runs.wait_for(2, {"n": 2})
    async with serving(runs, folder) as place:
        shown = (await ask(place, Request("show", "run_one")))["run"]["waiting"]
        assert [json.loads(call["arguments"]) for call in shown] == [{"n": 1}, {"n": 2}]
        runs.wait_for(3, {"n": 3})
        assert await decide(place, *shown) == [1, 2]
        assert runs.decisions == [("run_one", [1, 2], True, "no")]


async def test_a_call_whose_arguments_are_not_those_that_were_shown_is_not_decided(folder: Path) -> None:
    runs = FakeRuns()
    runs.wait_for(1, {"n": 1})
    async with serving(runs, folder) as place:
        shown = (await ask(place, Request("show", "run_one")))["run"]["waiting"]
        runs.waiting.clear()
        runs.wait_for(1, {"n": 1000})
        with pytest.raises(NoAnswer, match="other arguments than were shown"):
            await decide(place, *shown)
        runs.waiting.clear()
        assert await decide(place, *shown) == []
        assert runs.decisions == []


async def test_a_decision_that_is_refused_is_told_in_words(folder: Path) -> None:
    runs = FakeRuns()
    runs.wait_for(1, {})
    async with serving(runs, folder) as place:
        shown = (await ask(place, Request("show", "run_one")))["run"]["waiting"]
        runs.fails = ProgramError("invalid_input", "there is no configuration file")
        with pytest.raises(NoAnswer, match="no configuration file"):
            await decide(place, *shown)
        runs.fails = ZeroDivisionError("secret detail")
        with pytest.raises(NoAnswer, match="see its log") as failed:
            await decide(place, *shown)
        assert "secret detail" not in str(failed.value)
        assert (await ask(place, Request("list")))["ok"]


async def test_long_arguments_are_cut_with_their_size_and_every_run_can_be_shown(folder: Path) -> None:
    runs = FakeRuns()
    for number in range(300):
        runs.wait_for(number, {"text": '"' * 500_000})
    calls = tuple(call_view(number, "[" + '"x",' * 30_000 + "1]") for number in range(2000))
    runs.runs["run_one"] = RunView("run_one", "waiting", "stdio", "p" * 10_000, 5, calls=calls)
    async with serving(runs, folder) as place:
        view = (await ask(place, Request("show", "run_one")))["run"]
        assert view["waiting"]
        assert len(view["waiting"]) + view["waitingOmitted"] == 300
        assert all(len(call["arguments"]) < call["characters"] for call in view["waiting"])
        assert len(view["calls"]) == 2000
        assert await decide(place, view["waiting"][0]) == [0]


async def test_arguments_of_other_calls_are_told_as_the_operator_has_it(folder: Path) -> None:
    runs = FakeRuns()
    runs.runs["run_one"] = RunView("run_one", "running", "stdio", "me", 5, calls=(call_view(1), call_view(2, None)))
    async with serving(runs, folder) as place:
        answer = await ask(place, Request("show", "run_one"))
        assert "hunter2" not in json.dumps(answer)
        assert answer["run"]["calls"][0]["arguments"] == {"shape": "21 characters"}


async def test_a_run_that_waits_for_a_person_is_listed_however_many_there_are(folder: Path) -> None:
    runs = FakeRuns()
    runs.runs = {f"run_{n}": RunView(f"run_{n}", "waiting", "http", None, n) for n in range(1500)}
    runs.runs["run_old"] = RunView("run_old", "waiting", "http", None, 10**9, approvals=1)
    async with serving(runs, folder) as place:
        answer = await ask(place, Request("list"))
        assert (answer["runs"][0]["id"], len(answer["runs"]) + answer["omitted"]) == ("run_old", 1501)


async def test_a_run_that_is_not_there_is_told(folder: Path) -> None:
    async with serving(FakeRuns(), folder) as place:
        with pytest.raises(NoAnswer, match="no run 'run_two'"):
            await ask(place, Request("show", "run_two"))


async def test_without_a_private_folder_there_is_no_socket(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    closed_off(folder)
    control = Control(FakeRuns(), ServerFacts("stdio", "code", None, "1"), lambda _: {})
    async with listening(control, loopback=False, folders=[folder]) as place:
        assert place is None
    assert "cannot reach this process" in caplog.text
