"""The interface through which the prompt shows its output at a terminal or on a pipe."""

from __future__ import annotations

from typing import Any, Protocol


class Front(Protocol):
    """The output of the prompt."""

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
            place: the program with the error, and the line and column of the error, both from 1; None if unknown.
        """
        ...
