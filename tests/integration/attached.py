"""A shared instance as a process, and clients that are attached to it without the relay of the product."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import anyio

from codemode_mcp import __version__
from codemode_mcp.process.instance import registry, wire
from tests.integration.harness import is_running

SECONDS = 30.0
"""Timeout of one step, in seconds. A busy machine needs many."""


class Instance:
    """A running instance, which is no child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    async def wait(self) -> None:
        """Wait until the process has ended."""
        with anyio.fail_after(SECONDS):
            while is_running(self.pid):  # noqa: ASYNC110 - a process that is no child sets no event
                await anyio.sleep(0.01)


@asynccontextmanager
async def instance(config: Path) -> AsyncIterator[Instance]:
    """Run the shared instance of a configuration file. It is stopped in the end."""
    with (config.parent / "instance.log").open("ab") as errors:
        starter = await anyio.open_process(_command(config), stdin=subprocess.DEVNULL, stderr=errors)
    async with starter:
        assert starter.stdout is not None
        with anyio.fail_after(SECONDS):
            assert (await starter.stdout.receive()).startswith(b"ready")
        record = registry.read_record(registry.key_of(config))
        assert record is not None
    running = Instance(record.pid)
    try:
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)
            await running.wait()


@contextmanager
def background_instance(config: Path) -> Iterator[Instance]:
    """Do the same as `instance`, for tests that are not asynchronous."""
    with (config.parent / "instance.log").open("ab") as errors:
        command = _command(config)
        out = subprocess.PIPE
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, timeout=SECONDS, check=True)
    record = registry.read_record(registry.key_of(config))
    assert record is not None
    try:
        yield Instance(record.pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while is_running(record.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_running(record.pid)


def _command(config: Path) -> list[str]:
    command = [sys.executable, "-m", "codemode_mcp", "instance", "run"]
    return [*command, "--key", registry.key_of(config), "--config", str(config), "--detach"]


class Attached:
    """A client that is attached to the instance, by lines.

    Attributes:
        notes: the notes of the instance for its relay, which come between the messages.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._id = 0
        self.notes: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        """Messages other than the awaited answers."""

    async def attach(
        self,
        config: Path,
        environ: Mapping[str, str],
        options: Mapping[str, Any],
        hello: Mapping[str, Any],
    ) -> None:
        """Send the first messages of a relay. `hello` replaces fields of the first one."""
        message = wire.attach_request(
            product=__version__,
            pid=os.getpid(),
            config=str(config),
            found=False,
            digest=None,
            folder=str(config.parent),
            options=options,
        )
        for each in ({**message, **hello}, {"environ": {**os.environ, **environ}}):
            await self.send(each)
            answer = await self.line()
            assert answer is not None
            assert answer["ok"], answer

    async def write(self, line: bytes) -> None:
        self._writer.write(line)
        await self._writer.drain()

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def note(self, note: Mapping[str, Any]) -> None:
        """Send a note of a relay."""
        await self.write(wire.encode_note(note))

    async def line(self) -> dict[str, Any] | None:
        """Return the next message of the instance, or None at the end."""
        while True:
            with anyio.fail_after(SECONDS):
                line = await self._reader.readline()
            if not line:
                return None
            if not line.startswith(wire.MARK):
                found: dict[str, Any] = json.loads(line)
                return found
            self.notes.append(wire.decode_note(line))

    async def answer(self, number: object) -> dict[str, Any]:
        """Return the answer to a request."""
        while (message := await self.line()) is not None:
            if message.get("id") == number and "method" not in message:
                return message
            self.others.append(message)
        raise EOFError

    async def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request. Return its id."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return self._id

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result."""
        answer = await self.answer(await self.start(method, params))
        result: dict[str, Any] = answer["result"]
        return result

    async def greet(self, capabilities: Mapping[str, Any] | None = None, *, name: str = "attached") -> Self:
        """Begin the MCP session."""
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities or {}, "clientInfo": info}
        await self.request("initialize", params)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def exec(self, code: str) -> dict[str, Any]:
        """Run a program and return the structured result."""
        result = await self.request("tools/call", {"name": "exec", "arguments": {"code": code}})
        found: dict[str, Any] = result["structuredContent"]
        return found

    async def leave(self) -> None:
        """Close the connection as a relay does whose client has left."""
        self._writer.write_eof()
        while await self.line() is not None:
            pass
        self._writer.close()

    def kill(self) -> None:
        """Close the connection as a relay does that is killed."""
        self._writer.transport.abort()


async def connect(config: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the instance of a configuration file."""
    record = registry.read_record(registry.key_of(config))
    assert record is not None
    return await asyncio.open_unix_connection(record.endpoint, limit=1 << 30)


@asynccontextmanager
async def attached(
    config: Path,
    *,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    hello: Mapping[str, Any] | None = None,
) -> AsyncIterator[Attached]:
    """Attach a client to the instance. The refusal of the instance is an `AssertionError`."""
    client = Attached(*await connect(config))
    try:
        await client.attach(config, environ or {}, options or {}, hello or {})
        yield client
    finally:
        client.kill()


@asynccontextmanager
async def greeted(config: Path, **options: Any) -> AsyncIterator[Attached]:
    """Attach a client, as `attached` does, and begin its MCP session."""
    async with attached(config, **options) as client:
        yield await client.greet()


@contextmanager
def killed_in_the_end(config: Path) -> Iterator[None]:
    """Kill the instance of a configuration file in the end, if a relay or a command has started one."""
    try:
        yield
    finally:
        key = registry.key_of(config)
        if registry.is_running(key) and (record := registry.read_record(key)) is not None:
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
