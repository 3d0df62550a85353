"""The operations on resources and prompts of a server: names, arguments, results and MCP requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct


class Operation(Struct, frozen=True):
    """A function of `MCP.<server>.resources` or `.prompts`.

    Attributes:
        id: last part of the entry's id, `mcp:<server>:<id>`.
        method: method of the MCP request.
        input_schema: schema of the argument.
        result: short type of the result, for signatures.
        output: full type of the result, for declaration files.
        items: name of the list in a result that has pages.
    """

    name: str
    id: str
    method: str
    description: str
    input_schema: Mapping[str, Any]
    result: str
    output: str
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
_CONTENTS: Final = (
    "{ uri: string; mimeType?: string } & ({ text: string; blob?: undefined } | { blob: string; text?: undefined })"
)
_CONTENT: Final = (
    '{ type: "text"; text: string } | { type: "image" | "audio"; data: string; mimeType: string } | '
    f'{{ type: "resource"; resource: {_CONTENTS} }} | '
    '{ type: "resource_link"; uri: string; name: string; mimeType?: string }'
)

OPERATIONS: Final[dict[str, tuple[Operation, ...]]] = {
    "resources": (
        Operation(
            "list",
            "resources/list",
            "resources/list",
            "List all resources. A `nextCursor` means that there are more. Pass `cursor` to get one page.",
            _PAGE,
            "{ resources: { uri: string; name: string; ... }[]; nextCursor?: string }",
            "{ resources: { uri: string; name: string; title?: string; description?: string; mimeType?: string; "
            "size?: number }[]; nextCursor?: string }",
            "resources",
        ),
        Operation(
            "read",
            "resources/read",
            "resources/read",
            "Read the contents of one resource. `image(result)` shows contents with a `blob` (base64).",
            _takes("uri", uri=_TEXT),
            "{ contents: { uri: string; mimeType?: string; text?: string; blob?: string }[] }",
            f"{{ contents: ({_CONTENTS})[] }}",
        ),
        Operation(
            "templates",
            "resources/templates/list",
            "resources/templates/list",
            "List all URI templates. `read` takes a URI that is made from a template.",
            _PAGE,
            "{ resourceTemplates: { uriTemplate: string; name: string; ... }[]; nextCursor?: string }",
            "{ resourceTemplates: { uriTemplate: string; name: string; title?: string; description?: string; "
            "mimeType?: string }[]; nextCursor?: string }",
            "resourceTemplates",
        ),
        Operation(
            "complete",
            "resources/complete",
            "completion/complete",
            "Complete the value of a variable of a template. Pass the `uriTemplate` as `uri`.",
            _takes("uri", "argument", uri=_TEXT, **_COMPLETION),
            _COMPLETED,
            _COMPLETED,
        ),
    ),
    "prompts": (
        Operation(
            "list",
            "prompts/list",
            "prompts/list",
            "List all prompts. A `nextCursor` means that there are more. Pass `cursor` to get one page.",
            _PAGE,
            "{ prompts: { name: string; arguments?: { ... }[]; ... }[]; nextCursor?: string }",
            "{ prompts: { name: string; title?: string; description?: string; arguments?: { name: string; "
            "description?: string; required?: boolean }[] }[]; nextCursor?: string }",
            "prompts",
        ),
        Operation(
            "get",
            "prompts/get",
            "prompts/get",
            "Get one prompt with its arguments filled in.",
            _takes("name", name=_TEXT, arguments=_TEXTS),
            '{ description?: string; messages: { role: "user" | "assistant"; content: { ... } }[] }',
            f'{{ description?: string; messages: {{ role: "user" | "assistant"; content: {_CONTENT} }}[] }}',
        ),
        Operation(
            "complete",
            "prompts/complete",
            "completion/complete",
            "Complete the value of an argument of a prompt.",
            _takes("name", "argument", name=_TEXT, **_COMPLETION),
            _COMPLETED,
            _COMPLETED,
        ),
    ),
}
