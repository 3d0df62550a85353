"""The calls that have not ended when their program ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.runs.answers import counted, how_to_await

if TYPE_CHECKING:
    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.run import Run


def leave_calls(run: Run, dispatcher: Dispatcher) -> tuple[str, ...]:
    """Cancel the calls that only read or that need an approval, and let the others finish.

    A call that may change something is not cancelled: it may have acted already, and its failure is reported later.

    Returns:
        Notes about these calls for the reader of the run's result.
    """
    cancelled: list[str] = []
    dropped: list[str] = []
    left: list[str] = []
    unasked: list[str] = []
    run.approvals.end()
    for live in list(run.calls.values()):
        if live.record.status == "queued" and _waits_for_approval(run, live, dispatcher):
            unasked.append(live.record.tool)
            live.cancel()
            continue
        if live.record.read_only:
            (cancelled if live.record.dispatched else dropped).append(live.record.tool)
            live.cancel()
        else:
            left.append(live.record.tool)
            live.unawaited = True
    unfinished = [record.tool for record in run.programs.records]
    notes = []
    if unfinished:
        notes.append(f"Not waited for, ended with the program: {counted(unfinished)}; {how_to_await(run)}")
    if left:
        notes.append(f"Not waited for, still in flight: {counted(left)}")
    if cancelled:
        notes.append(f"Not waited for, cancelled: {counted(cancelled)}")
    if dropped:
        notes.append(f"Not waited for, never sent: {counted(dropped)}; {how_to_await(run)}")
    if unasked:
        notes.append(f"Not waited for, cancelled before a person approved: {counted(unasked)}; await such calls")
    return tuple(notes)


def _waits_for_approval(run: Run, live: LiveCall, dispatcher: Dispatcher) -> bool:
    if live.call.id in run.approvals.calls:
        return True
    if live.state != "queued":
        return False
    tool = live.record.tool
    return not run.approvals.remembers(tool) and dispatcher.asks_for(tool, run.context)
