"""Callers: the authors of requests. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

PEER: Final = "peer "
"""Prefix of shares that belong to an address."""


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
            is not authenticated. It decides nothing else, so two callers are equal even if their shares differ.
    """

    owner: str | None
    kind: Literal["stdio", "http"] = "stdio"
    principal: str | None = None
    groups: frozenset[str] = frozenset()
    share: str | None = field(default=None, compare=False)

    @property
    def operates(self) -> bool:
        """True for the user of this configuration, who may change it."""
        return self.kind == "stdio"
