"""Runs: one program each, from `exec` through any number of `wait`s to its end."""
