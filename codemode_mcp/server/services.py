"""The part of the composition root that a surface needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    import anyio

    from codemode_mcp.audit import Auditor
    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.policy.approval import RememberFn
    from codemode_mcp.policy.policy import Caller
    from codemode_mcp.runs.observation import Polling
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.runs.values import ListedResult
    from codemode_mcp.saved_programs.folder import Library
    from codemode_mcp.settings import Language, ToolSettings
    from upstream_clients.tools import ItemSource, RootsFn, UpstreamView


class Runs(Protocol):
    """The application, as `app.App`."""

    @property
    def auditor(self) -> Auditor: ...

    @property
    def code_mode(self) -> bool:
        """False in pass-through mode, in which no programs are run. It never changes."""

    async def execute(
        self, source: str, language: Language | None, caller: Caller, client: Client, request: str | None = None
    ) -> Outcome:
        """Run a program. `request`: the id of the client's request in events."""

    async def observe(
        self,
        run_id: str,
        owner: str | None,
        *,
        cancel: bool = False,
        from_start: bool = False,
        client: Client,
        answers: Mapping[str, Any] | None = None,
        caller: Caller,
    ) -> Outcome: ...

    async def polling(self) -> Polling:
        """Return the access to runs for clients that poll their state."""

    async def offload(self, owner: str, text: str) -> str | None:
        """Store a text for an owner; see `rendering.Offload`."""

    async def result(self, owner: str, ref: str) -> str | None:
        """Return the JSON text of a stored result; None if the owner has none. Raises `CodeModeError`."""

    async def results(self, owner: str, before: int | None, limit: int) -> Sequence[ListedResult]:
        """Return stored results of an owner; see `Values.results`. Raises `StoreUnavailable`."""

    async def stored_state(self, run_id: str, owner: str | None) -> RunState | None:
        """Return the state of a run in the store; see `RunStore.state_of`. Raises `StoreUnavailable`."""

    def late_notes(self, caller: Caller) -> Sequence[str]:
        """Return notes about calls that failed after their run had ended."""

    async def catalog_counts(self, caller: Caller, client: Client) -> tuple[int, Mapping[str, int]]:
        """Return the number of tools in the caller's catalog, and their numbers by kind of source."""

    async def state_keys(self) -> Sequence[bytes]:
        """Return the keys with which request state is sealed; see `sdk_server.guard_state`."""

    def servers(self, caller: Caller | None) -> Mapping[str, str]:
        """Return the names of the servers that a caller may see, by identifier; for None, that all callers may see."""

    def topics(self, caller: Caller) -> Sequence[str]:
        """Return the topics of the caller's servers, the most distinctive first."""

    def all_topics(self) -> Hashable:
        """Return a value that differs if the topics of any caller differ. It is compared and never shown."""

    async def ready_to_list(self) -> None:
        """Wait, for a bounded time, until the content of the tool list is known."""

    def configured(self) -> Sequence[str]:
        """Return the servers of all callers. They are compared and never shown."""

    def has_nothing(self) -> bool:
        """Return True if neither a server nor a plugin is configured, and no program is saved."""

    def admits_nothing(self, caller: Caller) -> bool:
        """Return True if policy allows the caller no tools."""

    def namespaces(self) -> Hashable:
        """Return a value that differs if the namespaces of any caller differ. It is compared and never shown."""

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]:
        """Return the global name, description and prompt of each loaded namespace that the caller sees."""

    def saved_programs(self, caller: Caller | None) -> tuple[str, ...]:
        """Return the names of the saved programs that a caller sees; for None, all names, which are only compared."""

    def settings(self) -> ToolSettings:
        """Return the current settings. They change with the configuration file."""

    def change(self) -> anyio.Event:
        """Return an event for the next change of the settings, servers, topics or namespaces."""

    async def dispatcher(self) -> Dispatcher:
        """Return the dispatcher once everything is open."""

    def remembers(self) -> RememberFn | None:
        """Return the function that keeps approvals for later calls; None if they cannot be kept."""

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None:
        """Note a connected client by its `Caller.client`, and how to ask it for its roots; None if it has none."""

    def roots_changed(self, client: str | None) -> None:
        """Note that a client has other roots than before."""

    def touch(self) -> None:
        """Begin the work that is delayed until the first request of a client."""

    def record_client(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count a request of a client."""

    # the tools that clients get directly, see `caller_listings.Tools`

    def catalog_of(self, caller: Caller) -> Catalog: ...

    def app_tools_of(self, caller: Caller) -> Catalog:
        """Return the caller's MCP tools that only apps may call."""

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog: ...

    # the prompts and resources that clients get, see `exposed_items`

    def library(self) -> Library:
        """Return the saved programs."""

    def trusted_views(self) -> Sequence[UpstreamView]:
        """Return views of all servers without held items. Before the servers are started, they come from a cache."""

    def accepted_since(self, server: str) -> tuple[float, Mapping[str, float]] | None:
        """Return the times at which the first item and each template of a server were accepted, as `Trust` does."""

    async def item_source(self, server: str, caller: Caller) -> ItemSource | None:
        """Return a server as the client of a caller uses it, once everything is open; None if it was removed."""

    async def plugins_loaded(self) -> bool: ...

    def plugin_tools(self) -> tuple[Hashable, ...]: ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None: ...
