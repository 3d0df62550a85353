"""The tools of the connected client: ask the user, ask its model, list its folders.

A call is a question to the client that observes the run. It waits for its answer like the questions of upstream
servers, also while the run is suspended, and in either protocol era; see `runs.questions`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.catalog.entries import Offered
from declarations.untrusted_text import HIDDEN
from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.schemas import UnusableSchema, compile_schema
from upstream_clients.tools import Annotations, Question, Tool, ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.tools import AdmitFn, Asking, BeginFn, JsonObject, ProgressFn, QuestionMethod, SentFn

SESSION: Final = "session"
"""The source of client tools: `client:session:elicit`."""

MAX_TOKENS: Final = 1000
"""Tokens of an answer of the client's model, if the program does not set `maxTokens`."""

MAX_FIELDS: Final = 50

MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of one question as JSON."""

_HIDDEN_RUN: Final = re.compile(f"{HIDDEN.pattern}+")
_TEXT: Final = {"type": "string"}
_FIELD_TYPES: Final = ("string", "number", "integer", "boolean")

_ELICIT: Final = Tool(
    name="elicit",
    title="Ask the user",
    description=(
        "Ask the user of the client, and wait for the answer as long as it takes. `fields` are the fields of the form: "
        '{ name: "string", count: "integer", size: ["small", "large"], agree: "boolean" }; all are required. '
        "Instead, `requestedSchema` is a JSON Schema: an object with flat properties. Without either, the user "
        "only accepts or declines. `content` of the result has the values, null unless accepted."
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
            "requestedSchema": {"type": "object", "description": "Instead of fields"},
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
    # The user sees it and decides. It changes nothing.
    annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=True),
)

_SAMPLE: Final = Tool(
    name="sample",
    title="Ask the client's model",
    description=(
        "Ask the model of the client to answer `prompt` or to continue `messages`. `system` is its system prompt. "
        "Call it in a loop or with Promise.all to apply it to each item of a list."
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
            "content": {"description": "Blocks of the answer that are no text", "type": "array", "items": {}},
        },
        "required": ["text", "model"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=True),
)

_ROOTS: Final = Tool(
    name="roots",
    title="The client's folders",
    description="The folders that the client works in, as it names them.",
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


EVERYTHING: Final = frozenset(_TOOLS)
"""The questions of a client that can answer all of them."""


@lru_cache(maxsize=8)
def offered(supported: frozenset[QuestionMethod]) -> tuple[Offered, ...]:
    """Return the tools of a client that answers these questions. For the same questions it is the same object."""
    return tuple(Offered("client", SESSION, tool, tool.title) for method, tool in _TOOLS.items() if method in supported)


class ClientTools:
    """A `ToolSource` of the client that observes the calling run."""

    name = SESSION

    def view(self) -> UpstreamView:
        return UpstreamView(SESSION, "ready", tools=tuple(_TOOLS.values()))

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        """Ask the question and wait for the answer. `timeout` does not count, as with every question.

        Raises:
            UpstreamCallError: the question is invalid, no one answers it, or the answer is invalid.
        """
        method, declared = next((method, each) for method, each in _TOOLS.items() if each.name == tool)
        params = _params(method, arguments)
        if len(json.dumps(params, ensure_ascii=False)) > MAX_CHARACTERS:
            raise UpstreamCallError(
                SESSION, f"the question has more than {MAX_CHARACTERS} characters; ask about less", dispatched=False
            )
        if asking is None:
            raise UpstreamCallError(SESSION, "no client is connected that can be asked", dispatched=False)
        if begin is not None:
            await begin()
        if admit is not None:
            admit(declared)
        if on_sent is not None:
            on_sent()
        try:
            answer = await asking.ask(Question("program", method, params, by_program=True))
        except QuestionRefused as refusal:
            raise UpstreamCallError(SESSION, f"the question was not answered: {refusal}", dispatched=True) from None
        return ToolOutcome(_result(method, params, answer))

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        begin: BeginFn | None = None,
    ) -> JsonObject:
        raise UpstreamCallError(SESSION, "the client has no resources or prompts", dispatched=False)


# arguments to MCP params, and MCP results to plain ones


def _params(method: QuestionMethod, arguments: JsonObject) -> dict[str, Any]:
    match method:
        case "elicitation/create":
            if "fields" in arguments and "requestedSchema" in arguments:
                raise UpstreamCallError(SESSION, "give fields or requestedSchema, not both", dispatched=False)
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
    """Return a schema that clients can show as a form: flat properties, each a text, a number, a boolean or a choice.

    Raises:
        UpstreamCallError: the schema is no form, or it looks like the question that approves a call.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        raise UpstreamCallError(
            SESSION,
            'requestedSchema is not a form: write { type: "object", properties: { ... }, required: [...] }',
            dispatched=False,
        )
    if len(properties) > MAX_FIELDS:
        raise UpstreamCallError(
            SESSION, f"a form has at most {MAX_FIELDS} fields, got {len(properties)}", dispatched=False
        )
    for name, rule in properties.items():
        if name.strip().casefold() == "decision":
            raise UpstreamCallError(
                SESSION,
                f"a form of a program cannot have a field {name!r}, which approves calls; choose another name",
                dispatched=False,
            )
        if not _is_seen([name, _plain(rule) if isinstance(rule, dict) else rule]):
            raise UpstreamCallError(
                SESSION,
                f"the field {json.dumps(name[:60])} has invisible characters or line breaks in its name "
                "or its choices; remove them",
                dispatched=False,
            )
        if not isinstance(rule, dict) or not _is_field(rule):
            raise UpstreamCallError(
                SESSION,
                f"the field {json.dumps(name[:60], ensure_ascii=False)} cannot be shown in a form: its type must be "
                f"one of {', '.join(_FIELD_TYPES)}, or an array of choices ({{ items: {{ enum: [...] }} }})",
                dispatched=False,
            )
    return {
        "type": "object",
        "properties": {name: _plain(rule) for name, rule in properties.items()},
        "required": [each for each in required if each in properties],
    }


def _is_seen(value: Any) -> bool:
    """Return whether a reader sees the name and the choices of a field as they are."""
    match value:
        case str():
            return HIDDEN.search(value) is None
        case dict():
            return all(_is_seen(name) and _is_seen(each) for name, each in value.items())
        case list():
            return all(map(_is_seen, value))
    return True


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field without invisible characters in its title and description."""
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
