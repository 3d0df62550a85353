"""kill -9 at every point; see `model` for what must hold. Much more of it: `python -m tests.faults crashes`.

And the judge of it: it reads the tables of the product, and finds histories that they do not permit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.runs import state
from tests.faults.crashes import Crashes, Orders, on_sqlite
from tests.faults.histories import Broken, Histories
from tests.faults.instruments import NAMES
from tests.faults.stored import Recorded, in_postgres
from tests.faults.worker import Nursery, Server
from tests.stores.postgres_server import PostgresServer


def test_every_promise_is_kept_by_processes_on_one_file(recorded: Recorded) -> None:
    figures = recorded.figures
    assert figures.done >= 24
    # Whatever the machine did meanwhile: much of what this is about has happened.
    assert figures.counts["completed"] > 5
    assert figures.counts["unknown"] + figures.counts["repeated"] > 0
    assert len(figures.faults) > 5
    assert figures.judged == recorded.judge().counts
    assert figures.judged["continued runs"] > 5
    assert figures.judged["sends after a claim"] > 5


def test_every_promise_is_kept_by_processes_on_postgres(
    births: Nursery, tmp_path: Path, engine_cache: Path, postgres: PostgresServer
) -> None:
    store = postgres.url("crashes")
    orders = Orders(10, 1, store, folder=tmp_path, engine=engine_cache, processes=3, clients=8, completed=1)
    figures = asyncio.run(Crashes(births, orders, in_postgres(postgres.sql, "crashes")).run())
    assert figures.done >= 10
    assert figures.counts["completed"] > 0


@pytest.mark.parametrize(
    ("broken", "orders"),
    [
        ("dispatching", {"shapes": ("suspended_append",), "points": ("after:act", "answered:act")}),
        ("checkpoint", {"shapes": ("suspended_append",), "points": ("after:act", "answered:act")}),
        ("claims", {"parallel": 0.8, "shapes": ("suspended_slow", "all")}),
        ("told", {"shapes": ("suspended_slow", "all", "yield")}),
        ("end", {"shapes": ("suspended_slow",)}),
        ("permission", {"shapes": ("suspended_append",)}),
        ("states", {"shapes": ("suspended_append",)}),
        ("task", {"shapes": ("suspended_task",)}),
    ],
    ids=["dispatching", "checkpoint", "claims", "told", "end", "permission", "states", "task"],
)
def test_what_is_broken_on_purpose_is_found(
    broken: str, orders: dict[str, Any], births: Nursery, tmp_path: Path, engine_cache: Path
) -> None:
    chosen = {"crashes": 40, "seed": 7, "processes": 2, "clients": 6, "points": NAMES, "patience": 80.0, **orders}
    # Which promise is the first that is seen to be broken depends on who is faster.
    with pytest.raises(Broken):
        on_sqlite(births, tmp_path, engine_cache, broken=broken, **chosen)


class Written:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def write(self, line: bytes) -> None:
        self.found.append(json.loads(line))


def test_a_request_that_is_dropped_before_its_task_begins_is_answered() -> None:
    async def answers() -> list[Any]:
        reader, lines = asyncio.StreamReader(), Written()
        for command in ({"do": "wait", "request": 1, "run": "run_a"}, {"do": "drop", "request": 1}):
            reader.feed_data(json.dumps(command).encode() + b"\n")
        reader.feed_eof()
        unused: Any = None  # no code of the request runs
        await Server(unused, unused, unused, lines).serve(reader)  # type: ignore[arg-type]
        return lines.found

    assert asyncio.run(answers()) == [{"request": 1, "dropped": True}]


Lines = list[dict[str, Any]]


class Story:
    """Makes the lines and rows that processes and a store would leave. A process has the number of its id."""

    def __init__(self) -> None:
        self.lines: Lines = []
        self.rows: list[str] = []

    def process(self, pid: int) -> Story:
        return self.line(pid, what="process", process=f"p{pid}")

    def run(self, pid: int, *custodies: str, states: tuple[str, ...] = ("running",)) -> Story:
        """A run in a new object of a process."""
        about = {"life": 1, "run": "r"}
        self.line(pid, what="custody", new=True, state="local", **about)
        for number, each in enumerate(states):
            self.line(pid, what="run", new=number == 0, state=each, **about)
        return self.custody(pid, *custodies)

    def custody(self, pid: int, *custodies: str) -> Story:
        for each in custodies:
            self.line(pid, what="custody", new=False, state=each, life=1, run="r")
        return self

    def call(self, pid: int, *states: str, repeatable: bool = False, **said: Any) -> Story:
        """A call in a new object of a process, which goes through these states after the first."""
        self.line(pid, what="call", new=True, state="queued", life=2, of=1, call=1, key="t/1", repeatable=repeatable)
        return self.on(pid, *states, **said)

    def on(self, pid: int, *states: str, recorded: bool = False, executor: str = "here") -> Story:
        for each in states:
            self.line(pid, what="call", new=False, state=each, life=2, recorded=recorded, executor=executor)
        return self

    def act(self, pid: int) -> Story:
        return self.line(pid, what="act", key="t/1")

    def row(self, *rows: str) -> Story:
        self.rows += rows
        return self

    def judge(self) -> Histories:
        histories = Histories()
        for line in self.lines:
            histories.take(line)
        histories.judge_rows(self.rows)
        return histories

    def line(self, pid: int, **line: Any) -> Story:
        self.lines.append({"pid": pid, **line})
        return self


RUN_STORED = "run|r||||waiting|1|"
CALL_STORED = "call|r|1|||queued|p1|0"
CALL_CLAIMED = "call|r|1|queued|p1|dispatched|p1|0"


def stored() -> Story:
    """A run that its process has stored, with a call that was not sent yet."""
    return (
        Story()
        .process(1)
        .run(1, states=("running", "waiting"))
        .call(1, "ready")
        .custody(1, "stored")
        .row(RUN_STORED, CALL_STORED)
    )


def test_a_run_in_memory_sends_its_calls_without_a_store() -> None:
    Story().process(1).run(1).call(1, "ready", "dispatched").act(1).on(1, "settled").judge()


def test_a_stored_run_sends_its_calls_after_a_claim() -> None:
    story = stored().on(1, "recorded", "sending", "dispatched", recorded=True).row(CALL_CLAIMED).act(1)
    histories = story.on(1, "settled").row("call|r|1|dispatched|p1|settled|p1|0").judge()
    assert histories.counts["sends after a claim"] == histories.counts["acts"] == 1


def test_a_call_that_was_not_sent_is_sent_by_the_process_that_takes_the_run_over() -> None:
    story = stored().on(1, "recorded", "sending", recorded=True).process(2)
    story.row("run|r|waiting|1||waiting|2|p2", "call|r|1|queued|p1|queued|p2|0")
    story.run(2, "stored", states=("running", "waiting", "running"))
    story.call(2, "ready", "recorded", "sending", "dispatched", recorded=True)
    story.row("call|r|1|queued|p2|dispatched|p2|0").act(2).judge()


REFUSED: dict[str, tuple[Callable[[], Story], str]] = {
    "a call that is sent before anything is decided": (
        lambda: Story().process(1).run(1).call(1, "dispatched"),
        "went from queued to dispatched",
    ),
    "a call that is sent after its end": (
        lambda: Story().process(1).run(1).call(1, "ready", "settled", "dispatched"),
        "went from settled to dispatched",
    ),
    "a call that begins where none may": (
        lambda: (
            Story()
            .process(1)
            .run(1)
            .line(1, what="call", new=True, state="ready", life=2, of=1, call=1, key="", repeatable=True)
        ),
        "its state begins as ready",
    ),
    "a call of a stored run that is sent without a claim": (
        lambda: stored().on(1, "recorded", "dispatched", recorded=True),
        "the answer to `may_send` is claim",
    ),
    "a call that is sent before the store has it": (
        lambda: stored().on(1, "dispatched"),
        "the answer to `may_send` is wait",
    ),
    "a call of a run that another process has": (
        lambda: stored().custody(1, "lost").on(1, "dispatched"),
        "the answer to `may_send` is never",
    ),
    "a claim that the store never had": (
        lambda: stored().on(1, "recorded", "sending", "dispatched", recorded=True).act(1),
        "the store never knew it as dispatched",
    ),
    "a call that a server has, and nothing has sent": (
        lambda: Story().process(1).run(1).call(1, "ready").act(1),
        "where no step has sent it: queued > ready",
    ),
    "a call that a server has twice, and that was sent once": (
        lambda: Story().process(1).run(1).call(1, "ready", "dispatched", repeatable=True).act(1).act(1),
        "where no step has sent it",
    ),
    "a call that another process carries": (
        lambda: Story().process(1).run(1).call(1, "ready", "dispatched", executor="elsewhere").act(1),
        "where no step has sent it",
    ),
    "a call that must not be repeated, and that two processes send": (
        lambda: (
            stored()
            .on(1, "recorded", "sending", "dispatched", recorded=True)
            .row(CALL_CLAIMED)
            .process(2)
            .run(2, "stored")
            .call(2, "ready", "recorded", "sending", "dispatched", recorded=True)
        ),
        "was sent, after call 1",
    ),
    "a run that returns from another process": (
        lambda: stored().custody(1, "lost", "stored"),
        "went from lost to stored",
    ),
    "a run that ends twice": (
        lambda: Story().process(1).run(1, states=("running", "completed", "failed")),
        "went from completed to failed",
    ),
    "a run that is taken over, though no store had it": (
        lambda: Story().process(1).run(1).process(2).run(2, "stored"),
        "no durable store had it",
    ),
    "a run that is taken over after its end was stored": (
        lambda: stored().custody(1, "over").process(2).run(2, "stored"),
        "which cannot be lost to others",
    ),
    "a run whose end is stored by a process that has lost it": (
        lambda: stored().process(2).run(2, "stored").custody(1, "over"),
        "was taken over while it was stored, and is over afterwards",
    ),
    "a row of a run that ends without being resumed": (
        lambda: stored().row("run|r|waiting|1||completed|1|"),
        "went from waiting to completed",
    ),
    "a row of a run that is claimed after its end": (
        lambda: stored().row("run|r|completed|1||waiting|2|p2"),
        "went from completed to running",
    ),
    "a row of a call that is unsent again": (
        lambda: stored().row(CALL_CLAIMED, "call|r|1|dispatched|p1|queued|p2|0"),
        "went from dispatched to queued",
    ),
    "a row of a call that loses its end": (
        lambda: stored().row("call|r|1|queued|p1|settled|p1|0", "call|r|1|settled|p1|dispatched|p1|0"),
        "went from settled to dispatched",
    ),
    "a row of a settled call that changes hands": (
        lambda: stored().row("call|r|1|settled|p1|settled|p2|0"),
        "is settled, and has another executor",
    ),
    "a row of a call that is there again after its end was delivered": (
        lambda: stored().row("call|r|1|settled|p1|||0", CALL_STORED),
        "after its end was delivered",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_history_that_the_tables_do_not_permit_is_refused(case: str) -> None:
    make, said = REFUSED[case]
    with pytest.raises(Broken, match=said.replace("`", ".")):
        make().judge()


@pytest.mark.parametrize(
    ("case", "table", "was", "event", "becomes"),
    [
        ("a call that is sent before anything is decided", "CALL", "queued", "send", "dispatched"),
        ("a call that is sent after its end", "CALL", "settled", "send", "dispatched"),
        ("a run that returns from another process", "CUSTODY", "lost", "store", "stored"),
        ("a run that is taken over after its end was stored", "CUSTODY", "over", "lose", "lost"),
        ("a run that ends twice", "", "completed", "fail", "failed"),
        ("a row of a run that ends without being resumed", "", "waiting", "complete", "completed"),
        ("a row of a call that is unsent again", "CALL", "dispatched", "retract", "recorded"),
    ],
)
def test_a_transition_that_is_added_to_a_table_is_accepted(
    case: str, table: str, was: str, event: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"{table}_TRANSITIONS" if table else "TRANSITIONS"
    monkeypatch.setitem(getattr(state, named)[was], event, becomes)
    REFUSED[case][0]().judge()


@pytest.mark.parametrize(
    "case",
    [
        "a call of a stored run that is sent without a claim",
        "a call that is sent before the store has it",
        "a call of a run that another process has",
    ],
)
def test_calls_are_judged_by_the_permission_of_the_product(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "may_send", lambda *_, **__: "send")
    REFUSED[case][0]().judge()


@pytest.mark.parametrize(
    ("table", "was", "event"),
    [
        (state.TRANSITIONS, "running", "suspend"),
        (state.TRANSITIONS, "running", "complete"),
        (state.TRANSITIONS, "waiting", "resume"),
        (state.CALL_TRANSITIONS, "queued", "admit"),
        (state.CALL_TRANSITIONS, "ready", "record"),
        (state.CALL_TRANSITIONS, "ready", "send"),
        (state.CALL_TRANSITIONS, "recorded", "claim"),
        (state.CALL_TRANSITIONS, "sending", "send"),
        (state.CALL_TRANSITIONS, "dispatched", "settle"),
        (state.CUSTODY_TRANSITIONS, "local", "store"),
        (state.CUSTODY_TRANSITIONS, "stored", "call"),
        (state.CUSTODY_TRANSITIONS, "stored", "lose"),
        (state.CUSTODY_TRANSITIONS, "stored", "end"),
        (state.CUSTODY_TRANSITIONS, "needs_checkpoint", "checkpoint"),
    ],
)
def test_what_was_recorded_is_refused_by_tables_without_a_transition_that_it_went_through(
    table: dict[str, dict[str, str]], was: str, event: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(table[was], event)
    with pytest.raises(Broken):
        recorded.judge()


def test_what_was_recorded_is_refused_where_less_may_be_sent(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "may_send", lambda *_, **__: "never")
    with pytest.raises(Broken, match="is never"):
        recorded.judge()
