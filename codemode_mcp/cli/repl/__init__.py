"""The prompt: programs one after the other in the real sandbox, with completion from the declarations.

`scan`, `completion`, `cells`, `session` and `display` are pure; `prompt` runs what is typed, and `terminal` is the one
module that knows prompt_toolkit.
"""
