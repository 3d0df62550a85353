"""Tests of what `codemode-mcp trace` makes of a trajectory."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit import trajectory_files
from codemode_mcp.audit.trajectory_files import (
    Bar,
    NoTrace,
    Scale,
    duration,
    every,
    files_of,
    find,
    latest,
    size,
    trace_of,
)
from codemode_mcp.extensions.trace.timeline import as_json, drawn, listed, page

RUN = "run_abcdefghijklmnopqrstuvwx"
HOSTILE = "\x1b[2J\u202e</title><script>alert(1)</script>\" onload='x'"


def events(run: str = RUN, *, at: float = 1000.0, tool: str = "mcp:s:t") -> list[dict[str, Any]]:
    """Return a run of 2 s with two calls, suspended from 1 to 601 s."""
    call, request = f"{run}/1", f"req_of_{run}"
    told: list[dict[str, Any]] = [
        {"time": 0.0, "kind": "exec", "id": request, "request": "7", "input": {"sha256": "ab", "bytes": 3}},
        {"time": 0.1, "kind": "run_started", "id": run, "parent": request, "language": "javascript"},
        {"time": 0.3, "kind": "call_started", "id": call, "parent": run, "tool": tool, "queued_ms": 100},
        {"time": 0.7, "kind": "call_ended", "id": call, "parent": run, "status": "completed", "bytes": 99},
        {"time": 1.0, "kind": "parked", "id": run, "reason": "yield"},
        {"time": 1.0, "kind": "answered", "id": request, "status": "waiting", "run": run},
        {"time": 600.9, "kind": "wait", "id": "req_2", "request": "8", "run": run},
        {"time": 601.0, "kind": "restored", "id": run},
        {"time": 601.1, "kind": "call_started", "id": f"{run}/2", "parent": run, "tool": tool},
        {"time": 601.2, "kind": "call_asked", "id": f"{run}/2", "parent": run, "tool": tool, "reason": "ask"},
        {"time": 601.4, "kind": "call_decided", "id": f"{run}/2", "parent": run, "approved": False, "by": "client"},
        {"time": 601.5, "kind": "call_ended", "id": f"{run}/2", "parent": run, "tool": tool, "status": "failed",
         "code": "nested_tool_failed", "dispatched": False},
        {"time": 602.0, "kind": "run_ended", "id": run, "status": "failed", "code": "nested_tool_failed"},
        {"time": 602.0, "kind": "answered", "id": "req_2", "status": "failed", "run": run},
    ]  # fmt: skip
    return [{**event, "time": event["time"] + at, "pid": 1} for event in told]


def write(path: Path, *told: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in told)


def test_events_become_what_happened_when_whatever_their_order() -> None:
    trace = trace_of(RUN, reversed(events()))
    assert (trace.time, trace.status, trace.code) == (Bar(1000.1, 1602.0), "failed", "nested_tool_failed")
    first, second = trace.calls
    assert first.made == pytest.approx(1000.2)
    assert (first.time, first.status, first.size) == (Bar(1000.3, 1000.7), "completed", 99)
    assert second.asked == Bar(1601.2, 1601.4, "denied by client")
    assert trace.pauses == (Bar(1001.0, 1601.0, "yield"),)
    assert [(each.kind, each.number, each.status) for each in trace.requests] == [
        ("exec", "7", "waiting"),
        ("wait", "8", "failed"),
    ]


@pytest.mark.parametrize("count", range(15))
def test_a_run_of_which_only_the_beginning_is_recorded_is_drawn_as_far_as_it_is_known(count: int) -> None:
    trace = trace_of(RUN, events()[:count])
    assert list(drawn(trace, 100))
    assert page(trace)
    json.dumps(as_json(trace))


@pytest.mark.parametrize(
    "junk",
    [
        {"time": "soon"},
        {"time": 1e400, "kind": "exec", "id": 3},
        {"time": True, "kind": []},
        {"time": 1.0, "kind": "call_started", "id": None, "tool": 7, "input": 5},
        {"time": 1.0, "kind": "call_ended", "id": "x", "bytes": "many", "status": {}},
        {"time": 1.0, "kind": "restored", "id": RUN},
        {"time": 1.0, "kind": "answered", "id": "req_unknown"},
    ],
)
def test_events_that_are_not_as_we_write_them_break_nothing(junk: dict[str, Any]) -> None:
    trace = trace_of(RUN, [*events(), junk])
    assert list(drawn(trace, 100))
    assert page(trace)


def test_a_run_that_another_process_resumed_says_so() -> None:
    told = [*events(), {"time": 1600.95, "kind": "taken_over", "id": RUN, "pid": 77, "pending": 1}]
    trace = trace_of(RUN, told)
    assert [(each.at, each.process) for each in trace.takeovers] == [(1600.95, 77)]
    assert "taken over by process 77 after 10 min 1 s" in list(drawn(trace, 100))[1]
    assert 'class="taken"' in page(trace)
    assert "another process takes it over" in page(trace)
    assert as_json(trace)["takenOver"] == [{"at": 1600.95, "pid": 77}]
    assert "another process" not in page(trace_of(RUN, events()))


def test_the_file_of_the_second_process_alone_has_the_end_of_a_run(tmp_path: Path) -> None:
    own = [event for event in events() if event["time"] >= 1600.9]
    taken = [{"time": 1600.91 + number / 1000, "kind": "taken_over", "id": RUN, "pid": 77} for number in range(9)]
    write(tmp_path / "t.jsonl", own[0], *taken, *own[1:])
    (listed_one,) = latest(tmp_path / "t.jsonl", 5)
    assert (listed_one.id, listed_one.status) == (RUN, "failed"), "however often it was taken over"
    trace = find(tmp_path / "t.jsonl", RUN[:12])
    assert (trace.status, len(trace.takeovers), len(trace.calls)) == ("failed", 9, 1)
    assert "and 6 times more" in list(drawn(trace, 100))[1]


def test_a_long_pause_takes_little_of_the_width_and_order_is_kept() -> None:
    scale = Scale(0.0, 602.0, [Bar(1.0, 601.0)])
    places = [scale(moment) for moment in (0.0, 0.5, 1.0, 300.0, 601.0, 602.0)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert places[4] - places[2] < 0.08
    assert (scale(-5), scale(1000)) == (0.0, 1.0)


def test_a_scale_of_no_time_at_all_does_not_divide_by_it() -> None:
    assert 0.0 <= Scale(5.0, 5.0, [])(5.0) <= 1.0
    assert 0.0 <= Scale(5.0, 5.0, [Bar(5.0, None)])(5.0) <= 1.0


def test_the_terminal_shows_each_call_with_its_bar_and_fits_the_width() -> None:
    lines = list(drawn(trace_of(RUN, events()), 100))
    assert all(len(line) <= 100 for line in lines[2:])
    first, second = [line for line in lines if line.startswith("mcp:s:t")]
    assert re.search(r"░+█+", first)
    assert re.search(r"┊ *█*▒+", second)
    assert "500 ms  99 B" in first
    assert "failed: nested_tool_fai" in second
    assert "suspended 1 time for 10 min 0 s" in lines[0]


def test_without_unicode_it_is_drawn_in_ascii() -> None:
    assert all(line.isascii() for line in drawn(trace_of(RUN, events()), 100, unicode=False))


def test_text_of_programs_moves_no_cursor_and_is_no_markup() -> None:
    trace = trace_of(RUN, [*events(tool=HOSTILE)])
    assert all(line.isprintable() for line in [*drawn(trace, 100), *listed([trace])])
    text = page(trace)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_refers_to_nothing_and_runs_nothing() -> None:
    text = page(trace_of(RUN, events(tool=HOSTILE)))
    parsed = Page(text)
    assert parsed.open == []
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "a", "form", "base", "image", "use"}
    names = {name for name, _ in parsed.attributes}
    assert not names & {"src", "href", "xlink:href", "action", "srcset"}
    assert not any(name.startswith("on") for name in names)
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in parsed.attributes


def test_a_request_is_named_without_the_number_that_the_client_gave_it() -> None:
    text = page(trace_of(RUN, events()))
    assert "<code>exec</code>" in text
    assert "exec 7" not in text


def test_many_completed_calls_of_one_tool_in_a_row_share_a_row() -> None:
    told = [event for event in events() if not event["id"].startswith(f"{RUN}/")]
    for number in range(20):
        call = {"id": f"{RUN}/{number}", "parent": RUN, "pid": 1}
        tool = "mcp:s:one" if number < 18 else "mcp:s:two"
        told.append({**call, "time": 1000.2 + number / 100, "kind": "call_started", "tool": tool})
        told.append({**call, "time": 1000.205 + number / 100, "kind": "call_ended", "status": "completed", "bytes": 50})
    text = page(trace_of(RUN, told))
    assert text.count("mcp:s:one x18") == 1
    assert "<code>mcp:s:one</code>" not in text
    assert text.count("<code>mcp:s:two</code>") == 2
    assert "900 B" in text


def test_the_list_of_runs_has_calls_and_servers(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *events(), *events("run_other", at=5000.0, tool="mcp:github:list_issues"))
    head, other, run = listed(latest(path, 10))
    assert head.split() == ["RUN", "STATE", "BEGAN", "CALLS", "TOOK", "SERVERS"]
    assert re.fullmatch(r"run_other +failed \(nested_tool_failed\) .* UTC  2 +10 min 2 s +github", other)
    assert run.endswith("  s")


def test_a_run_is_found_by_the_beginning_of_its_id_in_all_files(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    told = events()
    write(tmp_path / "t.jsonl.10", *told[:4])
    write(tmp_path / "t.jsonl.2", *told[4:9], *events("run_other", at=5000.0))
    write(path, *told[9:])
    (tmp_path / "t.jsonl.bak").write_text("not ours")
    assert [each.name for each in files_of(path)] == ["t.jsonl.10", "t.jsonl.2", "t.jsonl"]
    assert find(path, RUN[:8]) == trace_of(RUN, told)
    assert [len(trace.calls) for trace in latest(path, 10)] == [2, 2]
    assert [trace.id for trace in latest(path, 10)] == ["run_other", RUN]
    assert [trace.id for trace in latest(path, 1)] == ["run_other"]


def test_lines_that_are_torn_or_no_events_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for event in events():
        write(path, event)
        with path.open("ab") as file:
            file.write(b'{"torn":"' + RUN.encode() + b"\n[1]\n\xff\xfe" + RUN.encode() + b"\n")
    assert find(path, RUN) == trace_of(RUN, events())


def test_what_was_lost_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *events(), {"time": 1002.0, "kind": "lost", "events": 17, "pid": 1})
    write(
        path,
        {"time": 9999.0, "kind": "lost", "events": 5, "pid": 1},
        {"time": 1002.0, "kind": "lost", "events": 3, "pid": 2},
    )
    trace = find(path, RUN)
    assert trace.lost == 17
    assert any("17 events were lost" in line for line in drawn(trace, 100))
    assert "17 events were lost" in page(trace)


def test_an_id_that_is_unknown_or_not_clear_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(NoTrace, match="which does not exist"):
        find(path, "run_x")
    write(path, *events("run_aa"), *events("run_ab"))
    with pytest.raises(NoTrace, match="several runs"):
        find(path, "run_a")
    with pytest.raises(NoTrace, match="no run whose id begins"):
        find(path, "run_x")
    assert find(path, "run_aa").id == "run_aa"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00035, "350 µs"),
        (0.0123, "12.3 ms"),
        (0.5, "500 ms"),
        (1.416, "1.42 s"),
        (200, "3 min 20 s"),
        (7200, "2 h 0 min"),
    ],
)
def test_durations_are_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert (size(812), size(1200), size(3_400_000)) == ("812 B", "1.2 kB", "3.4 MB")


@pytest.mark.parametrize(
    "junk", [{"kind": ["run_ended"]}, {"kind": {"a": 1}}, {"id": [RUN], "kind": "exec"}, {"kind": "parked", "pid": [1]}]
)
def test_lines_that_are_json_and_no_events_are_passed_over(tmp_path: Path, junk: dict[str, Any]) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *events(), {"time": 1000.5, "id": RUN, "run": RUN, **junk})
    assert find(path, RUN) == trace_of(RUN, events())
    assert [each.id for each in latest(path, 3)] == [RUN]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_pipe_in_the_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *events())
    os.mkfifo(tmp_path / "t.jsonl.1")
    assert files_of(path) == [path]


def test_no_more_is_read_in_one_go_than_a_line_of_ours_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_files, "MAX_LINE", 100)
    path = tmp_path / "runs.jsonl"
    lines = [{"kind": "run_started", "id": name} for name in ("a", "b" * 200, "c")]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    assert [event["id"] for event in every(path)] == ["a", "c"]
