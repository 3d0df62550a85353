"""codemode-mcp: one MCP server, two tools, every other server behind them."""

__version__ = "0.1.0"
"""The version, also of the distribution. The metadata of the distribution say the same, but take 12 ms to read."""
