"""Connections to upstream MCP servers. Knows nothing of sandboxes, runs or declarations."""
