"""The MCP surface: two tools, or those of the servers in pass-through mode, over stdio and HTTP."""
