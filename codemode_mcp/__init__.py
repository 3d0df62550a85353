"""codemode-mcp: one MCP server, two tools, every other server behind them.

The packages, in the order in which one `exec` passes them:

- `cli` parses commands, and `process` opens what they need, by `config`, and shares one process between clients.
- `server` speaks MCP with clients; `stores` keeps what outlives the process.
- `runs` takes a program from its `exec` to its end, and each of its calls to a tool and back.
- `catalog` names, declares and finds tools, also those of plugins, and `program` knows the program's text.
- `rules` decides, `audit` records, and `sandbox` runs JavaScript.
- `extensions` has what the rest can do without, and `base` what all others use.
"""

__version__ = "0.1.0"
"""The version of the distribution. Reading it from the metadata of the distribution would take 12 ms."""
