"""Events as the trajectory has them."""

from __future__ import annotations

from typing import Any

REQUEST = {"time": 1000.0, "kind": "exec", "id": "req_1", "bytes": 60}


def run(
    *calls: dict[str, Any],
    name: str = "run_a",
    at: float = 1000.0,
    status: str = "completed",
    sent: int = 60,
    text: int = 20,
    structured: int = 300,
) -> list[dict[str, Any]]:
    """Return a run of one `exec`, with these calls."""
    request = f"req_{name}"
    told: list[dict[str, Any]] = [
        {"kind": "exec", "id": request, "bytes": sent},
        {"kind": "run_started", "id": name, "parent": request},
    ]
    for number, call in enumerate(calls, 1):
        about = {"id": f"{name}/{number}", "parent": name, "tool": call.get("tool", "mcp:s:t")}
        given = {"bytes": call.get("given", 10), "digest": call.get("digest", f"d{number}")}
        told.append({"kind": "call_started", **about, "input": given})
        sizes = {key: call[key] for key in ("text_bytes", "structured_bytes", "bytes", "repeatable") if key in call}
        told.append({"kind": "call_ended", **about, "status": "completed", **sizes})
    if status:
        told.append({"kind": "run_ended", "id": name, "status": status})
    answer = {"status": status or "waiting", "run": name, "text_bytes": text, "structured_bytes": structured}
    told.append({"kind": "answered", "id": request, **answer})
    return [{"time": at, **event} for event in told]
