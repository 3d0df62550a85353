"""The choice of what a client sees directly: by its path, its context, its name, and the file. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.settings import ExposeSettings

if TYPE_CHECKING:
    from codemode_mcp.settings import ExposeMode, PolicyContext, ProfileOverride, ToolSettings


ItemKind = Literal["prompts", "resources"]
"""Kinds of items that clients see without a program. Resource templates belong to the resources."""

ALL_TOOLS: Final = ("*",)
"""The patterns of the mode `direct`, if the configuration has none."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The choice for one client.

    Attributes:
        mode: `auto` is still to be decided, by the tools of the caller.
        direct: patterns of tools; see `ExposeSettings.direct`.
        programs: list saved programs as prompts.
    """

    mode: ExposeMode = "code"
    prompts: bool = True
    resources: bool = True
    direct: tuple[str, ...] = ()
    programs: bool = False

    def shows(self, kind: ItemKind, server: ExposeSettings | None = None) -> bool:
        """Return True if the client sees prompts or resources of a server. `server`: `expose` of the server."""
        own = None if server is None else server.prompts if kind == "prompts" else server.resources
        return own is not False and (self.prompts if kind == "prompts" else self.resources)


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
