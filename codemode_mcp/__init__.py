"""codemode-mcp: one MCP server, two tools, every other server behind them."""
