"""The parts that this extension adds to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.extension_points import Command, Extension

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.audit.trajectory_files import Trace
    from codemode_mcp.extension_points import BrowserPage, Connected
    from codemode_mcp.server.services import App


def _open(applications: Callable[[], Sequence[App]], connected: Connected) -> BrowserPage:
    from codemode_mcp.extensions.page.listener import Page

    return Page(applications, connected)


def _timeline(trace: Trace, heading: Sequence[str]) -> str:
    from codemode_mcp.extensions.page.site import ASSETS, environment, rendered
    from codemode_mcp.extensions.page.timeline_rows import drawing

    style = (ASSETS / "page.css").read_text("utf-8")
    values = {"id": trace.id, "heading": heading, "style": style, "lost": trace.lost, **drawing(trace)}
    return rendered(environment(), "trace.html", values)


EXTENSION = Extension(commands={"ui": Command(f"{__package__}.command", 250)}, open_page=_open, timeline_page=_timeline)
