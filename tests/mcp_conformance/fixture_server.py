"""The tools, resources and prompts of the suite's server scenarios, on the transport of the product.

`python -m tests.mcp_conformance.fixture_server` listens on a free port of loopback, prints the URL and ends with its
input. The scenario with a similar name describes what each of them has to do (`conformance list --server`).
"""

from __future__ import annotations

import base64
import json
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged
from mcp_types.version import is_version_at_least

from codemode_mcp.base.settings import HttpSettings
from codemode_mcp.server.http.listener import listening

Context = ServerRequestContext[Any]
Params = types.CallToolRequestParams
ToolResult = types.CallToolResult | types.InputRequiredResult

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
        "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
).decode()
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"
).decode()

STEP = 0.05
"""Seconds between two messages of a tool that reports something."""


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def embedded(uri: str, mime_type: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": value}}


def result(*content: dict[str, Any], **more: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": list(content), **more}, by_name=False)


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}

PLAIN = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [text("ok")],
}
"""Tools with constant results."""

ADDRESS = {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}}}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_header_parameter": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
"""Schemas of tools that take arguments."""


# questions


def form(message: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, max_tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


STRING = {"type": "string"}
NAME = form("What is your name?", name=STRING)
ROOTS = {"method": "roots/list", "params": {}}

DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in titles.items()]


CHOICES = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": titled(value1="First Option", value2="Second Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": titled(value1="First Choice", value2="Second Choice")}},
}


def ask(requests: dict[str, dict[str, Any]], state: str | None = None) -> types.InputRequiredResult:
    asked = {"resultType": "input_required", "inputRequests": requests}
    return types.InputRequiredResult.model_validate(
        asked | ({} if state is None else {"requestState": state}), by_name=False
    )


def given(context: Context) -> dict[str, Any]:
    """Return the client's answers to the questions of the last round, as they were sent."""
    answers = (context.params or {}).get("inputResponses")
    return answers if isinstance(answers, dict) else {}


def accepted(context: Context, key: str, name: str) -> Any:
    """Return the field of a form that was accepted, or None."""
    answer = given(context).get(key)
    if not isinstance(answer, dict) or answer.get("action") != "accept" or not isinstance(answer.get("content"), dict):
        return None
    return answer["content"].get(name)


