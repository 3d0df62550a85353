"""Forks the processes under test: it has imported everything, and has no thread, no event loop and no engine.

On its socket come lines of JSON, each answered by the id of a process: a `Task`, with the socket of the new process, or
the id of one that is ending. Until then no other process has that id.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from tests.crashes import worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crashes.worker import Task


class Nursery:
    """The other end. Use `nursery`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def bear(self, task: Task) -> tuple[int, socket.socket]:
        """A new process; its id, and the socket on which it takes commands."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [json.dumps(asdict(task)).encode() + b"\n"], [theirs.fileno()])
            return self._answer(), ours

    def bury(self, pid: int) -> None:
        """One that has been killed."""
        self._control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        self._answer()

    def _answer(self) -> int:
        return int.from_bytes(self._control.recv(8, socket.MSG_WAITALL))


@contextmanager
def nursery() -> Iterator[Nursery]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.crashes.nursery", str(theirs.fileno())]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL) as process:
        theirs.close()
        try:
            yield Nursery(ours)
        finally:
            ours.close()
            process.wait(30)


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is there now is not looked at again, so that the pages stay shared.
    gc.freeze()
    while True:
        line, files, _, _ = socket.recv_fds(control, 1 << 20, 1)
        if not line:
            return 0
        given = json.loads(line)
        if "pid" in given:
            pid, _ = os.waitpid(given["pid"], 0)
        else:
            pid = _bear(control, files[0], worker.Task(**given))
            os.close(files[0])
        control.sendall(pid.to_bytes(8))


def _bear(control: socket.socket, file: int, task: Task) -> int:
    if pid := os.fork():
        return pid
    # Whatever happens here, this process must not continue as its parent.
    try:
        control.close()
        worker.run(socket.socket(fileno=file), task)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
