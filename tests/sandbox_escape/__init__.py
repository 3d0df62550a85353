"""Attempts to get out of the sandbox, a file for each kind. Promises are those of SECURITY.md, by number."""
