"""OpenTelemetry: a span for each run and each nested call, and metrics of both. Only the API is used.

The MCP SDK makes the spans around these: of the request (`tools/call exec`), which belongs to the trace that the client
names in `_meta.traceparent`, and of each request to an upstream server, which continues the trace. The span of a run is
a child of the request that began it, and the span of a call is a child of its run. A later `wait` is linked to the run.
Inner spans become children of the span of a run or call, because it is current while code works on the run or call
(`Spans.current`). Spans contain neither inputs nor ids that give access to a run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from codemode_mcp.audit.events import MAX_NAME, Event, Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.metrics import MeterProvider


NAME: Final = "codemode-mcp"

MAX_OPEN: Final = 20_000
"""Maximum number of open spans of runs, and of calls. Further runs and calls get no span."""

CALL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
"""Boundaries of the histogram of calls, up to the time after which an unlimited call counts as hung. The default
boundaries of OpenTelemetry are for milliseconds: almost all calls would be in the first bucket."""

RESULT_BYTES: Final = tuple(float(256 * 4**step) for step in range(10))
"""Boundaries of the histogram of results, from 256 bytes to the largest result that is accepted, 64 MiB."""

STORE_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Boundaries of the histogram of operations of the store, up to the time limit for a lock of SQLite."""

_SHOWN_ID: Final = 12
"""Characters of a run's id in a span. The whole id may give access to the run."""


