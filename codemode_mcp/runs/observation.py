"""One open request for a run: its deadline, its client and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import anyio

from codemode_mcp.errors import CodeModeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.runs.questions import Client
    from upstream_clients.tools import JsonObject


class ObserveOptions(TypedDict, total=False):
    """The options of `RunManager.observe`."""

    cancel: bool
    from_start: bool
    client: Client | None
    answers: Mapping[str, JsonObject] | None
    caller: Caller | None


class Observation:
    """One open `exec` or `wait`.

    Args:
        deadline: monotonic seconds at which the request has to be answered.
        latest: the latest time to which the deadline may move. It moves while the program waits in a queue, for a
            person who is asked, or for starting servers alone.

    Attributes:
        paused_since: the time since which the program waits for a person who is asked, or for starting servers alone;
            None if it does not. The deadline is extended by this time.
        queueing: cancels the wait of the program for its turn or for memory.
        released: True if the request has to be answered as soon as possible. The run is then suspended.
        aborted: True if the run has to be aborted.
        noted: True if the client's relay knows that calls of the run may have been sent, or if there is no relay.
    """

    def __init__(self, deadline: float, client: Client | None, *, latest: float | None = None) -> None:
        self.deadline = deadline
        self.latest = deadline if latest is None else latest
        self.client = client
        self._notes = None if client is None else client.notes
        self._noting = False  # a note about calls is written, or waits to be written
        self.noted = self._notes is None
        self.paused_since: float | None = None
        self.queueing: anyio.CancelScope | None = None
        self.released = False
        self.aborted = False
        self._done = anyio.Event()
        self._outcome: Outcome | CodeModeError | None = None

    def extended_deadline(self, now: float, *, paused: bool) -> float:
        """Return the time at which the request has to be answered.

        Args:
            paused: see `Run.is_paused`.
        """
        if paused:
            if self.paused_since is None:
                self.paused_since = now
            return self.latest
        if self.paused_since is not None:
            self.deadline = min(self.latest, self.deadline + now - self.paused_since)
            self.paused_since = None
        return self.deadline

    def remaining(self, now: float) -> float:
        """Return the seconds that the program may still compute."""
        return max(0.0, self.deadline - (now if self.paused_since is None else self.paused_since))

    # notes to the relay of the client, see `RunNotes`

    def note_run(self, run_id: str, *, dispatched: bool) -> None:
        """Tell the relay which run the request has. Call this before anything of the run is sent for the request."""
        if self._notes is not None:
            written = self._notes.write(run_id, dispatched=dispatched)
            self._noting, self.noted = dispatched, dispatched and written

    @property
    def can_note(self) -> bool:
        """True if `note_sending` most likely returns True."""
        return self.noted or self._notes is None or self._notes.are_written

    def note_sending(self, run_id: str) -> bool:
        """Tell the relay that a call is about to be sent. Return False if the note is not written yet."""
        if self._notes is not None and not self.noted:
            self.noted = self._notes.are_written if self._noting else self._notes.write(run_id, dispatched=True)
            self._noting = True
        return self.noted

    async def sending_noted(self) -> None:
        """Wait until the note of `note_sending` is written."""
        if self._notes is not None and not self.noted:
            await self._notes.written()
            self.noted = True

    def settle(self, outcome: Outcome | CodeModeError) -> None:
        """Set the outcome, and wake the request."""
        self._outcome = outcome
        self._done.set()

    @property
    def is_settled(self) -> bool:
        """True if the request has its outcome."""
        return self._done.is_set()

    async def settled(self) -> None:
        """Wait until there is an outcome or an error."""
        await self._done.wait()

    async def outcome(self) -> Outcome:
        """Wait for the outcome. If the driver ended with a `CodeModeError`, raise it."""
        await self._done.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, CodeModeError):
            raise self._outcome
        return self._outcome
