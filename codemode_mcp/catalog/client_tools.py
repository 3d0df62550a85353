"""The tools of the connected client: ask the user, ask the client's model, list the client's folders.

A call is a question to the client that observes the run. It waits for the answer in the same way as questions of
upstream servers, even while the run is suspended, and in both protocol eras; see `runs.questions`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Unpack

from codemode_mcp.catalog.entries import OfferedTool
from declarations.untrusted_text import HIDDEN
from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.json_values import strings_in
from upstream_clients.schemas import UnusableSchema, compile_schema
from upstream_clients.tools import Annotations, Question, Tool, ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import CallOptions, JsonObject, QuestionMethod, RequestOptions

SESSION: Final = "session"
"""The source of client tools: `client:session:elicit`."""

MAX_TOKENS: Final = 1000
"""Default of `maxTokens`: the maximum length in tokens of an answer of the client's model."""

MAX_FIELDS: Final = 50

MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""Maximum length of a question in characters of JSON."""

_HIDDEN_RUN: Final = re.compile(f"{HIDDEN.pattern}+")
_TEXT: Final = {"type": "string"}
_FIELD_TYPES: Final = ("string", "number", "integer", "boolean")

_ELICIT: Final = Tool(
    name="elicit",
    title="Ask the user",
    description=(
        "Ask the user and wait for the answer, however long it takes. `fields` describes a form: "
        '{ name: "string", count: "integer", size: ["small", "large"], agree: "boolean" }; all fields are required. '
        "Or pass `requestedSchema`, a JSON Schema of an object with flat properties. Without both, the user can only "
        "accept or decline. `content` of the result has the values; it is null unless the user accepts."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "description": "What the user reads"},
            "fields": {
                "type": "object",
                "maxProperties": MAX_FIELDS,
                "additionalProperties": {
                    "anyOf": [
                        {"enum": list(_FIELD_TYPES)},
                        {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True},
                    ]
                },
            },
            "requestedSchema": {"type": "object", "description": "A form as JSON Schema, instead of fields"},
        },
        "required": ["message"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "accepted": {"type": "boolean"},
            "action": {"enum": ["accept", "decline", "cancel"]},
            "content": {"type": ["object", "null"]},
        },
        "required": ["accepted", "action", "content"],
        "additionalProperties": False,
    },
    # Read-only: the user sees the question and decides, and the call changes nothing.
    annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=True),
)

_SAMPLE: Final = Tool(
    name="sample",
    title="Ask the client's model",
    description=(
        "Ask the client's model to answer `prompt` or to continue `messages`. `system` is the system prompt. "
        "Call this in a loop or with Promise.all to ask about each item of a list."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "minLength": 1},
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "role": {"enum": ["user", "assistant"]},
                        "content": {
                            "description": "Text, or an MCP content block such as an image",
                            "anyOf": [_TEXT, {"type": "object", "required": ["type"]}],
                        },
                    },
                    "required": ["role", "content"],
                    "additionalProperties": False,
                },
            },
            "system": {"type": "string", "description": "System prompt"},
            "maxTokens": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": MAX_TOKENS},
            "temperature": {"type": "number", "minimum": 0},
            "stopSequences": {"type": "array", "items": _TEXT},
        },
        "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "model": {"type": "string"},
            "stopReason": {"type": "string"},
            "content": {"description": "Content blocks of the answer that are not text", "type": "array", "items": {}},
        },
        "required": ["text", "model"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=True),
)

_ROOTS: Final = Tool(
    name="roots",
    title="The client's folders",
    description="List the folders that the client works in.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"uri": {"type": "string"}, "name": {"type": "string"}},
            "required": ["uri"],
        },
    },
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)

_TOOLS: Final[Mapping[QuestionMethod, Tool]] = {
    "elicitation/create": _ELICIT,
    "sampling/createMessage": _SAMPLE,
    "roots/list": _ROOTS,
}


ALL_QUESTIONS: Final = frozenset(_TOOLS)
"""The questions of a client that can answer all of them."""


@lru_cache(maxsize=8)
def offered_by_client(supported: frozenset[QuestionMethod]) -> tuple[OfferedTool, ...]:
    """Return the tools of a client that answers these questions. For equal sets, the result is the same object."""
    return tuple(
        OfferedTool("client", SESSION, tool, tool.title) for method, tool in _TOOLS.items() if method in supported
    )


class ClientTools:
    """The `ToolSource` of the client that observes the calling run."""

    name = SESSION

    def view(self) -> UpstreamView:
        return UpstreamView(SESSION, "ready", tools=tuple(_TOOLS.values()))

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        """Send the question and return the result. Questions have no timeout.

        Raises:
            UpstreamCallError: the question is invalid or not answered, or the answer is invalid.
        """
        method, declared = next((method, each) for method, each in _TOOLS.items() if each.name == tool)
        params = _params(method, arguments)
        if len(json.dumps(params, ensure_ascii=False)) > MAX_CHARACTERS:
            raise _refused(f"the question has more than {MAX_CHARACTERS} characters; ask about less")
        if (asking := options.get("asking")) is None:
            raise _refused("no client that answers questions is connected")
        if (begin := options.get("begin")) is not None:
            await begin()
        if (admit := options.get("admit")) is not None:
            admit(declared)
        if (on_sent := options.get("on_sent")) is not None:
            on_sent()
        try:
            answer = await asking.ask(Question("program", method, params, by_program=True))
        except QuestionRefused as refusal:
            raise UpstreamCallError(SESSION, f"the question was not answered: {refusal}", dispatched=True) from None
        return ToolOutcome(_result(method, params, answer))

    async def request(self, method: str, params: JsonObject, **options: Unpack[RequestOptions]) -> JsonObject:
        raise _refused("the client has no resources or prompts")


def _refused(message: str) -> UpstreamCallError:
    return UpstreamCallError(SESSION, message, dispatched=False)


# From arguments of programs to MCP params, and from MCP results to results of the tools


def _params(method: QuestionMethod, arguments: JsonObject) -> dict[str, Any]:
    match method:
        case "elicitation/create":
            if "fields" in arguments and "requestedSchema" in arguments:
                raise _refused("give fields or requestedSchema, not both")
            schema = arguments.get("requestedSchema")
            if schema is None:
                schema = _form(arguments.get("fields", {}))
            return {"message": arguments["message"], "requestedSchema": checked_form(schema)}
        case "sampling/createMessage":
            messages = arguments.get("messages") or [{"role": "user", "content": arguments["prompt"]}]
            params: dict[str, Any] = {
                "messages": [{**each, "content": _block(each["content"])} for each in messages],
                "maxTokens": arguments.get("maxTokens", MAX_TOKENS),
            }
            if "system" in arguments:
                params["systemPrompt"] = arguments["system"]
            return params | {name: arguments[name] for name in ("temperature", "stopSequences") if name in arguments}
        case "roots/list":
            return {}


def _block(content: Any) -> Any:
    return {"type": "text", "text": content} if isinstance(content, str) else content


def _form(fields: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        name: {"type": kind} if isinstance(kind, str) else {"type": "string", "enum": kind}
        for name, kind in fields.items()
    }
    return {"type": "object", "properties": properties, "required": list(fields)}


def checked_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that clients can show as a form: flat properties that are text, numbers, booleans or choices.

    Raises:
        UpstreamCallError: the schema is not a form, or resembles the question that approves calls.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        raise _refused('requestedSchema is not a form: write { type: "object", properties: { ... }, required: [...] }')
    if len(properties) > MAX_FIELDS:
        raise _refused(f"a form has at most {MAX_FIELDS} fields, got {len(properties)}")
    for name, rule in properties.items():
        # The product's own approval question has this field. A program must not be able to imitate the question.
        if name.strip().casefold() == "decision":
            raise _refused(f"a program's form cannot have a field {name!r}, which approves calls; choose another name")
        if not _is_visible([name, _plain(rule) if isinstance(rule, dict) else rule]):
            raise _refused(
                f"the field {json.dumps(name[:60])} has invisible characters or line breaks in its name or its "
                "choices; remove them"
            )
        if not isinstance(rule, dict) or not _is_field(rule):
            raise _refused(
                f"the field {json.dumps(name[:60], ensure_ascii=False)} cannot be shown in a form: its type must be "
                f"one of {', '.join(_FIELD_TYPES)}, or an array of choices ({{ items: {{ enum: [...] }} }})"
            )
    return {
        "type": "object",
        "properties": {name: _plain(rule) for name, rule in properties.items()},
        "required": [each for each in required if each in properties],
    }


def _is_visible(value: Any) -> bool:
    """Return True if no text in a value has hidden characters."""
    return not any(map(HIDDEN.search, strings_in(value)))


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field with spaces for hidden characters in its title and description."""
    return {
        name: _HIDDEN_RUN.sub(" ", value) if name in ("title", "description") and isinstance(value, str) else value
        for name, value in rule.items()
    }


