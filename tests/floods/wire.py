"""Requests of one principal to a served codemode-mcp: bare JSON over HTTP, in a legacy session or without one."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.integration.harness import MODERN
from tests.integration.http_harness import MODERN_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

LEGACY = "2025-11-25"
BODY = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(slots=True)
class Wire:
    """A principal that asks.

    Attributes:
        session: of the legacy era, once `open` has got one.
    """

    http: httpx2.AsyncClient
    url: str
    token: str
    session: str | None = None
    _ids: Iterator[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        """Open a session, in place of the one there is."""
        self.session = None
        client = {"name": "floods", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
        answer = await self.post({"jsonrpc": "2.0", "id": next(self._ids), "method": "initialize", "params": params})
        self.session = answer.headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def post(self, message: dict[str, Any] | str, **headers: str) -> httpx2.Response:
        given = {**BODY, "authorization": f"Bearer {self.token}", "mcp-protocol-version": LEGACY, **headers}
        if self.session is not None:
            given["mcp-session-id"] = self.session
        content = message if isinstance(message, str) else json.dumps(message)
        return await self.http.post(self.url, content=content, headers=given)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask in the session; the result or error."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        return _answer(await self.post(message))

    async def exec(self, code: str, **more: Any) -> dict[str, Any]:
        """Run a program in the session."""
        return await self.ask("tools/call", {"name": "exec", "arguments": {"code": code}, **more})

    async def exec_alone(self, code: str) -> dict[str, Any]:
        """Run a program without a session, as clients of the modern era do."""
        params = {"name": "exec", "arguments": {"code": code}, **MODERN}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        text = json.dumps(message)
        headers = {**MODERN_HEADERS, "authorization": f"Bearer {self.token}"}
        headers |= {"mcp-method": "tools/call", "mcp-name": "exec"}
        return _answer(await self.http.post(self.url, content=text, headers=headers))


def _answer(response: httpx2.Response) -> dict[str, Any]:
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = text.rpartition("data: ")[2]
    found: dict[str, Any] = json.loads(text)
    return found
