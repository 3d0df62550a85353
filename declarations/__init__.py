"""JSON Schema to TypeScript, tool names to identifiers. Pure: no I/O, no MCP.

From bottom to top: `names` decides the names of servers and tools. `schema` turns a JSON Schema into a small tree of
types, with `references`, `definitions` and `conditions`. `expressions` writes such trees as TypeScript, `functions`
writes the declaration of one tool, and `render` and `namespaces` write whole files. `operations` lists the functions
for resources and prompts. `jsdoc` makes comments of descriptions, and `observed` learns types from values.
`untrusted_text` has the characters that hide or reorder text; all that shows such text uses it.
`guest.d.ts` declares the other globals of a program, by hand.
"""

from declarations.expressions import Renderable, render_schema, signature
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
