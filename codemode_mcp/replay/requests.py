"""The identity of requests: two requests are equal if they ask the same of the same tool. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from codemode_mcp.json_text import json_text
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import message_of
from codemode_mcp.strict_json import parse_json

if TYPE_CHECKING:
    from codemode_mcp.sandbox.messages import Request


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a request.

    Attributes:
        name: the tool, or the function of the program that made the request, such as `setTimeout`.
        given: the arguments as JSON text with sorted keys.
    """

    name: str
    given: str


def identity(request: Request) -> Identity:
    """Return the identity of a request. It does not depend on the number of the request."""
    match request:
        case messages.ToolCall():
            given = _canonical(request.input)
            return Identity(request.target, given if request.options is None else f"{given} {request.options}")
        case messages.NamespaceCall():
            arguments = ",".join(map(_canonical, request.arguments))
            return Identity(f"{request.namespace}.{request.path}", f"[{arguments}]")
        case messages.Store():
            return Identity("store", f"[{json_text(request.key)},{_canonical(request.value)}]")
        case messages.ProgramEnd():
            thrown = "" if request.error is None else f"{request.error.name}: {request.error.message}"
            return Identity(f"programs.{request.name}", json_text(thrown))
    fields = msgspec.to_builtins(message_of(request))
    name = _FUNCTIONS.get(type(request), str(fields["op"]))
    return Identity(name, json_text({key: fields[key] for key in sorted(fields) if key not in ("id", "op")}))


def is_call(request: Request) -> bool:
    """Return True for calls of tools, which only a recording can answer."""
    return isinstance(request, messages.ToolCall | messages.NamespaceCall)


def value_of(given: str) -> Any:
    """Return arguments as JSON data. Text that is not JSON is returned as it is."""
    try:
        return parse_json(given)
    except (ValueError, RecursionError):
        return given


def _canonical(text: str | None) -> str:
    if text is None:
        return "null"
    try:
        return json_text(_sorted(parse_json(text)))
    except (ValueError, RecursionError):
        return text


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_FUNCTIONS: Final = {
    messages.ApiList: "API.list",
    messages.ApiRead: "API.read",
    messages.ApiSearch: "API.search",
    messages.Header: "$api",
    messages.ToolSearch: "tools.search",
    messages.Describe: "tools.describe",
    messages.Load: "load",
    messages.SaveProgram: "save_program",
    messages.Timer: "setTimeout",
    messages.ClearTimer: "clearTimeout",
    messages.YieldControl: "yield_control",
}
"""The functions of programs that make requests."""
