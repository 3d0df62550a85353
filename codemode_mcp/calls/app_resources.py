"""Resources of MCP Apps in the requests of programs: a program can neither list nor read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.catalog.entries import Entry

_LISTED: Final = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
"""The members of the results of lists, and the members of their items that have the URI, by method."""


def refuse_app(entry: Entry, arguments: Mapping[str, Any]) -> None:
    """Raise `ProgramError` if a request is about the resource of an app."""
    if entry.operation is not None and _is_of_app(arguments.get("uri")):
        raise ProgramError(
            "nested_tool_failed",
            f"{entry.path}: ui:// resources are apps, which programs cannot read. "
            "show(result) shows the user the app of the tool that returned the result",
        )


def without_apps(entry: Entry, result: Any) -> Any:
    """Return the result of a request without the resources of apps."""
    key, member = _LISTED.get(entry.method, ("", ""))
    items = result.get(key) if isinstance(result, dict) else None
    if not isinstance(items, list):
        return result
    left = [item for item in items if not (isinstance(item, dict) and _is_of_app(item.get(member)))]
    return result if len(left) == len(items) else {**result, key: left}


def _is_of_app(uri: object) -> bool:
    # Servers may compare schemes without regard to case, and ignore white space.
    return isinstance(uri, str) and uri.strip().casefold().startswith("ui:")
