"""MCP over HTTP for both protocol eras: our own listener around the SDK's session manager.

`listener` owns the socket, and has the ASGI application and the bodies of requests. `sockets` has connections, with
limits on incomplete requests. `guards` has the limits on hosts, rates and sessions. `auth` and `oauth` identify
callers. Only `serve --transport http` imports this package.
"""
