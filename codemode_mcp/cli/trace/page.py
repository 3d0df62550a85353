"""A trace as one page of HTML that needs no scripts, other files or network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.cli.trace.text import heading
from codemode_mcp.page.rendering import ASSETS, environment, rendered
from codemode_mcp.page.timeline_rows import drawing

if TYPE_CHECKING:
    from codemode_mcp.audit.timeline import Trace


def page(trace: Trace) -> str:
    """Return the HTML of the page of a trace."""
    style = (ASSETS / "page.css").read_text("utf-8")
    values = {"id": trace.id, "heading": list(heading(trace)), "style": style, "lost": trace.lost, **drawing(trace)}
    return rendered(environment(), "trace.html", values)
