"""Callers: the authors of requests. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

PEER: Final = "peer "
"""Begin of a share that belongs to an address."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of a request, as far as known.

    Attributes:
        owner: the owner of runs and stored values; None for an unknown caller, whose runs belong to each holder of
            their ids.
        principal: the name policy knows the caller by. Over HTTP the name of a token of the configuration or the
            subject of an access token, over stdio the user's login name; None without authentication.
        groups: that the caller is a member of.
        share: whose share of the server the request uses, where that is not the owner's: the address of a caller that
            has not shown who they are. It decides nothing else, so callers are equal without it.
    """

    owner: str | None
    kind: Literal["stdio", "http"] = "stdio"
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    share: str | None = field(default=None, compare=False)

    @property
    def operates(self) -> bool:
        """Return True if it is the user whose configuration this is, who may change it."""
        return self.kind == "stdio"
