"""The names by which people refer to items of servers: `github.create_issue`, `github.prompts/greet`. Pure.

`github` alone stands for everything that the server lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from codemode_mcp.trust.items import Key, Kind

_PREFIXES: Final[Mapping[Kind, str]] = {
    "tool": "tools/",
    "prompt": "prompts/",
    "template": "templates/",
    "server": "server/",
    "entry": "entry/",
}


def reference(server: str, kind: Kind, name: str) -> str:
    """Return the name of an item. The server's own texts are `github.server/`, and its entry is `github.entry/`."""
    needs_prefix = kind != "tool" or name.startswith(tuple(_PREFIXES.values()))
    return f"{server}.{_PREFIXES[kind] if needs_prefix else ''}{name}"


def parse_reference(text: str, servers: Collection[str]) -> tuple[str, Key | None] | None:
    """Return the server and the key of an item; the key is None for the whole server.

    Return None if no server has such a name. Names of servers may have dots; the longest one that fits is used.
    """
    if text in servers:
        return text, None
    server = max((each for each in servers if text.startswith(f"{each}.")), key=len, default=None)
    if server is None:
        return None
    name = text[len(server) + 1 :]
    for kind, prefix in _PREFIXES.items():
        if name.startswith(prefix):
            return server, (kind, name[len(prefix) :])
    return server, ("tool", name)
