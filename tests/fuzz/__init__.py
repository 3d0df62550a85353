"""Fuzzing of the sandbox and of what reads its messages. `python -m tests.fuzz.run` is the long form."""
