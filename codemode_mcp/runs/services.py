"""Everything that runs need from outside of this package."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.audit.events import Auditor
from codemode_mcp.saved_programs.folder import EMPTY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.program.compile import Transform
    from codemode_mcp.recordings.recordings import Recordings
    from codemode_mcp.runs.namespaces import Registered
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.store import RunStore
    from codemode_mcp.runs.values import Values
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.saved_programs.folder import Library
    from codemode_mcp.saved_programs.proposing import Proposer
    from codemode_mcp.search.finder import Meaning
    from codemode_mcp.type_check.checker import TypeChecker


class Upstreams(Protocol):
    """The upstream servers, as runs see them."""

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        """Return the configured names of the servers that a program names.

        Args:
            names: the names in the program; None for all servers that its caller can see.

        Returns:
            None for all configured servers.
        """
        ...

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        """Return the catalog for a program of this caller that begins now, including the tools of its client."""
        ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        """Wait until servers are up or known to be down, for at most `seconds`.

        This counts as use of the servers: an expired list is requested again. If something of an idle server is
        held, the server is connected.

        Args:
            names: configured names; None for all servers.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that all runs share.

    Attributes:
        engine: returns the compiled engine, after loading it.
        store: the store of suspended runs.
        values: the stored values of programs.
        transform: compiles TypeScript.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        registered: the plugins and their namespaces.
        remember: stores an approval for later programs; None if approvals cannot be stored.
        meaning: ranks tools by meaning; None without the extra `semantic`.
        terminal_command: the command that runs codemode-mcp in a terminal, quoted for a shell.
        page_address: returns the address of the page about the approvals of a run; None if no page is open.
        recordings: the recordings of runs; None if no run is recorded.
        notify: called with the id of a run when its calls begin to wait for a person.
        library: returns the saved programs as they are now.
        checker: checks the types of programs; None without checks.
        proposer: keeps programs that are proposed to be saved; None if none can be.
        keeps_finished_calls: True to keep the results of finished calls of a failed program for the next program; False
            for a command that runs one program.
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
    recordings: Recordings | None = None
    terminal_command: str = "codemode-mcp"
    page_address: Callable[[str], str | None] = lambda _: None
    notify: Callable[[str], None] = lambda _: None
    library: Callable[[], Library] = lambda: EMPTY
    checker: TypeChecker | None = None
    proposer: Proposer | None = None
    keeps_finished_calls: bool = True
