"""Requests of a user to a serving process from another terminal: its runs, and calls that wait for a decision.

Each serving process listens on a Unix socket in a folder of its user, on Windows on a port of loopback whose token is
in a file of that folder. One connection is one request and its answer, a line of JSON each.
"""
