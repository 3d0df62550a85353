"""A model on loopback that follows a script, in both forms of `benchmarks/agents`, with usage figures and failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = "str | Sequence[tuple[str, dict[str, Any]]]"
"""The last words of the model, or the calls that it makes in one answer."""


@dataclass
class ScriptedModel:
    """The model.

    Attributes:
        scripts: steps by the first words of the question and the first tool that is shown.
        failures: codes that the next requests get instead of an answer.
        requests: bodies of all requests that were answered.
        keys: values of the headers with keys.
    """

    scripts: dict[tuple[str, str], list[Any]]
    failures: list[int] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        anthropic = path.endswith("/v1/messages")
        self.requests.append(body)
        said = [message for message in body["messages"] if message["role"] != "system"]
        first = said[0]["content"]
        question = first if isinstance(first, str) else first[0]["text"]
        tool = body["tools"][0]
        name = tool["name"] if anthropic else tool["function"]["name"]
        script = next(
            steps for (words, shown), steps in self.scripts.items() if question.startswith(words) and name == shown
        )
        number = sum(message["role"] == "assistant" for message in said)
        return (_anthropic if anthropic else _openai)(script[number], number)


def _anthropic(step: Any, number: int) -> dict[str, Any]:
    if isinstance(step, str):
        content: list[Any] = [{"type": "text", "text": step}]
    else:
        uses = [
            {"type": "tool_use", "id": f"use_{number}_{index}", "name": name, "input": given}
            for index, (name, given) in enumerate(step)
        ]
        content = [{"type": "text", "text": "I call tools."}, *uses]
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 100}
    usage["cache_read_input_tokens"] = 1000 * number
    stop = "end_turn" if isinstance(step, str) else "tool_use"
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": usage}


def _openai(step: Any, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step if isinstance(step, str) else None}
    if not isinstance(step, str):
        message["tool_calls"] = [
            {
                "id": f"use_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for index, (name, given) in enumerate(step)
        ]
    stop = "stop" if isinstance(step, str) else "tool_calls"
    usage: dict[str, Any] = {"prompt_tokens": 110 + 1000 * number, "completion_tokens": 5}
    usage["prompt_tokens_details"] = {"cached_tokens": 1000 * number}
    return {"choices": [{"index": 0, "message": message, "finish_reason": stop}], "usage": usage}


@contextmanager
def serving(model: ScriptedModel) -> Iterator[str]:
    """Yield the address of an endpoint with a model."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.keys.add(self.headers.get("x-api-key") or self.headers.get("authorization") or "")
            status = model.failures.pop(0) if model.failures else 200
            answer = {"error": f"no, {self.headers.items()}"} if status != 200 else model.answer(self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("retry-after", "7")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
