"""Parts that tests over HTTP share: the real process, SDK clients, bare requests, an authorization server."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.harness import COMMAND, MODERN, SECONDS, Session, until
from tests.sdk_servers import forked_serve

ERAS = ("auto", "legacy")
ALICE = "alice-has-a-token-of-her-own"
BOB = "bob-has-another-token"
TWO_TOKENS = {"auth": {"tokens": [{"name": "alice", "token": ALICE}, {"name": "bob", "token": BOB}]}}


IN_MEMORY = {"kind": "memory"}
"""A store of which nothing outlives its process."""


def write_http_config(
    folder: Path, servers: dict[str, Any] | None = None, *, store: dict[str, Any] | None = None, **http: Any
) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": servers or {}, "http": http, "store": store}), "utf-8")
    return path


@dataclass
class Served:
    """`codemode-mcp serve --transport http`, running."""

    process: Any
    url: str
    stderr_path: Path

    @property
    def origin(self) -> str:
        return "/".join(self.url.split("/")[:3])

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text("utf-8", "replace")

    @asynccontextmanager
    async def client(self, mode: str = "auto", token: str | None = None, **headers: str) -> AsyncIterator[Session]:
        """Yield a client of the SDK."""
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        async with (
            httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(SECONDS)) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield Session(client, self.stderr_path)

    async def request(self, method: str = "POST", path: str | None = None, **options: Any) -> httpx2.Response:
        """Return one request by itself; a POST without content lists the tools."""
        headers = dict(options.pop("headers", {}))
        token = options.pop("token", None)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if method == "POST" and "content" not in options:
            options["json"] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN}
        given = MODERN_HEADERS | {"mcp-method": "tools/list"} | headers
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(SECONDS)) as client:
            url = self.url if path is None else self.origin + path
            return await client.request(method, url, headers=given, **options)

    async def call(self, tool: str, arguments: dict[str, Any], **headers: str) -> dict[str, Any]:
        """Return a modern call as bare JSON; its result or error."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, **MODERN},
        }
        answer = await self.request(
            json=message, content=None, headers={"mcp-method": "tools/call", "mcp-name": tool, **headers}
        )
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = text.rpartition("data: ")[2]
        return json.loads(text)

    async def ready(self) -> None:
        """Return once `/readyz` says so."""
        with anyio.fail_after(SECONDS):
            while (await self.request("GET", "/readyz")).status_code != 200:  # noqa: ASYNC110 - another process
                await anyio.sleep(0.02)

    def connect(self) -> socket.socket:
        """Return a bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    async def end(self) -> int:
        """Tell it to end; its exit code."""
        self.process.terminate()
        with anyio.fail_after(SECONDS):
            return await self.process.wait()


MODERN_HEADERS = {
    "mcp-protocol-version": "2026-07-28",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}


@asynccontextmanager
async def serve_http(
    config: Path, *flags: str, env: dict[str, str] | None = None, own_process: bool = False
) -> AsyncIterator[Served]:
    """Yield the real command, listening on a free port of loopback. No traceback reaches its stderr.

    `own_process`: the id, the memory and the end of the process are those of the server; see `forked_serve`.
    """
    serve = [*COMMAND, "serve"] if own_process else forked_serve("http")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stderr"
        with path.open("wb") as errlog:
            process = await anyio.open_process(
                [*serve, "--transport", "http", "--port", "0", "--config", str(config), *flags],
                stdin=None,
                stdout=errlog,
                stderr=errlog,
                env={**os.environ, **(env or {})},
                cwd=config.parent,
            )
            try:
                await until(lambda: b"serves MCP at" in path.read_bytes() or process.returncode is not None)
                found = re.search(r"serves MCP at (http://\S+)", path.read_text("utf-8"))
                assert found is not None, path.read_text("utf-8")
                yield Served(process, found[1], path)
            finally:
                with anyio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.terminate()
                        with anyio.move_on_after(10):
                            await process.wait()
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                    await process.aclose()
                assert "Traceback" not in path.read_text("utf-8"), path.read_text("utf-8")


async def opened_session(served: Served, token: str | None = None) -> str:
    """Return the id of a new legacy session."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await served.request(
        json=message, content=None, headers={"mcp-protocol-version": "2025-11-25"}, token=token
    )
    assert answer.status_code == 200, answer.text
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    assert (await served.request(json=note, content=None, headers=headers, token=token)).status_code == 202
    return answer.headers["mcp-session-id"]


# an authorization server


@dataclass
class Issuer:
    """Keys, and a server that shows the public ones. `issue` signs what it is told to."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    down: bool = False

    def add(self, key_id: str, kind: str = "RSA") -> None:
        self.keys[key_id] = (
            rsa.generate_private_key(65537, 2048) if kind == "RSA" else ec.generate_private_key(ec.SECP256R1())
        )

    def issue(
        self, key_id: str = "one", *, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        now = int(time.time())
        payload = {"iss": self.url, "aud": "https://mcp.example/mcp", "sub": "alice", "exp": now + 300, "iat": now}
        payload = {key: value for key, value in (payload | claims).items() if value is not None}
        return jwt.encode(payload, self.keys[key_id], algorithm, {"kid": key_id, **(headers or {})})

    def document(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": self.url + "/keys"}
        if path == "/keys":
            return {"keys": [self._public(key_id, key) for key_id, key in self.keys.items()]}
        return None

    def _public(self, key_id: str, key: Any) -> dict[str, Any]:
        kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"}


@contextmanager
def issuer() -> Iterator[Issuer]:
    """Yield an authorization server on loopback with one key, `one`."""
    made = Issuer()
    made.add("one")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.fetched.append(self.path)
            found = None if made.down else made.document(self.path)
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
