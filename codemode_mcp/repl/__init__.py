"""`codemode-mcp repl`: the real sandbox, line by line."""
