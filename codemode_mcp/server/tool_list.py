"""`exec` and `wait` as entries of `tools/list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.policy.policy import Policies
from codemode_mcp.server import descriptions
from codemode_mcp.server.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import ToolSettings

_ANY_CLIENT = Profile()

_META: Final = {"anthropic/alwaysLoad": True}
"""Metadata with which Anthropic's clients show a tool in each prompt, not only in their tool search."""


def tool_list(
    servers: Mapping[str, str],
    settings: ToolSettings,
    namespaces: Sequence[tuple[str, str, str]] = (),
    topics: Sequence[str] = (),
    profile: Profile = _ANY_CLIENT,
    caller: Caller | None = None,
    programs: Sequence[str] = (),
    plugins: bool = False,
) -> list[dict[str, Any]]:
    """Return the two tools as JSON for a client of this profile.

    Both tools are marked read-only if policy admits only tools that are read-only by trusted annotations. `store()`
    does not count as a change, because its values stay in codemode-mcp and belong to the caller.

    Args:
        servers, namespaces, topics, programs, plugins: see `descriptions.exec_description`.
        caller: selects the rules; None for the default rules.
    """
    policies = Policies(settings)
    read_only = (policies.default if caller is None else policies.of(caller)).rules.read_only
    languages = settings.code_mode.languages
    timeout_ms = min(settings.code_mode.timeout_ms, settings.code_mode.max_request_ms)
    output_schema = {} if profile.shows_structured else {"outputSchema": descriptions.OUTPUT_SCHEMA}
    return [
        {
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            **output_schema,
            "annotations": {
                "title": title,
                "readOnlyHint": read_only,
                "destructiveHint": not read_only,
                "openWorldHint": True,
            },
            "_meta": _META,
        }
        for name, title, description, input_schema in (
            (
                "exec",
                "Run a program",
                descriptions.exec_description(servers, languages, namespaces, topics, programs, plugins, timeout_ms),
                descriptions.exec_schema(languages),
            ),
            ("wait", "Resume a suspended program", descriptions.WAIT_DESCRIPTION, descriptions.WAIT_SCHEMA),
        )
    ]
