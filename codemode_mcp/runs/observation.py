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
        latest: the latest time to which the deadline may move. It moves while the program waits in a queue, and while a
            person is asked.

    Attributes:
        asked_since: the time since which a person is asked; None if no person is asked. The deadline is extended by the
            time that the person takes.
        queueing: cancels the wait of the program for its turn or for memory.
        released: True if the request has to be answered as soon as possible. The run is then suspended.
        aborted: True if the run has to be aborted.
    """

    def __init__(self, deadline: float, client: Client | None, *, latest: float | None = None) -> None:
        self.deadline = deadline
        self.latest = deadline if latest is None else latest
        self.client = client
        self.asked_since: float | None = None
        self.queueing: anyio.CancelScope | None = None
        self.released = False
        self.aborted = False
        self._done = anyio.Event()
        self._outcome: Outcome | CodeModeError | None = None

    def extended_deadline(self, now: float, *, person_is_asked: bool) -> float:
        """Return the time at which the request has to be answered.

        Args:
            person_is_asked: True if a person is being asked now.
        """
        if person_is_asked:
            if self.asked_since is None:
                self.asked_since = now
            return self.latest
        if self.asked_since is not None:
            self.deadline = min(self.latest, self.deadline + now - self.asked_since)
            self.asked_since = None
        return self.deadline

    def remaining(self, now: float) -> float:
        """Return the seconds that the program may still compute."""
        return max(0.0, self.deadline - (now if self.asked_since is None else self.asked_since))

    def settle(self, outcome: Outcome | CodeModeError) -> None:
        """Set the outcome, and wake the request."""
        self._outcome = outcome
        self._done.set()

    async def outcome(self) -> Outcome:
        """Wait for the outcome. If the driver ended with a `CodeModeError`, raise it."""
        await self._done.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, CodeModeError):
            raise self._outcome
        return self._outcome
