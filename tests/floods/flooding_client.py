"""A client that floods the shared instance: `python -m tests.floods.flooding_client KIND CONFIG`, until it is killed.

It prints a line when it has begun.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.instance import attaching, registry

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

WINDOW: Final = 200
"""Requests without an answer at the same time."""

LONG_LINE: Final = 100_000_000
LARGE: Final = "text('x'.repeat(30000))"
"""A program with a large answer."""


class _Requests:
    """Requests as lines, with ids of their own."""

    def __init__(self) -> None:
        self._ids = 0

    def line(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        return json.dumps(message).encode() + b"\n"

    def exec(self, code: str) -> bytes:
        return self.line("tools/call", {"name": "exec", "arguments": {"code": code}})

    def greeting(self) -> bytes:
        info = {"name": "flood", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        return self.line("initialize", params) + b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def pings(requests: _Requests) -> Iterator[bytes]:
    while True:
        yield requests.line("ping")


def programs(requests: _Requests) -> Iterator[bytes]:
    while True:
        yield requests.exec("return 1")


def computing(requests: _Requests) -> Iterator[bytes]:
    while True:
        yield requests.exec("for (;;) {}")


def calls(requests: _Requests) -> Iterator[bytes]:
    while True:
        yield requests.exec("return (await Promise.all([...'0123456789'].map(() => MCP.calm.quick({})))).length")


def lines(requests: _Requests) -> Iterator[bytes]:
    """Send long lines."""
    while True:
        yield requests.line("ping", {"_meta": {"filler": "x" * LONG_LINE}})


ANSWERED: Final[dict[str, Callable[[_Requests], Iterator[bytes]]]] = {
    "pings": pings,
    "programs": programs,
    "computing": computing,
    "calls": calls,
    "lines": lines,
}
"""The floods by a client that reads its answers, with at most `WINDOW` requests at the same time."""

KINDS: Final = (*ANSWERED, "unread", "stopped relay")
"""All floods. Two clients do not read their answers: one has no relay, and the relay of the other one is stopped."""


def _attach(config: Path) -> socket.socket:
    client = attaching.Client(str(config), found=False, folder=str(config.parent), options={"logLevel": "error"})
    return attaching.attach(registry.key_of(config), client, dict(os.environ)).connection


def flood_and_read(kind: str, config: Path) -> None:
    connection, requests = _attach(config), _Requests()
    places = threading.Semaphore(2 if kind == "lines" else WINDOW)

    def read() -> None:
        for line in connection.makefile("rb"):
            if b'"id":' in line and b'"method"' not in line[:60] and not line.startswith(b"\x01"):
                places.release()

    threading.Thread(target=read, daemon=True).start()
    connection.sendall(requests.greeting())
    print("flooding", flush=True)
    for line in ANSWERED[kind](requests):
        places.acquire()
        connection.sendall(line)


def flood_unread(config: Path) -> None:
    connection, requests = _attach(config), _Requests()
    connection.sendall(requests.greeting())
    print("flooding", flush=True)
    while True:
        connection.sendall(requests.exec(LARGE))  # blocks, once the instance reads no more of them


def flood_by_stopped_relay(config: Path) -> None:
    command = [sys.executable, "-m", "codemode_mcp", "serve", "--config", str(config)]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert relay.stdin is not None
        assert relay.stdout is not None
        requests = _Requests()
        relay.stdin.write(requests.greeting())
        relay.stdin.flush()
        relay.stdout.readline()
        for _ in range(WINDOW):
            relay.stdin.write(requests.exec(LARGE))
        relay.stdin.flush()
        relay.send_signal(signal.SIGSTOP)
        print("flooding", flush=True)
        time.sleep(3600)
    finally:
        relay.kill()
        relay.wait()


def main() -> None:
    kind, config = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match kind:
        case "unread":
            flood_unread(config)
        case "stopped relay":
            flood_by_stopped_relay(config)
        case _:
            flood_and_read(kind, config)


if __name__ == "__main__":
    main()
