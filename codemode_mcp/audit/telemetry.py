"""Whether anybody has configured OpenTelemetry in this process. Imports nothing to find out."""

from __future__ import annotations

import os
import sys
from typing import Final

_VARIABLES: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")


def is_configured() -> bool:
    """Return True if there is somebody to send spans or metrics to."""
    if any(os.environ.get(name) for name in _VARIABLES):
        return True
    # Whoever has set a provider has imported the module that keeps it.
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    providers = [module.__dict__[name]() for module, name in ((trace, _TRACE), (metrics, _METRICS)) if module]
    return any("Proxy" not in type(provider).__name__ for provider in providers)


_TRACE: Final = "get_tracer_provider"
_METRICS: Final = "get_meter_provider"
