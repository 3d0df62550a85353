"""Requests and answers of model APIs, as far as the scripted model needs them.

Each protocol reads what a client sends to its model, and writes one tool call or one text as that API would.
`Direct` is a protocol of these tests, for clients that have no model: they hand over what they show to their program.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

SSE = "text/event-stream"
JSON = "application/json"


@dataclass(frozen=True)
class Tool:
    """A tool as the client shows it to the model."""

    name: str
    namespace: str | None = None
    description: str = ""


@dataclass(frozen=True)
class Request:
    """One request of a client to its model.

    Attributes:
        tools: Tools that the model is shown.
        news: Items after the last one that the model itself has written.
        text: The whole request, for a search by plain text.
    """

    tools: tuple[Tool, ...]
    news: tuple[Any, ...]
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A tool call that the model makes."""

    id: str
    tool: Tool
    arguments: dict[str, Any]


Reply = ToolCall | str


class ModelApi(Protocol):
    """One model API."""

    def reads(self, path: str) -> bool:
        """Return whether this path is the one that asks the model for an answer."""
        ...

    def request(self, body: dict[str, Any]) -> Request: ...

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        """Return the content type and the body of an answer."""
        ...


def _events(events: list[dict[str, Any]], *, named: bool = False, done: bool = False) -> tuple[str, bytes]:
    text = "".join(
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )
    return SSE, (text + ("data: [DONE]\n\n" if done else "")).encode()


def _id(kind: str) -> str:
    """Return an id of its own: clients put messages of one id together."""
    return f"{kind}_{uuid.uuid4().hex}"


def _after(items: list[Any], written: list[bool]) -> tuple[Any, ...]:
    last = max((number for number, own in enumerate(written) if own), default=-1)
    return tuple(items[last + 1 :])


