"""Sizes of tools in a prompt: those of all servers added directly, against `exec` and `wait`. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.audit.sizes import size
from codemode_mcp.server.descriptions import listed_bytes, prompt_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from upstream_clients.tools import Tool

State = Literal["listed", "remembered", "unknown"]
"""Age of a server's list of tools: from now, from an earlier time, or none."""

_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


@dataclass(frozen=True, slots=True)
class Weight:
    """Sizes of some tools, in bytes.

    Attributes:
        prompt: name, description and input schema of each, which is what clients hand to a model.
        listing: of each all that `tools/list` says.
        instructions: of the server, which some clients put into the prompt too.
    """

    tools: int = 0
    prompt: int = 0
    listing: int = 0
    instructions: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(
            self.tools + other.tools,
            self.prompt + other.prompt,
            self.listing + other.listing,
            self.instructions + other.instructions,
        )


@dataclass(frozen=True, slots=True)
class Server:
    """One server, added to a client directly.

    Attributes:
        declarations: bytes of its declaration file.
        why: where it is not `listed`.
    """

    name: str
    weight: Weight
    declarations: int = 0
    state: State = "listed"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Exposure:
    """All servers against the two tools.

    Attributes:
        own: `exec` and `wait`, as this server lists them with these servers.
        index: bytes of `mcp/index.d.ts`.
        one_tool: bytes of the declaration of one tool; the median.
    """

    servers: tuple[Server, ...]
    own: Weight
    index: int = 0
    one_tool: int = 0

    @property
    def direct(self) -> Weight:
        return sum((server.weight for server in self.servers), Weight())

    @property
    def reading(self) -> int:
        """Return what a task typically reads of declarations: the file of one server, which `exec` says to read first;
        the median of those with tools."""
        files = [server.declarations for server in self.servers if server.weight.tools]
        return statistics.median_low(files) if files else 0

    @property
    def saved(self) -> int:
        """Bytes of the prompt; negative where code mode takes more."""
        return self.direct.prompt - self.own.prompt

    def pays_from(self, *, reading: bool = False) -> tuple[int, int] | None:
        """Return the numbers of tools and servers from which on the two tools are smaller; None without tools.

        Args:
            reading: what a task reads counts too.
        """
        direct, known = self.direct, sum(server.weight.tools > 0 for server in self.servers)
        if not direct.tools:
            return None
        needed = self.own.prompt + (self.reading if reading else 0) + 1
        return math.ceil(needed * direct.tools / direct.prompt), math.ceil(needed * known / direct.prompt)


def weigh(items: Sequence[Mapping[str, Any]], instructions: str | None = None) -> Weight:
    """Return the weight of tools as `tools/list` has them."""
    return Weight(len(items), prompt_bytes(items), listed_bytes(items), size(instructions or ""))


def as_listed(tool: Tool) -> dict[str, Any]:
    """Return a tool as its server lists it, without icons and `_meta`, which are not kept."""
    annotations = {
        key: value for key, attribute in _HINTS if (value := getattr(tool.annotations, attribute)) is not None
    }
    item = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or None,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": annotations or None,
    }
    return {key: value for key, value in item.items() if value is not None}
