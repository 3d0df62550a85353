"""A few notes as an MCP server over stdio. `delete_note` says of itself that it destroys something."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel


class Note(BaseModel):
    title: str
    year: int


class Notes(BaseModel):
    notes: list[Note]


server = MCPServer("notes", log_level="ERROR")
kept = {
    title: Note(title=title, year=year)
    for title, year in {"Old plan": 2019, "Recipes": 2021, "Party": 2018, "Taxes": 2026}.items()
}


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def list_notes() -> Notes:
    """All notes."""
    return Notes(notes=list(kept.values()))


@server.tool(annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False))
async def delete_note(title: str) -> Note:
    """Delete a note for good."""
    try:
        return kept.pop(title)
    except KeyError:
        raise ToolError(f"There is no note {title!r}; there are {', '.join(kept)}.") from None


if __name__ == "__main__":
    server.run()
