"""Connections to upstream MCP servers. Knows nothing of sandboxes, runs or declarations.

General layout: `tools` has the nouns and the Protocol that every source of tools satisfies, `spec` defines a server,
and `errors` has its errors. `pool` keeps all connections; `upstream` is one of them as its callers see it, and
`connection` is the task that owns it. Under that: `negotiate` and `live_connection` speak the protocol over the SDK's
dispatcher, `transports`, `http`, `stdio`, `sse`, `stderr` and `line_messages` open and guard transports, `backoff` has
the delays before new attempts, `liveness` tells hung servers from busy ones, `fair_limiter` and `fair_queue` order
waiting calls, `listing_cache` keeps listings, `error_mapping` reads foreign exceptions, `questions` brings a server's
question to the call that it belongs to. Logins: `bearer` uses and renews one, `oauth` and `fetch` make it,
`token_store` and `keychain` keep it. Pure: `tool_list_repair` (tool lists), `results` (tool results), `schemas`
(untrusted JSON Schemas), `challenge`, `loopback`. `testing` has the fakes.

Importing this package, `tools`, `spec`, `errors`, `pool` or `testing` does not import the MCP SDK.
"""

from upstream_clients.errors import QuestionRefused, UpstreamCallError, UpstreamClientError, UpstreamUnavailable
from upstream_clients.pool import UpstreamPool
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import (
    Annotations,
    Asking,
    JsonObject,
    Operation,
    ProgressFn,
    Question,
    QuestionMethod,
    Tool,
    ToolOutcome,
    ToolSource,
    UpstreamState,
    UpstreamView,
)

__all__ = [
    "Annotations",
    "Asking",
    "JsonObject",
    "Operation",
    "ProgressFn",
    "Question",
    "QuestionMethod",
    "QuestionRefused",
    "Tool",
    "ToolOutcome",
    "ToolSource",
    "UpstreamCallError",
    "UpstreamClientError",
    "UpstreamPool",
    "UpstreamSpec",
    "UpstreamState",
    "UpstreamUnavailable",
    "UpstreamView",
]
