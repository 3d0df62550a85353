"""The choice that the mode `auto` stands for: by the size of a caller's tools, and so by their number. Pure.

A client of `direct` has the definitions of all tools in each prompt. A program in `code` reads the declarations of the
tools that it needs, once for each task. So `direct` costs less if all definitions together are smaller than what a task
reads. In the ten tasks of `tests/tasks`, a task reads 900 bytes of declarations, programs included. `search` is never
chosen: its answers with several signatures cost more than the declarations of the right tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.catalog.entries import Entry

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
    """Return tools with the fields that clients pass to a model."""
    return [
        {"name": entry.tool.name, "description": entry.tool.description, "inputSchema": entry.tool.input_schema}
        for entry in entries
    ]
