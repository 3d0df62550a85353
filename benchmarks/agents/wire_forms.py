"""The two forms in which models are asked: Anthropic Messages and OpenAI Chat Completions. Pure.

Most other endpoints, local servers among them, understand one of the two. Streams are not used: only whole answers have
the usage figures in every implementation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of requests, as the endpoint has counted them.

    Attributes:
        fresh: input tokens at the full price.
        read: input tokens that came from a cache.
        written: input tokens that were put into a cache.
        output: tokens of the answer, hidden reasoning included.
    """

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.fresh + other.fresh, self.read + other.read, self.written + other.written, self.output + other.output
        )

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.written


@dataclass(frozen=True)
class ToolUse:
    """One call that a model wants; `arguments` is None if they are no JSON object."""

    id: str
    name: str
    arguments: Json | None


@dataclass(frozen=True)
class Reply:
    """One answer of a model.

    Attributes:
        cut: the answer ended at the limit of its length.
        message: the answer in the form of the endpoint, for the next request.
    """

    text: str
    uses: tuple[ToolUse, ...]
    usage: Usage
    cut: bool
    message: Json


@dataclass(frozen=True)
class Settings:
    """Choices that are the same for all conversations of a run.

    Attributes:
        max_tokens: limit of one answer.
        max_tokens_field: name of this limit for OpenAI's form: newer models refuse `max_tokens`.
        cache: ask for prompt caching, where it has to be asked for.
        temperature: None leaves it to the endpoint.
    """

    model: str
    max_tokens: int = 8000
    max_tokens_field: str = "max_completion_tokens"
    cache: bool = True
    temperature: float | None = None
    seed: int | None = None


class WireForm(Protocol):
    """One form of requests and answers."""

    path: str

    def headers(self, key: str) -> dict[str, str]: ...

    def body(self, settings: Settings, system: str, messages: Sequence[Json], tools: Sequence[Json]) -> Json:
        """Return a request. Tools are as in `tools/list`."""

    def read(self, data: Json) -> Reply:
        """Return an answer. Raises KeyError, TypeError or ValueError if it has another form."""

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Json]:
        """Return the messages that have results of calls: text, and True for an error."""


class Anthropic:
    """Anthropic Messages."""

    path = "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, settings: Settings, system: str, messages: Sequence[Json], tools: Sequence[Json]) -> Json:
        shown = [
            {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
            for tool in tools
        ]
        instructions: Json = {"type": "text", "text": system}
        said = [*messages]
        if settings.cache:
            # The system prompt comes after the tools, so one mark caches both. The mark on the last message moves on.
            instructions["cache_control"] = {"type": "ephemeral"}
            said[-1] = _marked(said[-1])
        body: Json = {"model": settings.model, "max_tokens": settings.max_tokens, "system": [instructions]}
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        return {**body, "messages": said, "tools": shown}

    def read(self, data: Json) -> Reply:
        uses, texts = [], []
        for block in data["content"]:
            if block["type"] == "tool_use":
                given = block["input"]
                uses.append(ToolUse(block["id"], block["name"], given if isinstance(given, dict) else None))
            elif block["type"] == "text":
                texts.append(block["text"])
        counts = data["usage"]
        usage = Usage(
            counts["input_tokens"],
            counts.get("cache_read_input_tokens") or 0,
            counts.get("cache_creation_input_tokens") or 0,
            counts["output_tokens"],
        )
        message = {"role": "assistant", "content": data["content"]}
        return Reply("\n".join(texts), tuple(uses), usage, data.get("stop_reason") == "max_tokens", message)

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Json]:
        blocks = []
        for use, text, is_error in results:
            block: Json = {"type": "tool_result", "tool_use_id": use.id, "content": text}
            blocks.append({**block, "is_error": True} if is_error else block)
        return [{"role": "user", "content": blocks}]


def _marked(message: Json) -> Json:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    return {**message, "content": blocks}


class OpenAi:
    """OpenAI Chat Completions. Endpoints cache by themselves, so the setting `cache` changes nothing."""

    path = "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def body(self, settings: Settings, system: str, messages: Sequence[Json], tools: Sequence[Json]) -> Json:
        shown = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool.get("description", ""),
                    "parameters": tool["inputSchema"],
                },
            }
            for tool in tools
        ]
        body: Json = {"model": settings.model, settings.max_tokens_field: settings.max_tokens}
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.seed is not None:
            body["seed"] = settings.seed
        return {**body, "messages": [{"role": "system", "content": system}, *messages], "tools": shown}

    def read(self, data: Json) -> Reply:
        choice = data["choices"][0]
        message = choice["message"]
        uses = tuple(
            ToolUse(call["id"], call["function"]["name"], _object(call["function"]["arguments"]))
            for call in message.get("tool_calls") or []
        )
        counts = data["usage"]
        read = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        usage = Usage(counts["prompt_tokens"] - read, read, 0, counts["completion_tokens"])
        kept: Json = {"role": "assistant", "content": message.get("content")}
        if uses:
            kept["tool_calls"] = message["tool_calls"]
        return Reply(message.get("content") or "", uses, usage, choice.get("finish_reason") == "length", kept)

    def results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> list[Json]:
        return [{"role": "tool", "tool_call_id": use.id, "content": text} for use, text, _ in results]


def _object(text: str) -> Json | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


FORMS: dict[str, WireForm] = {"anthropic": Anthropic(), "openai": OpenAi()}
