"""The configured listeners of events, the trajectory and OpenTelemetry, and whether the latter is used."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.audit.events import Auditor
    from codemode_mcp.base.settings import AuditSettings


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
        if is_configured():
            from codemode_mcp.audit.spans import Spans

            spans = Spans(redact)
            auditor.add(spans.record, spans.current)
            stack.callback(auditor.remove, spans.record)
            auditor.add_meter(spans.measure)
            stack.callback(auditor.remove_meter, spans.measure)
        yield


_VARIABLES: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")


def is_configured() -> bool:
    """Return True if OpenTelemetry is configured, so that spans or metrics have a receiver."""
    if any(os.environ.get(name) for name in _VARIABLES):
        return True
    # Code that has set a provider has imported the module that keeps it.
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    providers = [module.__dict__[name]() for module, name in ((trace, _TRACE), (metrics, _METRICS)) if module]
    return any("Proxy" not in type(provider).__name__ for provider in providers)


_TRACE: Final = "get_tracer_provider"
_METRICS: Final = "get_meter_provider"
