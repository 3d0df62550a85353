"""JSON Schema to TypeScript, tool names to identifiers. Pure: no I/O, no MCP.

General layout: `names` decides what servers and tools are called; `schema` turns a JSON Schema into a small tree of
types; `render` writes such trees as TypeScript, for one call or for whole files; `jsdoc` makes comments of what
upstreams say; `observed` keeps the shape of values seen. `guest.d.ts` declares the other globals of a program, by hand.
"""

from declarations.names import aliases, identifiers
from declarations.render import Renderable, ServerSummary, render_index, render_schema, render_server, signature

__all__ = [
    "Renderable",
    "ServerSummary",
    "aliases",
    "identifiers",
    "render_index",
    "render_schema",
    "render_server",
    "signature",
]
