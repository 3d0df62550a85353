"""The operations on resources and prompts of a server, as functions of a program (SPEC 5). Pure but for what it awaits.

A list is followed to its end here, within bounds: programs, like people, take the first page for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000

Group = Literal["resources", "prompts"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One function below `MCP.<server>.resources` or `.prompts`.

    Attributes:
        id: the last part of its id in rules, `mcp:<server>:<id>`.
        method: the MCP request it becomes.
        input_schema: of its argument.
        result: the type of its result, in short; the declaration files say more.
        items: the member of the result that is a list, when the result comes in pages.
    """

    name: str
    id: str
    method: str
    description: str
    input_schema: Mapping[str, Any]
    result: str
    items: str | None = None


def _takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_PAGE: Final = _takes(cursor=_TEXT)
_COMPLETION: Final[dict[str, Any]] = {
    "argument": {
        "type": "object",
        "properties": {"name": _TEXT, "value": _TEXT},
        "required": ["name", "value"],
        "additionalProperties": False,
    },
    "context": {"type": "object", "properties": {"arguments": _TEXTS}},
}
_COMPLETED: Final = "{ completion: { values: string[]; total?: number; hasMore?: boolean } }"

OPERATIONS: Final[dict[Group, tuple[Operation, ...]]] = {
    "resources": (
        Operation(
            "list",
            "resources/list",
            "resources/list",
            "List the resources of this server.",
            _PAGE,
            "{ resources: { uri: string; name: string; ... }[]; nextCursor?: string }",
            "resources",
        ),
        Operation(
            "read",
            "resources/read",
            "resources/read",
            "Read one resource.",
            _takes("uri", uri=_TEXT),
            "{ contents: { uri: string; mimeType?: string; text?: string; blob?: string }[] }",
        ),
        Operation(
            "templates",
            "resources/templates/list",
            "resources/templates/list",
            "List the resource templates of this server.",
            _PAGE,
            "{ resourceTemplates: { uriTemplate: string; name: string; ... }[]; nextCursor?: string }",
            "resourceTemplates",
        ),
        Operation(
            "complete",
            "resources/complete",
            "completion/complete",
            "Complete a variable of a resource template; uri is the template.",
            _takes("uri", "argument", uri=_TEXT, **_COMPLETION),
            _COMPLETED,
        ),
    ),
    "prompts": (
        Operation(
            "list",
            "prompts/list",
            "prompts/list",
            "List the prompts of this server.",
            _PAGE,
            "{ prompts: { name: string; arguments?: { ... }[]; ... }[]; nextCursor?: string }",
            "prompts",
        ),
        Operation(
            "get",
            "prompts/get",
            "prompts/get",
            "Get one prompt, filled in.",
            _takes("name", name=_TEXT, arguments=_TEXTS),
            '{ description?: string; messages: { role: "user" | "assistant"; content: { ... } }[] }',
        ),
        Operation(
            "complete",
            "prompts/complete",
            "completion/complete",
            "Complete an argument of a prompt.",
            _takes("name", "argument", name=_TEXT, **_COMPLETION),
            _COMPLETED,
        ),
    ),
}


def params(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Of the MCP request, from what the program gave."""
    if operation.method != "completion/complete":
        return dict(arguments)
    rest = {name: value for name, value in arguments.items() if name not in ("name", "uri")}
    if operation.id.startswith("prompts/"):
        return {"ref": {"type": "ref/prompt", "name": arguments["name"]}, **rest}
    return {"ref": {"type": "ref/resource", "uri": arguments["uri"]}, **rest}


async def perform(
    operation: Operation,
    arguments: Mapping[str, Any],
    request: Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]],
    has_room: Callable[[Mapping[str, Any]], bool],
) -> Mapping[str, Any]:
    """The result of an operation. A list that is not asked for from a cursor on comes with all its pages, or, when it
    is very long, with the cursor to go on from.

    Args:
        request: sends one MCP request.
        has_room: whether a page can be added to those before; asked for each of several.
    """
    sent = params(operation, arguments)
    first = await request(operation.method, sent)
    items = operation.items
    if items is None or "cursor" in arguments or not _goes_on(first, items):
        return first
    found = list(first[items])
    cursors = set()
    cursor = first["nextCursor"]
    # A page that is given twice, or that is empty and names another, may be one of a list without an end.
    has_room(first)
    for _ in range(MAX_PAGES - 1):
        if cursor in cursors or len(found) >= MAX_ITEMS:
            break
        page = await request(operation.method, {**sent, "cursor": cursor})
        if not isinstance(page.get(items), list) or not has_room(page):
            break
        cursors.add(cursor)
        found.extend(page[items])
        if not _goes_on(page, items):
            return {**{name: value for name, value in first.items() if name != "nextCursor"}, items: found}
        cursor = page["nextCursor"]
    rest = {} if cursor in cursors else {"nextCursor": cursor}
    return {**{name: value for name, value in first.items() if name != "nextCursor"}, items: found, **rest}


def _goes_on(page: Mapping[str, Any], items: str) -> bool:
    cursor = page.get("nextCursor")
    return isinstance(page.get(items), list) and isinstance(cursor, str) and cursor != ""
