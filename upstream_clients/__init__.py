"""Connections to upstream MCP servers. Knows nothing of sandboxes, runs or declarations.

General layout: `tools` has the nouns and the Protocol that every source of tools satisfies, `spec` says how to reach a
server, `errors` what can go wrong. `pool` keeps all connections; `upstream` is one of them as its callers see it, and
`connection` the task that owns it. Under that: `negotiate` and `link` speak the protocol over the SDK's dispatcher,
`transports`, `http`, `stderr` and `wire` guard the SDK's transports, `backoff` says when to try again, `faults` reads
foreign exceptions. Pure: `lenient` (tool lists), `results` (tool results), `schemas` (untrusted JSON Schemas).
`testing` has the fakes.

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
