"""A client of MCP that writes and reads lines of JSON, in both eras, so that nothing of an answer is lost or added.

A client of the handshake revisions (`legacy`) answers questions that a server sends as requests. A client of 2026-07-28
(`modern`) repeats its request with the answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc

from tests.integration.harness import SECONDS

Era = Literal["legacy", "modern"]
Json = dict[str, Any]

PREFIX = "io.modelcontextprotocol/"
VERSIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
CLIENT = {"name": "matrix", "version": "1"}
EXTENSIONS: Json = {f"{PREFIX}ui": {"mimeTypes": ["text/html;profile=mcp-app"]}, f"{PREFIX}tasks": {}}
ROOT = "files/root"
"""The only root of a client, within its own folder. It exists, since some servers leave out others."""
SAMPLE: Json = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "none"}
CHANGES = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")


class Refused(Exception):
    """An answer that is a JSON-RPC error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.error = error


@dataclass(eq=False)
class Wire:
    """One connection to a server over stdio.

    Attributes:
        root: the only root of this client.
        server: the result of `initialize` or `server/discover`.
        questions: requests of the server to this client, in either form, in order.
        notifications: all notifications so far.
        stderr: file with the error output of the server.
    """

    process: Any
    era: Era
    stderr: Path
    root: Path
    server: Json = field(default_factory=dict)
    questions: list[Json] = field(default_factory=list)
    notifications: list[Json] = field(default_factory=list)
    _waiting: dict[Any, Json | None] = field(default_factory=dict)
    _news: anyio.Event = field(default_factory=anyio.Event)
    _last: int = 0
    ended: bool = False

    async def read(self) -> None:
        """Take messages of the server until it ends."""
        rest = b""
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                rest += await self.process.stdout.receive()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if line.strip():
                        await self._take(json.loads(line))
                self._tell()
        self.ended = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _take(self, message: Json) -> None:
        if "method" not in message:
            if message.get("id") in self._waiting:
                self._waiting[message["id"]] = message
        elif "id" in message:
            answer = self.answer(message)
            await self.write(id=message["id"], **answer)
        else:
            self.notifications.append(message)

    def answer(self, question: Json) -> Json:
        method, params = question["method"], question.get("params") or {}
        if method == "ping":
            return {"result": {}}
        self.questions.append({"method": method, "params": {k: v for k, v in params.items() if k != "_meta"}})
        match method:
            case "roots/list":
                return {"result": {"roots": [{"uri": self.root.as_uri(), "name": "matrix"}]}}
            case "sampling/createMessage":
                return {"result": SAMPLE}
            case "elicitation/create":
                if params.get("mode") == "url":
                    return {"result": {"action": "accept"}}
                fields = (params.get("requestedSchema") or {}).get("properties") or {}
                return {"result": {"action": "accept", "content": {n: sample(f) for n, f in fields.items()}}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    async def write(self, **message: Any) -> None:
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def begin(self, method: str, params: Json | None = None, **meta: Any) -> int:
        """Send a request and return its id, without waiting for the answer."""
        self._last += 1
        self._waiting[self._last] = None
        params = dict(params or {})
        meta = {**params.pop("_meta", {}), **meta}
        if self.era == "modern":
            capabilities = {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
            meta[f"{PREFIX}protocolVersion"] = VERSIONS["modern"]
            meta[f"{PREFIX}clientInfo"] = CLIENT
            meta[f"{PREFIX}clientCapabilities"] = {**capabilities, "extensions": EXTENSIONS}
        if meta:
            params["_meta"] = meta
        await self.write(id=self._last, method=method, params=params)
        return self._last

    async def end_of(self, request: int, seconds: float = 2 * SECONDS) -> Json:
        """Return the result of a request.

        Raises:
            Refused: the answer is an error.
            TimeoutError: there is no answer in time, or the server has ended.
        """
        with anyio.fail_after(seconds):
            while (answer := self._waiting[request]) is None:
                if self.ended:
                    raise TimeoutError("the server has ended")
                await self._news.wait()
        del self._waiting[request]
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    async def request(self, method: str, params: Json | None = None, **meta: Any) -> Json:
        """Return the result of a request, after all its questions are answered."""
        params = dict(params or {})
        for _ in range(10):
            result = await self.end_of(await self.begin(method, params, **meta))
            if result.get("resultType") != "input_required":
                return result
            asked = result.get("inputRequests") or {}
            params["inputResponses"] = {key: self.answer(question)["result"] for key, question in asked.items()}
            params.pop("requestState", None)
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise TimeoutError("a server asks again and again")

    async def pages(self, method: str, member: str) -> list[Json]:
        """Return all items of a list."""
        items: list[Json] = []
        cursor: Json = {}
        for _ in range(100):
            result = await self.request(method, cursor)
            items += result.get(member, [])
            if not result.get("nextCursor"):
                return items
            cursor = {"cursor": result["nextCursor"]}
        raise TimeoutError(f"{method} has more than 100 pages")

    async def until(self, method: str, count: int = 1, seconds: float = SECONDS) -> list[Json]:
        """Return the params of notifications of one method, when there are `count` of them or no more come in time."""
        with anyio.move_on_after(seconds):
            while len(self.noted(method)) < count and not self.ended:
                await self._news.wait()
        return self.noted(method)

    def noted(self, method: str) -> list[Json]:
        """Return the params of all notifications of one method so far, without the id of a subscription."""
        found = [dict(each.get("params") or {}) for each in self.notifications if each["method"] == method]
        for params in found:
            meta = {k: v for k, v in params.pop("_meta", {}).items() if k != f"{PREFIX}subscriptionId"}
            if meta:
                params["_meta"] = meta
        return found

    async def listen(self, *uris: str) -> int | None:
        """Subscribe to changes of all lists and to updates of resources. Return the id of the open request, if any."""
        if self.era == "legacy":
            for uri in uris:
                await self.request("resources/subscribe", {"uri": uri})
            return None
        wanted = {**dict.fromkeys(CHANGES, True), "resourceSubscriptions": list(uris)}
        before = len(self.noted("notifications/subscriptions/acknowledged"))
        request = await self.begin("subscriptions/listen", {"notifications": wanted})
        with anyio.fail_after(SECONDS):
            while len(self.noted("notifications/subscriptions/acknowledged")) == before:
                if self._waiting[request] is not None:
                    await self.end_of(request)
                await self._news.wait()
        return request

    async def cancel(self, request: int) -> None:
        await self.write(method="notifications/cancelled", params={"requestId": request, "reason": "a test"})


def sample(schema: Json) -> Any:
    """Return a value that fits the schema of a field of a form."""
    if "default" in schema:
        return schema["default"]
    choices = schema.get("enum") or [each["const"] for each in schema.get("oneOf") or schema.get("anyOf") or ()]
    if choices:
        return choices[0]
    match schema.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return schema.get("minimum", 7)
        case "array":
            return [sample(schema.get("items") or {})]
    match schema.get("format"):
        case "email":
            return "ada@example.org"
        case "uri":
            return "https://example.org/"
        case "date":
            return "2026-01-02"
        case "date-time":
            return "2026-01-02T03:04:05Z"
    return "Ada Lovelace"


@asynccontextmanager
async def connected(command: Sequence[str], era: Era, folder: Path, **env: str) -> AsyncIterator[Wire]:
    """Yield a client that is connected to the process of a command."""
    path = folder / f"stderr-{os.urandom(4).hex()}"
    with path.open("wb") as errors:
        process = await anyio.open_process(list(command), stderr=errors, env={**os.environ, **env}, cwd=folder)
    (root := folder / ROOT).mkdir(parents=True, exist_ok=True)
    wire = Wire(process, era, path, root)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.read)
            if era == "legacy":
                capabilities: Json = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}
                capabilities["elicitation"]["url"] = {}
                hello = {"protocolVersion": VERSIONS[era], "clientInfo": CLIENT}
                hello["capabilities"] = {**capabilities, "extensions": EXTENSIONS}
                wire.server = await wire.request("initialize", hello)
                await wire.write(method="notifications/initialized")
            else:
                wire.server = await wire.request("server/discover")
            yield wire
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await process.stdin.aclose()
            with anyio.move_on_after(10):
                await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
