"""The subscriptions and listeners of one use of a server, which continue with another definition of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Use(Protocol):
    """A use of a server.

    Attributes:
        over: the reason why the use has ended; None before that.
        observations: what is observed, in the order in which it began.
    """

    over: str | None
    observations: dict[Any, None]


U = TypeVar("U", bound=Use)


class Observation(Generic[U]):
    """A subscription or a listener of a pool.

    Args:
        remove: ends it at its present server.
        again: begins it at another definition of the server, and returns a function that ends it there.
    """

    def __init__(self, remove: Callable[[], None], again: Callable[[U], Callable[[], None]]) -> None:
        self._remove = remove
        self._again = again
        self._use: U | None = None

    def begin(self, use: U) -> None:
        """Belong to a use from now on, until its end."""
        self._use = use
        if use.over is None:
            use.observations[self] = None
        else:
            self._remove()

    def continue_with(self, use: U) -> None:
        """Begin at another definition of the server."""
        self._remove = self._again(use)
        self.begin(use)

    def end(self) -> None:
        """End it. Further calls do nothing."""
        use, self._use = self._use, None
        if use is not None and self in use.observations:
            del use.observations[self]
            self._remove()
