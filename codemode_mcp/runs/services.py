"""Everything outside of this package that runs need."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.audit.events import Auditor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.program.compile import Transform
    from codemode_mcp.runs.namespaces import Registered
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.search.finder import Meaning


class Upstreams(Protocol):
    """The upstream servers, as runs see them."""

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Return the configured names of the servers that a program of this caller calls by these names.

        Args:
            names: None for all servers that it can see.

        Returns:
            None for all servers that there are.
        """
        ...

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        """Return the catalog of a program of this caller that begins now, with the tools that its client offers."""
        ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        """Wait until servers are up or known to be down, or the time is over.

        Args:
            names: configured names; None for all servers.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that all runs share.

    Attributes:
        store: of suspended runs.
        values: of programs, under keys.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        registered: the namespaces of plugins.
        remember: keeps an approval for later programs; None if approvals cannot be kept.
        meaning: ranks tools by meaning; None without the extra.
        program: the command that runs this program in a terminal, quoted for a shell.
        notify: takes the id of a run with calls that begin to wait for a person.
    """

    engine: Callable[[], Awaitable[Engine]]
    dispatcher: Dispatcher
    store: RunStore
    values: Values
    upstreams: Upstreams
    transform: Transform
    clock: Callable[[], float]
    wall: Callable[[], float] = time.time
    auditor: Auditor = field(default_factory=Auditor)
    registered: Registered | None = None
    remember: RememberFn | None = None
    meaning: Meaning | None = None
    program: str = "codemode-mcp"
    notify: Callable[[str], None] = lambda _: None
