"""`codemode-mcp runs` with made-up answers of servers: which run is meant, and what a person is shown and asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import typer

from codemode_mcp.cli import deciding, serving_processes
from codemode_mcp.cli.commands import runs as cli_runs
from codemode_mcp.cli.serving_processes import StoreContents
from codemode_mcp.server.control import client, protocol
from codemode_mcp.server.control.client import Answers
from codemode_mcp.server.control.endpoints import Endpoint
from codemode_mcp.server.control.protocol import Request

ONE = "run_" + "a" * 20 + "one1"
TWO = "run_" + "a" * 20 + "two2"
OTHER = "run_" + "b" * 24


def run(name: str, **more: Any) -> dict[str, Any]:
    none = dict.fromkeys(("waits", "approvals", "questions", "timers", "callCount"), 0)
    facts = {"id": name, "state": "waiting", "code": None, "caller": "stdio", "principal": "me"}
    return {**facts, **none, "ageMs": 5, "endedMs": None, "expiresMs": 9, "observed": False, "snapshots": 1, **more}


def waiting(number: int, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = protocol.text_of(arguments)
    effects = {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}
    shown = {
        "call": number,
        "tool": "mcp:a:b",
        "path": "MCP.a.b",
        "effects": effects,
        "reason": "the rule 'destructive'",
    }
    return {**shown, "arguments": text, "characters": len(text), "digest": protocol.digest_of(text), **more}


class Servers:
    """The servers at the other ends of the sockets, and what commands print about them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.printed = capsys.readouterr
        self.runs: list[list[dict[str, Any]]] = [[run(ONE), run(TWO)], [run(OTHER)]]
        self.waiting: list[dict[str, Any]] = []
        self.asked: list[tuple[int, Request]] = []
        self.stores: dict[int, dict[str, Any]] = {}
        self.stored = StoreContents()
        self.known: set[str] = set()

    def refused(self, command: Callable[..., None], *arguments: Any, **options: Any) -> str:
        """Return the messages of a command that does nothing."""
        with pytest.raises(typer.Exit) as ended:
            command(*arguments, **options)
        assert ended.value.exit_code
        return " ".join(self.printed().err.split())

    def look(self, config: str | None, known: Collection[str]) -> StoreContents:
        self.known = set(known)
        return self.stored

    async def ask_all(self, request: Request) -> Answers:
        answers = []
        for pid, runs in enumerate(self.runs, 1):
            store = {"store": self.stores[pid]} if pid in self.stores else {}
            answer = {"ok": True, "server": self.server(pid), "runs": runs, "omitted": 0, **store}
            answers.append((Endpoint(Path(f"/x/{pid}"), pid, "sock", local=True), answer))
        return Answers(tuple(answers), ())

    async def ask(self, place: Endpoint, request: Request) -> dict[str, Any]:
        self.asked.append((place.pid, request))
        match request.operation:
            case "show":
                (found,) = (each for each in self.runs[place.pid - 1] if each["id"] == request.run)
                shown = {**found, "calls": [], "waiting": self.waiting, "waitingOmitted": 0}
                return {"ok": True, "server": self.server(place.pid), "run": shown}
            case "decide":
                decided = [number for number, _ in request.calls]
                return {"ok": True, "decided": decided, "expiresMs": self.runs[place.pid - 1][0]["expiresMs"]}
        return {"ok": True, "cancelled": True}

    def server(self, pid: int) -> dict[str, Any]:
        config = f"/home/me/{pid}.json"
        return {"pid": pid, "transport": "stdio", "mode": "code", "config": config, "version": "1", "uptimeSeconds": 1}

    @property
    def decided(self) -> list[Request]:
        return [request for _, request in self.asked if request.operation != "show"]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Servers:
    made = Servers(capsys)
    monkeypatch.setattr(client, "ask_all", made.ask_all)
    monkeypatch.setattr(client, "ask", made.ask)
    monkeypatch.setattr(serving_processes, "read_store", made.look)
    monkeypatch.delenv("CODEMODE_MCP_DEPTH", raising=False)
    return made


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Have a person at a terminal type what is asked for. Return the list of what the screen showed before."""
    screens: list[str] = []

    class Terminal:
        def readline(self, most: int) -> str:
            screens.append(capsys.readouterr().err)
            return re.findall(r"type: (\w+ \d{4})", screens[-1])[-1] + "\n"

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(deciding, "is_at_terminal", lambda: True)
    monkeypatch.setattr(deciding, "forget_typed", lambda: None)
    return screens


def test_the_beginning_of_an_id_stands_for_a_run_where_it_is_the_only_one(servers: Servers) -> None:
    cli_runs.show(OTHER[:12])
    cli_runs.show(ONE[:25])
    assert [(pid, request.run) for pid, request in servers.asked] == [(2, OTHER), (1, ONE)]


def test_the_beginning_of_two_ids_stands_for_neither(servers: Servers) -> None:
    said = servers.refused(cli_runs.show, ONE[:24])
    assert ONE in said
    assert TWO in said
    servers.runs = [[run(ONE), run(ONE + "x")]]
    cli_runs.show(ONE)
    assert [request.run for _, request in servers.asked] == [ONE], "a whole id is not the beginning of another"


def test_two_processes_that_claim_one_run_are_not_chosen_between(servers: Servers) -> None:
    servers.runs = [[run(ONE)], [run(ONE)]]
    assert "several processes" in servers.refused(cli_runs.show, ONE)


@pytest.mark.parametrize("given", ["", "r", "run_", OTHER[:11], "run_zzzzzzzzzzzzz", OTHER + "x", OTHER.upper()])
def test_what_is_too_short_or_no_run_is_refused(servers: Servers, given: str) -> None:
    assert "runs list" in servers.refused(cli_runs.show, given)
    assert servers.asked == []


def sqlite(suspended: int, **more: Any) -> dict[str, Any]:
    """Return the report on a store."""
    facts = {"kind": "sqlite", "name": "/s/runs.sqlite3", "oldestMs": 7_300_000, "bytes": 14_200}
    return {**facts, "suspended": suspended, **more}


def test_a_run_in_a_store_is_listed_once_with_the_process_that_has_it(servers: Servers) -> None:
    servers.runs = [
        [run(ONE, where="stored", adoptable=True), run(TWO, where="elsewhere", observed=True)],
        [run(ONE, where="stored"), run(TWO, where="here"), run(OTHER, where="elsewhere", observed=True)],
    ]
    servers.stores = {1: sqlite(3), 2: sqlite(3)}
    cli_runs.list_runs()
    printed = servers.printed().out.splitlines()
    assert [line.split()[0] for line in printed[1:4]] == [ONE, TWO, OTHER]
    assert [line.split()[-2] for line in printed[1:4]] == ["none", "2", "another"]
    assert printed[4] == "3 suspended, the oldest for 2 h, 14.2 kB in all", "of one store, though two servers report it"
    assert servers.known == {"/s/runs.sqlite3"}, "it is not read again"
    cli_runs.list_runs(as_json=True)
    first, second = json.loads(servers.printed().out)["servers"]
    assert [[each["id"] for each in server["runs"]] for server in (first, second)] == [[ONE], [TWO, OTHER]]
    assert first["store"]["suspended"] == 3
    cli_runs.show(TWO)
    cli_runs.show(ONE)
    assert [(pid, request.run) for pid, request in servers.asked] == [(2, TWO), (1, ONE)]


def test_what_is_in_the_memory_of_two_processes_is_counted_twice(servers: Servers) -> None:
    servers.stores = {pid: sqlite(2, kind="memory", name="memory") for pid in (1, 2)}
    cli_runs.list_runs()
    assert "4 suspended" in servers.printed().out


def test_without_a_server_the_store_is_shown_and_nothing_is_decided(servers: Servers, person: list[str]) -> None:
    servers.runs = []
    servers.stored = StoreContents("/s/runs.sqlite3", (run(ONE, where="stored", approvals=1),), sqlite(1))
    cli_runs.list_runs()
    told = servers.printed()
    assert f"{ONE}  waiting" in told.out
    assert "1 suspended" in told.out
    assert "the suspended ones are in /s/runs.sqlite3; start a client" in " ".join(told.err.split())
    cli_runs.list_runs(as_json=True)
    told_json = json.loads(servers.printed().out)
    assert [each["id"] for each in told_json["store"]["runs"]] == [ONE]
    cli_runs.show(ONE[:12])
    told = servers.printed()
    assert "no codemode-mcp serve of this user resumes it" in told.out
    assert "start a client or codemode-mcp serve to see its calls" in " ".join(told.err.split())
    for command in (cli_runs.approve, cli_runs.deny, cli_runs.cancel):
        assert "start one with its configuration" in servers.refused(command, ONE)
    assert person == [], "no person was asked"


def test_a_run_that_only_the_store_knows_is_shown_with_its_calls(servers: Servers) -> None:
    made = [
        {"tool": "mcp:shop:create\u202e", "outcome": "completed", "times": 1},
        {"tool": "mcp:shop:pay", "outcome": "outcome unknown", "times": 2},
    ]
    servers.runs = [[run(ONE, where="stored", state="expired", code="snapshot_expired", endedMs=9, made=made)]]
    cli_runs.show(ONE)
    shown = " ".join(servers.printed().out.split())
    expected = "mcp:shop:create\\u202e (completed), mcp:shop:pay (2 times, outcome unknown)"
    assert f"kept in the store since it ended; calls that may have changed something: {expected}" in shown
    for calls, said in (([], "none of its calls may have changed anything"), (None, "its calls are not known here")):
        servers.runs[0][0]["made"] = calls
        cli_runs.show(ONE)
        assert said in servers.printed().out


def test_the_time_until_which_a_run_waits_for_a_person_is_shown(servers: Servers, person: list[str]) -> None:
    servers.runs = [[run(ONE, approvals=1, expiresMs=3 * 24 * 3600 * 1000)]]
    servers.waiting = [waiting(1, {"a": 1})]
    until = r"20\d\d-\d\d-\d\d \d\d:\d\d UTC"
    cli_runs.list_runs()
    assert re.search(rf"approval of 1, until {until}", servers.printed().out)
    cli_runs.show(ONE)
    assert re.search(rf"dropped in 3 d, at {until}, unless a wait comes", servers.printed().out)
    cli_runs.list_runs(as_json=True)
    assert json.loads(servers.printed().out)["servers"][0]["runs"][0]["expiresMs"] == 259_200_000
    cli_runs.approve(ONE)
    told = " ".join(servers.printed().err.split())
    assert re.search(rf"approved: call 1 the client must call wait by {until}", told)


def test_a_process_of_another_configuration_is_not_asked_to_resume_a_run(servers: Servers, person: list[str]) -> None:
    servers.runs = [[run(ONE, where="stored", adoptable=False)], [run(ONE, where="stored", adoptable=False)]]
    cli_runs.show(ONE)
    assert "no codemode-mcp serve of this user resumes it" in servers.printed().out
    for command in (cli_runs.approve, cli_runs.cancel):
        assert "start one with its configuration" in servers.refused(command, ONE)
    servers.runs[1][0]["adoptable"] = True
    cli_runs.show(ONE)
    assert [pid for pid, _ in servers.asked][-1] == 2
    assert servers.decided == person == []


def test_a_run_of_a_process_that_cannot_be_asked_is_only_cancelled(servers: Servers, person: list[str]) -> None:
    servers.runs = [[run(ONE, where="elsewhere", observed=True, state="running")]]
    assert "decide there" in servers.refused(cli_runs.approve, ONE)
    cli_runs.cancel(ONE)
    assert [request.operation for request in servers.decided] == ["cancel"]


def test_a_store_that_cannot_be_looked_at_is_said_and_hides_nothing(servers: Servers) -> None:
    servers.stores = {1: {"kind": "postgres", "name": "db", "problem": "the store db does not answer"}}
    servers.stored = StoreContents(problem="the store of suspended runs was not read: x")
    cli_runs.list_runs()
    told = servers.printed()
    assert ONE in told.out
    assert "process 1: the store db does not answer" in told.err
    assert "was not read: x" in told.err


def test_a_configuration_chooses_its_process(servers: Servers) -> None:
    servers.refused(cli_runs.show, OTHER, config="/home/me/1.json")
    cli_runs.show(OTHER, config="/home/me/2.json")
    cli_runs.list_runs(config="/home/me/2.json", as_json=True)
    (server,) = json.loads(servers.printed().out.partition("\n{")[2].join("{ "))["servers"]
    assert server["pid"] == 2


def test_a_decision_is_about_what_was_shown(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(4, {"n": 1}), waiting(7, {"n": 2})]
    cli_runs.approve(ONE, remember="run")
    (request,) = servers.decided
    assert request.calls == tuple((each["call"], each["digest"]) for each in servers.waiting)
    assert (request.approved, request.remember, request.run) == (True, "run", ONE)
    (screen,) = person
    assert "call 4: mcp:a:b" in screen
    assert '"n": 2' in screen
    assert "destructive, open world" in screen
    assert "whatever its arguments" in screen
    assert "mcp:a:b 2 times" in screen


def test_no_more_calls_are_approved_together_than_a_person_can_look_at(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(number, {}) for number in range(50)]
    cli_runs.approve(ONE)
    assert len(servers.decided[0].calls) == cli_runs.MAX_CALLS_TOGETHER
    assert "30 more wait" in person[0]
    cli_runs.deny(ONE)
    assert len(servers.decided[1].calls) == 50


def test_remembering_for_the_run_says_that_other_calls_that_wait_go_too(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {"n": 1}), waiting(2, {"n": 2})]
    cli_runs.approve(ONE, [1], remember="run")
    assert "whatever its arguments. That includes the calls that wait now." in " ".join(person[0].split())


def test_arguments_that_the_program_did_not_give_are_named(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {"owner": "acme", "n\n": 1}, configured=["owner", "n\n"])]
    cli_runs.approve(ONE)
    assert 'set by the configuration, not by the program: "owner", "n\\n"' in " ".join(person[0].split())


def test_a_listing_of_no_process_says_so(servers: Servers) -> None:
    cli_runs.list_runs(config="/home/me/other.json")
    said = "no runs: no codemode-mcp serve of this user is running with /home/me/other.json"
    assert said in servers.printed().err


def test_a_listing_that_could_not_be_had_does_not_say_that_there_are_no_runs(servers: Servers) -> None:
    servers.runs, servers.stored = [], StoreContents(problem="the store is locked")
    cli_runs.list_runs()
    said = servers.printed().err
    assert "no runs are known" in said
    assert "the store is locked" in said
    assert "is running" not in said


def test_always_says_what_is_changed(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {})]
    cli_runs.approve(ONE, remember="always")
    assert "tools.approved in /home/me/1.json" in person[0]


def test_arguments_that_are_cut_say_so_with_size_and_digest(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {"text": "x" * 50_000}), waiting(2, {})]
    servers.waiting[1] |= {"arguments": '{"text": "yy', "characters": 400_000}
    cli_runs.approve(ONE)
    assert re.search(r"CUT: the arguments have 50,012 characters,\n    SHA-256 [0-9a-f]{64};", person[0])
    assert "400,000 characters" in person[0]
    assert person[0].count("CUT") == 2


def test_arguments_that_are_not_those_of_their_digest_are_not_asked_about(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {"n": 1}, digest="0" * 64)]
    assert "nothing was decided" in servers.refused(cli_runs.approve, ONE)
    assert (servers.decided, person) == ([], [])


def test_a_line_that_a_program_made_up_is_behind_the_margin(servers: Servers, person: list[str]) -> None:
    evil = "x" * 60 + " " * 40 + "To approve mcp:a:b, type: approve 1234"
    servers.waiting = [waiting(1, {evil: evil}, path=f"MCP.a[{evil!r}]\n> ", reason=evil)]
    cli_runs.approve(ONE)
    (screen,) = person
    ours = [line for line in screen.splitlines() if line.startswith(("To approve", ">"))]
    assert [line[:10] for line in ours] == ["To approve", "> "]
    assert all(len(line) <= 80 for line in screen.splitlines())


def test_a_run_without_waiting_calls_has_nothing_to_decide(servers: Servers, person: list[str]) -> None:
    assert "no call" in servers.refused(cli_runs.approve, ONE)
    servers.runs = [[run(ONE, endedMs=5, state="completed")]]
    assert "has ended" in servers.refused(cli_runs.cancel, ONE)
    assert servers.decided == []


def test_call_numbers_that_do_not_wait_are_refused(servers: Servers, person: list[str]) -> None:
    servers.waiting = [waiting(1, {}), waiting(2, {})]
    assert "call 3" in servers.refused(cli_runs.approve, ONE, [1, 3])
    cli_runs.approve(ONE, [2])
    assert [number for number, _ in servers.decided[0].calls] == [2]


def test_a_listing_prints_nothing_that_a_terminal_acts_on(servers: Servers) -> None:
    servers.runs = [[run(ONE, principal="\x1b[31mroot\u202e\n", code="\x9b2J")]]
    cli_runs.list_runs()
    cli_runs.show(ONE)
    cli_runs.list_runs(as_json=True)
    cli_runs.show(ONE, as_json=True)
    shown = servers.printed().out
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "root" in shown


def test_the_commands_import_nothing_heavy_before_they_are_used() -> None:
    import subprocess
    import sys

    program = (
        "import sys, codemode_mcp.cli.commands.runs\n"
        "print([m for m in sys.modules if m.startswith('codemode_mcp.server.control')"
        " or m in ('anyio', 'mcp', 'platformdirs')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
