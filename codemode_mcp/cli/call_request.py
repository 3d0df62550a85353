"""The request of `codemode-mcp call`: a tool and its arguments, as they were typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from codemode_mcp.cli.messages import stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CallRequest(NamedTuple):
    """A call of one tool.

    Attributes:
        server: the name of the server, or its identifier in programs.
        values: the arguments.
        are_strings: the values are strings, and are to be converted as the tool's schema requires.
    """

    server: str
    tool: str
    values: Mapping[str, Any]
    are_strings: bool


def read_request(tool: str, arguments: Sequence[str], text: str | None) -> CallRequest:
    """Return the request of a command line. End the command if it is not valid.

    Args:
        tool: `SERVER.TOOL`.
        arguments: `KEY=VALUE` each.
        text: the value of `--json`.
    """
    server, _, name = tool.removeprefix("MCP.").removeprefix("mcp:").replace(":", ".", 1).partition(".")
    if not name:
        stop(2, f"{tool!r} names no tool: write SERVER.TOOL, as in github.listIssues; codemode-mcp tools lists them")
    return CallRequest(server, name, _parse(arguments, text), text is None)


def _parse(arguments: Sequence[str], text: str | None) -> Mapping[str, Any]:
    """Return the arguments: JSON values, or the strings of KEY=VALUE."""
    if text is None:
        pairs = [each.partition("=") for each in arguments]
        for key, equals, _ in pairs:
            if not equals or not key:
                stop(2, f"{key!r}: write arguments as KEY=VALUE, or all of them as --json '{{...}}'")
        return {key: value for key, _, value in pairs}
    if arguments:
        stop(2, "give either KEY=VALUE or --json, not both")
    try:
        value = json.loads(text)
    except ValueError as error:
        stop(2, f"--json: this is not JSON ({error}); write it in single quotes, as in --json '{{\"a\": 1}}'")
    if not isinstance(value, dict):
        stop(2, "--json: arguments are one JSON object, as in --json '{\"a\": 1}'")
    return value
