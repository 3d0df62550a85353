"""The control socket: a terminal of the same user lists the runs of a serving process and decides about its calls.

Each serving process listens on a Unix socket in a folder of its user. On Windows it listens on a loopback port, and a
file in that folder has the port and a token. A connection carries one request and its answer, each a line of JSON.
"""
