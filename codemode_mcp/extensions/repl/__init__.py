"""`codemode-mcp repl`: a prompt for programs in the real sandbox, with completion from the declarations.

`prompt` takes inputs, executes commands and runs programs. `programs` is its interface to an application.
`app_programs` implements it in a process, `instance_programs` over a connection to the shared instance, where
`app_programs` answers. `cells` analyses an input, and passes names on to later programs. `completion` and `vocabulary`
complete names, and `display` formats values. Only `terminal` uses prompt_toolkit.
"""
