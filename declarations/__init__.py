"""JSON Schema to TypeScript, tool names to identifiers. Pure: no I/O, no MCP."""
