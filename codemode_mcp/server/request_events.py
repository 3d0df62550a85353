"""Events about calls of `exec` and `wait`, and the parts of a call that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.audit import sizes
from codemode_mcp.audit.events import name_to_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.audit import Auditor
    from codemode_mcp.audit.events import EventKind
    from codemode_mcp.server.client import Continued
    from codemode_mcp.server.exchange import Exchange


def called(exchange: Exchange) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the arguments of a call."""
    return exchange.params["name"], exchange.params.get("arguments") or {}


def named_run(arguments: Mapping[str, Any]) -> object:
    """Return the run that a call names; None if it names none."""
    return arguments.get("runId") or arguments.get("run_id")


def report_request(auditor: Auditor, request: str, exchange: Exchange, continued: Continued) -> None:
    """Report that an `exec` or `wait` has arrived. `request`: its id in events."""
    name, arguments = called(exchange)
    if name not in ("exec", "wait"):
        return
    kind: EventKind = "exec" if name == "exec" else "wait"
    if not auditor.listening:
        auditor.notice(kind, request)
        return
    run = continued.run_id or named_run(arguments)
    source = None if continued.run_id else arguments.get("code") or arguments.get("command")
    auditor.emit(
        kind,
        request,
        request=name_to_record(str(exchange.request_id)),
        run=name_to_record(run) if isinstance(run, str) else None,
        answers=len(continued.answers) or None,
        cancel=arguments.get("cancel") is True or None,
        bytes=0 if continued.run_id else sizes.of_arguments(arguments),
        inputs=source if isinstance(source, str) and name == "exec" else None,
    )
