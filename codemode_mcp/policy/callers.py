"""Callers: the authors of requests. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

PEER: Final = "peer "
"""Prefix of shares that belong to an address."""

CLIENT: Final = "client "
"""Prefix of shares that belong to one of several clients of an owner in one process: `client 7`. The number means
nothing to other processes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request, as far as known.

    Attributes:
        owner: the owner of runs and stored values; None for an unknown caller, whose runs belong to everyone who has
            their ids.
        principal: the caller's name in policies. Over HTTP it is the name of a token of the configuration, or the
            subject of an access token. Over stdio it is the user's login name. None without authentication.
        groups: the groups of the caller.
        share: the share of the server that the request uses, if it is not the owner's: the address of a caller that
            is not authenticated (`PEER`), or one client of an owner (`CLIENT`). It decides nothing else, so two callers
            are equal even if their shares differ.
        read_only: True to allow only read-only tools, whatever the rules say.
        context: the name of the context in `tools.contexts` whose rules apply; None for the first context that the
            caller belongs to.
    """

    owner: str | None
    kind: Literal["stdio", "http"] = "stdio"
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    share: str | None = field(default=None, compare=False)
    read_only: bool = False
    context: str | None = None

    @property
    def operates(self) -> bool:
        """True for the user of this configuration, who may change it."""
        return self.kind == "stdio"

    @property
    def client(self) -> str | None:
        """The share, if it is that of one of several clients of an owner; None otherwise."""
        return self.share if self.share is not None and self.share.startswith(CLIENT) else None

    def bound_as(self, other: Caller) -> Caller:
        """Return this caller with the restrictions of another one: `read_only` and `context`.

        A run keeps the restrictions of the client that began it, whichever client of the owner resumes it.
        """
        if (self.read_only, self.context) == (other.read_only, other.context):
            return self
        return replace(self, read_only=other.read_only, context=other.context)
