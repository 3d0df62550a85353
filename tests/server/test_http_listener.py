"""The listener in this process, with short time limits."""

import socket
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.types import Receive, Scope, Send

from codemode_mcp.base.settings import HttpSettings
from codemode_mcp.server.http import sockets
from codemode_mcp.server.http.listener import listening

pytestmark = pytest.mark.anyio

SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_client_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "WRITE_SECONDS", 0.2)
    gone = anyio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        async with anyio.create_task_group() as group:

            async def write() -> None:
                while True:
                    await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
                    await anyio.lowlevel.checkpoint()

            group.start_soon(write)
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            group.cancel_scope.cancel()

    async with listening(HttpSettings(), "127.0.0.1", 0, "/mcp") as listener:
        listener._front.handler = endless
        port = int(listener.url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as client, anyio.fail_after(SECONDS):
            client.sendall(f"GET /mcp HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n".encode())
            await gone.wait()


async def test_an_exception_in_a_request_is_an_answer_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a secret of the inside")

    async with listening(HttpSettings(), "127.0.0.1", 0, "/mcp") as listener:
        listener._front.handler = broken
        port = int(listener.url.rpartition(":")[2].partition("/")[0])

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", port), SECONDS) as client:
                client.sendall(f"GET /mcp HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n".encode())
                received = b""
                while chunk := client.recv(65536):
                    received += chunk
                return received

        answer: Any = await anyio.to_thread.run_sync(ask)
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"see its log" in answer
    assert b"secret" not in answer
    assert "a secret of the inside" in caplog.text
