"""The relay between an MCP client on standard input and output and the shared instance.

It passes lines on. `relayed_session` knows which requests are open, so that the client loses nothing when the instance
ends: the relay attaches to the next instance, which is started if needed, and brings the session there.

Two threads do this, because the standard streams of Windows cannot be polled. The main thread reads the instance, and
alone writes to the client. The other thread reads the client. Blocking writes pass back pressure on in both directions.

Invariants:

- A line of the client is registered before it is sent, so no request is forgotten.
- `_sending` is held from the registration of a line until it is sent, and for all of a recovery. So the next instance
  gets repeated and new lines in order.
- While an instance lives, the main thread never waits for the other thread. It would not read meanwhile, so the
  instance could not write, would not read either, and the other thread could not send.
- For the same reason, the main thread reads while it repeats lines to the next instance.
- A thread that sends to an instance which no longer reads is woken by `shutdown`, before `_sending` is needed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from codemode_mcp.process.instance import attaching, wire
from codemode_mcp.process.instance.relayed_session import RelayedSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from codemode_mcp.process.instance.attaching import Attached

READ_BYTES: Final = 64 * 1024
"""Maximum bytes of one read. Larger buffers take longer to allocate than to fill: a pipe holds as many."""

MAX_LINE: Final = 256 * 1024 * 1024
"""Bytes of a line that are held until its end. The bytes of a longer line are passed on as they come, unread."""

STABLE_SECONDS: Final = 10.0
"""Life of an instance after which its end is not counted with earlier ones. An answer to the client counts as much."""

MAX_PAUSE_SECONDS: Final = 5.0
"""Maximum pause before a client is attached to another instance. The pause grows while instances end soon."""

SIGNAL_SECONDS: Final = 5.0
"""Time after a signal in which the instance may send its last messages."""

SAME_SIGNAL_SECONDS: Final = 1.0
"""Time after the first signal in which another one is the same signal, sent to the process and to its group."""


class _ClientGone(Exception):
    """The client does not read any more."""


class Relay:
    """A client and its instance.

    Args:
        source: the descriptor that the client writes to.
        sink: the descriptor that the client reads from.
        attach: returns a connection to an instance. Raises `NoInstance` or `Refused`.
        say: prints a line for the user.
        leave: ends the process with an exit code.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        attach: Callable[[], Attached],
        say: Callable[[str], None],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._source = source
        self._sink = sink
        self._attach = attach
        self._say = say
        self._leave = leave
        self._sending = threading.Condition()
        self._connection: socket.socket | None = None
        self._woken: socket.socket | None = None  # can be read after a signal
        self._leaving = False  # the instance takes no more lines
        self._ended = False  # the client has closed its input, or a signal has come
        self._state = threading.Lock()
        self._session = RelayedSession()  # used with `_state`
        # The instances that have ended soon, without an answer to the client in between.
        self._attached_at = 0.0
        self._answered = 0
        self._first_end = 0.0
        self._ends = 0

    def run(self, attached: Attached) -> int:
        """Pass lines on until the instance has ended the session of the client. Return the exit code."""
        self._connection = attached.connection
        self._attached_at = time.monotonic()
        threading.Thread(target=self._read_client, name="client", daemon=True).start()
        try:
            while True:
                self._read_instance(attached)
                if self._ended:
                    return 0
                attached = self._recover()
        except _ClientGone:
            return 0
        except (attaching.NoInstance, attaching.Refused) as error:
            self._say(f"the shared instance has ended, and no other one could be started: {error}")
            with suppress(_ClientGone):
                self._write(self._session.give_up(str(error)))
            return 1
        finally:
            if self._connection is not None:
                _close(self._connection)

    def wake_by(self, woken: socket.socket) -> None:
        """Interrupt the reading of the instance when this socket can be read, so that signal handlers run."""
        self._woken = woken

    def end(self) -> None:
        """End as if the client had closed its input. A signal handler may call this: it takes no lock."""
        self._ended = True
        connection = self._connection
        if connection is None:
            self._leave(0)
        else:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    # from the client to the instance

    def _read_client(self) -> None:
        lines = _Splitter()
        while data := _read(self._source):
            for line, is_whole in lines.split(data):
                self._pass_on(line, is_whole=is_whole)
        if lines.rest:
            self._pass_on(lines.rest, is_whole=True)
        self._ended = True
        # If an instance is being attached to, `_recover` closes the sending side.
        if self._connection is None and self._is_done():
            self._leave(0)
        with self._sending:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_WR)

    def _pass_on(self, line: bytes, *, is_whole: bool) -> None:
        with self._sending:
            while self._connection is None or self._leaving:
                self._sending.wait()
            if not is_whole:
                self._send(line)
                return
            with self._state:
                outgoing = self._session.from_client(line)
            if outgoing is not None and self._send(outgoing.line + b"\n"):
                with self._state:
                    self._session.sent(outgoing.key)

    def _send(self, data: bytes) -> bool:
        """Send data to the instance. Return False if it has gone: the main thread notices this too, and recovers."""
        assert self._connection is not None
        try:
            self._connection.sendall(data)
        except OSError:
            return False
        return True

    # from the instance to the client

    def _read_instance(self, attached: Attached) -> None:
        lines = _Splitter()
        data = attached.received
        is_incomplete = False
        while True:
            passed = []
            for line, is_whole in lines.split(data):
                is_incomplete = not is_whole and not line.endswith(b"\n")
                if not is_whole:
                    passed.append(line)
                elif line.startswith(wire.MARK):
                    self._take_note(line)
                else:
                    with self._state:
                        shown = self._session.from_instance(line)
                    if shown is not None:
                        passed += [shown, b"\n"]
            if passed:
                self._write_bytes(b"".join(passed))
            try:
                self._wait_for(attached.connection)
                data = attached.connection.recv(READ_BYTES)
            except (OSError, ValueError):  # ValueError: the other thread has closed it
                data = b""
            if not data:
                break
        # The rest of an incomplete line is of no use. But if its beginning was passed on, it has to end.
        if is_incomplete:
            self._write_bytes(b"\n")

    def _wait_for(self, connection: socket.socket) -> None:
        """Wait until a connection can be read.

        A signal that comes right before a blocking `recv` would not interrupt it, and its handler would have to wait.
        """
        while self._woken is not None:
            readable, _, _ = select.select([connection, self._woken], [], [])
            if self._woken in readable:
                self._woken.recv(READ_BYTES)
            if connection in readable:
                return

    def _take_note(self, line: bytes) -> None:
        if len(line) > wire.MAX_NOTE:
            return
        note = wire.decode_note(line)
        if isinstance(text := note.get("log"), str):
            with suppress(OSError, ValueError):
                sys.stderr.write(text + "\n")
                sys.stderr.flush()
        elif "leaving" in note:
            self._leaving = True
        else:
            with self._state:
                self._session.note(note)

    def _write(self, lines: Iterable[bytes]) -> None:
        self._write_bytes(b"".join(line + b"\n" for line in lines))

    def _write_bytes(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
            except BlockingIOError:
                select.select([], [self._sink], [])
            except OSError:
                raise _ClientGone from None

    # after the end of an instance

    def _recover(self) -> Attached:
        """Bring the session to another instance. Raises `NoInstance`, `Refused` or `_ClientGone`."""
        old = self._connection
        assert old is not None
        with suppress(OSError):
            old.shutdown(socket.SHUT_RDWR)
        with self._sending:
            self._connection = None
            old.close()
            with self._state:
                withdrawn = self._session.instance_ended()
            self._write(withdrawn)
            while True:
                self._pause()
                if self._is_done():
                    raise _ClientGone
                attached = self._attach()
                self._attached_at = time.monotonic()
                if (received := self._replay(attached.connection)) is not None:
                    attached = attached._replace(received=attached.received + received)
                    break
                attached.connection.close()
            self._connection, self._leaving = attached.connection, False
            if self._ended:
                with suppress(OSError):
                    attached.connection.shutdown(socket.SHUT_WR)
            self._sending.notify_all()
            return attached

    def _replay(self, connection: socket.socket) -> bytes | None:
        """Send the state of the session to another instance. Return what the instance has sent meanwhile.

        Return None if that instance has gone too.
        """
        with self._state:
            lines, answers = self._session.replay()
        self._write(answers)
        received: list[bytes] = []
        try:
            connection.setblocking(False)
            for outgoing in lines:
                _send_and_receive(connection, outgoing.line + b"\n", received)
                with self._state:
                    self._session.sent(outgoing.key)
            connection.setblocking(True)
        except (OSError, EOFError):
            return None
        return b"".join(received)

    def _pause(self) -> None:
        """Wait for a moment if one instance after another ends before it is of use. Raises `NoInstance`."""
        now = time.monotonic()
        with self._state:
            answered = self._session.answered
        if answered != self._answered or now - self._attached_at > STABLE_SECONDS or self._ends == 0:
            self._ends, self._first_end, self._answered = 0, now, answered
        self._ends += 1
        if now - self._first_end > attaching.START_SECONDS:
            raise attaching.NoInstance(f"{self._ends} of them have ended within {now - self._first_end:.0f} s")
        if self._ends > 1:
            time.sleep(min(MAX_PAUSE_SECONDS, attaching.PAUSE_SECONDS * 2**self._ends))

    def _is_done(self) -> bool:
        """Return True if the client has left, and waits for no answer."""
        with self._state:
            return self._ended and not self._session.awaits_answers


class _Splitter:
    """The lines in a stream of bytes.

    Attributes:
        rest: the incomplete last line.
    """

    def __init__(self) -> None:
        # Parts of a line are joined once, so that a long line takes linear time.
        self._parts: list[bytes] = []
        self._size = 0
        self._is_long = False

    @property
    def rest(self) -> bytes:
        return b"".join(self._parts)

    def split(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each line that the data completes, without its line feed, and True.

        Of a line that is longer than `MAX_LINE`, yield the parts as they come, and False. The last part has the line
        feed.
        """
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._is_long:
                yield line + b"\n", False
            else:
                yield b"".join((*self._parts, line)), True
            self._parts, self._size, self._is_long = [], 0, False
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._is_long or self._size > MAX_LINE:
                # A blank before a mark makes the line invalid, so that it is not taken for a note.
                prefix = b" " if not self._is_long else b""
                yield prefix + self.rest, False
                self._parts, self._size, self._is_long = [], 0, True


def _read(source: int) -> bytes:
    while True:
        try:
            return os.read(source, READ_BYTES)
        except BlockingIOError:
            select.select([source], [], [])
        except OSError:
            return b""


def _send_and_receive(connection: socket.socket, data: bytes, received: list[bytes]) -> None:
    """Send data on a connection that does not block. Meanwhile, add what comes from the other side to `received`.

    An instance stops reading too if its answers are not read.

    Raises:
        OSError, EOFError: the other side has gone.
    """
    rest = memoryview(data)
    while True:
        with suppress(BlockingIOError):
            rest = rest[connection.send(rest) :]
        if not rest:
            return
        readable, _, _ = select.select([connection], [connection], [])
        if readable:
            received.append(connection.recv(READ_BYTES))
            if not received[-1]:
                raise EOFError


def _close(connection: socket.socket) -> None:
    """End a connection in both directions. A thread that uses it gets an error."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def end_on_signals(relay: Relay) -> None:
    """Let SIGTERM and SIGINT end a relay, the second signal immediately. Call this in the main thread.

    SIGHUP is ignored, unless it means that the terminal was closed.
    """
    if sys.platform == "win32":
        return

    first: float | None = None

    def stop(number: int, _: object) -> None:
        nonlocal first
        if first is not None:
            if time.monotonic() - first > SAME_SIGNAL_SECONDS:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        first = time.monotonic()
        timer = threading.Timer(SIGNAL_SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()
        relay.end()

    woken, waker = socket.socketpair()
    waker.setblocking(False)
    relay.wake_by(woken)
    signal.set_wakeup_fd(waker.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if not os.isatty(0):
        # A private server reads its configuration again. The instance notices changed files by itself.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
