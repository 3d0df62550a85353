"""The application as the page needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from codemode_mcp.audit import Auditor
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.config import Config
    from codemode_mcp.control.answers import Control
    from codemode_mcp.policy.budgets import AccountView
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Policies
    from codemode_mcp.saved_programs.folder import Library
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from codemode_mcp.saved_programs.used_tools import DefinitionChange, UsedTool
    from codemode_mcp.settings import ToolSettings
    from codemode_mcp.trust.service import Trust
    from upstream_clients.tools import UpstreamView


class Application(Protocol):
    """An open application of this process. `app.App` implements it.

    Attributes:
        control: the answers to requests of terminals; None until everything is open.
        trust: the pins of the servers.
        auditor: reports events.
    """

    control: Control | None
    trust: Trust
    auditor: Auditor
    operator: Caller

    @property
    def config(self) -> Config: ...

    @property
    def environ(self) -> Mapping[str, str]: ...

    @property
    def policies(self) -> Policies: ...

    def settings(self) -> ToolSettings: ...

    async def catalog_for(self, caller: Caller, client: None) -> Catalog: ...

    async def pool(self) -> Any: ...

    def servers(self, caller: Caller | None) -> dict[str, str]: ...

    def topics(self, caller: Caller) -> Sequence[str]: ...

    def saved_programs(self, caller: Caller | None) -> Sequence[str]: ...

    def plugin_tools(self) -> tuple[Hashable, ...]: ...

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]: ...

    def budget_views(self) -> Sequence[AccountView]:
        """Return the use of budgets."""
        ...

    def server_views(self) -> Sequence[UpstreamView]: ...

    def library(self) -> Library:
        """Return the saved programs."""
        ...

    def program_changes(self, name: str) -> Sequence[DefinitionChange]:
        """Return the definitions of tools that have changed since a saved program was pinned."""
        ...

    async def tools_of_program(self, program: SavedProgram) -> tuple[UsedTool, ...]:
        """Return the tools that a saved program names, with their present definitions."""
        ...

    async def pin_program(self, program: SavedProgram, tools: tuple[UsedTool, ...], by: str) -> None:
        """Pin a saved program to definitions of its tools that a person has seen. Raises `StateUnavailable`."""
        ...

    def change(self) -> Any:
        """Return an object that is replaced whenever the catalog or the configuration changes."""
        ...
