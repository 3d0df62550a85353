"""An MCP client of one serving process, which checks that each of its requests gets exactly one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.faults.histories import Broken

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
MAX_LINE: Final = 1 << 24


class Gone(Exception):
    """Error for a request whose process has ended."""


class LineClient:
    """One process, mostly a relay, and the client on its standard streams.

    All clients use the same request ids, so an answer at a wrong client is not ignored for its id.

    Args:
        token: the secret of the client. Everything that the client gets about programs must contain it.
        modern: speak the revision without sessions.

    Attributes:
        replaced: another relay is started, or was started, in its place.
        has_successor: set when that relay serves the client.
        ending: the campaign has ended the relay, or lets it end.
        faults: broken promises.
    """

    def __init__(self, token: str, *, modern: bool, process: asyncio.subprocess.Process, stderr: Path) -> None:
        self.token = token
        self.modern = modern
        self.process = process
        self.stderr = stderr
        self.ending = False
        self.replaced = False
        self.has_successor = asyncio.Event()
        self.faults: list[str] = []
        self._ids = 0
        self._open: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._cancelled: set[Any] = set()
        self._reading = asyncio.create_task(self._read())

    @staticmethod
    async def start(
        command: Sequence[str], environ: Mapping[str, str], token: str, stderr: Path, *, modern: bool
    ) -> LineClient:
        """Start a process, and greet the server."""
        with stderr.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environ,
                cwd=stderr.parent,
                limit=MAX_LINE,
            )
        client = LineClient(token, modern=modern, process=process, stderr=stderr)
        if not modern:
            info = {"name": "chaos", "version": "1"}
            await client.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info})
            client._send({"method": "notifications/initialized"})
        return client

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def open_requests(self) -> list[Any]:
        """The ids of the requests without an answer."""
        return list(self._open)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the whole answer to a request, which is cancelled with its task. Raises `Gone`."""
        self._ids += 1
        number = self._ids if self._ids % 2 else str(self._ids)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        meta: dict[str, Any] = {}
        if method == "tools/call":
            meta["progressToken"] = f"{self.token} {self._ids}"
        if self.modern:
            prefix = "io.modelcontextprotocol"
            meta |= {f"{prefix}/protocolVersion": MODERN, f"{prefix}/clientCapabilities": {}}
            meta[f"{prefix}/clientInfo"] = {"name": "chaos", "version": "1"}
        if self._reading.done():
            del self._open[number]
            raise Gone
        self._send({"id": number, "method": method, "params": {**params, **({"_meta": meta} if meta else {})}})
        try:
            return await answer
        except asyncio.CancelledError:
            if self._open.pop(number, None) is not None:
                self._cancelled.add(number)
                self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise

    async def close(self, seconds: float) -> int:
        """Close the input of the process, and return its exit code."""
        self.ending = True
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(seconds):
            return await self.wait()

    async def wait(self) -> int:
        """Return the exit code of the process after its last line is read."""
        await self._reading
        code = await self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(OSError):
            await self.process.stdin.wait_closed()
        return code

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ConnectionError):
            while line := await self.process.stdout.readline():
                if not line.endswith(b"\n"):
                    break  # the relay was killed while it wrote
                self._take(json.loads(line))
        if not self.ending:
            code, said = await self.process.wait(), self.stderr.read_text("utf-8")[-1000:]
            self.faults.append(f"the relay {self.pid} of {self.token} has ended with {code}: {said}")
        opened, self._open = self._open, {}
        for answer in opened.values():
            if not answer.done():
                answer.set_exception(Gone())
                answer.exception()  # the requester may have gone

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            if message["method"] == "notifications/progress":
                self._check_progress(message["params"])
            elif "id" in message:
                self._send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            return
        answer = self._open.pop(message.get("id"), None)
        if answer is None and message.get("id") in self._cancelled:
            self._cancelled.discard(message.get("id"))
        elif answer is None:
            self.faults.append(f"{self.token} has got an answer that it does not wait for: {str(message)[:500]}")
        elif not answer.done():
            answer.set_result(message)

    def _check_progress(self, params: dict[str, Any]) -> None:
        told = f"{params.get('progressToken')} {params.get('message', '')}"
        if not str(params.get("progressToken")).startswith(self.token):
            self.faults.append(f"{self.token} has got progress of another client: {told}")


def check(client: LineClient) -> None:
    """Raise `Broken` if a client has seen a broken promise."""
    if client.faults:
        raise Broken("; ".join(client.faults[:5]))
