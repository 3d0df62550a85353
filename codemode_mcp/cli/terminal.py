"""The terminal while a program runs: its output, a progress line below it, and questions, never mixed up.

A thread writes everything, in the order of the calls. So a program waits neither for a slow reader of its output, such
as a pager, nor for a person who thinks about a question. While a question is shown, nothing else is written.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import TextIOBase
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Protocol, TextIO, cast

from codemode_mcp.base.nesting import DEPTH_VARIABLE
from codemode_mcp.cli.messages import escape

TICK_SECONDS: Final = 0.1
"""Interval between updates of the progress line."""

SETTLE_SECONDS: Final = 1.5
"""Delay before an answer is read after a withdrawn question. The person may still be typing the previous answer."""

LEAVE_SECONDS: Final = 1.0
"""Timeout for writing the rest of the output after the command was interrupted."""


def is_at_terminal() -> bool:
    """Return True if standard input and stderr are terminals, so that a person can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_attended() -> bool:
    """Return True if a person can be asked for approvals.

    Only a person who sees the question at a terminal is asked. A process that an upstream server of codemode-mcp has
    started never asks.
    """
    return is_at_terminal() and DEPTH_VARIABLE not in os.environ


def forget_typed() -> None:
    """Discard input that was typed or pasted before a question, because it is no answer to the question."""
    try:
        import termios
    except ImportError:  # Windows
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class Question:
    """A question for `Screen.ask`.

    Attributes:
        on_answer: called in the thread of the screen once `answer` is set.
        withdrawn: set when the answer is no longer needed.
        answer: the line that was typed; empty if there was none.
    """

    def __init__(self, text: str, on_answer: Callable[[], None]) -> None:
        self.text = text
        self.on_answer = on_answer
        self.withdrawn = threading.Event()
        self.answer = ""

    def __repr__(self) -> str:
        return f"<Question: {self.text[:40]!r}>"


class Terminal(Protocol):
    """The terminal of a program: a `Screen`, or the one of a command that the shared instance runs.

    Attributes:
        status: the text of the progress line; empty for no line.
    """

    status: str

    @property
    def width(self) -> int: ...

    def print(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def ask(self, question: Question) -> None: ...

    def withdraw(self, question: Question) -> None: ...


class Screen:
    """The writer of output, messages and questions. On exit it writes everything left and clears the progress line.

    Args:
        out: the stream for output.
        err: the stream for everything else. The progress line is shown only if `err` is a terminal.

    Attributes:
        status: the current text of the progress line, without a line end; empty for no line.
        draws: whether the progress line is shown.
        gone: the error that ended the output, if any.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        self.status = ""
        self.draws = self._err.isatty()
        self._escapes = self._out.isatty()
        self._queue: SimpleQueue[tuple[TextIO, str] | Question | None] = SimpleQueue()
        self._stderr: TextIO | None = None
        self._drawn = ""
        self._withdrawn = False
        self.gone: OSError | None = None
        self._on_gone: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._write_all, name="screen", daemon=True)

    def __repr__(self) -> str:
        return f"<Screen: {self._queue.qsize()} queued>"

    def __enter__(self) -> Screen:
        self._thread.start()
        if self.draws:
            self._stderr, sys.stderr = sys.stderr, cast("TextIO", _ScreenStream(self, self._err.encoding or "utf-8"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stderr is not None:
            sys.stderr.close()
            sys.stderr = self._stderr
        self._queue.put(None)
        self._thread.join(None if error is None else LEAVE_SECONDS)
        if error is None and self.gone is not None:
            raise self.gone

    @property
    def width(self) -> int:
        try:
            return max(20, os.get_terminal_size(self._err.fileno()).columns or 80) - 1
        except (OSError, ValueError):
            return 79

    @property
    def is_stuck(self) -> bool:
        """True if output is not yet written, because its reader does not read."""
        return self._thread.is_alive()

    def print(self, text: str) -> None:
        """Print output. On a terminal, characters that move the cursor or are invisible are escaped."""
        self._queue.put((self._out, escape(text) if self._escapes else text))

    def say(self, text: str) -> None:
        """Print a message for a person, after the earlier output. Messages may quote programs and logs of servers."""
        self._queue.put((self._err, escape(text) if self.draws else text))

    def ask(self, question: Question) -> None:
        self._queue.put(question)

    def withdraw(self, question: Question) -> None:
        question.withdrawn.set()

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Set a function to call when output can no longer be written. `__exit__` then raises the `OSError`."""
        self._on_gone = callback
        if self.gone is not None:
            callback()

    # All methods below run in the thread.

    def _write_all(self) -> None:
        draw_at = time.monotonic() + TICK_SECONDS
        while True:
            try:
                item = self._queue.get(timeout=TICK_SECONDS if self.draws else None)
            except Empty:
                pass
            else:
                self._clear()
                match item:
                    case None:
                        return
                    case Question():
                        self._ask(item)
                    case (stream, text):
                        self._write(stream, text)
            # Draw here and not only on `Empty`: while output comes without a pause, the queue is never empty.
            if self.draws and time.monotonic() >= draw_at:
                self._draw()
                draw_at = time.monotonic() + TICK_SECONDS

    def _write(self, stream: TextIO, text: str) -> None:
        if stream is self._out and self.gone is not None:
            return
        try:
            _emit(stream, f"{text}\n", "backslashreplace")
        except OSError as error:
            if stream is self._out:
                self.gone = error
                with suppress(RuntimeError):  # the event loop, which the function calls, has ended
                    self._on_gone()

    def _draw(self) -> None:
        line = self.status
        if line != self._drawn:
            self._clear()
            self._drawn = line
            self._write_raw(line)

    def _clear(self) -> None:
        if self._drawn:
            from codemode_mcp.base.display import columns

            self._write_raw("\r" + " " * columns(self._drawn) + "\r")
            self._drawn = ""

    def _write_raw(self, text: str) -> None:
        with suppress(OSError):
            _emit(self._err, text, "replace")

    def _ask(self, question: Question) -> None:
        if not question.withdrawn.is_set():
            self._write(self._err, question.text)
            if self._withdrawn:
                question.withdrawn.wait(SETTLE_SECONDS)
            with suppress(OSError, ValueError):
                forget_typed()
                _emit(self._err, "> ", "replace")
                question.answer = _line_typed(question.withdrawn)
            self._withdrawn = question.withdrawn.is_set()
        if question.withdrawn.is_set():
            self._write(self._err, "\nthe question was withdrawn")
        question.on_answer()


def _emit(stream: TextIO, text: str, errors: str) -> None:
    """Write and flush a text. `errors` is the error handler for characters that the stream cannot encode."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, errors).decode(encoding))
    stream.flush()


def _line_typed(withdrawn: threading.Event) -> str:
    """Read the answer to a question. Return an empty text if the question is withdrawn or the input ends."""
    if sys.platform != "win32":
        import select

        while not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
            if withdrawn.is_set():
                return ""
    # Read the whole line. A rest of it would answer the next question.
    return sys.stdin.readline().strip()


class _ScreenStream(TextIOBase):
    """A replacement for `sys.stderr` through which the screen writes the log and other messages in order."""

    def __init__(self, screen: Screen, encoding: str) -> None:
        self._screen = screen
        self._encoding = encoding
        self._line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            self._screen.say(line)
        return len(text)

    def close(self) -> None:
        if self._line:
            self._screen.say(self._line)
            self._line = ""
        super().close()