async def elicit(context: Context, params: Params, properties: dict[str, Any], message: str) -> ToolResult:
    schema = {"type": "object", "properties": properties, "required": []}
    answer = await context.session.elicit_form(message, schema, context.request_id)
    return result(text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"))


# tools


class Fixture:
    """Everything, on one server."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            self.server: Server[Any] = Server(
                "conformance-fixture",
                version="1.0.0",
                on_list_tools=self.list_tools,
                on_call_tool=self.call_tool,
                on_list_resources=self.list_resources,
                on_list_resource_templates=self.list_templates,
                on_read_resource=self.read_resource,
                on_subscribe_resource=self.subscribe,
                on_unsubscribe_resource=self.subscribe,
                on_subscriptions_listen=ListenHandler(self.bus),
                on_list_prompts=self.list_prompts,
                on_get_prompt=self.get_prompt,
                on_completion=self.complete,
                on_set_logging_level=self.set_level,
            )
        security = RequestStateSecurity.ephemeral()
        self.server.middleware.append(RequestStateBoundary(security, default_audience="conformance-fixture"))
        self.tools: dict[str, Callable[[Context, Params], Awaitable[ToolResult]]] = {
            name: value for name, value in vars(Fixture).items() if name.startswith("test_")
        }

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        names = [*PLAIN, *self.tools]
        tools = [
            types.Tool(name=name, description=f"Fixture {name}", input_schema=SCHEMAS.get(name, NOTHING))
            for name in names
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, params: Params) -> ToolResult:
        if params.name in PLAIN:
            return result(*PLAIN[params.name])
        if params.name not in self.tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await self.tools[params.name](self, context, params)

    async def test_error_handling(self, context: Context, params: Params) -> ToolResult:
        return result(text("This tool intentionally returns an error for testing"), isError=True)

    async def test_header_parameter(self, context: Context, params: Params) -> ToolResult:
        return result(text(str((params.arguments or {}).get("region"))))

    async def test_tool_with_progress(self, context: Context, params: Params) -> ToolResult:
        for progress in (0, 50, 100):
            await context.session.report_progress(progress, 100)
            await anyio.sleep(STEP)
        return result(text("Done."))

    async def test_tool_with_logging(self, context: Context, params: Params) -> ToolResult:
        for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.session.send_log_message("info", line, related_request_id=context.request_id)
            await anyio.sleep(STEP)
        return result(text("Done."))

    test_logging_tool = test_tool_with_logging

    async def test_sampling(self, context: Context, params: Params) -> ToolResult:
        prompt = types.TextContent(type="text", text=str((params.arguments or {}).get("prompt")))
        answer = await context.session.create_message(
            [types.SamplingMessage(role="user", content=prompt)],
            max_tokens=100,
            related_request_id=context.request_id,
        )
        return result(text(f"LLM response: {getattr(answer.content, 'text', answer.content)}"))

    async def test_elicitation(self, context: Context, params: Params) -> ToolResult:
        return await elicit(
            context, params, {"username": STRING, "email": STRING}, str((params.arguments or {}).get("message"))
        )

    async def test_elicitation_sep1034_defaults(self, context: Context, params: Params) -> ToolResult:
        return await elicit(context, params, DEFAULTS, "Please check the defaults")

    async def test_elicitation_sep1330_enums(self, context: Context, params: Params) -> ToolResult:
        return await elicit(context, params, CHOICES, "Please choose")

    async def test_missing_capability(self, context: Context, params: Params) -> ToolResult:
        if not context.session.check_client_capability(types.ClientCapabilities(sampling=types.SamplingCapability())):
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "this tool samples",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return result(text("sampling is there"))

    async def test_trigger_tool_change(self, context: Context, params: Params) -> ToolResult:
        await self.bus.publish(ToolsListChanged())
        return result(text("told"))

    async def test_trigger_prompt_change(self, context: Context, params: Params) -> ToolResult:
        await self.bus.publish(PromptsListChanged())
        return result(text("told"))

    # rounds of 2026-07-28

    async def test_streaming_elicitation(self, context: Context, params: Params) -> ToolResult:
        return await self.test_input_required_result_elicitation(context, params)

    async def test_input_required_result_elicitation(self, context: Context, params: Params) -> ToolResult:
        name = accepted(context, "user_name", "name")
        return result(text(f"Hello, {name}!")) if isinstance(name, str) else ask({"user_name": NAME})

    async def test_input_required_result_sampling(self, context: Context, params: Params) -> ToolResult:
        answer = given(context).get("capital_question")
        if answer is None:
            return ask({"capital_question": sampling("What is the capital of France?", 100)})
        return result(text(answer["content"]["text"]))

    async def test_input_required_result_list_roots(self, context: Context, params: Params) -> ToolResult:
        answer = given(context).get("client_roots")
        if answer is None:
            return ask({"client_roots": ROOTS})
        return result(text(" ".join(root["uri"] for root in answer["roots"])))

    async def test_input_required_result_request_state(self, context: Context, params: Params) -> ToolResult:
        if params.request_state == "confirming" and "confirm" in given(context):
            return result(text("state-ok"))
        return ask({"confirm": form("Please confirm", ok={"type": "boolean"})}, "confirming")

    async def test_input_required_result_tampered_state(self, context: Context, params: Params) -> ToolResult:
        return await self.test_input_required_result_request_state(context, params)

    async def test_input_required_result_multiple_inputs(self, context: Context, params: Params) -> ToolResult:
        requests = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
        if params.request_state == "three" and requests.keys() <= given(context).keys():
            return result(text(f"Hello, {accepted(context, 'user_name', 'name')}!"))
        return ask(requests, "three")

    async def test_input_required_result_multi_round(self, context: Context, params: Params) -> ToolResult:
        state = json.loads(params.request_state or "{}")
        name, color = accepted(context, "step1", "name"), accepted(context, "step2", "color")
        if "name" in state and color is not None:
            return result(text(f"{state['name']} likes {color}"))
        if name is not None:
            question = form("Step 2: What is your favorite color?", color=STRING)
            return ask({"step2": question}, json.dumps({"round": 2, "name": name}))
        return ask({"step1": form("Step 1: What is your name?", name=STRING)}, json.dumps({"round": 1}))

    async def test_input_required_result_capabilities(self, context: Context, params: Params) -> ToolResult:
        has = context.session.client_capabilities or types.ClientCapabilities()
        requests = {"user_name": NAME} if has.elicitation else {}
        requests |= {"greeting": sampling("Generate a greeting", 50)} if has.sampling else {}
        requests |= {"client_roots": ROOTS} if has.roots else {}
        return ask(requests) if requests and not given(context) else result(text("nothing to ask"))

    # resources

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
        resources = [
            types.Resource(uri=f"test://{name}", name=name, description=f"Fixture {name}", mime_type=mime_type)
            for name, mime_type in found.items()
        ]
        return types.ListResourcesResult(resources=resources)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template="test://template/{id}/data",
            name="template",
            description="Fixture template",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        found: dict[str, Any]
        if uri == "test://static-text":
            found = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif uri == "test://watched-resource":
            found = {"mimeType": "text/plain", "text": "This is watched."}
        elif uri == "test://static-binary":
            found = {"mimeType": "image/png", "blob": PNG}
        elif uri.startswith("test://template/") and uri.endswith("/data"):
            name = uri.removeprefix("test://template/").removesuffix("/data")
            data = {"id": name, "templateTest": True, "data": f"Data for ID: {name}"}
            found = {"mimeType": "application/json", "text": json.dumps(data)}
        else:
            modern = is_version_at_least(context.protocol_version, "2026-07-28")
            raise MCPError(types.INVALID_PARAMS if modern else -32002, "Resource not found", {"uri": uri})
        return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **found}]}, by_name=False)

    async def subscribe(self, context: Context, params: types.RequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    # prompts, completion, logging

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        arguments = {
            "test_simple_prompt": [],
            "test_prompt_with_arguments": ["arg1", "arg2"],
            "test_prompt_with_embedded_resource": ["resourceUri"],
            "test_prompt_with_image": [],
            "test_input_required_result_prompt": [],
        }
        prompts = [
            types.Prompt(
                name=name,
                description=f"Fixture {name}",
                arguments=[types.PromptArgument(name=each, description=each, required=True) for each in names],
            )
            for name, names in arguments.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                contents = [text("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                said = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
                contents = [text(said)]
            case "test_prompt_with_embedded_resource":
                said = "Embedded resource content for testing."
                resource = embedded(arguments["resourceUri"], "text/plain", said)
                contents = [resource, text("Please process the embedded resource above.")]
            case "test_prompt_with_image":
                contents = [IMAGE, text("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                wanted = accepted(context, "user_context", "context")
                if wanted is None:
                    return ask({"user_context": form("What context should the prompt use?", context=STRING)})
                contents = [text(f"Use this context: {wanted}")]
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        messages = [{"role": "user", "content": content} for content in contents]
        return types.GetPromptResult.model_validate({"messages": messages}, by_name=False)

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))

    async def set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()


async def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    async with listening(HttpSettings(), "127.0.0.1", 0, "/mcp") as listener:
        await listener.serve(Fixture().server)
        listener.set_ready()
        print(listener.url, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(main)