class Anthropic:
    """Anthropic Messages."""

    def reads(self, path: str) -> bool:
        return path.split("?")[0].endswith("/v1/messages")

    def request(self, body: dict[str, Any]) -> Request:
        # A deferred tool is in the list for the API alone: the model does not see it before its tool search.
        shown = [tool for tool in body.get("tools") or [] if not tool.get("defer_loading")]
        tools = tuple(Tool(tool.get("name", ""), description=tool.get("description", "")) for tool in shown)
        messages = body["messages"]
        news = _after(messages, [message["role"] == "assistant" for message in messages])
        return Request(tools, news, json.dumps(body))

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        if isinstance(reply, str):
            block: dict[str, Any] = {"type": "text", "text": ""}
            delta: dict[str, Any] = {"type": "text_delta", "text": reply}
            whole, stop = {"type": "text", "text": reply}, "end_turn"
        else:
            block = {"type": "tool_use", "id": reply.id, "name": reply.tool.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
            whole, stop = {**block, "input": reply.arguments}, "tool_use"
        if not body.get("stream"):
            return JSON, json.dumps({**message, "content": [whole], "stop_reason": stop}).encode()
        return _events(
            [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
                {"type": "message_stop"},
            ],
            named=True,
        )


class Responses:
    """OpenAI Responses."""

    def reads(self, path: str) -> bool:
        return path.split("?")[0].endswith("/responses")

    def request(self, body: dict[str, Any]) -> Request:
        items = body["input"] if isinstance(body["input"], list) else [body["input"]]
        tools = (*_responses_tools(body.get("tools") or []), *_responses_tools(_found_by_search(items)))
        written = [
            isinstance(item, dict)
            and (
                item.get("type") in ("function_call", "reasoning", "tool_search_call")
                or item.get("role") == "assistant"
            )
            for item in items
        ]
        return Request(tools, _after(items, written), json.dumps(body))

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        if isinstance(reply, str):
            content = [{"type": "output_text", "text": reply, "annotations": []}]
            item: dict[str, Any] = {"type": "message", "id": _id("msg"), "role": "assistant", "content": content}
        elif reply.tool.name == "tool_search":
            item = {"type": "tool_search_call", "id": f"item_{reply.id}", "call_id": reply.id, "execution": "client"}
            item["arguments"] = reply.arguments
        else:
            item = {"type": "function_call", "id": f"item_{reply.id}", "call_id": reply.id, "name": reply.tool.name}
            item["arguments"] = json.dumps(reply.arguments)
            if reply.tool.namespace:
                item["namespace"] = reply.tool.namespace
        item["status"] = "completed"
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {
            "id": _id("resp"),
            "object": "response",
            "created_at": 1,
            "model": body.get("model", "scripted"),
            "status": "completed",
            "output": [item],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details},
        }
        if not body.get("stream"):
            return JSON, json.dumps(response).encode()
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        return _events(
            [
                {"type": "response.created", "sequence_number": 0, "response": begun},
                {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
                {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
                {"type": "response.completed", "sequence_number": 3, "response": response},
            ],
            named=True,
        )


def _found_by_search(items: list[Any]) -> list[dict[str, Any]]:
    return [
        tool
        for item in items
        if isinstance(item, dict) and item.get("type") == "tool_search_output"
        for tool in item.get("tools") or []
    ]


def _responses_tools(entries: list[dict[str, Any]]) -> Iterator[Tool]:
    for entry in entries:
        if entry.get("type") == "namespace":
            for tool in entry.get("tools") or []:
                yield Tool(tool["name"], entry["name"], tool.get("description") or "")
        else:
            yield Tool(entry.get("name") or entry.get("type", ""), description=entry.get("description") or "")


class Chat:
    """OpenAI Chat completions."""

    def reads(self, path: str) -> bool:
        return path.split("?")[0].endswith("/chat/completions")

    def request(self, body: dict[str, Any]) -> Request:
        shown = [tool["function"] for tool in body.get("tools") or []]
        tools = tuple(Tool(tool["name"], description=tool.get("description") or "") for tool in shown)
        messages = body["messages"]
        news = _after(messages, [message["role"] == "assistant" for message in messages])
        return Request(tools, news, json.dumps(body))

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        stop = "stop"
        if isinstance(reply, str):
            message["content"] = reply
        else:
            function = {"name": reply.tool.name, "arguments": json.dumps(reply.arguments)}
            message["tool_calls"] = [{"id": reply.id, "type": "function", "function": function}]
            stop = "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer: dict[str, Any] = {"id": _id("chat"), "created": 1, "model": body.get("model", "scripted")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": stop}
            return JSON, json.dumps(
                {**answer, "object": "chat.completion", "choices": [choice], "usage": usage}
            ).encode()
        answer["object"] = "chat.completion.chunk"
        delta = dict(message)
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": 0, **message["tool_calls"][0]}]
        return _events(
            [
                {**answer, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {**answer, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}], "usage": usage},
            ],
            done=True,
        )


class Gemini:
    """Gemini generateContent and streamGenerateContent."""

    def reads(self, path: str) -> bool:
        return path.split("?")[0].endswith(("generateContent", "streamGenerateContent"))

    def request(self, body: dict[str, Any]) -> Request:
        shown = [tool for entry in body.get("tools") or [] for tool in entry.get("functionDeclarations") or []]
        tools = tuple(Tool(tool["name"], description=tool.get("description") or "") for tool in shown)
        contents = body["contents"]
        return Request(tools, _after(contents, [each.get("role") == "model" for each in contents]), json.dumps(body))

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        if isinstance(reply, str):
            part: dict[str, Any] = {"text": reply}
        else:
            part = {"functionCall": {"id": reply.id, "name": reply.tool.name, "args": reply.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
        if "streamGenerateContent" in path:
            return _events([answer])
        return JSON, json.dumps(answer).encode()


class Direct:
    """Results that a client without a model shows its program: `{"tools": [...], "results": [...]}`, one call back."""

    def reads(self, path: str) -> bool:
        return path == "/direct"

    def request(self, body: dict[str, Any]) -> Request:
        tools = tuple(Tool(name) for name in body["tools"])
        return Request(tools, tuple(body["results"]), json.dumps(body))

    def reply(self, path: str, body: dict[str, Any], reply: Reply) -> tuple[str, bytes]:
        call = None if isinstance(reply, str) else {"name": reply.tool.name, "arguments": reply.arguments}
        return JSON, json.dumps({"call": call}).encode()
