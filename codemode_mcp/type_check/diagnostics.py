"""Diagnostics of the compiler, decoded strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.structs

if TYPE_CHECKING:
    from collections.abc import Iterator


class Diagnostic(msgspec.Struct, frozen=True):
    """A message of the compiler about a part of a file.

    Attributes:
        pos, end: offsets in UTF-16 units.
        messageChain: reasons, each of which may have reasons.
        relatedInformation: hints, such as that an `await` may be missing.
    """

    code: int
    text: str
    pos: int = 0
    end: int = 0
    messageChain: tuple[Diagnostic, ...] = ()  # noqa: N815 - the name of the compiler
    relatedInformation: tuple[Diagnostic, ...] = ()  # noqa: N815 - the name of the compiler

    def moved(self, by: int) -> Diagnostic:
        """Return this diagnostic at other offsets."""
        return msgspec.structs.replace(self, pos=self.pos + by, end=self.end + by)

    def texts(self) -> Iterator[str]:
        """Yield the message and its reasons, from the outside to the inside."""
        yield self.text
        for reason in self.messageChain:
            yield from reason.texts()


def decoded(response: Any) -> tuple[Diagnostic, ...]:
    """Return the diagnostics in a response of the compiler. Raises `msgspec.ValidationError`."""
    return msgspec.convert(response or [], tuple[Diagnostic, ...])
