"""The section `clients`: changes to the profiles of MCP clients, by globs on the names that clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.config.expose import read_expose
from codemode_mcp.config.nodes import Node, array_of
from codemode_mcp.settings import Clamp, ExposeSettings, ProfileOverride

if TYPE_CHECKING:
    from codemode_mcp.config.nodes import Readers

OUTPUT_CLAMP = Clamp(1024, 10 * 1024 * 1024)


def _limit(node: Node) -> int | None:
    """Return a number of bytes. Null removes the limit of a profile."""
    return None if node.value is None else node.clamped(OUTPUT_CLAMP, "an integer or null")


_READERS: Readers = {
    **dict.fromkeys(("showsStructured", "losesPictures", "defersTools", "sendsNull", "repeatsFailures"), Node.flag),
    "mishandlesLinks": Node.flag,
    "maxOutputBytes": _limit,
    "addsArguments": array_of(Node.nonblank),
    "expose": read_expose,
}


def read_clients(node: Node) -> tuple[ProfileOverride, ...]:
    """Return the entries in the order of the file. The first entry that matches a client is used."""
    if node.value is None:
        return ()
    return tuple(_override(glob, entry) for glob, entry in node.entries().items())


def _override(glob: str, node: Node) -> ProfileOverride:
    if not glob.strip() or not glob.isprintable():
        node.fail("the key must be the name of a client, or a glob such as claude-*; codemode-mcp clients lists names")
    given = node.settings(_READERS)
    expose = given.pop("expose", ExposeSettings())
    return ProfileOverride(glob, tuple(given.items()), expose)
