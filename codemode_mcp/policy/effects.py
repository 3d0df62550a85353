"""Effects of tools: what calls of a tool do, as far as its server's annotations say so. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from upstream_clients.tools import Annotations


@dataclass(frozen=True, slots=True)
class Effects:
    """Annotations with MCP's defaults filled in: a tool is destructive and open-world unless it declares otherwise."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @staticmethod
    def of(declared: Annotations | None) -> Effects:
        """Return the effects for annotations; None for a tool whose annotations are not trusted."""
        if declared is None:
            return Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        read_only = declared.read_only is True
        return Effects(
            read_only=read_only,
            destructive=not read_only and declared.destructive is not False,
            idempotent=read_only or declared.idempotent is True,
            open_world=declared.open_world is not False,
        )


def with_own(declared: Annotations | None, own: Annotations) -> Annotations:
    """Return the annotations of a tool after those of the operator have replaced those of the server.

    Args:
        declared: the annotations of the server; None if they are not trusted.
        own: the annotations of the operator. Fields that are None keep the server's.
    """
    return own if declared is None else replace(declared, **{k: v for k, v in asdict(own).items() if v is not None})


ANNOTATIONS: Final = {
    "readOnly": "read_only",
    "destructive": "destructive",
    "idempotent": "idempotent",
    "openWorld": "open_world",
}
"""The annotation tests, which are rules like globs, and the attributes of `Effects` that they test."""

READ_ONLY: Final = Effects(read_only=True, destructive=False, idempotent=True, open_world=True)
"""Effects of a tool that only reads."""

NO_EFFECTS: Final = Effects(read_only=False, destructive=False, idempotent=False, open_world=False)
"""Effects that pass no annotation test."""

POSSIBLE_EFFECTS: Final = (
    *(Effects(read_only=True, destructive=False, idempotent=True, open_world=world) for world in (True, False)),
    *(Effects(False, *each) for each in product((True, False), repeat=3)),
)
"""All effects that `Effects.of` may return."""
