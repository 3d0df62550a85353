"""The official suite's fixture over stdio, with members and tools for features that the suite does not ask for.

`python -m tests.matrix.features_server legacy|modern`: the era that the server speaks.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions
from mcp.server.runner import serve_dual_era_loop, serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

from tests.mcp_conformance.fixture_server import Context, Fixture, Params, ToolResult, result, text

WATCHED = "test://watched-resource"
ICONS = [{"src": "https://example.org/icon.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}]
META = {"example.org/kind": {"depth": [1, "two", None]}}
APP = {"uri": "ui://fixture/app.html", "name": "app", "mimeType": "text/html;profile=mcp-app"}
PAGE = "<!doctype html><html><body>An app: </body></html>"
APP_TOOL = {"name": "matrix_app", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": APP["uri"]}}}
COMMON: dict[str, Any] = {"icons": ICONS, "_meta": META}
NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"}
HINTS = {"title": "Hinted", "readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}


def merged(item: Any, **more: Any) -> Any:
    """Return an item with further members, as JSON has them."""
    return type(item).model_validate({**item.model_dump(by_alias=True, exclude_none=True), **more}, by_name=False)


class Features(Fixture):
    """The fixture, with all members that an item can have."""

    def __init__(self, *, modern: bool) -> None:
        super().__init__()
        self.modern = modern
        self.cancelled = 0
        self.changed = False
        self.tools |= {name: value for name, value in vars(Features).items() if name.startswith("matrix_")}

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        found = await super().list_tools(context, params)
        tools = [merged(tool, **COMMON, title=f"Tool {tool.name}", annotations=HINTS) for tool in found.tools]
        tools.append(types.Tool.model_validate(APP_TOOL, by_name=False))
        if self.changed:
            tools.append(merged(tools[0], name="matrix_new"))
        return types.ListToolsResult(tools=tools)

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        found = await super().list_prompts(context, params)
        prompts = [merged(prompt, **COMMON, title=f"Prompt {prompt.name}") for prompt in found.prompts]
        if self.changed:
            prompts.append(merged(prompts[0], name="matrix_new"))
        return types.ListPromptsResult(prompts=prompts)

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await super().list_resources(context, params)
        more: dict[str, Any] = {**COMMON, "annotations": NOTES, "size": 12}
        resources = [merged(resource, **more, title=f"Resource {resource.name}") for resource in found.resources]
        resources.append(types.Resource.model_validate(APP, by_name=False))
        if self.changed:
            resources.append(merged(resources[0], uri="test://new"))
        return types.ListResourcesResult(resources=resources)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found = await super().list_templates(context, params)
        more: dict[str, Any] = {**COMMON, "annotations": NOTES, "title": "Template"}
        return types.ListResourceTemplatesResult(
            resource_templates=[merged(template, **more) for template in found.resource_templates]
        )

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        if str(params.uri) == APP["uri"]:
            page = {"uri": APP["uri"], "mimeType": APP["mimeType"], "text": PAGE}
            return types.ReadResourceResult.model_validate({"contents": [page]}, by_name=False)
        found = await super().read_resource(context, params)
        contents = [merged(each, _meta=META) for each in found.contents]
        return merged(types.ReadResourceResult(contents=contents), _meta=META)

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        found = await super().get_prompt(context, params)
        return merged(found, _meta=META) if isinstance(found, types.GetPromptResult) else found

    # tools

    async def matrix_members(self, context: Context, params: Params) -> ToolResult:
        """Answer with all members that a result can have."""
        link = {"type": "resource_link", "uri": WATCHED, "name": "watched", "title": "Watched", "size": 16}
        link |= {"icons": ICONS, "annotations": NOTES, "_meta": META, "mimeType": "text/plain"}
        noted = {**text("noted"), "annotations": NOTES, "_meta": META}
        return result(noted, link, structuredContent={"n": 1, "none": None}, _meta=META)

    async def matrix_slow(self, context: Context, params: Params) -> ToolResult:
        try:
            await context.session.report_progress(1, 10, "begun")
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return result(text("not cancelled"))

    async def matrix_cancelled(self, context: Context, params: Params) -> ToolResult:
        """Say how many calls of `matrix_slow` were cancelled."""
        return result(text(str(self.cancelled)))

    async def matrix_update(self, context: Context, params: Params) -> ToolResult:
        if self.modern:
            await self.bus.publish(ResourceUpdated(WATCHED))
        else:
            await context.session.send_resource_updated(WATCHED)
        return result(text("updated"))

    async def matrix_change(self, context: Context, params: Params) -> ToolResult:
        """Change all lists, and report it."""
        self.changed = True
        if self.modern:
            for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
                await self.bus.publish(event)
        else:
            await context.session.send_tool_list_changed()
            await context.session.send_prompt_list_changed()
            await context.session.send_resource_list_changed()
        return result(text("changed"))

    async def matrix_roots(self, context: Context, params: Params) -> ToolResult:
        found = await context.session.list_roots()
        return result(text(" ".join(str(root.uri) for root in found.roots)))


async def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    modern = sys.argv[1] == "modern"
    server = Features(modern=modern).server
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    options = server.create_initialization_options(changes)
    async with stdio_server() as (read, write), server.lifespan(server) as state:
        # The loop for both eras would stay in the era of the first request, and clients ask for 2026-07-28 first.
        serve = serve_dual_era_loop if modern else serve_loop
        await serve(server, read, write, lifespan_state=state, init_options=options)


if __name__ == "__main__":
    anyio.run(main)
