"""`expose`: what clients see directly, in the file, in contexts, in profiles of clients and in server entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.config.nodes import Node, array_of, one_of
from codemode_mcp.config.patterns import id_pattern
from codemode_mcp.exposure.patterns import UI_TOOLS
from codemode_mcp.settings import EXPOSE_MODES, ExposeSettings

if TYPE_CHECKING:
    from codemode_mcp.config.nodes import Readers


def _pattern(node: Node) -> str:
    return UI_TOOLS if node.value == UI_TOOLS else id_pattern(node)


_ITEMS: Readers = {"prompts": Node.flag, "resources": Node.flag}
_READERS: Readers = {
    "mode": one_of(*EXPOSE_MODES),
    **_ITEMS,
    "programs": Node.flag,
    "direct": array_of(_pattern),
}


def read_expose(node: Node) -> ExposeSettings:
    """Read `expose` of the file, of a context or of a client."""
    return ExposeSettings() if node.value is None else ExposeSettings(**node.settings(_READERS))


def read_server_expose(node: Node) -> ExposeSettings:
    """Read `expose` of a server entry: whether its prompts and resources are listed."""
    return ExposeSettings() if node.value is None else ExposeSettings(**node.settings(_ITEMS))
