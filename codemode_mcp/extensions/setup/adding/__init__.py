"""The parts of `codemode-mcp add`, `remove`, `enable` and `disable`."""
