"""The interface between the prompt and the person, or the pipe, that it talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from codemode_mcp.runs.questions import Client


class Front(Protocol):
    """Shows the output of the prompt."""

    @property
    def client(self) -> Client:
        """Return the client on whose behalf programs run."""
        ...

    @property
    def decides(self) -> bool:
        """Return True if a person can approve calls here."""
        ...

    def print(self, text: str) -> None:
        """Print the output of a program or a command."""
        ...

    def value(self, value: Any) -> None:
        """Print the value of a program, which is not null."""
        ...

    def declaration(self, text: str) -> None:
        """Print TypeScript declarations."""
        ...

    def say(self, text: str) -> None:
        """Print a remark for a person."""
        ...

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        """Print an error.

        Args:
            place: the program, and the line and column in it that the error is about.
        """
        ...
