"""Suspended and ended runs as text: nothing is lost, nothing damaged is taken, times go by the clocks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError, RuntimeUnavailable
from codemode_mcp.catalog.entries import OfferedNamespace
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.plugins.api import NamespaceTool, namespace_tool
from codemode_mcp.program import prepare as program
from codemode_mcp.program.esbuild import find_esbuild
from codemode_mcp.program.inspection import Insertion, SourceMap
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.typescript import transform
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs import end_records, records
from codemode_mcp.runs.calls.outcome import CallContext, CallRecord, Outcome, PendingCall, Usage
from codemode_mcp.runs.live_call import LiveCall
from codemode_mcp.runs.namespaces import OpenNamespace, OpenNamespaces
from codemode_mcp.runs.run import Run
from codemode_mcp.runs.store import StoredCall, bearer_of
from codemode_mcp.runs.views import Ledger, RunView
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError, NamespaceCall, Thrown, ToolCall
from tests.runs.fake_plugins import FakePlugins
from tests.values import replace

CATALOG = build([], policy=None)  # type: ignore[arg-type]  # nothing is decided of no tools
CALLER = Caller("owner", "http", "ann", frozenset({"b", "a"}))
NOW, WALL = 1000.25, 1_800_000_000.5
LATER, LATER_WALL = 7.5, 1_800_000_100.5
"""The clocks of another process, 100 s later."""

PRINTED = (
    r'[{"type":"text","text":"a\ud800\u00fc"}]',
    '[{"type":"json","value":{"x":[1.5,null,1152921504606846976]}}]',
)
"""The outputs of `full_run` in pieces, as they are stored."""

POSITIONS = Positions(
    "typescript",
    3,
    "await 1\nx\n",
    SourceMap(";;AAAA,CAAC;GAKS", 9, 1, (Insertion(2, 3, 4),)),
    Insertion(1, 1, 8),
)


def context(run_id: str = "run_1", caller: Caller = CALLER) -> CallContext:
    return CallContext(run_id, caller.owner or bearer_of(run_id), caller, CATALOG)


def live(call: ToolCall, **known: Any) -> LiveCall:
    record = CallRecord(call.id, call.target, **{"began": NOW - 2, **known})
    return cast("LiveCall", SimpleNamespace(call=call, record=record, executor="here", recorded=False, task=""))


def full_run() -> Run:
    """Return a run with some of everything."""
    run = Run(context(), "{}", NOW - 50, memory_limit=5_000_000)
    counts = run.context.counts
    counts.search, counts.describe, counts.call, counts.by_id = 1, 2, 3, 4
    run.positions = POSITIONS
    run.history = [{"type": "text", "text": "a\ud800ü"}, {"type": "json", "value": {"x": [1.5, None, 2**60]}}]
    run.outputs = run.history[1:]
    run.dropped = 12
    run.timers = {4: NOW + 30, 3: NOW - 1}
    run.timers_began = {4: NOW - 3, 3: NOW - 4}
    run.timer_was_last = True
    run.yields, run.yield_reason = [9, 11], "half done"
    run.requests += [messages.ApiSearch(12, "q", 3, "server"), messages.Header(13, "s", None, schema=True)]
    run.requests += [messages.Store(14, "key", '{"a":1}'), messages.Load(15, "key")]
    run.settled.extend([Completion(16, of_call=False), Completion(17, '{"a":"\\u00fc"}')])
    run.last_call, run.refused, run.looking_up = 20, 2, 0.75
    ended = CallRecord(2, "mcp:a:b", NOW - 20, "completed", NOW - 18.5, 77, dispatched=True, seen={"text_bytes": 4})
    run.recent.append(ended)
    run.track.add(ToolCall(17, "mcp:a:ended"), CallRecord(17, "mcp:a:ended", NOW - 5, "completed", NOW))
    run.track.total = 30
    run.waits, run.snapshots = 3, 2
    run.note("old")
    run.take_notes()
    run.note("new")
    run.approvals.restore(["mcp:a:b"], 2, "secret")
    run.questions.restore(7, 1)
    run.namespaces = NAMESPACES
    return run


def opened(**functions: NamespaceTool) -> OpenNamespaces:
    plugins = FakePlugins()
    plugins.add_tools("tracker", "list", "add")
    offered = OfferedNamespace("issues", "tracker", "issues", "Issues", ("list", "add"))
    return OpenNamespaces([OpenNamespace(offered, plugins.find("tracker"), functions)])


NAMESPACES = opened(add=namespace_tool("add", lambda title: {"title": title}), list=namespace_tool("list"))


def text_of(run: Run, **how: Any) -> str:
    return records.record_of(run, now=NOW, wall=WALL, **how)


def again(text: str, *, now: float = NOW, wall: float = WALL, printed: Sequence[str] = PRINTED) -> Run:
    return records.restore(text, printed=printed, context=context(), manifest="{}", now=now, wall=wall, ledger=Ledger())


# whole runs


def test_a_clock_that_was_put_back_meanwhile_puts_no_timer_off_and_nothing_began_later_than_now() -> None:
    run = again(text_of(full_run()), wall=WALL - 7200)
    assert run.timers[4] == pytest.approx(NOW + 33)
    assert max(run.began, *run.timers_began.values()) <= NOW


def test_a_run_that_is_read_again_writes_the_same_record() -> None:
    text = text_of(full_run())
    run = again(text)
    run.namespaces = NAMESPACES
    counts = records.counts_in(text)
    run.context = replace(run.context, counts=counts)
    assert text_of(run) == text
    assert text.isascii()


def test_all_of_a_run_is_there_again() -> None:
    before = full_run()
    text = text_of(before)
    run = again(text)
    assert run.state == "waiting"
    for name in (
        *("id", "history", "outputs", "dropped", "timers", "timers_began", "timer_was_last", "yields", "yield_reason"),
        *("requests", "last_call", "refused", "looking_up", "recent", "waits", "snapshots", "notes", "memory_limit"),
        *("positions", "began"),
    ):
        assert getattr(run, name) == getattr(before, name), name
    assert run.next_timer == NOW - 1
    assert list(run.settled) == [Completion(16, of_call=False)]
    assert run.approvals.state == (frozenset({"mcp:a:b"}), 2, "secret")
    assert (run.questions.state, run.track.total) == ((7, 1), 30)
    assert [view.id for view in run.call_views(NOW)] == [2]
    assert records.counts_in(text) == before.context.counts
    assert json.loads(text)[0]["namespaces"] == ["issues"]
    run.note("old")
    assert run.take_notes() == ("new",)


def test_the_caller_is_read_before_the_run() -> None:
    text = text_of(full_run())
    assert records.caller_in(text, "owner") == CALLER
    assert records.caller_in(text, bearer_of("run_1")) == replace(CALLER, owner=None)


def test_the_restrictions_of_the_caller_are_read_and_records_without_them_stay_as_they_were() -> None:
    text = text_of(full_run())
    assert json.loads(text)[0]["caller"] == {"kind": "http", "principal": "ann", "groups": ["a", "b"]}
    restricted = replace(CALLER, read_only=True, context="careful")
    run = full_run()
    run.context = replace(run.context, caller=restricted)
    written = text_of(run)
    assert records.caller_in(written, "owner") == restricted
    assert json.loads(written)[0]["caller"].keys() == {"kind", "principal", "groups", "readOnly", "context"}


def test_what_goes_out_with_the_answer_is_not_told_again() -> None:
    run = again(text_of(full_run(), reports_output=True))
    assert (run.outputs, run.take_notes()) == ([], ())
    assert len(run.history) == 2
    run.note("new")
    assert run.take_notes() == ()


def test_what_was_printed_is_written_once() -> None:
    run = full_run()
    assert records.printed_of(run) == "".join(PRINTED).replace("][", ",")
    assert "\\ud800" not in text_of(run)
    run.stored_outputs = 1
    assert records.printed_of(run) == PRINTED[1]
    run = again(text_of(full_run()))
    assert (run.stored_outputs, records.printed_of(run)) == (2, "")


@pytest.mark.parametrize("printed", [PRINTED[:1], PRINTED[1:], (), (*PRINTED, "[]", PRINTED[0])])
def test_a_run_is_refused_when_some_of_what_it_has_printed_is_missing(printed: tuple[str, ...]) -> None:
    with pytest.raises(ProgramError, match="some of its output is missing") as raised:
        again(text_of(full_run()), printed=printed)
    assert raised.value.code == "snapshot_restore_failed"


@pytest.mark.parametrize("printed", ["", "{}", "[1]", '[{"type":1}]', "[" * 100_000], ids=range(5))
def test_damaged_output_is_refused(printed: str) -> None:
    with pytest.raises(ProgramError, match="damaged"):
        again(text_of(full_run()), printed=(printed, PRINTED[1]))


def test_times_go_by_the_wall_clock_from_one_process_to_another() -> None:
    run = again(text_of(full_run()), now=LATER, wall=LATER_WALL)
    assert run.began == pytest.approx(LATER - 150)
    assert run.timers == pytest.approx({4: LATER - 70, 3: LATER - 101})
    assert run.ready(LATER)
    assert run.recent[0].milliseconds(LATER) == 1500
    stored = records.calls_of(with_calls(), now=NOW, wall=WALL)[-1]
    assert records.began_of(stored, now=LATER, wall=LATER_WALL) == pytest.approx(LATER - 102)


def test_the_record_of_another_run_is_refused() -> None:
    with pytest.raises(ProgramError, match="its record is that of another program") as raised:
        records.restore(
            text_of(full_run()), printed=PRINTED, context=context("run_2"), manifest="{}", now=NOW, wall=WALL
        )
    assert raised.value.code == "snapshot_restore_failed"


def test_a_restored_call_is_counted_once() -> None:
    run = again(text_of(full_run()))
    run.track.add_restored(ToolCall(20, "mcp:a:c"), CallRecord(20, "mcp:a:c", NOW))
    assert run.track.total == 30
    assert [view.id for view in run.call_views(NOW)] == [2, 20]


def test_what_is_nested_too_deep_to_be_written_is_said() -> None:
    run = full_run()
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    run.history.append({"type": "json", "value": deep})
    with pytest.raises(ProgramError) as raised:
        records.printed_of(run)
    while deep:  # its destructor is recursive
        deep = deep.pop()
    assert raised.value.code == "snapshot_limit_exceeded"


# calls


def test_what_a_store_has_of_a_call_is_not_written_again() -> None:
    run = with_calls()
    run.stored_ends = frozenset((17,))
    for each in (18, 20):
        run.calls[each].recorded = True
    stored = {each.id: each for each in records.calls_of(run, now=NOW, wall=WALL)}
    assert {number: (each.status, each.result, bool(each.body)) for number, each in stored.items()} == {
        17: ("settled", None, False),
        18: ("dispatched", None, False),
        19: ("dispatched", None, True),
        20: ("queued", None, False),
        21: ("queued", None, True),
    }


BY_ID = ToolCall(20, "plugin:p:t", None, 2, by_id=True, options='{"timeoutMs":5}')


def with_calls() -> Run:
    run = full_run()
    namespace = NamespaceCall(21, "issues", "add", ('"t"', None))
    for each in (
        live(ToolCall(18, "mcp:a:read", '{"x":1}'), dispatched=True, repeatable=True, began=NOW - 3),
        live(ToolCall(19, "mcp:a:pay", '{"secret":1}'), dispatched=True),
        live(BY_ID),
        live(NAMESPACES.tool_call(namespace), path="issues.add"),
    ):
        run.calls[each.call.id] = each
    run.calls[19].executor = "elsewhere"
    return run


def test_every_call_is_kept_with_what_it_takes_to_send_it() -> None:
    stored = {each.id: each for each in records.calls_of(with_calls(), now=NOW, wall=WALL)}
    assert {number: (each.status, each.repeatable, each.tool, each.executor) for number, each in stored.items()} == {
        17: ("settled", True, "mcp:a:ended", "here"),
        18: ("dispatched", True, "mcp:a:read", "here"),
        19: ("dispatched", False, "mcp:a:pay", "elsewhere"),
        20: ("queued", False, "plugin:p:t", "here"),
        21: ("queued", False, "plugin:tracker:add", "here"),
    }
    assert records.completion_of(stored[17].result or "") == Completion(17, '{"a":"\\u00fc"}')
    assert records.call_of(stored[18], NAMESPACES) == ToolCall(18, "mcp:a:read", '{"x":1}')
    assert records.call_of(stored[20], NAMESPACES) == BY_ID


def test_a_call_that_may_have_been_sent_is_kept_without_its_arguments_and_is_refused_when_it_is_made() -> None:
    stored = records.calls_of(with_calls(), now=NOW, wall=WALL)[2]
    assert "secret" not in stored.body
    assert json.loads(stored.body)["digest"] == records.digest(ToolCall(19, "mcp:a:pay", '{"secret":1}'))
    call = records.call_of(stored, NAMESPACES)
    assert (call.id, call.target, call.input) == (19, "mcp:a:pay", None)
    assert call.through is not None
    assert "may have been sent already" in call.through.refusal


def test_a_call_of_a_namespace_is_made_again_from_what_the_program_asked_for() -> None:
    stored = records.calls_of(with_calls(), now=NOW, wall=WALL)[-1]
    call = records.call_of(stored, NAMESPACES)
    assert call.through is not None
    assert call.through.map_input is not None
    assert (call.target, call.input, call.through.path) == ("plugin:tracker:add", '["t",null]', "issues.add")
    assert call.through.request == NamespaceCall(21, "issues", "add", ('"t"', None))
    gone = records.call_of(stored, OpenNamespaces())
    assert gone.through is not None
    assert "there is no namespace" in gone.through.refusal


def test_what_another_call_takes_is_not_sent() -> None:
    stored = {each.id: each for each in records.calls_of(with_calls(), now=NOW, wall=WALL)}
    with pytest.raises(ProgramError) as raised:
        records.call_of(replace(stored[20], body=stored[18].body), NAMESPACES)
    assert raised.value.code == "snapshot_restore_failed"


def test_a_settled_call_needs_no_body() -> None:
    stored = StoredCall(5, "mcp:a:b", "settled", repeatable=True)
    assert records.call_of(stored, NAMESPACES).target == "mcp:a:b"
    assert records.began_of(stored, now=NOW, wall=WALL) == NOW


def test_the_same_arguments_of_the_same_tool_have_the_same_digest() -> None:
    calls = [ToolCall(1, "a", "1"), ToolCall(2, "a", "1"), ToolCall(1, "a", None), ToolCall(1, "a1", None)]
    digests = [records.digest(call) for call in calls]
    assert (digests[0], len(set(digests))) == (digests[1], 3)
    assert all(len(each) == 32 for each in digests)


def test_a_call_whose_process_died_ends_with_an_unknown_outcome() -> None:
    completion = records.unknown_outcome(StoredCall(5, "mcp:a:pay", "dispatched", repeatable=False))
    assert completion.error is not None
    assert (completion.id, completion.error.name, completion.error.code) == (5, "ToolCallError", "nested_tool_failed")
    facts = {"tool": "mcp:a:pay", "dispatched": True, "repeatable": False, "outcome": "unknown"}
    assert json.loads(completion.error.data) == facts
    assert "mcp:a:pay" in completion.error.message
    assert "unknown" in completion.error.message
    assert records.completion_of(records.completion_text(completion)) == completion


# requests and ends, whatever is in them

texts = st.text(max_size=20)
numbers = st.integers(1, 2**40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_texts = json_values.map(json.dumps)
absent = st.none()
requests = st.one_of(
    st.builds(ToolCall, numbers, texts, json_texts | absent, st.integers(0, 5), by_id=st.booleans(), options=absent),
    st.builds(ToolCall, numbers, texts, chain=st.lists(texts, max_size=4).map(tuple), known=st.booleans()),
    st.builds(
        messages.ProgramEnd,
        numbers,
        numbers,
        texts,
        numbers,
        st.none() | st.builds(messages.Thrown, texts, texts, texts, st.booleans(), texts | absent),
    ),
    st.builds(NamespaceCall, numbers, texts, texts, st.lists(json_texts | absent, max_size=4).map(tuple)),
    st.builds(messages.ApiList, numbers, texts),
    st.builds(messages.ApiRead, numbers, texts),
    st.builds(messages.ApiSearch, numbers, texts, st.none() | st.integers(1, 99), st.none() | texts),
    st.builds(messages.Header, numbers, st.none() | texts, st.none() | texts, schema=st.booleans()),
    st.builds(messages.ToolSearch, numbers, texts, st.none() | st.integers(1, 99)),
    st.builds(messages.Describe, numbers, texts),
    st.builds(messages.Store, numbers, texts, json_texts),
    st.builds(messages.Load, numbers, texts),
    st.builds(messages.YieldControl, numbers, st.none() | texts),
    st.builds(messages.Timer, numbers, st.integers(0, 2**31 - 1)),
    st.builds(messages.ClearTimer, numbers, numbers),
)
completions = st.builds(
    Completion, numbers, json_texts, st.none() | st.builds(GuestError, texts, texts, texts, json_texts), st.booleans()
)


@settings(max_examples=150, deadline=None)
@given(requests)
def test_a_request_is_read_as_it_was_written(request: messages.Request) -> None:
    assert read(json.loads(json.dumps(msgspec.to_builtins(messages.message_of(request))))) == request


def read(raw: Any) -> messages.Request:
    return messages.request_of(msgspec.convert(raw, messages.RequestMessage))


def test_every_kind_of_request_is_written() -> None:
    kinds = {type(read(msgspec.to_builtins(messages.message_of(kind)))) for kind in ONE_OF_EACH}
    assert kinds == set(get_args(messages.Request))


ONE_OF_EACH: list[messages.Request] = [
    *(ToolCall(1, "t"), messages.ProgramEnd(1, 2, "report"), NamespaceCall(1, "n", "p", ())),
    *(messages.ApiList(1, ""), messages.ApiRead(1, ""), messages.ApiSearch(1, ""), messages.Header(1, None, None)),
    *(messages.ToolSearch(1, ""), messages.Describe(1, ""), messages.Store(1, "", "1"), messages.Load(1, "")),
    *(messages.SaveProgram(1, "", "", "javascript", ""), messages.YieldControl(1, None)),
    *(messages.Timer(1, 1), messages.ClearTimer(1, 1)),
]


@settings(max_examples=100, deadline=None)
@given(completions)
def test_a_completion_is_read_as_it_was_written(completion: Completion) -> None:
    assert records.completion_of(records.completion_text(completion)) == completion


@settings(max_examples=100, deadline=None)
@given(st.lists(json_values, max_size=4), json_values, st.integers(0, 4), st.booleans())
def test_an_end_is_read_as_it_was_written(values: list[Any], value: Any, told: int, failed: bool) -> None:
    outputs = tuple({"type": "json", "value": each} for each in values)
    usage = Usage(7, {"mcp": 5, "core": 2}, waits=2, call_count=9, snapshots=1, ms=1234)
    whole = Outcome("run_1", "owner", "completed", usage, outputs=outputs, notes=("n",), value=value)
    if failed:
        pending = (PendingCall("3", "core:timer", "executing", 5),)
        whole = replace(whole, status="failed", value=None, error="e", code="timeout", pending=pending, yielded="y")
    since = replace(whole, outputs=outputs[told:], dropped=3)
    assert end_records.outcome_of(end_records.outcome_text((since, whole))) == (since, whole)


def test_ends_that_differ_are_read_as_they_were_written() -> None:
    printed = {"type": "text", "text": "a"}
    failed = Outcome("run_1", "owner", "failed", Usage(), (printed,), error="e")
    whole = Outcome("run_1", "owner", "completed", Usage(waits=1), value=2)
    told = replace(whole, outputs=(printed,))
    for ends in ((failed, whole), (replace(told, outputs=({"type": "text", "text": "b"},)), told)):
        assert end_records.outcome_of(end_records.outcome_text(ends)) == ends


def test_a_large_output_is_written_once() -> None:
    outcome = Outcome("run_1", "owner", "completed", Usage(), ({"type": "text", "text": "x" * 10_000},))
    assert len(end_records.outcome_text((outcome, outcome))) < 11_000


def test_the_calls_of_an_end_have_taken_as_long_as_before() -> None:
    ended = CallRecord(1, "mcp:a:b", 1234.5678, "completed", 1236.1234, 5, dispatched=True, seen={"text_bytes": 3})
    continuing = CallRecord(2, "mcp:a:c", 1235.0, "executing")
    outcome = Outcome("run_1", "owner", "completed", Usage(calls=(ended, continuing)))
    _, read = end_records.outcome_of(end_records.outcome_text((outcome, outcome), now=1236.5))
    assert [each.milliseconds(99.0) for each in read.usage.calls] == [ended.milliseconds(0), 1500]
    assert read.usage.calls[0].seen == {"text_bytes": 3}


def test_a_view_is_read_as_it_was_written() -> None:
    view = RunView("run_1", "failed", "http", "ann", 5, 6, None, True, "timeout", 1, 2, 3, 4, 5, 6)
    assert end_records.view_of(end_records.view_text(view)) == view
    bare = RunView("run_1", "waiting", "stdio", None, 5)
    assert end_records.view_of(end_records.view_text(bare)) == bare


# positions


def thrown(*frames: str) -> Thrown:
    return Thrown("TypeError", "boom", "\n".join(f"    at {frame}" for frame in frames), engine=False, code=None)


async def test_errors_of_a_typescript_program_name_the_authors_lines_after_a_restart() -> None:
    try:
        esbuild = find_esbuild(None, environ=os.environ, cache_dir=Path("nowhere"))
    except RuntimeUnavailable as error:
        pytest.skip(error.message)
    source = (
        "interface A {\n  n: 1\n}\nconst a: A = { n: 1 }\nfunction f(x: A): never {\n  throw new Error('x')\n}\nf(a)"
    )
    found = inspect(source, "typescript")
    made = await program.typescript(found, lambda text: transform(esbuild, text, timeout=30))
    lines = made.code.split("\n")
    line = next(number for number, text in enumerate(lines, 1) if "throw new Error" in text)
    column = lines[line - 1].index("throw") + 1
    last = next(number for number, text in enumerate(lines, 1) if "f(a)" in text)
    # The engine puts two lines before the program.
    last_column = lines[last - 1].index("f(a)") + 1
    error = thrown(f"f (<input>:{line + 2}:{column})", f"<anonymous> (<input>:{last + 2}:{last_column})")
    run = full_run()
    run.positions = made.positions
    restored = again(text_of(run)).positions
    assert restored is not None
    assert restored.describe(error) == made.positions.describe(error)
    assert restored.frames(error) == ["at f (cell.ts:6:3)", "at cell.ts:8:1"]


def test_an_implicit_return_is_still_no_part_of_the_authors_line_after_a_restart() -> None:
    made = program.javascript(inspect("const n = 1\nnothing.at.all", "javascript"))
    run = full_run()
    run.positions = made.positions
    restored = again(text_of(run)).positions
    assert restored == made.positions
    assert restored is not None
    assert restored.author(2, len("return (") + 9) == (2, 9)


# what is not ours

RECORD = text_of(full_run())
STORED = records.calls_of(with_calls(), now=NOW, wall=WALL)[-1]
OUTCOME = Outcome(
    "run_1", "owner", "completed", Usage(calls=(CallRecord(1, "t", 1.0),)), ({"type": "text", "text": ""},)
)
READERS: dict[str, tuple[str, Any]] = {
    "record": (RECORD, again),
    "caller": (RECORD, lambda text: records.caller_in(text, "owner")),
    "counts": (RECORD, records.counts_in),
    "call": (STORED.body, lambda text: records.call_of(replace(STORED, body=text or "{"), NAMESPACES)),
    "began": (STORED.body, lambda text: records.began_of(replace(STORED, body=text or "{"), now=NOW, wall=WALL)),
    "completion": (records.completion_text(Completion(1, "2", GuestError("m"))), records.completion_of),
    "outcome": (end_records.outcome_text((OUTCOME, replace(OUTCOME, value=1))), end_records.outcome_of),
    "short outcome": (end_records.outcome_text((OUTCOME, OUTCOME)), end_records.outcome_of),
    "view": (end_records.view_text(RunView("run_1", "waiting", "stdio", None, 5)), end_records.view_of),
}
JUNK: list[Any] = [None, True, -1, 10**400, 1.5, float("inf"), "", "junk", "\ud800", [], [1], [[]], {}, {"format": 1}]


@pytest.mark.parametrize("kind", READERS)
def test_another_format_is_refused_by_name(kind: str) -> None:
    text, read = READERS[kind]
    with pytest.raises(ProgramError) as raised:
        read(text.replace('"format":1', '"format":2'))
    assert raised.value.code == "snapshot_restore_failed"
    assert "it was written by another version of codemode-mcp (format 2)" in raised.value.message


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "text", ["", "{", "null", "1", "[]", "[[]]", "{}", "[{},{}]", "[" * 100_000, '"format":1', "\0"]
)
def test_what_is_no_text_of_ours_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ProgramError) as raised:
        READERS[kind][1](text)
    assert raised.value.code == "snapshot_restore_failed"


@pytest.mark.parametrize("kind", ["record", "call", "completion", "outcome", "short outcome", "view"])
def test_no_member_may_be_missing_or_too_many(kind: str) -> None:
    text, read = READERS[kind]

    def parts(value: Any) -> list[dict[str, Any]]:
        return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]

    for number, part in enumerate(parts(json.loads(text))):
        for name in part:
            damaged = json.loads(text)
            del parts(damaged)[number][name]
            if name == "made":
                assert read(json.dumps(damaged)).made is None, "earlier versions wrote none"
                continue
            with pytest.raises(ProgramError):
                read(json.dumps(damaged))
        damaged = json.loads(text)
        parts(damaged)[number]["more"] = 1
        with pytest.raises(ProgramError):
            read(json.dumps(damaged))


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return every container with a key or an index into it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        places(value[key], found)
    return found


@contextmanager
def suppress_refusal() -> Iterator[None]:
    try:
        yield
    except ProgramError as error:
        if error.code != "snapshot_restore_failed":
            raise


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.data())
def test_a_text_that_was_tampered_with_is_read_or_refused_and_nothing_else(kind: str, data: st.DataObject) -> None:
    text, read = READERS[kind]
    if data.draw(st.booleans(), "in its structure"):
        value = json.loads(text)
        for _ in range(data.draw(st.integers(1, 3))):
            found = places(value, [])
            container, key = found[data.draw(st.integers(0, len(found) - 1))]
            container[key] = deepcopy(data.draw(st.sampled_from(JUNK) | json_values))
        text = json.dumps(value)
    else:
        at, length = data.draw(st.integers(0, len(text) - 1)), data.draw(st.integers(0, 20))
        inserted = data.draw(st.text(alphabet='{}[]",:0123456789eE-.truefalsn\\u', max_size=6))
        text = text[:at] + inserted + text[at + length :]
    made: Any = None
    with suppress_refusal():
        made = read(text)
    if isinstance(made, Run):
        # What was let through can be lived with.
        made.view(NOW)
        made.call_views(NOW)
        made.ready(NOW)
        text_of(made)
