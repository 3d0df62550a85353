"""A fake instance: threads and sockets, without code of the product on its side of the connection."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

BOUND = 20.0
"""Seconds for anything that a test waits for."""


class Connection:
    """A relay that has connected, as lines of bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(BOUND)
        self._reader = connection.makefile("rb")
        self.attach: dict[str, Any] = {}
        self.environ: dict[str, str] = {}
        OPENED.append(self)

    def receive(self) -> bytes:
        """Return the next line without its line feed; empty at the end."""
        try:
            return self._reader.readline().removesuffix(b"\n")
        except ConnectionResetError:
            return b""

    def receive_json(self) -> Any:
        line = self.receive()
        return json.loads(line.removeprefix(b"\x01")) if line else None

    def send(self, *lines: Any) -> None:
        """Send lines: bytes as they are, other values as JSON."""
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()
            self.socket.sendall(data + b"\n")

    def note(self, **note: Any) -> None:
        self.socket.sendall(b"\x01" + json.dumps(note).encode() + b"\n")

    def close(self) -> None:
        """End the connection, as a process that was killed."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError, ValueError):
            self._reader.close()
        self.socket.close()


OPENED: list[FakeInstance | Connection] = []
"""Everything that `close_all` closes at the end of a test."""


def close_all() -> None:
    """Close all fakes and their connections."""
    while OPENED:
        OPENED.pop().close()


class FakeInstance:
    """An instance that listens in a folder, and attaches every relay.

    Args:
        loopback: listen on a port with a token.
        refusals: answers to the first connections, instead of attaching them.
        behave: called with each connection instead of the handshake after the proofs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        loopback: bool = False,
        refusals: tuple[dict[str, Any], ...] = (),
        behave: Callable[[Connection], object] | None = None,
        name: str = "fake",
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.relays: queue.Queue[Connection] = queue.Queue()
        self.connections = 0
        self._refusals = list(refusals)
        self._behave = behave
        self.token = secrets.token_hex(32) if loopback else None
        self.listener = socket.socket(socket.AF_INET if loopback else socket.AF_UNIX)
        if self.token is not None:
            self.listener.bind(("127.0.0.1", 0))
            self.path = folder / f"{name}.json"
            text = json.dumps({"port": self.listener.getsockname()[1], "token": self.token})
            with open(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        else:
            self.path = folder / f"{name}.sock"
            self.listener.bind(os.fspath(self.path))
        self.listener.listen(64)
        OPENED.append(self)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def record(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "version": "0.1.0", "endpoint": str(self.path)}

    def relay(self) -> Connection:
        """Return the next relay that has attached."""
        return self.relays.get(timeout=BOUND)

    def close(self) -> None:
        """Stop listening, as a process that was killed: the file of the endpoint stays."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(Connection(connection),), daemon=True).start()

    def _serve(self, relay: Connection) -> None:
        with suppress(OSError, ValueError):
            if self.token is not None and not self._prove(relay, self.token):
                relay.close()
                return
            if self._behave is not None:
                self._behave(relay)
                return
            relay.attach = relay.receive_json()
            if self._refusals:
                relay.send(self._refusals.pop(0))
                relay.close()
                return
            relay.send({"ok": True, "product": "0.1.0", "pid": 4711})
            relay.environ = relay.receive_json()["environ"]
            relay.send({"ok": True, "key": "k"})
            self.relays.put(relay)

    def _prove(self, relay: Connection, token: str) -> bool:
        ours = secrets.token_hex(16)
        relay.send({"nonce": ours})
        given = relay.receive_json()
        if not given or given["proof"] != made_proof(token, "client", ours, given["nonce"]):
            return False
        relay.send({"proof": made_proof(token, "server", ours, given["nonce"])})
        return True


def made_proof(token: str, *parts: str) -> str:
    return hmac.new(token.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()
