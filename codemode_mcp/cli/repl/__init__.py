"""`codemode-mcp repl`: a prompt for programs in the real sandbox, with completion from the declarations.

`prompt` takes inputs and executes commands, and `runner` runs programs. `front` is the interface of both to a terminal
or a pipe. `cells` and `scan` analyse an input. `session` passes names on to later programs. `completion` and
`vocabulary` complete names, and `display` formats values. Only `terminal` uses prompt_toolkit.
"""
