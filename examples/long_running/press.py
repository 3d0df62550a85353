"""A press as an MCP server over stdio. It takes the time it takes, tells its progress, and can be stopped."""

from __future__ import annotations

from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

SECONDS_PER_PAGE = 0.4


class Printed(BaseModel):
    title: str
    pages: int


class Tray(BaseModel):
    """The reports that were printed. Cancelled ones are not in it."""

    printed: list[Printed]


server = MCPServer("press", log_level="ERROR")
tray: list[Printed] = []


# Idempotent: a client that lost the answer, since the server ended, may ask for the report again.
PRINTS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


@server.tool(annotations=PRINTS)
async def print_report(title: str, pages: Annotated[int, Field(ge=1, le=100)], ctx: Context) -> Printed:
    """Print a report, page by page, unless it is in the tray."""
    for printed in tray:
        if printed.title == title:
            return printed
    for page in range(1, pages + 1):
        await anyio.sleep(SECONDS_PER_PAGE)
        await ctx.report_progress(page, pages, f"{title}: page {page} of {pages}")
    tray.append(Printed(title=title, pages=pages))
    return tray[-1]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def look_into_tray() -> Tray:
    """Everything that was printed."""
    return Tray(printed=tray)


if __name__ == "__main__":
    server.run()
