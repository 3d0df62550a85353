"""The overrides of the configuration, applied to the tools that servers list. Pure.

An override changes what programs see: a tool's name, texts, annotations and arguments. The id of the tool keeps the
name that the server lists, so that rules, approvals, pins and records mean the same tool with and without an override.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from codemode_mcp.base.did_you_mean import normalize_name, one_hint
from codemode_mcp.catalog.entries import mcp_id
from codemode_mcp.rules.policy.rule_patterns import with_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.base.settings import ToolOverride
    from upstream_clients.tools import Tool, UpstreamView


class Overrides:
    """The overrides of all servers.

    Args:
        by_id: the overrides by the id of the tool.
    """

    def __init__(self, by_id: Mapping[str, ToolOverride]) -> None:
        self._by_id = by_id
        # The mutable state: tools as listed and as shown, by id. An unchanged tool stays the same object, so that what
        # is made from its schema stays valid.
        self._made: dict[str, tuple[Tool, Tool]] = {}

    def shown(self, view: UpstreamView) -> Mapping[str, Tool]:
        """Return the tools of a server that an override changes, as programs see them, by the names in the listing."""
        if not self._by_id:
            return {}
        found = self._of(view)
        names = shown_names([tool.name for tool in view.tools], found) if found else {}
        shown = {}
        for tool in view.tools:
            if tool.name in found:
                tool_id = mcp_id(view.name, tool.name)
                made = self._made.get(tool_id)
                if made is None or made[0] is not tool or made[1].name != names[tool.name]:
                    made = self._made[tool_id] = tool, _shown(tool, names[tool.name], found[tool.name])
                shown[tool.name] = made[1]
        return shown

    def name_of(self, tool_id: str) -> str | None:
        """Return the name that an override gives to a tool, whether the server lists the tool or not."""
        override = self._by_id.get(tool_id)
        return None if override is None else override.name

    def _of(self, view: UpstreamView) -> dict[str, ToolOverride]:
        ids = ((tool.name, mcp_id(view.name, tool.name)) for tool in view.tools)
        return {name: self._by_id[tool_id] for name, tool_id in ids if tool_id in self._by_id}

    def problems(self, view: UpstreamView) -> Iterator[tuple[str, str]]:
        """Yield what does not fit between the overrides of a server and its tools.

        Each problem has the name of the tool, and a sentence about the override without a subject.
        """
        listed = {tool.name: tool for tool in view.tools}
        prefix = f"mcp:{view.name}:"
        known = {mcp_id(view.name, name) for name in listed}
        for tool_id in self._by_id:
            if tool_id.startswith(prefix) and tool_id not in known:
                name = tool_id.removeprefix(prefix)
                yield name, f"names a tool that the server does not list{one_hint(name, listed)}"
        from codemode_mcp.catalog.shown_arguments import shown_schema

        found = self._of(view)
        names = shown_names(list(listed), found)
        for name, override in found.items():
            if override.name is not None and names[name] != override.name:
                other = next(each for each, shown in names.items() if each != name and _alike(shown, override.name))
                yield name, f'is not renamed to "{override.name}", because this is the name of the tool "{other}"'
            if override.changes_arguments:
                for problem in shown_schema(listed[name].input_schema, override).problems:
                    yield name, problem


NO_OVERRIDES: Final = Overrides({})


def shown_names(listed: Sequence[str], overrides: Mapping[str, ToolOverride]) -> dict[str, str]:
    """Return the names of tools in programs, by the names in the listing.

    A tool keeps its name if the name of its override is that of another tool, or differs from it only in case and
    punctuation. Programs could not tell the two apart.
    """
    names = {name: name for name in listed}
    names |= {name: override.name for name, override in overrides.items() if override.name is not None}
    while True:
        counts = Counter(map(_spelling, names.values()))
        clashing = [name for name, shown in names.items() if name != shown and counts[_spelling(shown)] > 1]
        if not clashing:
            return names
        names |= {name: name for name in clashing}


def _spelling(name: str) -> str:
    return normalize_name(name) or name


def _alike(one: str, other: str) -> bool:
    return _spelling(one) == _spelling(other)


def _shown(tool: Tool, name: str, override: ToolOverride) -> Tool:
    changed: dict[str, Any] = {"name": name}
    if override.title is not None:
        changed["title"] = override.title
    if override.description is not None:
        changed["description"] = override.description
    if override.annotations is not None:
        changed["annotations"] = with_own(tool.annotations, override.annotations)
    if override.changes_arguments:
        # Not imported at the start, which reads the names and texts of tools only.
        from codemode_mcp.catalog.shown_arguments import shown_schema

        changed["input_schema"], changed["sent"] = shown_schema(tool.input_schema, override).schema, None
    return replace(tool, **changed)
