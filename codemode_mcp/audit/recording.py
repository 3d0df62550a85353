"""The configured listeners of events: the trajectory and OpenTelemetry."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.audit import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.audit.events import Auditor
    from codemode_mcp.settings import AuditSettings


@contextmanager
def recording(settings: AuditSettings, auditor: Auditor, redact: Callable[[str], str]) -> Iterator[None]:
    """Record the events of an auditor for the duration of the context. Leaving writes all of them.

    Args:
        redact: replaces every known secret. It is called in any thread.
    """
    with ExitStack() as stack:
        if settings.trajectory is not None:
            from codemode_mcp.audit.trajectory import Trajectory

            trajectory = stack.enter_context(
                Trajectory(
                    Path(settings.trajectory),
                    redact,
                    include_inputs=settings.include_inputs,
                    max_bytes=settings.max_bytes,
                    files=settings.files,
                )
            )
            auditor.add(trajectory.record)
            stack.callback(auditor.remove, trajectory.record)
        if telemetry.is_configured():
            from codemode_mcp.audit.spans import Spans

            spans = Spans(redact)
            auditor.add(spans.record, spans.current)
            stack.callback(auditor.remove, spans.record)
            auditor.add_meter(spans.measure)
            stack.callback(auditor.remove_meter, spans.measure)
        yield
