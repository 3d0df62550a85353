"""TypeScript declarations of tools, from JSON Schemas and tool names. Pure: no I/O, no MCP.

From bottom to top: `names` makes the identifiers of servers and tools. `schema` turns a JSON Schema into a tree of
types (`typetree`), with `kinds`. `expressions` writes such trees as TypeScript, `functions` writes the declaration of a
tool, and `render` writes whole files. `operations` lists the functions for resources and prompts. `jsdoc` makes
comments from descriptions, `observed` learns types from values, and `untrusted_text` escapes characters that mislead
readers. `guest.d.ts` is written by hand and declares the other globals of programs.
"""

from declarations.expressions import Renderable, render_schema
from declarations.functions import signature
from declarations.names import aliases, identifiers
from declarations.render import ServerSummary, render_index, render_server

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
