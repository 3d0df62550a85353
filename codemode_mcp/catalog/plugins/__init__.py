"""Plugins: what they are written against, and how they are loaded. `codemode_mcp.plugins` exports the interface."""
