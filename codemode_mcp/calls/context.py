"""The context of the calls of one run: its caller, its catalog and its counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import Via

MAX_NEAREST = 20
"""Maximum number of errors in one run that name the ids nearest to an unknown id. The search for these takes long in a
catalog of thousands of tools."""


@dataclass(slots=True)
class Counts:
    """The numbers of a run's look-ups and calls.

    Attributes:
        by_id: the number of look-ups and calls of ids that do not exist.
    """

    search: int = 0
    describe: int = 0
    call: int = 0
    by_id: int = 0


@dataclass(frozen=True, slots=True)
class CallContext:
    """The run and the caller on whose behalf calls are made.

    Attributes:
        owner: the owner of the run. If the caller is unknown, the run belongs to everyone who has its id.
        approval_via: see `settings.ApprovalSettings`.
        reads_apps: True for a request of a client that shows apps. Programs cannot read their resources.
        undeclared: the ids of tools whose calls were noted, since they had undeclared arguments.
        error_texts: the ids of tools whose results were noted, since they read like errors.
    """

    run_id: str
    owner: str
    caller: Caller
    catalog: Catalog
    counts: Counts = field(default_factory=Counts)
    approval_via: Via = "auto"
    reads_apps: bool = False
    undeclared: set[str] = field(default_factory=set)
    error_texts: set[str] = field(default_factory=set)

    @property
    def share(self) -> str:
        """The share of the server's capacity that the run uses."""
        return self.caller.share or self.owner

    @property
    def quota_share(self) -> str:
        """The share in whose quotas of stored programs the run counts.

        Clients of one owner count together, because their numbers change with each process.
        """
        return self.share if self.caller.client is None else self.owner


def entry_by_id(target: str, context: CallContext) -> Entry:
    """Return the entry of an id; see `Catalog.resolve_by_id`. After `MAX_NEAREST` errors, no nearest ids are named."""
    context.counts.by_id += context.catalog.toolset.get(target) is None
    return context.catalog.resolve_by_id(target, near=context.counts.by_id <= MAX_NEAREST)
