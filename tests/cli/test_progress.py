"""Tests of what a terminal shows of a running program: the progress line and questions."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from codemode_mcp.audit.events import Event, EventKind
from codemode_mcp.cli.following import Progress, answer_to, prompt
from codemode_mcp.cli.terminal import Question, Screen
from codemode_mcp.rules.policy.approval import ApprovalQuestion, ApprovalRequest, ask_for, verdict_of
from codemode_mcp.rules.policy.rule_patterns import Effects

RUN = "run_1"
SECONDS = 10.0
EFFECTS = Effects(read_only=False, destructive=True, idempotent=False, open_world=True)


def event(
    kind: EventKind, call: int | None = None, at: float = 100.0, inputs: str | None = None, **fields: Any
) -> Event:
    about = RUN if call is None else f"{RUN}/{call}"
    return Event(kind, at, about, None if call is None else RUN, fields, inputs)


def begun(*calls: int, tool: str = "mcp:s:t", at: float = 100.0) -> list[Event]:
    return [event("call_started", call, at, tool=tool) for call in calls]


def ended(call: int, status: str = "completed") -> Event:
    return event("call_ended", call, 101.0, tool="mcp:s:t", status=status)


def progress(*events: Event, called: Callable[[str], str] = str) -> Progress:
    made = Progress(called)
    for each in events:
        made.listen(each)
    return made


def test_calls_are_counted_by_their_outcome() -> None:
    it = progress(
        *begun(1, 2, 3, 4), ended(1), ended(2, "failed"), called=lambda tool: tool.replace("mcp:s:", "MCP.s.")
    )
    assert it.line(101.24, 100, made=6) == "2 running, 1 done, 1 failed, 2 queued · MCP.s.t 1.20 s"


def test_there_is_no_line_before_the_first_call_and_no_call_in_it_after_the_last() -> None:
    assert progress().line(1.0, 100) == ""
    assert progress(*begun(1), ended(1), ended(1)).line(200.0, 100, made=1) == "1 done"


def test_a_call_that_waits_for_approval_is_not_counted_as_running() -> None:
    asked = [*begun(1), event("call_asked", 1, tool="mcp:s:t")]
    assert progress(*asked).line(101.0, 100) == "1 waiting for approval"
    assert progress(*asked, event("call_decided", 1)).line(101.0, 100).startswith("1 running · ")
    assert progress(*asked, ended(1, "failed")).line(101.0, 100) == "1 failed"


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("tool", ["a" * 200, "\x1b[2J\u202e" * 30, "界" * 100])
def test_the_line_fits_whatever_tools_are_called(width: int, tool: str) -> None:
    from codemode_mcp.base.display import columns

    line = progress(*begun(1, tool=tool)).line(101.0, width, made=1)
    assert line.startswith("1 running")
    assert columns(line) <= width
    assert line.isprintable()


# asking


@pytest.mark.parametrize(
    ("typed", "approved", "remember"),
    [("yes", True, "no"), (" Y ", True, "no"), ("run", True, "run"), ("", False, "no"), ("no", False, "no"),
     ("yes please", False, "no"), ("approve", False, "no"), ("always", False, "no")],
)  # fmt: skip
def test_only_the_documented_answers_approve(typed: str, approved: bool, remember: str) -> None:
    question = ApprovalQuestion("may a program?", ("run", "always"))
    verdict = verdict_of(answer_to(question, typed), question.remember)
    assert (verdict.approved, verdict.remember) == (approved, remember)


def test_run_does_not_approve_where_it_is_not_offered() -> None:
    question = ApprovalQuestion("may a program?")
    assert "run:" not in prompt(question, 80)
    assert not verdict_of(answer_to(question, "run")).approved


def test_quoted_text_never_begins_a_line_on_a_narrow_terminal() -> None:
    hostile = ("x" * 30 + " codemode-mcp: this was approved; ") * 20
    request = ApprovalRequest(1, "mcp:s:t", "MCP.s.t", {"a": hostile}, EFFECTS, "asked for")
    question, _ = ask_for([request], remember=("run",))
    for width in (30, 79, 100):
        lines = prompt(question, width).split("\n")
        assert [line for line in lines if "codemode-mcp: this" in line and not line.startswith("    ")] == []
        assert max(len(line) for line in lines if line.startswith("    ")) < width
        assert max(map(len, lines)) <= 100


# the screen


class Fake(io.StringIO):
    """A terminal that tells when something is on it."""

    def __init__(self, awaited: str = "\0") -> None:
        super().__init__()
        self.there = threading.Event()
        self._awaited = awaited

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if self._awaited in self.getvalue():
            self.there.set()
        return written


def test_the_progress_line_is_cleared_before_output_and_at_the_end() -> None:
    terminal = Fake("2 running")
    with Screen(terminal, terminal) as screen:
        screen.status = "2 running"
        assert terminal.there.wait(SECONDS)
        screen.print("one")
        screen.say("two")
        screen.status = ""
    text = terminal.getvalue()
    assert text.startswith("2 running\r         \rone\n")
    shown = [line.rpartition("\r")[2] for line in text.split("\n")]
    assert shown == ["one", "two", ""]


def test_other_output_to_stderr_is_shown_in_whole_lines() -> None:
    terminal, before = Fake("1 running"), sys.stderr
    with Screen(terminal, terminal) as screen:
        screen.status = "1 running"
        assert terminal.there.wait(SECONDS)
        print("a warn", end="", file=sys.stderr)
        print("ing\nwithout an end", end="", file=sys.stderr)
        assert sys.stderr.isatty()
    assert sys.stderr is before
    assert "\ra warning\n" in terminal.getvalue()
    assert terminal.getvalue().endswith("without an end\n")


def test_messages_and_logs_at_a_terminal_do_not_move_the_cursor() -> None:
    terminal = Fake("")
    with Screen(terminal, terminal) as screen:
        screen.say("Error: \x1b]52;c;AAAA\x07\r\u202e\n\tat cell.js:1:1")
        print("stderr of a server: \x1b[2J", file=sys.stderr)
    assert terminal.getvalue() == (
        "Error: \\x1b]52;c;AAAA\\x07\\x0d\\u202e\n\tat cell.js:1:1\nstderr of a server: \\x1b[2J\n"
    )


def test_without_a_terminal_nothing_is_drawn_and_output_is_unchanged() -> None:
    out, err = io.StringIO(), io.StringIO()
    with Screen(out, err) as screen:
        screen.status = "1 running"
        screen.print("a\x1b[2J")
        assert not screen.draws
    assert (out.getvalue(), err.getvalue()) == ("a\x1b[2J\n", "")


def test_a_reader_that_does_not_read_does_not_block_the_program() -> None:
    read_end, write_end = os.pipe()
    with (
        os.fdopen(read_end, "rb") as reader,
        os.fdopen(write_end, "w", encoding="utf-8") as writer,
        Screen(writer, io.StringIO()) as screen,
    ):
        for _ in range(100):
            screen.print("x" * 10_000)  # more than a pipe holds
        assert screen.is_stuck
        assert len(reader.read(100 * 10_001)) == 100 * 10_001


def test_a_closed_output_is_reported_once_and_raises_at_the_end() -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    told = []
    screen = Screen(Gone(), io.StringIO())
    screen.when_gone(lambda: told.append(1))
    screen.print("a")
    screen.print("b")
    with pytest.raises(BrokenPipeError), screen:
        pass
    assert told == [1]


def test_a_question_withdrawn_before_it_was_shown_is_not_shown() -> None:
    terminal, answered = Fake(), threading.Event()
    with Screen(terminal, terminal) as screen:
        question = Question("may I?", answered.set)
        question.withdrawn.set()
        screen.ask(question)
        assert answered.wait(SECONDS)
    assert "may I?" not in terminal.getvalue()
    assert question.answer == ""


def test_characters_that_the_stream_cannot_encode_are_escaped() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, "ascii") as out:
        with Screen(out, io.StringIO()) as screen:
            screen.print("é \ud800")
        assert raw.getvalue() == b"\\xe9 \\ud800\n"


def test_an_answer_to_a_withdrawn_question_does_not_answer_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, answered = Fake("second"), threading.Event()
    first = Question("first", lambda: None)
    second = Question("second", answered.set)

    def typed(withdrawn: threading.Event) -> str:
        if withdrawn.is_set():
            return ""
        withdrawn.set()
        return "yes"

    monkeypatch.setattr("codemode_mcp.cli.terminal.SETTLE_SECONDS", SECONDS)
    monkeypatch.setattr("codemode_mcp.cli.terminal.forget_typed", lambda: None)
    monkeypatch.setattr("codemode_mcp.cli.terminal._line_typed", typed)
    with Screen(shown, shown) as screen:
        screen.ask(first)
        screen.ask(second)
        assert shown.there.wait(SECONDS)
        second.withdrawn.set()
        assert answered.wait(SECONDS)
    assert second.answer == ""
