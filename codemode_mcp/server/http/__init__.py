"""MCP over HTTP for both protocol eras: our own listener and sessions around the SDK's transports.

`listener` owns the socket and its connections. `connection` is one of them, with limits on incomplete requests. `front`
is the ASGI application, `bodies` reads bodies and `responses` sends errors. `guards` has the limits on hosts and rates;
`auth` and `oauth` identify callers, and `sessions` has their sessions. Only `serve --transport http` imports this
package.
"""
