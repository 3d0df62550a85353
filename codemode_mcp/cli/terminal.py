"""A terminal during a program: its output, one line of progress under it, and questions, never mixed up.

Everything is written by a thread of its own, in the order in which it was asked for: a reader that does not read, such
as a pager, or a person who thinks, keeps no program waiting. While a question stands, nothing else is written.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOBase
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TextIO, cast

from codemode_mcp.cli.shared import harmless

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TICK_SECONDS: Final = 0.1
"""Between two looks at the line of progress."""

SETTLE_SECONDS: Final = 1.5
"""Before the answer to a question counts that stands where another has just been withdrawn: it may be for that one."""

LEAVE_SECONDS: Final = 1.0
"""After the command was given up, for what is still to be written."""


def is_at_terminal() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def forget_typed() -> None:
    """Discard input that was typed, or pasted, before the question: it is no answer to it."""
    try:
        import termios
    except ImportError:  # Windows
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@dataclass(slots=True, eq=False)
class Question:
    """One that `Screen.ask` puts.

    Attributes:
        withdrawn: set when no answer is wanted any more.
        answer: the line that was typed; empty where there was none.
    """

    text: str
    on_answer: Callable[[], None]
    withdrawn: threading.Event = field(default_factory=threading.Event)
    answer: str = ""


class Screen:
    """The writer of a terminal. A context manager: leaving waits until all is written, and clears the line of progress.

    Args:
        out: where output goes.
        err: where the rest goes. The line of progress is shown only if it is a terminal.

    Attributes:
        status: the line of progress at the moment, without a line end; empty for none.
        draws: whether there is one.
        gone: why output cannot be written any more.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        self.status = ""
        self.draws = self._err.isatty()
        self._escapes = self._out.isatty()
        self._queue: SimpleQueue[tuple[TextIO, str] | Question | None] = SimpleQueue()
        self._theirs: TextIO | None = None
        self._drawn = ""
        self._withdrawn = False
        self.gone: OSError | None = None
        self._on_gone: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._write_all, name="screen", daemon=True)

    def __repr__(self) -> str:
        return f"<Screen: {self._queue.qsize()} to be written>"

    def __enter__(self) -> Screen:
        self._thread.start()
        if self.draws:
            self._theirs, sys.stderr = sys.stderr, cast("TextIO", _Lines(self, self._err.encoding or "utf-8"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._theirs is not None:
            sys.stderr.close()
            sys.stderr = self._theirs
        self._queue.put(None)
        self._thread.join(None if error is None else LEAVE_SECONDS)
        if error is None and self.gone is not None:
            raise self.gone

    @property
    def width(self) -> int:
        """Columns that the line of progress has."""
        import os

        try:
            return max(20, os.get_terminal_size(self._err.fileno()).columns or 80) - 1
        except (OSError, ValueError):
            return 79

    @property
    def is_stuck(self) -> bool:
        """Return True if a reader who does not read keeps it from its end."""
        return self._thread.is_alive()

    def print(self, text: str) -> None:
        """Lines of output. On a terminal nothing in them moves the cursor or hides."""
        self._queue.put((self._out, harmless(text) if self._escapes else text))

    def say(self, text: str) -> None:
        """Lines for a person, under what has been printed. They may quote a program, or what a server has logged."""
        self._queue.put((self._err, harmless(text) if self.draws else text))

    def ask(self, question: Question) -> None:
        """Put a question, and have its `on_answer` called in the thread once it has an answer."""
        self._queue.put(question)

    def when_gone(self, tell: Callable[[], object]) -> None:
        """Set a function to call once, in the thread, when the output has no reader. Leaving raises `OSError` then."""
        self._on_gone = tell
        if self.gone is not None:
            tell()

    # in the thread

    def _write_all(self) -> None:
        draw_at = time.monotonic() + TICK_SECONDS
        while True:
            try:
                wanted = self._queue.get(timeout=TICK_SECONDS if self.draws else None)
            except Empty:
                pass
            else:
                self._clear()
                match wanted:
                    case None:
                        return
                    case Question():
                        self._put(wanted)
                    case (stream, text):
                        self._write(stream, text)
            # What is printed without a pause must leave time for it.
            if self.draws and time.monotonic() >= draw_at:
                self._draw()
                draw_at = time.monotonic() + TICK_SECONDS

    def _write(self, stream: TextIO, text: str) -> None:
        if stream is self._out and self.gone is not None:
            return
        encoding = stream.encoding or "utf-8"
        try:
            stream.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except OSError as error:
            if stream is self._out:
                self.gone = error
                self._on_gone()

    def _draw(self) -> None:
        line = self.status
        if line != self._drawn:
            self._clear()
            self._drawn = line
            self._scribble(line)

    def _clear(self) -> None:
        if self._drawn:
            from codemode_mcp.control.display import columns

            self._scribble("\r" + " " * columns(self._drawn) + "\r")
            self._drawn = ""

    def _scribble(self, text: str) -> None:
        encoding = self._err.encoding or "utf-8"
        with suppress(OSError):
            self._err.write(text.encode(encoding, "replace").decode(encoding))
            self._err.flush()

    def _put(self, question: Question) -> None:
        if not question.withdrawn.is_set():
            self._write(self._err, question.text)
            if self._withdrawn:
                question.withdrawn.wait(SETTLE_SECONDS)
            with suppress(OSError, ValueError):
                forget_typed()
                self._err.write("> ")
                self._err.flush()
                question.answer = _line_typed(question.withdrawn)
            self._withdrawn = question.withdrawn.is_set()
        if question.withdrawn.is_set():
            self._write(self._err, "\nthe question does not stand any more")
        question.on_answer()


def _line_typed(withdrawn: threading.Event) -> str:
    """Empty when there is none to come."""
    if sys.platform != "win32":
        import select

        while not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
            if withdrawn.is_set():
                return ""
    # The whole of it: what is left of a line would be the answer to the next question.
    return sys.stdin.readline().strip()


class _Lines(TextIOBase):
    """A stream for the stderr of others, such as the log, that puts it in its place among the rest."""

    def __init__(self, screen: Screen, encoding: str) -> None:
        self._screen = screen
        self._encoding = encoding
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._screen.say(line)
        return len(text)

    def close(self) -> None:
        if self._begun:
            self._screen.say(self._begun)
            self._begun = ""
        super().close()
