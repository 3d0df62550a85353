"""Setting up and checking an installation: the files of other MCP clients, adding servers, and doctor."""
