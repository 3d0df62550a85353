"""One call of an upstream's tool, from its begin to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from upstream_clients.direct import Answer
    from upstream_clients.errors import UpstreamCallError
    from upstream_clients.questions import CallQuestions
    from upstream_clients.tools import (
        JsonObject,
        ProgressFn,
    )


class Link(Protocol):
    """One live connection."""

    @property
    def is_direct(self) -> bool:
        """Tell whether `try_send` can send at all."""
        ...

    @property
    def alive(self) -> bool:
        """Return True if a request sent now can reach the server."""
        ...

    def turn(self, call: CallQuestions) -> AbstractAsyncContextManager[None]:
        """Enter around `send`, for questions meanwhile; waits where calls of different runs may not overlap."""
        ...

    async def send(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None, call: CallQuestions
    ) -> JsonObject:
        """Return the raw result. Raises `UpstreamCallError`; cancelling it cancels the request upstream."""
        ...

    def try_turn(self, call: CallQuestions) -> bool:
        """Enter `turn` without waiting; False where it would have to wait."""
        ...

    def leave(self, call: CallQuestions) -> None:
        """Leave the turn of a call that `try_turn` has entered."""
        ...

    def try_send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: Callable[[Answer | UpstreamCallError], None],
        on_progress: ProgressFn | None,
        call: CallQuestions,
    ) -> Callable[[], None] | None:
        """Send without waiting. Returns a function that gives the request up; None where it cannot be sent so."""
        ...


class Call:
    """One call that waits, or is in flight.

    Attributes:
        since: when it began, by the clock of its `Upstream`.
        limit: seconds that it may take, `None` for no limit.
        sent: whether it may have reached the server.
        rejected: why it was ended before its time.
    """

    def __init__(self, since: float, limit: float | None, *, sent: bool = False) -> None:
        self.since = since
        self.limit = limit
        self.sent = sent
        self.rejected: str | None = None

    def stop(self) -> None:
        """End it before its time."""
        raise NotImplementedError
