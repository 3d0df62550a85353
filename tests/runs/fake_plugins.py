"""Plugins that were not loaded from anywhere: real registrations of namespaces, over tools that are scripted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
from codemode_mcp.catalog.plugins.api import CreateScope
from codemode_mcp.catalog.plugins.running import Owner, Threads
from codemode_mcp.catalog.plugins.scopes import Namespace, check_namespace
from upstream_clients.testing import ScriptedSource
from upstream_clients.tools import Annotations, Tool, ToolSource

READ_ONLY = Annotations(read_only=True)
OBJECT = {"type": "object"}


class FakePlugins:
    """Satisfies what a run and `bench` need of `catalog.plugins.host.Plugins`."""

    def __init__(self) -> None:
        self.threads = Threads(4)
        self.sources: dict[str, ToolSource] = {}
        self._tools: list[OfferedTool] = []
        self._registered: dict[str, Namespace] = {}

    def add_tools(self, plugin: str, *tools: Tool | str, source: ToolSource | None = None) -> ScriptedSource:
        """Tools of a plugin; without a source of its own each answers with its name and what it was given."""
        listed = [Tool(tool, input_schema=OBJECT) if isinstance(tool, str) else tool for tool in tools]
        self._tools += [OfferedTool("plugin", plugin, tool) for tool in listed]
        scripted = ScriptedSource(plugin, {tool.name: _echo(tool.name) for tool in listed}, tools=listed)
        self.sources[plugin] = source or scripted
        return scripted

    def add(
        self,
        create_scope: CreateScope,
        *,
        plugin: str = "tracker",
        id: str = "issues",  # noqa: A002
        global_name: str = "issues",
        required: Sequence[str] = ("list", "add"),
        prompt: str = "",
        description: str = "Issues of the team",
        config: dict[str, Any] | None = None,
    ) -> OfferedNamespace:
        """Register a namespace."""
        namespace = Namespace(id, plugin, global_name, description, tuple(required), create_scope, prompt, config or {})
        check_namespace(namespace, required, self._registered.values())
        self._registered[id] = namespace
        return namespace.offered

    def remove(self, plugin: str) -> None:
        """Remove a namespace, as a reload or a rollback does."""
        self._tools = [each for each in self._tools if each.source_name != plugin]
        self.sources.pop(plugin, None)
        self._registered = {id_: each for id_, each in self._registered.items() if each.plugin != plugin}

    def tools(self) -> Sequence[OfferedTool]:
        return tuple(self._tools)

    def namespaces(self) -> Sequence[OfferedNamespace]:
        return tuple(each.offered for each in self._registered.values())

    def namespace(self, namespace_id: str) -> Namespace | None:
        return self._registered.get(namespace_id)

    def find(self, name: str) -> Owner | None:
        return Owner(name, self.threads) if name in self.sources else None

    def source(self, plugin: str) -> ToolSource:
        return self.sources[plugin]


def _echo(name: str) -> Any:
    return lambda arguments: {"content": [], "structuredContent": {"tool": name, "given": dict(arguments)}}