def _is_field(rule: Mapping[str, Any]) -> bool:
    kind = rule.get("type", "string" if "enum" in rule else None)
    if kind == "array":
        items = rule.get("items")
        return isinstance(items, dict) and bool(items.keys() & {"enum", "anyOf", "oneOf"})
    return kind in _FIELD_TYPES and not rule.keys() & {"properties", "items", "$ref", "allOf"}


def _result(method: QuestionMethod, params: JsonObject, answer: JsonObject) -> Any:
    match method:
        case "elicitation/create":
            action = answer.get("action")
            accepted = action == "accept"
            content = (answer.get("content") or {}) if accepted else None
            if accepted and not _fits(content, params["requestedSchema"]):
                raise UpstreamCallError(
                    SESSION, "the user's answer from the client does not fit the form", dispatched=True
                )
            return {
                "accepted": accepted,
                "action": action if action in ("accept", "decline") else "cancel",
                "content": content,
            }
        case "sampling/createMessage":
            return _sampled(answer)
        case "roots/list":
            roots = answer.get("roots")
            return [
                {name: root[name] for name in ("uri", "name") if isinstance(root.get(name), str)}
                for root in (roots if isinstance(roots, list) else ())
                if isinstance(root, dict) and isinstance(root.get("uri"), str)
            ]


def _sampled(answer: JsonObject) -> dict[str, Any]:
    content = answer.get("content")
    blocks = content if isinstance(content, list) else [content]
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    others = [block for block in blocks if isinstance(block, dict) and block.get("type") != "text"]
    reason = answer.get("stopReason")
    return {
        "text": "\n".join(texts),
        "model": str(answer.get("model", "")),
        **({"stopReason": reason} if isinstance(reason, str) else {}),
        **({"content": others} if others else {}),
    }


def _fits(content: Any, schema: Mapping[str, Any]) -> bool:
    try:
        return compile_schema(schema).is_valid(content)
    except UnusableSchema:
        return isinstance(content, dict)
