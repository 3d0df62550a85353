"""Log messages of servers over HTTP, where a message may be about the call of another caller.

`tests/matrix` has them over stdio, in both eras.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import MODERN, http_server
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, Served, serve_http, write_http_config
from upstream_clients.jsonrpc import LOG_LEVEL

pytestmark = pytest.mark.anyio

WAITING = """
    const hanging = MCP.srv.hang({ key: "bob" }).catch(() => 0);
    await MCP.srv.waitCancelled({ key: "bob", hanging: true });
"""


async def messages(served: Served, token: str, code: str, meta: dict[str, Any]) -> list[Any]:
    """Run a program in a request. Return the log messages that it gets, and the result at the end."""
    params = {**MODERN, "name": "exec", "arguments": {"code": code}}
    params["_meta"] = {**MODERN["_meta"], **meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"mcp-method": "tools/call", "mcp-name": "exec"}
    answer = await served.request(json=message, content=None, headers=headers, token=token)
    texts = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith(("data: ", "{"))]
    lines = [json.loads(text) for text in texts]
    return [each["params"] if "method" in each else each["result"]["structuredContent"]["value"] for each in lines]


async def test_a_request_over_http_gets_the_messages_about_its_own_calls(folder: Path) -> None:
    found: dict[str, list[Any]] = {}
    async with (
        http_server("--log") as url,
        serve_http(write_http_config(folder, {"srv": {"url": url}}, **TWO_TOKENS)) as served,
    ):

        async def run(token: str, code: str) -> None:
            found[token] = await messages(served, token, code, {LOG_LEVEL: "info"})

        async with anyio.create_task_group() as both:
            # The program of Alice waits for the one of Bob, whose message comes meanwhile.
            both.start_soon(
                run,
                ALICE,
                """
                await MCP.srv.log({ level: "error", data: { of: "alice" }, logger: "parts" });
                await MCP.srv.log({ level: "debug", data: "too low" });
                return MCP.srv.waitCancelled({ key: "bob", hanging: true }).then(() => 1);
                """,
            )
            both.start_soon(run, BOB, f'await MCP.srv.log({{ level: "info", data: "of bob" }}); {WAITING} return 2;')
        silent = await messages(served, BOB, 'await MCP.srv.log({ level: "error", data: "unasked" }); return 3;', {})
    assert silent == [3], "the request named no level"
    assert found[ALICE] == [{"level": "error", "logger": "srv/parts", "data": {"of": "alice"}}, 1]
    assert found[BOB] == [{"level": "info", "logger": "srv", "data": "of bob"}, 2]
