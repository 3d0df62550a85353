"""Detection of OpenTelemetry in this process, without an import."""

from __future__ import annotations

import os
import sys
from typing import Final

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
