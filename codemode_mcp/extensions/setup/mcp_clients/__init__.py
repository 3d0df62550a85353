"""The configuration files of MCP clients: their locations, their servers, and the entry of this server in them."""
