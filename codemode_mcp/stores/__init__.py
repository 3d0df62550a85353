"""Suspended and ended runs, and stored values, in a database that outlives the process. Several processes share it."""
