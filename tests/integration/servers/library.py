"""An SDK server of books: resources in pages, templates, prompts, completions. Over stdio.

`library.py [FLAG...]`: `bare` leaves out prompts and completions, `endless` never ends its list of resources.
"""

from __future__ import annotations

import base64
import sys

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

FLAGS = frozenset(sys.argv[1:])
PAGE = 20
BOOKS = 50
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4).decode()
NAMES = ["Ada", "Alan", "Annie", "Grace"]


async def list_resources(ctx, params):
    start = int(params.cursor or 0) if params else 0
    if "endless" in FLAGS:
        resources = [types.Resource(uri=f"book:///{start}", name=f"Book {start}")]
        return types.ListResourcesResult(resources=resources, next_cursor=str(start + 1))
    shown = range(start, min(start + PAGE, BOOKS))
    resources = [types.Resource(uri=f"book:///{number}", name=f"Book {number}") for number in shown]
    more = None if start + PAGE >= BOOKS else str(start + PAGE)
    return types.ListResourcesResult(resources=resources, next_cursor=more)


async def list_templates(ctx, params):
    templates = [types.ResourceTemplate(uri_template="author:///{name}", name="An author")]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def read_resource(ctx, params):
    uri = str(params.uri)
    match uri.split(":///"):
        case "book", number if number.isdigit() and int(number) < BOOKS:
            contents = [types.TextResourceContents(uri=uri, mime_type="text/plain", text=f"Text of book {number}.")]
        case "author", name if name in NAMES:
            contents = [
                types.TextResourceContents(uri=uri, mime_type="text/plain", text=f"{name} wrote books."),
                types.BlobResourceContents(uri=uri + "/portrait", mime_type="image/png", blob=PICTURE),
            ]
        case _:
            raise MCPError(code=types.INVALID_PARAMS, message=f"no such resource: {uri}")
    return types.ReadResourceResult(contents=contents)


async def list_prompts(ctx, params):
    start = int(params.cursor or 0) if params else 0
    prompt = types.Prompt(
        name=f"review-{start}", arguments=[types.PromptArgument(name="author", required=True)], description="Review."
    )
    return types.ListPromptsResult(prompts=[prompt], next_cursor=str(start + 1) if start < 2 else None)


async def get_prompt(ctx, params):
    author = (params.arguments or {}).get("author", "nobody")
    messages = [
        types.PromptMessage(role="user", content=types.TextContent(type="text", text=f"Review {author}.")),
        types.PromptMessage(role="user", content=types.ImageContent(type="image", data=PICTURE, mime_type="image/png")),
    ]
    return types.GetPromptResult(description="A review", messages=messages)


async def complete(ctx, params):
    kind = params.ref.type
    given = sorted((params.context.arguments or {}) if params.context else {})
    values = [name for name in NAMES if name.startswith(params.argument.value)]
    return types.CompleteResult(
        completion=types.Completion(values=[f"{kind} {params.argument.name} {given}", *values], total=len(values))
    )


async def main() -> None:
    more = {} if "bare" in FLAGS else {"on_list_prompts": list_prompts, "on_get_prompt": get_prompt}
    if "bare" not in FLAGS:
        more["on_completion"] = complete
    server = Server(
        "library",
        version="1.0.0",
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        **more,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
