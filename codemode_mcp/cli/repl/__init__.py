"""`codemode-mcp repl`: a prompt for programs in the real sandbox, with completion from the declarations.

`prompt` takes inputs and executes commands, and `runner` runs programs. `front` is the interface of both to a terminal
or a pipe, and `programs` the one to an application. `app_programs` implements it in a process, `instance_programs` over
a connection to the shared instance, where `program_service` answers. `cells` and `scan` analyse an input. `session`
passes names on to later programs. `completion` and `vocabulary` complete names, and `display` formats values. Only
`terminal` uses prompt_toolkit.
"""
