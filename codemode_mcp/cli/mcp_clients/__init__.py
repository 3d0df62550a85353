"""The configuration files of MCP clients: where they are, what servers they hold, how this server gets into them."""
