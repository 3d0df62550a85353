"""Spans of requests to servers, if this process uses OpenTelemetry. Otherwise nothing is imported for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from upstream_clients.jsonrpc import JsonRpcError, RequestId


def traced(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return `_meta` with the current trace context, if there is one (W3C Trace Context)."""
    found = dict(meta)
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.propagate import inject

        inject(found)
    return found


@contextmanager
def span_of(method: str, params: dict[str, Any], request_id: RequestId) -> Iterator[None]:
    """Open a span for a request, and add its trace context to `params`."""
    if "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode, get_tracer

    name = params.get("name")
    with get_tracer("mcp-python-sdk").start_as_current_span(
        f"MCP send {method} {name}" if isinstance(name, str) else f"MCP send {method}",
        kind=SpanKind.CLIENT,
        attributes={"mcp.method.name": method, "jsonrpc.request.id": str(request_id)},
    ) as span:
        if meta := traced(params.get("_meta", {})):
            params["_meta"] = meta
        try:
            yield
        except JsonRpcError as error:
            code = str(error.code)
            span.set_attributes({"error.type": code, "rpc.response.status_code": code})
            span.set_status(StatusCode.ERROR, error.message)
            raise
