"""Serving MCP over HTTP: a listener of our own round the SDK's session manager, for both protocol eras.

`listener` owns sockets, connections and the time of their end; `connection` is one of them, with limits on what has not
become a request yet; `front` is every request's way in; `guards` holds its decisions as pure values; `auth` and `oauth`
say who asks. Nothing here is imported before it is asked for.
"""
