"""Servers that are forked from a process which has imported what they need: those of the MCP SDK, and our own.

Importing the SDK takes a second of processor time, and such servers are started a hundred times; importing our own
takes two thirds of what a test of it takes. This module is also the program of the processes that fork. They read
lines of JSON: the arguments of a new process, or the id of one that is killed. They answer with the id, in either case.
For processes with standard streams, they listen at a socket.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, Literal

import anyio

SECONDS = 60
"""Maximum time for the start of a server on a busy machine."""

_STDIO = (
    "anyio._backends._asyncio",
    "codemode_mcp.catalog.plugins.bundled",
    "codemode_mcp.catalog.plugins.host",
    "codemode_mcp.cli.deciding",
    "codemode_mcp.cli.serving",
    "codemode_mcp.process.app.app",
    "codemode_mcp.program.intl",
    "codemode_mcp.runs.calls.dispatch",
    "codemode_mcp.runs.manager",
    "codemode_mcp.server.code_mode",
    "codemode_mcp.server.control.answers",
    "codemode_mcp.server.control.server",
    "codemode_mcp.server.stdio",
    "codemode_mcp.stores.opening",
    "codemode_mcp.stores.runs",
    "codemode_mcp.stores.sqlite",
    "codemode_mcp.stores.values",
    "tree_sitter_typescript",
    "upstream_clients.connection",
    "upstream_clients.listing",
    "upstream_clients.pool",
)
_SDK = (
    "mcp.server.lowlevel",
    "mcp.server.mcpserver",
    "mcp.server.sse",
    "mcp.server.stdio",
    "mcp.server.subscriptions",
    "starlette.applications",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)

IMPORTED = {
    "sdk": _SDK,
    "stdio": _STDIO,
    "http": (*_STDIO, "codemode_mcp.server.http.listener", *_SDK),
}
"""Modules that servers of each kind import in any case, also those that uvicorn imports when it starts.

A process of ours behaves differently once OpenTelemetry or the SDK is imported, so `stdio` leaves them out.
"""


class SdkServer:
    """A process of a script that takes a port and further arguments, and prints a line when it serves.

    The port stays the same after a restart.
    """

    def __init__(self, script: Path, *arguments: str) -> None:
        from tests.ports import reserved_port  # the process that forks does not find it

        self.port = reserved_port()
        self._command = [str(script), str(self.port), *arguments]
        self._pid: int | None = None

    async def start(self) -> None:
        with anyio.fail_after(SECONDS):
            self._pid = await anyio.to_thread.run_sync(_forks("sdk").start, self._command, abandon_on_cancel=True)

    def send_signal(self, number: int) -> None:
        assert self._pid is not None
        os.kill(self._pid, number)

    async def kill(self) -> None:
        """Kill the process and wait for its end, if there is one."""
        if self._pid is not None:
            await anyio.to_thread.run_sync(_forks("sdk").kill, self._pid)
            self._pid = None


def forked(script: Path, *arguments: str) -> list[str]:
    """Return a command that has a script of standard streams forked, with few imports of its own."""
    return _command("sdk", str(script), *arguments)


def forked_serve(kind: Literal["stdio", "http"]) -> list[str]:
    """Return the beginning of a command line of `codemode-mcp serve`, for tests that are not about its process.

    The id of the process that it starts is not that of the server, and its variables for Python have no effect.
    """
    return _command(kind, "-m", "codemode_mcp", "serve")


def _command(kind: str, *command: str) -> list[str]:
    if not hasattr(os, "fork"):
        return [sys.executable, *command]
    forwarder = str(Path(__file__).with_name("forked.py"))
    return [sys.executable, "-I", "-S", forwarder, _forks(kind).path, *command]


class _Forks:
    """The process that forks, from the side of the tests."""

    def __init__(self, kind: str) -> None:
        self._folder = TemporaryDirectory(prefix="forks-")
        self.path = os.path.join(self._folder.name, "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen(100)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(number), kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[number],
            )
        self._lock = Lock()
        atexit.register(self._close)

    def start(self, command: list[str]) -> int:
        with self._lock:
            # The new process may say that it serves before its id is written.
            answers = {self._ask(command), self._read()}
        return int((answers - {"serving"}).pop())

    def kill(self, pid: int) -> None:
        with self._lock:
            self._ask(pid)

    def _ask(self, order: Any) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def _close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


_forks = cache(_Forks)


def main() -> None:
    assert isinstance(sys.stdout, TextIOWrapper)
    # With PYTHONUNBUFFERED, the end of a line is written apart, and the line of another process may come in between.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    for name in IMPORTED[sys.argv[2]]:
        import_module(name)
    gc.freeze()  # forked processes share these objects
    alive: set[int] = set()
    listener = socket.socket(fileno=int(sys.argv[1]))
    while True:
        ready, _, _ = select.select([sys.stdin, listener], [], [])
        if listener in ready:
            _accept(listener, alive)
        if sys.stdin not in ready:
            continue
        if not (line := sys.stdin.readline()):
            break
        match json.loads(line):
            case int(pid):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                alive.discard(pid)
            case command:
                if not (pid := os.fork()):
                    listener.close()
                    sys.stdin.close()
                    os._exit(_run(command))
                alive.add(pid)
        print(pid, flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _accept(listener: socket.socket, alive: set[int]) -> None:
    """Fork a server of standard streams, and forget those that have ended."""
    alive -= {pid for pid in alive if os.waitpid(pid, os.WNOHANG)[0]}
    connection, _ = listener.accept()
    with connection:
        place, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        while not place.endswith(b"\n"):
            place += connection.recv(1 << 16)
        if pid := os.fork():
            alive.add(pid)
            for stream in streams:
                os.close(stream)
            return
        listener.close()
        command, variables, folder = json.loads(place)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
        os.environ.clear()
        os.environ.update(variables)
        time.tzset()
        os.chdir(folder)
        connection.sendall(f"{os.getpid()}\n".encode())
        Thread(target=_end_with, args=(connection.dup(),), daemon=True).start()
        code = _run(command)
        connection.send(bytes([code]))
        connection.detach()  # it is closed by the end of this process
        sys.exit(code)


def _end_with(connection: socket.socket) -> None:
    """End this process when the other side of a connection has ended."""
    connection.recv(1)
    os._exit(1)


def _run(command: list[str]) -> int:
    """Run a script, or a module after `-m`, to its end. Return its exit code."""
    sys.argv = command[1:] if command[0] == "-m" else command
    sys.path.insert(0, "" if command[0] == "-m" else str(Path(command[0]).parent))
    try:
        if command[0] == "-m":
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


if __name__ == "__main__":
    main()
