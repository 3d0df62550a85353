"""The exposure of each client under the current settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.exposure.selection import exposure_of
from codemode_mcp.policy.policy import Policies
from codemode_mcp.server.profiles import override_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from codemode_mcp.exposure.selection import Exposure, ItemKind
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.settings import ExposeMode, ExposeSettings, ToolSettings


class ClientExposure:
    """The choices for all clients.

    Args:
        settings: returns the current settings.
    """

    def __init__(self, settings: Callable[[], ToolSettings]) -> None:
        self._settings = settings
        self._policies: tuple[ToolSettings, Policies] | None = None

    def of(self, caller: Caller | None, client_name: str | None, path: ExposeMode | None) -> Exposure:
        """Return what a client sees directly.

        Args:
            caller: None for a client that has sent no request yet and may be any caller.
            client_name: `clientInfo.name`; None if it is not known.
            path: the mode that the path of the request names.
        """
        settings = self._settings()
        context = None if caller is None else self._current().context_of(caller)
        return exposure_of(settings, context, override_of(client_name, settings.clients), path)

    def server_settings(self, server: str) -> ExposeSettings | None:
        """Return `expose` of a server entry."""
        return self._settings().expose_servers.get(server)

    def shows(self, exposure: Exposure, kind: ItemKind, servers: Collection[str]) -> bool:
        """Return True if a client sees prompts or resources of any server, once the server has some, or programs.

        Args:
            servers: the configured servers. Without any, a later configuration may have some.
        """
        if kind == "prompts" and exposure.programs:
            return True
        return exposure.shows(kind) and (
            not servers or any(exposure.shows(kind, self.server_settings(server)) for server in servers)
        )

    def capabilities(self, exposure: Exposure, servers: Collection[str]) -> dict[str, Any]:
        """Return the capabilities of this server for prompts and resources; see `shows`."""
        found: dict[str, Any] = {}
        if self.shows(exposure, "prompts", servers):
            found["prompts"] = {"listChanged": True}
        if self.shows(exposure, "resources", servers):
            found["resources"] = {"subscribe": True, "listChanged": True}
        return {**found, "completions": {}} if found else found

    def policy_of(self, caller: Caller) -> Policy:
        """Return the policy of a caller."""
        return self._current().of(caller)

    def _current(self) -> Policies:
        settings = self._settings()
        if self._policies is None or self._policies[0] is not settings:
            self._policies = settings, Policies(settings)
        return self._policies[1]
