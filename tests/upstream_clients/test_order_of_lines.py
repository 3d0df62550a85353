"""Lines of a server over stdio are taken in the order in which they were written."""

import sys
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from upstream_clients.server_log import StderrTail
from upstream_clients.spec import UpstreamSpec
from upstream_clients.stdio import open_process

pytestmark = pytest.mark.anyio

ASKING = """
import json, sys
for line in sys.stdin:
    number = json.loads(line)["id"]
    messages = [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {}},
        {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}},
        {"jsonrpc": "2.0", "id": number, "result": {"content": []}},
    ]
    sys.stdout.write("".join(json.dumps(each) + "\\n" for each in messages))
    sys.stdout.flush()
"""


async def test_an_answer_does_not_overtake_the_question_that_was_written_before_it() -> None:
    spec = UpstreamSpec(name="asking", command=sys.executable, args=("-c", ASKING))
    order: list[str] = []
    over = anyio.Event()

    async def handle(message: Any) -> None:
        order.append("question")

    with StderrTail("asking", lambda text: text) as tail:
        async with open_process(spec, tail) as (transport, direct), anyio.create_task_group() as group:
            assert direct is not None

            async def dispatch() -> None:
                while True:
                    message = await transport.receive()
                    assert isinstance(message, dict)
                    if message.get("method") == "elicitation/create":
                        group.start_soon(handle, message)
                    elif "result" in message:
                        order.append("answer")
                        over.set()

            def answered(_: Any) -> None:
                order.append("answer")
                over.set()

            group.start_soon(dispatch)
            await anyio.lowlevel.checkpoint()
            direct.send("tools/call", {"name": "x"}, answered)
            with anyio.fail_after(20):
                await over.wait()
            group.cancel_scope.cancel()
    assert order[0] == "question"
