"""codemode-mcp: one MCP server, two tools, every other server behind them.

The packages, in the order in which one `exec` passes them:

- `cli` parses commands, and `app` opens what they need, by `config`. `instance` shares one process between clients.
- `server` speaks MCP with clients, and `control` with terminals; `stores` keeps what outlives the process.
- `runs` takes a program from its `exec` to its end, and `calls` takes each of its calls to a tool.
- `plugins` adds tools and hooks, `catalog` names and declares tools, and `program` knows the program's text.
- `audit` records, `policy` decides, `search` finds, and `sandbox` runs JavaScript.
"""

__version__ = "0.1.0"
"""The version of the distribution. Reading it from the metadata of the distribution would take 12 ms."""
