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
"""Unknown ids of one run for which the error names the nearest ids. It takes long among thousands of tools."""


@dataclass(slots=True)
class Counts:
    """Counts of what a run asked for.

    Attributes:
        by_id: tools by an id that does not exist.
    """

    search: int = 0
    describe: int = 0
    call: int = 0
    by_id: int = 0


@dataclass(frozen=True, slots=True)
class CallContext:
    """The run and the caller on whose behalf calls are made.

    Attributes:
        owner: the owner of the run. Anyone who has the run's id owns a run of an unknown caller.
        approval_via: see `settings.ApprovalSettings`.
    """

    run_id: str
    owner: str
    caller: Caller
    catalog: Catalog
    counts: Counts = field(default_factory=Counts)
    approval_via: Via = "auto"

    @property
    def share(self) -> str:
        """The name under which the run shares the capacity of the server with others."""
        return self.caller.share or self.owner


def entry_by_id(target: str, context: CallContext) -> Entry:
    """Return the entry of an id; see `Catalog.resolve_by_id`. A program that only guesses gets no nearest ids."""
    context.counts.by_id += context.catalog.toolset.get(target) is None
    return context.catalog.resolve_by_id(target, near=context.counts.by_id <= MAX_NEAREST)
