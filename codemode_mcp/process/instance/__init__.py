"""The shared instance: one process for all clients of a user, and the relay that connects a client to it.

`codemode-mcp serve` is a relay. It finds the instance of its configuration by a record (`registry`), attaches to it or
starts it (`attaching`), and passes lines on (`relay`, with the bookkeeping in `relayed_session`). A client waits for
these modules, so they import only the standard library, `platformdirs` and modules that do the same. `wire` has the
messages between both sides.
"""
