"""The choice of what a client sees directly: by path, context, name, file, patterns and size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from codemode_mcp.base.settings import UI_TOOLS, ExposeSettings
from codemode_mcp.rules.policy.rule_patterns import Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.base.settings import ExposeMode, PolicyContext, ProfileOverride, ToolSettings
    from codemode_mcp.catalog.entries import Entry


ItemKind = Literal["prompts", "resources"]
"""Kinds of items that clients see without a program. Resource templates belong to the resources."""

ALL_TOOLS: Final = ("*",)
"""The patterns of the mode `direct`, if the configuration has none."""


class Exposure(Struct, frozen=True):
    """The choice for one client.

    Attributes:
        mode: `auto` is still to be decided, by the tools of the caller. In `pass-through` there are only the tools of
            `direct`.
        direct: patterns of tools; see `ExposeSettings.direct`.
        programs: list saved programs as prompts.
    """

    mode: ExposeMode | Literal["pass-through"] = "code"
    prompts: bool = True
    resources: bool = True
    direct: tuple[str, ...] = ()
    programs: bool = False

    def shows(self, kind: ItemKind, server: ExposeSettings | None = None) -> bool:
        """Return True if the client sees prompts or resources of a server. `server`: `expose` of the server."""
        own = None if server is None else server.prompts if kind == "prompts" else server.resources
        return own is not False and (self.prompts if kind == "prompts" else self.resources)


PASS_THROUGH: Final = Exposure("pass-through", prompts=False, resources=False, direct=ALL_TOOLS)
"""The choice for all clients of a process that does not run programs."""


def exposure_of(
    tools: ToolSettings, context: PolicyContext | None, client: ProfileOverride | None, path: ExposeMode | None = None
) -> Exposure:
    """Return what a client sees directly.

    A value is taken from the first part that sets it: the context of the caller, the entry of `clients`, and `expose`
    of the file. The path of an HTTP client decides the mode before all of them.

    Args:
        context: the context of the caller, if it belongs to one.
        client: the entry of `clients` that matches the client, if there is one.
        path: the mode that the path of the request names.
    """
    parts = [ExposeSettings(mode=path)] if path is not None else []
    parts += [each.expose for each in (context, client) if each is not None]
    parts.append(tools.expose)
    mode: ExposeMode = next((each.mode for each in parts if each.mode is not None), "code")
    direct = next((each.direct for each in parts if each.direct is not None), ALL_TOOLS if mode == "direct" else ())
    prompts = next((each.prompts for each in parts if each.prompts is not None), True)
    resources = next((each.resources for each in parts if each.resources is not None), True)
    programs = next((each.programs for each in parts if each.programs is not None), False)
    # In the mode `search` there is no `exec`, by which a prompt would run its program.
    return Exposure(mode, prompts, resources, direct, programs and mode != "search")


# The choice that the mode `auto` stands for: by the size of a caller's tools, and so by their number.
#
# A client of `direct` has the definitions of all tools in each prompt. A program in `code` reads the declarations of
# the tools that it needs, once for each task. So `direct` costs less if all definitions together are smaller than what
# a task reads. In the ten tasks of `tests/tasks`, a task reads 900 bytes of declarations, programs included. `search`
# is never chosen: its answers with several signatures cost more than the declarations of the right tools.


Mode = Literal["code", "direct"]

DIRECT_BYTES: Final = 1_000
"""Most bytes of tools in a prompt with which clients get the tools themselves."""

MARGIN: Final = 0.25
"""Share by which a limit must be passed before the choice for a caller changes, so that it does not flip."""


def choose_mode(size: int, before: Mode | None) -> Mode:
    """Return the mode for tools of this size.

    Args:
        size: bytes of the tools in a prompt; see `descriptions.prompt_bytes`.
        before: the choice for the same caller before; None for the first one.
    """
    room = {"direct": 1 + MARGIN, "code": 1 - MARGIN, None: 1.0}[before]
    return "direct" if size <= DIRECT_BYTES * room else "code"


def listed_tools(entries: Iterable[Entry]) -> list[dict[str, object]]:
    return [
        {"name": entry.tool.name, "description": entry.tool.description, "inputSchema": entry.tool.input_schema}
        for entry in entries
    ]


_SOURCES = ("mcp", "plugin")


class DirectPatterns:
    """Patterns as `ExposeSettings.direct` has them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = Rules(pattern for pattern in patterns if pattern != UI_TOOLS)
        self.with_apps = UI_TOOLS in patterns
        """True if tools with an app are chosen, for clients that show apps."""

    def __bool__(self) -> bool:
        return bool(self._rules) or self.with_apps

    def choose(self, entry: Entry) -> bool:
        """Return True if a pattern other than `ui` fits a tool of a server or of a plugin."""
        is_tool = entry.source in _SOURCES and entry.operation is None
        return is_tool and self._rules.first(entry.id, entry.effects) is not None
