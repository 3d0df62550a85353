"""Tests that a published server asks its user during a call, and the connected client answers, in either era."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.integration.harness import npm_server, serve, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", ["auto", "legacy"])]


async def fill_in(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    return types.ElicitResult(action="accept", content={"name": "Ada", "check": True, "integer": 36})


async def complete(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="Rain, says the model.")
    return types.CreateMessageResult(role="assistant", content=content, model="test")


async def test_a_form_and_a_prompt_of_one_program_are_answered(tmp_path: Path, mode: str) -> None:
    config = write_config(
        tmp_path,
        {"everything": npm_server("everything", "stdio")},
        codeMode={"connectWaitMs": 25_000, "timeoutMs": 25_000},
    )
    code = """
        const asked = await MCP.everything.triggerElicitationRequest({});
        const sampled = await MCP.everything.triggerSamplingRequest({ prompt: "Weather?", maxTokens: 20 });
        return [asked, sampled].map((result) => result.content.map((block) => block.text).join("\\n"));
    """
    async with serve(config, mode=mode, elicitation_callback=fill_in, sampling_callback=complete) as session:
        answer = await session.finish(await session.exec(code))
        asked, sampled = answer.value
    assert "Ada" in asked
    assert "36" in asked
    assert "Rain, says the model." in sampled
