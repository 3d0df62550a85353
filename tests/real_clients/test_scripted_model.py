"""The scripted model itself: what it takes for readable, and that each protocol carries its calls."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Generator
from typing import Any

import pytest

from tests.real_clients.endpoint import Call, Model, Reading, serving
from tests.real_clients.protocols import Anthropic, Chat, Direct, Gemini, ModelApi, Responses

RUN = "run_0123456789abcdefghijklmn"
PNG = "iVBORw0KGgo="

ANTHROPIC_RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "the result"}]}
GEMINI_RESULT = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "exec", "response": {"output": "the result"}}}],
}
APIS = {
    "anthropic": (
        Anthropic(),
        "/v1/messages",
        {"tools": [{"name": "mcp__codemode__exec"}], "messages": [{"role": "user", "content": "go"}]},
        {"messages": [{"role": "assistant", "content": []}, ANTHROPIC_RESULT]},
    ),
    "responses": (
        Responses(),
        "/v1/responses",
        {"tools": [{"type": "namespace", "name": "mcp__codemode", "tools": [{"name": "exec"}]}], "input": "go"},
        {"input": [{"type": "function_call"}, {"type": "function_call_output", "output": "the result"}]},
    ),
    "chat": (
        Chat(),
        "/v1/chat/completions",
        {"tools": [{"function": {"name": "codemode_exec"}}], "messages": [{"role": "user", "content": "go"}]},
        {"messages": [{"role": "assistant"}, {"role": "tool", "content": "the result"}]},
    ),
    "gemini": (
        Gemini(),
        "/v1beta/models/m:generateContent",
        {"tools": [{"functionDeclarations": [{"name": "mcp_codemode_exec"}]}], "contents": [{"role": "user"}]},
        {"contents": [{"role": "model"}, GEMINI_RESULT]},
    ),
    "direct": (Direct(), "/direct", {"tools": ["exec"], "results": []}, {"results": ["the result"]}),
}


def script(read: list[Reading]) -> Generator[Call, Reading, None]:
    read.append((yield Call("exec", {"code": "return 1"})))


def post(url: str, body: dict[str, Any]) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("name", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_goes_to_the_client_and_its_result_comes_back(name: str, stream: bool) -> None:
    api: ModelApi
    api, path, first, then = APIS[name]
    read: list[Reading] = []
    model = Model(api, script(read))
    with serving(model) as url:
        asked = post(url + path, {**first, "stream": stream})
        post(url + path, {**first, **then, "stream": stream})
    assert "return 1" in asked
    assert [reading.text for reading in read] == ["the result"]
    assert model.done
    assert model.problems == []


def test_a_model_that_is_shown_no_tool_of_ours_says_so() -> None:
    model = Model(Chat(), script([]))
    with serving(model) as url:
        post(f"{url}/v1/chat/completions", {"tools": [{"function": {"name": "shell"}}], "messages": []})
    assert model.problems == ["exec is not among ['shell']"]


@pytest.mark.parametrize(
    "text",
    [
        f'Resume it with wait {{"runId": "{RUN}"}}.',
        json.dumps({"runId": RUN}),
        json.dumps({"output": json.dumps({"runId": RUN})}),
        json.dumps(json.dumps(json.dumps({"runId": RUN}))),
    ],
)
def test_a_run_id_is_read_from_prose_and_from_json_in_json(text: str) -> None:
    assert Reading((text,)).run_id == RUN


def test_no_run_id_is_read_where_none_is_said() -> None:
    assert Reading(('{"status": "waiting", "reason": "yield"}',)).run_id is None


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
    ],
)
def test_a_picture_is_seen_as_a_part_of_its_own_and_not_within_a_text(part: dict[str, Any]) -> None:
    assert Reading(({"content": [part]},)).pictures == 1
    assert Reading(({"content": json.dumps(part)},)).pictures == 0
