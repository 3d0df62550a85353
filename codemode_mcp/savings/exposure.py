"""The sizes of tools in a prompt: the tools of all servers if added directly, and `exec` and `wait`. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.audit.sizes import size
from codemode_mcp.server.descriptions import listed_bytes, prompt_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from upstream_clients.tools import Tool

State = Literal["listed", "remembered", "unknown"]
"""The source of a tool list.

`listed`: the server has listed its tools. `remembered`: the list is from an earlier connection. `unknown`: no list.
"""

_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


@dataclass(frozen=True, slots=True)
class Weight:
    """The sizes of some tools, in bytes.

    Attributes:
        tools: number of tools.
        prompt: names, descriptions and input schemas, which clients pass to the model.
        listing: everything in `tools/list`.
        instructions: the instructions of the server, which some clients put into the prompt too.
    """

    tools: int = 0
    prompt: int = 0
    listing: int = 0
    instructions: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(*(mine + others for mine, others in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Server:
    """One server, with its sizes if it is added to a client directly.

    Attributes:
        declarations: bytes of the server's declaration file.
        why: the reason for a state other than `listed`.
    """

    name: str
    weight: Weight
    declarations: int = 0
    state: State = "listed"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The sizes of all servers, and of `exec` and `wait`.

    Attributes:
        own: the sizes of `exec` and `wait`, as this server lists them with these servers.
        index: bytes of `mcp/index.d.ts`.
        one_tool: the median size of the declaration of one tool, in bytes.
        searching: the sizes of `search` and `call`.
    """

    servers: tuple[Server, ...]
    own: Weight
    index: int = 0
    one_tool: int = 0
    searching: Weight = Weight()

    @property
    def direct(self) -> Weight:
        """Return the sizes of all tools of all servers."""
        return sum((server.weight for server in self.servers), Weight())

    @property
    def reading(self) -> int:
        """Return the bytes of declarations that a task typically reads.

        This is the median size of the declaration files of servers with tools, because the description of `exec` tells
        models to read the file of one server first.
        """
        files = [server.declarations for server in self.servers if server.weight.tools]
        return statistics.median_low(files) if files else 0

    @property
    def saved(self) -> int:
        """Return the bytes of the prompt that code mode saves; negative if code mode takes more."""
        return self.direct.prompt - self.own.prompt

    def pays_from(self, *, reading: bool = False) -> tuple[int, int] | None:
        """Return the least numbers of tools and of servers with which code mode saves bytes; None without tools.

        Args:
            reading: add the bytes of declarations that a task reads.
        """
        direct, known = self.direct, sum(server.weight.tools > 0 for server in self.servers)
        if not direct.tools:
            return None
        needed = self.own.prompt + (self.reading if reading else 0) + 1
        return math.ceil(needed * direct.tools / direct.prompt), math.ceil(needed * known / direct.prompt)


def weigh(items: Sequence[Mapping[str, Any]], instructions: str | None = None) -> Weight:
    """Return the sizes of tools. Each item has the form of an item in `tools/list`."""
    return Weight(len(items), prompt_bytes(items), listed_bytes(items), size(instructions or ""))


def as_listed(tool: Tool) -> dict[str, Any]:
    """Return a tool in the form of `tools/list`. Icons and `_meta` are missing, because they are not stored."""
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
