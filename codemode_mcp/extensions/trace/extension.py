"""The parts that this extension adds to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.extension_points import Command, Extension

if TYPE_CHECKING:
    from codemode_mcp.extension_points import RunDrawing


def _draw_run() -> RunDrawing:
    from codemode_mcp.extensions.trace.timeline import Drawing

    return Drawing()


EXTENSION = Extension(commands={"trace": Command(f"{__package__}.command", 240)}, draw_run=_draw_run)
