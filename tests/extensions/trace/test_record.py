"""Events of a run that are kept for its trace."""

from __future__ import annotations

import pytest

from codemode_mcp.audit.redaction import Inputs
from codemode_mcp.extensions.trace import timeline
from codemode_mcp.extensions.trace.timeline import Record
from tests.cli.test_progress import RUN, begun, ended, event


def test_a_record_is_drawn_like_a_trajectory_without_secrets() -> None:
    record = Record()
    redact = lambda text: text.replace("secret", "***")  # noqa: E731
    assert record.trace(Inputs(include=True), redact) is None
    record.listen(event("run_started", language="javascript"))
    for each in [*begun(1, tool="mcp:s:secret"), ended(1), event("run_ended", at=102.0, status="completed")]:
        record.listen(each)
    trace = record.trace(Inputs(include=True), redact)
    assert trace is not None
    assert (trace.id, trace.status, trace.time.ended) == (RUN, "completed", 102.0)
    assert [(call.tool, call.status) for call in trace.calls] == [("mcp:s:***", "completed")]


def test_a_record_is_bounded_and_counts_lost_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_EVENTS", 3)
    record = Record()
    for each in [event("run_started"), *begun(*range(10))]:
        record.listen(each)
    trace = record.trace(Inputs(include=False), str)
    assert trace is not None
    assert (len(trace.calls), trace.lost) == (2, 8)
