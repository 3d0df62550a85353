"""The calls of stored runs in their store: the permission to send a call, and its end.

`runs.state.may_send` decides by the custody of the run and the state of the call. If it needs the store, this module
asks the store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from codemode_mcp.errors import CodeModeError, StoreUnavailable
from codemode_mcp.runs.call_records import completion_text, task_text
from codemode_mcp.runs.state import may_send
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.state import Permission
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.sandbox.messages import Completion
    from codemode_mcp.settings import CodeModeSettings

log = logging.getLogger("codemode_mcp.runs")

RETRY_SECONDS = 1.0
"""Interval between attempts to store an end while the store does not answer."""


class CallStorage:
    """The recorder of calls of stored runs. It holds no state of any run.

    Args:
        spawn: starts a task that outlives the request.
        clock: monotonic seconds.
        on_late: called with the id of a run that another process has, after the end of a call that this process sent
            was stored.
    """

    def __init__(
        self,
        store: RunStore,
        settings: Callable[[], CodeModeSettings],
        spawn: Callable[..., object],
        clock: Callable[[], float],
        on_late: Callable[[str], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._spawn = spawn
        self._clock = clock
        self._on_late = on_late

    def is_away(self, run: Run) -> bool:
        """Return True if the store of a run does not answer. Another process may have taken the run over then."""
        return run.is_durable and not self._store.claims_are_valid()

    def permission(self, run: Run, live: LiveCall) -> Permission:
        """Return whether this process may send a call now."""
        return may_send(run.custody, live.state, recorded=live.recorded, repeatable=live.record.repeatable)

    async def permit(self, run: Run, live: LiveCall) -> None:
        """Get the permission to send a call, right before it is sent.

        A call of a stored run waits until the store has it, unless it is repeatable. It is not sent if another process
        has the run.

        Raises:
            CodeModeError: the call must not be sent.
        """
        live.admit()
        record = live.record
        while True:
            permission = self.permission(run, live)
            if permission != "wait":
                break
            await live.wait()
        if permission == "claim":
            # If the store agrees, no other process sends the call from here on, whichever process continues the run.
            live.advance("claim")
            try:
                ours = await self._store.dispatching(run.id, live.call.id)
            except StoreUnavailable as error:
                live.advance("retract")
                raise StoreUnavailable(f"{escape_line(record.tool)}: the call was not sent: {error.message}") from None
            except CodeModeError:
                live.advance("retract")
                raise
            if not ours:
                live.advance("retract")
                if run.state not in ("running", "waiting"):
                    return  # the run has ended
                permission = "never"
        if permission == "never":
            # Another process sends the call, or has sent it. So it has the run, too.
            run.advance_custody("lose")
            run.change()
            # The checkpoint raises the cancellation in this task, so that nothing is sent.
            live.cancel()
            await anyio.lowlevel.checkpoint()
        elif self.is_away(run):
            raise StoreUnavailable(
                f"{escape_line(record.tool)}: the call was not sent: the store of this server does not answer, so "
                "that another process may have taken the program over; try again later"
            )

    async def record_task(self, run: Run, live: LiveCall) -> None:
        """Store the task of a call, so that a later process can follow it. If the store does not answer, retry later.

        If the store does not have the call yet, the task is stored with it.
        """
        async with run.writing:
            pass  # a write in progress may have begun before there was a task
        if run.is_durable and live.recorded and not await self._try_record_task(run, live):
            self._spawn(self._record_task_later, run, live)

    async def _try_record_task(self, run: Run, live: LiveCall) -> bool:
        try:
            live.task_stored = await self._store.note_task(run.id, live.call.id, task_text(live))
        except StoreUnavailable:
            return False
        return True

    async def _record_task_later(self, run: Run, live: LiveCall) -> None:
        while live.state == "dispatched" and run.is_durable:
            await anyio.sleep(RETRY_SECONDS)
            if await self._try_record_task(run, live):
                return

    async def record_end(self, run: Run, live: LiveCall, completion: Completion) -> None:
        """Store the end of a call, for whichever process continues its program."""
        # A write in progress stores the call as not ended. The end must be stored after it.
        async with run.writing:
            pass
        if live.recorded and run.is_durable and not await self._try_record(run, live, completion):
            # The program here can continue without the store. A process that restores the run needs this end.
            self._spawn(self._record_later, run, live, completion, not live.is_unsent)

    async def _try_record(self, run: Run, live: LiveCall, completion: Completion) -> bool:
        try:
            await self._store.settle(run.id, live.call.id, completion_text(completion))
        except StoreUnavailable:
            return False
        if run.fenced:
            self._on_late(run.id)
        return True

    async def _record_later(self, run: Run, live: LiveCall, completion: Completion, sent: bool) -> None:
        until = self._clock() + self._settings().snapshot_ttl_seconds
        while self._clock() < until:
            await anyio.sleep(RETRY_SECONDS)
            if not run.is_durable or (run.fenced and not sent):
                return  # the end is no longer needed, or another process sends the call
            if await self._try_record(run, live, completion):
                return
        log.error("the end of a call of run %s was not stored: the store does not answer", run.id[:12])
