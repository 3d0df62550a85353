"""The tools that a saved program uses, as its text names them, with the digests of their definitions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.program.syntax import parse, utf16_units
from codemode_mcp.program.uses import UseFinder
from codemode_mcp.trust.items import tool_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from upstream_clients.tools import Tool

MAX_TOOLS: Final = 500
"""Maximum number of tools of one program that are recorded."""

_TOOLS: Final = re.compile(r"(?<![\w$.])tools(?![\w$])")
"""The global by which a program reaches tools of plugins, whose names may be computed."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a text.

    Attributes:
        paths: such as `MCP.github.createIssue`, in alphabetical order.
        complete: False if the program may use tools that its text does not name.
    """

    paths: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class UsedTool:
    """A tool that a program uses, with its definition at one time.

    Attributes:
        path: the expression in the program.
        server: the configured name of its server.
        tool: the name of the tool.
        digest: the digest of the definition, as pins have it; empty if there was no such tool.
        shape: the digest without titles, descriptions and comments.
    """

    path: str
    server: str = ""
    tool: str = ""
    digest: str = ""
    shape: str = ""


Definition = tuple[str, "Tool"]
"""The configured name of a server, and a tool as it lists it."""

What = Literal["other", "new", "gone", "changed", "text_changed"]


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A difference between the definition to which a version is pinned and the present one.

    Attributes:
        what: `other`: the path leads to another tool now.
        tools: for `other`, the tool to which the version is pinned, and the present one, in words.
    """

    path: str
    what: What
    tools: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        if self.what == "other":
            return f"{self.path} was {self.tools[0]}, and is {self.tools[1]} now"
        return f"{self.path} {_WORDS[self.what]}"


_WORDS: Final[dict[What, str]] = {
    "other": "is another tool now",
    "new": "exists now",
    "gone": "cannot be used now: its server does not list it, or it is held",
    "changed": "has another definition",
    "text_changed": "has another description",
}


def unusable(changes: Iterable[DefinitionChange]) -> str | None:
    """Return the reason why changes cannot be accepted: a tool cannot be used; None if they can."""
    paths = [each.path for each in changes if each.what == "gone"]
    if not paths:
        return None
    return (
        f"{', '.join(paths[:5])} cannot be used now; if it is held, decide about it first (codemode-mcp trust status), "
        "and if it is gone, change the program"
    )


def names_in(text: str) -> Names:
    """Return the names of tools in the text of a program."""
    units = utf16_units(text)
    tree = parse(units)
    if tree is None:
        return Names((), False)
    finder = UseFinder(units)
    finder.read(tree)
    members = finder.members()
    complete = members is not None and all(name is not None for _, name in members) and _TOOLS.search(units) is None
    paths = {f"MCP.{server}.{name}" for server, name in members or () if name is not None and name != "$api"}
    return Names(tuple(sorted(paths)[:MAX_TOOLS]), complete and len(paths) <= MAX_TOOLS)


def used_tools(names: Names, find: Callable[[str], Definition | None]) -> tuple[UsedTool, ...]:
    """Return the tools of names, with their present definitions.

    Args:
        find: returns the tool at a path; None if there is none.
    """
    return tuple(used_tool(path, find(path)) for path in names.paths)


def used_tool(path: str, found: Definition | None) -> UsedTool:
    """Return a tool with its present definition; `found` is None if there is no such tool."""
    if found is None:
        return UsedTool(path)
    server, tool = found
    item = tool_item(tool)
    return UsedTool(path, server, tool.name, item.digest, item.shape_digest)


def compare_tools(pinned: Iterable[UsedTool], present: Callable[[UsedTool], UsedTool | None]) -> list[DefinitionChange]:
    """Return the changes of definitions.

    Args:
        present: returns the same tool with its present definition; None if it is not known now.
    """
    changes = []
    for before in pinned:
        now = present(before)
        if now is None:
            continue
        if is_redirected(before, now):
            changes.append(DefinitionChange(before.path, "other", (_words(before), _words(now))))
            continue
        if (now.digest, now.shape) == (before.digest, before.shape):
            continue
        what: What
        if not now.digest or not before.digest:
            what = "new" if now.digest else "gone"
        else:
            what = "text_changed" if now.shape == before.shape else "changed"
        changes.append(DefinitionChange(before.path, what))
    return changes


def is_redirected(before: UsedTool, now: UsedTool) -> bool:
    """Return True if the same path leads to another tool than before."""
    return bool(before.server and now.server) and (before.server, before.tool) != (now.server, now.tool)


def _words(used: UsedTool) -> str:
    return f"{used.tool!r} of server {used.server!r}"
