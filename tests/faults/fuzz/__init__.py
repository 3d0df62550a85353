"""Fuzzing of the sandbox and of what reads its messages. `python -m tests.faults.fuzz.run` is the long form."""