class Spans:
    """The maker of spans and metrics from events. `record` is called in the event loop.

    Args:
        redact: replaces every known secret.
        tracers, meters: the providers; None for those of the process.
    """

    def __init__(
        self,
        redact: Callable[[str], str],
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        self._redact = redact
        self._tracer = trace.get_tracer(NAME, tracer_provider=tracers)
        meter = metrics.get_meter(NAME, meter_provider=meters)
        self._started = meter.create_counter("codemode.runs.started", "{run}", "Programs that began to run.")
        self._ended = meter.create_counter("codemode.runs.ended", "{run}", "Programs that ended.")
        self._suspended = meter.create_up_down_counter("codemode.runs.parked", "{run}", "Programs that are suspended.")
        self._durations = meter.create_histogram(
            "codemode.call.duration",
            "s",
            "Time that nested calls took.",
            explicit_bucket_boundaries_advisory=CALL_SECONDS,
        )
        self._sizes = meter.create_histogram(
            "codemode.call.result.size",
            "By",
            "Size of the results of nested calls.",
            explicit_bucket_boundaries_advisory=RESULT_BYTES,
        )
        self._depth = meter.create_gauge("codemode.store.runs", "{run}", "Suspended programs in a store.")
        self._oldest = meter.create_gauge(
            "codemode.store.oldest", "s", "Time since the suspension of the program that was suspended first."
        )
        self._stored = meter.create_gauge("codemode.store.size", "By", "Size of the suspended programs in a store.")
        self._asked = meter.create_histogram(
            "codemode.store.duration",
            "s",
            "Time that a store's database took.",
            explicit_bucket_boundaries_advisory=STORE_SECONDS,
        )
        self._runs: dict[str, Span] = {}
        self._calls: dict[str, Span] = {}
        self._suspended_ids: set[str] = set()

    def record(self, event: Event) -> None:
        """Record an event, in its task. The current span stays the same."""
        fields, when = event.fields, int(event.time * 1e9)
        match event.kind:
            case "exec":
                trace.get_current_span().set_attribute("codemode.request.id", event.id)
            case "wait":
                current = trace.get_current_span()
                current.set_attribute("codemode.request.id", event.id)
                run = self._runs.get(str(fields.get("run")))
                if run is not None:
                    current.add_link(run.get_span_context())
            case "run_started":
                self._started.add(1, {"codemode.language": fields["language"]})
                if len(self._runs) < MAX_OPEN:
                    attributes = {"codemode.run.id": event.id[:_SHOWN_ID], "codemode.language": fields["language"]}
                    self._runs[event.id] = self._tracer.start_span(
                        "run", kind=SpanKind.INTERNAL, attributes=attributes, start_time=when
                    )
            case "call_started":
                self._begin_call(event, when)
            case "call_asked":
                self._note(self._calls.get(event.id), "approval asked", when)
            case "call_decided":
                approved = fields.get("approved") is True
                self._note(self._calls.get(event.id), "approved" if approved else "denied", when)
            case "call_ended":
                self._end_call(event, when)
            case "parked":
                self._suspended_ids.add(event.id)
                self._suspended.add(1)
                self._note(self._runs.get(event.id), "parked", when, reason=fields.get("reason"))
            case "restored":
                self._leave(event.id)
                self._note(self._runs.get(event.id), "restored", when)
            case "taken_over":
                self._take_over(event, when)
            case "left":
                self._leave(event.id)
                left = self._runs.pop(event.id, None)
                self._note(left, "left", when)
                if left is not None:
                    left.set_attribute("codemode.status", "left")
                    left.end(when)
            case "run_ended":
                self._end_run(event, when)

    def current(self, about: str) -> AbstractContextManager[object]:
        """Return a context in which the span of a run or call is current; see `Auditor.scope`."""
        span = self._calls.get(about) or self._runs.get(about)
        if span is None:
            return nullcontext()
        return trace.use_span(span, record_exception=False, set_status_on_exception=False)

    def measure(self, what: Figures, kind: str, figures: Mapping[str, Any]) -> None:
        """Record a measurement of a store."""
        about = {"codemode.store.kind": kind}
        match what:
            case "store_swept":
                self._depth.set(figures["suspended"], about)
                self._oldest.set(figures["oldest"] or 0, about)
                self._stored.set(figures["size"], about)
            case "store_used":
                error = {"error.type": "runtime_unavailable"} if figures["failed"] else {}
                self._asked.record(figures["seconds"], {**about, **error})

    def _take_over(self, event: Event, when: int) -> None:
        self._suspended_ids.add(event.id)
        self._suspended.add(1)
        if len(self._runs) < MAX_OPEN:
            attributes = {"codemode.run.id": event.id[:_SHOWN_ID]}
            span = self._tracer.start_span("run", kind=SpanKind.INTERNAL, attributes=attributes, start_time=when)
            self._note(span, "taken over", when)
            self._runs[event.id] = span

    def _begin_call(self, event: Event, when: int) -> None:
        if len(self._calls) >= MAX_OPEN:
            return
        tool = self._redact(str(event.fields["tool"]))[:MAX_NAME]
        attributes: dict[str, Any] = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
        }
        run = self._runs.get(event.parent or "")
        if run is not None:
            attributes["codemode.run.id"] = str(event.parent)[:_SHOWN_ID]
        self._calls[event.id] = self._tracer.start_span(
            f"execute_tool {tool}",
            context=None if run is None else trace.set_span_in_context(run),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=when,
        )

    def _end_call(self, event: Event, when: int) -> None:
        fields = event.fields
        status, tool = str(fields["status"]), self._redact(str(fields["tool"]))[:MAX_NAME]
        # A name that a program has chosen must not become a dimension of a metric.
        known = {"gen_ai.tool.name": tool} if fields["dispatched"] else {}
        self._durations.record(fields["ms"] / 1000, {**known, "codemode.status": status})
        self._sizes.record(fields["bytes"], known)
        span = self._calls.pop(event.id, None)
        if span is not None:
            span.set_attribute("codemode.call.dispatched", bool(fields["dispatched"]))
            span.set_attribute("codemode.call.result.size", int(fields["bytes"]))
            _finish(span, status, fields.get("code"), when)

    def _end_run(self, event: Event, when: int) -> None:
        fields = event.fields
        self._leave(event.id)
        self._ended.add(1, {"codemode.status": str(fields["status"])})
        span = self._runs.pop(event.id, None)
        if span is not None:
            for key in ("calls", "waits", "snapshots"):
                span.set_attribute(f"codemode.run.{key}", int(fields[key]))
            _finish(span, str(fields["status"]), fields.get("code"), when)

    def _leave(self, run_id: str) -> None:
        if run_id in self._suspended_ids:
            self._suspended_ids.remove(run_id)
            self._suspended.add(-1)

    def _note(self, span: Span | None, name: str, when: int, **attributes: Any) -> None:
        if span is not None:
            shown = {f"codemode.{key}": value for key, value in attributes.items() if value is not None}
            span.add_event(name, shown, when)


def _finish(span: Span, status: str, code: Any, when: int) -> None:
    span.set_attribute("codemode.status", status)
    if code is not None:
        span.set_attribute("error.type", str(code))
    if status != "completed":
        span.set_status(Status(StatusCode.ERROR))
    span.end(when)
