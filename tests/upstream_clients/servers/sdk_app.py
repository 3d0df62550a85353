"""A well-behaved low-level SDK server, for stdio and HTTP."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict

import anyio
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    EmptyResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

ANY = {"type": "object"}
tools = [
    *(Tool(name=name, input_schema=ANY) for name in ("echo", "progress", "hang", "wait_cancelled", "grow", "big")),
    Tool(
        name="routed",
        input_schema={"type": "object", "properties": {"tenant": {"type": "string", "x-mcp-header": "Tenant"}}},
    ),
    Tool(
        name="badly_routed",
        input_schema={"type": "object", "properties": {"tenant": {"type": "object", "x-mcp-header": "Tenant"}}},
    ),
]
if "--log" in sys.argv:
    tools.append(Tool(name="log", input_schema=ANY))
prompts = [Prompt(name="greet")]
resources = [Resource(name="now", uri="note:///now")]
requests = Counter()
ttl_ms = int(sys.argv[sys.argv.index("--ttl") + 1]) if "--ttl" in sys.argv else 0
HINTS = {"ttl_ms": ttl_ms, "cache_scope": "public" if ttl_ms else "private"}
templates = [ResourceTemplate(name="note", uri_template="note:///{name}")]
# By the `key` that calls of one test have in common.
hanging, cancelled = defaultdict(anyio.Event), defaultdict(anyio.Event)
bus = InMemorySubscriptionBus()
streams = []
legacy_subscriptions = []


class Listener(ListenHandler):
    """A handler of streams that notes which updates are requested."""

    async def __call__(self, ctx, params):
        uris = params.notifications.resource_subscriptions or []
        if "--no-updates" in sys.argv:
            params.notifications.resource_subscriptions = None
        streams.append(uris)
        try:
            return await super().__call__(ctx, params)
        finally:
            streams.remove(uris)


async def list_tools(ctx, params):
    requests["tools/list"] += 1
    return ListToolsResult(tools=tools, **HINTS)


async def list_prompts(ctx, params):
    return ListPromptsResult(prompts=prompts, **HINTS)


async def list_resources(ctx, params):
    requests["resources/list"] += 1
    return ListResourcesResult(resources=resources, **HINTS)


async def read_resource(ctx, params):
    requests["resources/read"] += 1
    contents = TextResourceContents(uri=params.uri, text=f"read {requests['resources/read']}")
    return ReadResourceResult(contents=[contents], **HINTS)


async def list_templates(ctx, params):
    return ListResourceTemplatesResult(resource_templates=templates, **HINTS)


async def subscribe_resource(ctx, params):
    legacy_subscriptions.append(params.uri)
    return EmptyResult()


async def unsubscribe_resource(ctx, params):
    legacy_subscriptions.remove(params.uri)
    return EmptyResult()


async def call_tool(ctx, params):
    arguments = params.arguments or {}
    answer, key = "done", arguments.get("key")
    match params.name:
        case "echo":
            answer = str(arguments.get("text"))
        case "progress":
            for step in range(3):
                await ctx.session.report_progress(step, 3.0, f"step {step}")
        case "hang":
            hanging[key].set()
            try:
                await anyio.sleep_forever()
            finally:
                cancelled[key].set()
        case "wait_cancelled":
            await (hanging if arguments.get("hanging") else cancelled)[key].wait()
        case "grow":
            tools.append(Tool(name=f"grown_{len(tools)}", input_schema=ANY))
            await bus.publish(ToolsListChanged())
            if arguments.get("legacy"):
                await ctx.session.send_tool_list_changed()
        case "log":
            await ctx.session.send_log_message(
                arguments["level"], arguments["data"], arguments.get("logger"), ctx.request_id
            )
        case "levels":
            answer = json.dumps([(ctx.meta or {}).get("io.modelcontextprotocol/logLevel")])
        case "touch":
            await bus.publish(ResourceUpdated(uri=arguments["uri"]))
            if arguments["uri"] in legacy_subscriptions:
                await ctx.session.send_resource_updated(arguments["uri"])
        case "subscribed":
            answer = json.dumps([uri for uris in streams for uri in uris])
        case "grow_silently":
            tools.append(Tool(name=f"grown_{len(tools)}", input_schema=ANY))
        case "grow_resources_silently":
            resources.append(Resource(name="grown", uri=f"grown:///{len(resources)}"))
        case "requests":
            answer = json.dumps(requests)
        case "grow_prompts":
            prompts.append(Prompt(name=f"grown_{len(prompts)}"))
            await bus.publish(PromptsListChanged())
        case "grow_templates":
            templates.append(ResourceTemplate(name="grown", uri_template=f"grown:///{len(templates)}/{{x}}"))
            await bus.publish(ResourcesListChanged())
        case "big":
            answer = "x" * int(arguments["bytes"])
        case "routed":
            answer = ctx.request.headers.get("mcp-param-tenant", "no header") if ctx.request else "no HTTP"
        case "elicit" | "elicit_unrelated":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            asked = {"message": arguments["message"], "requestedSchema": schema}
            if ctx.session.protocol_version >= "2026":
                answers = params.input_responses
                if answers is None:
                    request = ElicitRequest.model_validate({"method": "elicitation/create", "params": asked})
                    return InputRequiredResult(input_requests={"who": request}, request_state=arguments["message"])
                assert params.request_state == arguments["message"]
                reply = answers["who"]
            else:
                related = None if params.name == "elicit_unrelated" else ctx.request_id
                try:
                    reply = await ctx.session.elicit_form(arguments["message"], schema, related)
                except MCPError as error:
                    return CallToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)
            answer = f"{reply.action} {reply.content['name']}"
        case "die":
            os._exit(1)
    return CallToolResult(content=[TextContent(type="text", text=answer)])


def make_server() -> Server:
    return Server(
        "sdk",
        version="1.2.3",
        instructions="Be gentle.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe_resource,
        on_unsubscribe_resource=unsubscribe_resource,
        on_list_resource_templates=list_templates,
        on_subscriptions_listen=Listener(bus),
    )
