"""OpenTelemetry: which spans there are, whose children they are, and what is in none of them."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from codemode_mcp.runs.manager import Cell
from codemode_mcp.server.direct_calls import DirectCalls, Target
from tests.runs.bench import CALLER, bench
from upstream_clients.testing import ScriptedSource, text_result

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the SDK of OpenTelemetry is not installed")

from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from codemode_mcp.audit.events import Auditor  # noqa: E402
from codemode_mcp.audit.spans import Spans  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.sandbox.engine import Engine

SECRET = "hunter2-of-the-config"


class Collector:
    """Everything that is sent."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.spans = Spans(lambda text: text.replace(SECRET, "***"), self.provider, self.meters)

    @property
    def ended(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        return {each.name: list(each.data.data_points) for scope in resource.scope_metrics for each in scope.metrics}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.provider.shutdown()
    made.meters.shutdown()


@pytest.mark.anyio
async def test_calls_are_children_of_their_run_and_the_run_of_the_request(engine: Engine, collector: Collector) -> None:
    seen: list[Any] = []

    def work(arguments: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return text_result(SECRET)

    async with bench(engine, ScriptedSource("s", {"work": work})) as it:
        it.auditor.add(collector.spans.record, collector.spans.current)
        tracer = trace.get_tracer("test", tracer_provider=collector.provider)
        with tracer.start_as_current_span("tools/call exec") as request:
            outcome = await it.manager.execute(
                Cell("await MCP.s.work({a: 1}); await yield_control(); await MCP.s.work({a: 2})", "javascript", CALLER)
            )
        with tracer.start_as_current_span("tools/call wait") as waiting:
            await it.observe(outcome.run_id)
    ended = collector.ended
    (run,) = ended["run"]
    calls = ended["execute_tool mcp:s:work"]
    assert run.parent.span_id == request.get_span_context().span_id
    assert [call.parent.span_id for call in calls] == [run.context.span_id] * 2
    assert {call.context.trace_id for call in calls} == {request.get_span_context().trace_id}
    assert waiting.get_span_context().trace_id != request.get_span_context().trace_id
    # Any caller that sends the call finds its span: so the trace continues to the upstream.
    assert seen == [call.context.span_id for call in calls]
    assert calls[0].attributes["gen_ai.tool.name"] == "mcp:s:work"
    assert calls[0].attributes["mcp.method.name"] == "tools/call"
    assert calls[0].attributes["codemode.status"] == "completed"
    assert calls[0].start_time <= calls[0].end_time
    assert [event.name for event in run.events] == ["parked", "restored"]
    assert run.attributes["codemode.run.calls"] == 2


class Observed(ScriptedSource):
    """A server with one tool. Its calls end in a chosen order, by their argument `n`.

    `seen` has the ids of the spans that were current when the call was sent and when it ended, by `n`.
    """

    def __init__(self, order: Sequence[int] = ()) -> None:
        super().__init__("s", {"work": text_result("done")})
        self._order = list(order)
        self._change = anyio.Event()
        self.seen: dict[int, list[int]] = {}

    async def call_tool(self, tool: str, arguments: Any, **options: Any) -> Any:
        number = arguments.get("n", 0)
        self.seen[number] = [current()]
        self._changed()
        while number in self._order and (self._order[0] != number or not self.seen.keys() >= set(self._order)):
            await self._change.wait()
        result = await super().call_tool(tool, arguments, **options)
        self.seen[number].append(current())
        if self._order:
            self._order.remove(number)
        self._changed()
        return result

    def _changed(self) -> None:
        self._change.set()
        self._change = anyio.Event()


def current() -> int:
    """The id of the current span; 0 without one."""
    return trace.get_current_span().get_span_context().span_id


@pytest.mark.anyio
async def test_calls_that_overlap_each_see_their_own_span_and_nothing_sees_it_afterwards(
    engine: Engine, collector: Collector
) -> None:
    source = Observed([2, 3, 1])
    async with bench(engine, source) as it:
        it.auditor.add(collector.spans.record, collector.spans.current)
        with anyio.fail_after(20):
            await it.execute("await Promise.all([1, 2, 3].map(n => MCP.s.work({ n })))")
    by_start = sorted(collector.ended["execute_tool mcp:s:work"], key=lambda span: span.start_time)
    assert source.seen == {number: [span.context.span_id] * 2 for number, span in enumerate(by_start, 1)}
    assert current() == 0


@pytest.mark.anyio
async def test_a_call_without_a_span_of_its_own_does_not_see_that_of_another_call(
    engine: Engine, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codemode_mcp.audit.spans.MAX_OPEN", 1)
    source = Observed([1, 2])
    async with bench(engine, source) as it:
        it.auditor.add(collector.spans.record, collector.spans.current)
        with anyio.fail_after(20):
            await it.execute("await Promise.all([1, 2].map(n => MCP.s.work({ n })))")
    (run,), (call,) = collector.ended["run"], collector.ended["execute_tool mcp:s:work"]
    assert source.seen == {1: [call.context.span_id] * 2, 2: [run.context.span_id] * 2}


@pytest.mark.anyio
async def test_a_call_without_a_program_sees_its_span(engine: Engine, collector: Collector) -> None:
    source = Observed()
    async with bench(engine, source) as it:
        it.auditor.add(collector.spans.record, collector.spans.current)

        async def dispatcher() -> Any:
            return it.dispatcher

        upstreams: Any = SimpleNamespace(
            settings=lambda: it.dispatcher_settings(it.rules), dispatcher=dispatcher, remembers=lambda: None
        )
        session = SimpleNamespace(modern=True, session_id=None, protocol_version="2026-07-28", capabilities={})
        exchange: Any = SimpleNamespace(params={}, session=session, caller=CALLER, request_id=1, wants_progress=False)
        catalog = it.catalog()
        entry = catalog.get("mcp:s:work")
        assert entry is not None

        async def target() -> Target:
            return Target(entry, catalog, "{}")

        calls = DirectCalls(upstreams, it.auditor)
        async with calls.running():
            assert (await calls.answer(exchange, target)).failure is None
    (call,) = collector.ended["execute_tool mcp:s:work"]
    assert source.seen == {0: [call.context.span_id] * 2}
    assert current() == 0


def test_events_leave_the_current_span_as_it_is(collector: Collector) -> None:
    auditor = Auditor()
    auditor.add(collector.spans.record, collector.spans.current)
    auditor.emit("run_started", "run_a", language="javascript")
    for call in ("run_a/1", "run_a/2"):
        auditor.emit("call_started", call, "run_a", tool="mcp:s:t")
        assert current() == 0
    with auditor.scope("run_a"):
        outer = current()
        with auditor.scope("run_a/1"):
            assert current() not in (0, outer)
        with pytest.raises(ValueError, match="a secret"), auditor.scope("run_a/2"):
            raise ValueError("a secret")
        assert current() == outer != 0
    auditor.emit("call_ended", "run_a/2", "run_a", tool="t", status="completed", ms=1, bytes=0, dispatched=True)
    assert not any(span.events for span in collector.exporter.get_finished_spans()), "no exception of a call"
    auditor.remove(collector.spans.record)
    with auditor.scope("run_a/1"):
        assert current() == 0


@pytest.mark.anyio
async def test_no_span_or_metric_holds_arguments_results_secrets_or_a_whole_run_id(
    engine: Engine, collector: Collector
) -> None:
    async with bench(engine, ScriptedSource("s", {SECRET: text_result("a result")})) as it:
        it.auditor.add(collector.spans.record, collector.spans.current)
        outcome = await it.execute(
            f"try {{ await tools.call('{SECRET}', {{a: 'an argument'}}) }} catch {{ }} throw new Error('an error')"
        )
    text = "".join(span.to_json() for span in collector.exporter.get_finished_spans()) + str(collector.metrics())
    assert "execute_tool ***" in text
    for hidden in (SECRET, "an argument", "a result", "an error", outcome.run_id):
        assert hidden not in text
    assert outcome.run_id[:12] in text


def test_metrics_count_runs_and_measure_calls(collector: Collector) -> None:
    auditor = Auditor(lambda: 1.0)
    auditor.add(collector.spans.record, collector.spans.current)
    for run in ("run_a", "run_b"):
        auditor.emit("run_started", run, language="javascript")
        auditor.emit("call_started", f"{run}/1", run, tool="mcp:s:t")
        auditor.emit(
            "call_ended", f"{run}/1", run, tool="mcp:s:t", status="completed", ms=250, bytes=1000, dispatched=True
        )
        auditor.emit("parked", run, reason="yield")
    auditor.emit("run_ended", "run_a", status="expired", code="snapshot_expired", calls=1, waits=0, snapshots=1)
    found = collector.metrics()
    assert [point.value for point in found["codemode.runs.started"]] == [2]
    assert [point.value for point in found["codemode.runs.parked"]] == [1]
    (ended,) = found["codemode.runs.ended"]
    assert (ended.value, dict(ended.attributes)) == (1, {"codemode.status": "expired"})
    (durations,) = found["codemode.call.duration"]
    assert (durations.count, durations.sum) == (2, 0.5)
    assert found["codemode.call.result.size"][0].sum == 2000


def test_a_run_that_another_process_takes_over_is_counted_and_ends_here(collector: Collector) -> None:
    auditor = Auditor(lambda: 1.0)
    auditor.add(collector.spans.record, collector.spans.current)
    auditor.emit("run_started", "run_a", language="javascript")
    auditor.emit("parked", "run_a", reason="yield")
    auditor.emit("left", "run_a", pending=0)
    (left,) = collector.ended["run"]
    assert [event.name for event in left.events] == ["parked", "left"]
    assert collector.metrics()["codemode.runs.parked"][0].value == 0
    auditor.emit("taken_over", "run_b", pending=1)
    assert collector.metrics()["codemode.runs.parked"][0].value == 1
    auditor.emit("restored", "run_b", ms=1)
    auditor.emit("call_started", "run_b/2", "run_b", tool="mcp:s:t")
    auditor.emit("run_ended", "run_b", status="completed", calls=1, waits=1, snapshots=1)
    assert collector.metrics()["codemode.runs.parked"][0].value == 0
    assert [event.name for event in collector.ended["run"][1].events] == ["taken over", "restored"]


def test_what_a_store_has_is_measured_by_its_kind(collector: Collector) -> None:
    auditor = Auditor()
    assert not auditor.measuring
    auditor.add_meter(collector.spans.measure)
    assert auditor.measuring
    auditor.measure("store_swept", "sqlite", suspended=3, oldest=60.5, size=4096)
    auditor.measure("store_used", "sqlite", seconds=0.25, failed=False)
    auditor.measure("store_used", "sqlite", seconds=1.0, failed=True)
    found = collector.metrics()
    for name, value in (("runs", 3), ("oldest", 60.5), ("size", 4096)):
        (point,) = found[f"codemode.store.{name}"]
        assert (point.value, dict(point.attributes)) == (value, {"codemode.store.kind": "sqlite"})
    durations = {point.attributes.get("error.type"): point.sum for point in found["codemode.store.duration"]}
    assert durations == {None: 0.25, "runtime_unavailable": 1.0}
    auditor.measure("store_swept", "sqlite", suspended=0, oldest=None, size=0)
    assert collector.metrics()["codemode.store.oldest"][0].value == 0


def test_a_name_without_a_tool_is_no_dimension_of_a_metric(collector: Collector) -> None:
    auditor = Auditor()
    auditor.add(collector.spans.record, collector.spans.current)
    for number in range(3):
        call = f"run_a/{number}"
        auditor.emit("call_started", call, "run_a", tool=f"made up {number}")
        auditor.emit(
            "call_ended", call, "run_a", tool=f"made up {number}", status="failed", ms=1, bytes=0, dispatched=False
        )
    assert len(collector.metrics()["codemode.call.duration"]) == 1


PROBE = """
import sys
{before}
from codemode_mcp.audit.listeners import is_configured
print(is_configured(), "codemode_mcp.audit.spans" in sys.modules)
"""


@pytest.mark.parametrize(
    ("before", "configured"),
    [
        ("", False),
        ("import mcp.server.lowlevel.server", False),
        ("import opentelemetry.sdk.trace, opentelemetry.metrics", False),
        (
            "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider; "
            "trace.set_tracer_provider(TracerProvider())",
            True,
        ),
        (
            "from opentelemetry import metrics; from opentelemetry.sdk.metrics import MeterProvider; "
            "metrics.set_meter_provider(MeterProvider())",
            True,
        ),
    ],
)
def test_spans_are_made_only_where_a_provider_is_set(before: str, configured: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(before=before)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [str(configured), "False"]
