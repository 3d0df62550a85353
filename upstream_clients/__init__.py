"""Connections to upstream MCP servers. The package knows nothing of sandboxes, runs or declarations.

General layout, from top to bottom:

- Values: `tools` (tools, options of calls, the Protocol of every source of tools), `spec` (the definition of a server),
  `errors`, `json_values`. `testing` has fakes.
- Owners: `pool` has all upstreams of one application, and the running servers that several pools share.
  `client_processes` has the processes of one server and the clients that they serve. `upstream` is one upstream as its
  callers see it. It is built on `resource_state`. `fair_limiter` has its calls in flight and the order of waiting ones.
  `connection` is the task that connects an upstream, with `backoff`, `live_connection`, `list_changed` and
  `list_state`.
- Protocol: `negotiate`, `live_connection`, `listing`, `dispatcher`, `jsonrpc`. Common calls are sent past
  the dispatcher, by `direct` and `streamable`; `results` frees their memory.
- Questions of servers: `questions`, `question_routing` (the call that a question belongs to).
- Calls that are answered with tasks: `tasks` follows a task to its end.
- Lists and resources: `list_state` (the age of a list), `list_changed` (announcements of changes) and
  `resource_state` (stored answers, and subscriptions to updates of resources).
- Transports: `stdio`, `process`, `environment`, `line_messages`, `http`, `streamable`, `sse`.
- HTTP APIs: `openapi` has servers of this process whose tools are the operations of an OpenAPI document.
- Lines and log messages of a server: `server_log` has the latest ones, and passes messages on.
- Logins: `http` uses and renews a login. `oauth` and `fetch` obtain one. `token_store` and `keychain` store it. `fetch`
  and `loopback` judge addresses.
- Untrusted input: `list_repair`, `results`, `schemas`, `schema_expansion`, `error_mapping`, `redaction`.
- On disk: `listing`, `private_files`.

Importing this package, `tools`, `spec`, `errors`, `pool` or `testing` does not import the MCP SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


_MODULES = ("errors", "pool", "spec", "tools")
"""The modules of these names."""


def __getattr__(name: str) -> Any:
    # The names are imported when they are used: a relay needs only modules of the standard library.
    if name in __all__:
        from importlib import import_module

        for module in map(import_module, (f"{__name__}.{each}" for each in _MODULES)):
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
