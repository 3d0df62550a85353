"""The recorder of one run: its methods are called by the driver, and write lines.

A run is recorded in memory, in a file, or both. No method waits, except for `suspended` and `checkpoint` with a file:
another process may continue the run immediately afterwards, and appends to the same file.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread

from codemode_mcp.recordings import format as recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.recordings.format import Line
    from codemode_mcp.recordings.writer import RecordingFile
    from codemode_mcp.sandbox.clock import Readings
    from codemode_mcp.sandbox.messages import Completion, RequestMessage

    LazyLine = Callable[[], Line]


class Place(Protocol):
    """A place for the lines of a run."""

    def append(self, line: Line | LazyLine) -> None:
        """Add a line, or a function that makes it."""
        ...


class Recorder:
    """The recorder of a run.

    Args:
        file: the file of the run, if there is one.
        kept: the place in memory, if there is one.
        taken_over: the first line of a process that continues the run. It is written with the first other line.
    """

    def __init__(
        self, file: RecordingFile | None, kept: Place | None, *, taken_over: recorded.TakenOver | None = None
    ) -> None:
        self._file = file
        self._places: list[Place] = [each for each in (kept, file) if each is not None]
        self._taken_over = taken_over
        self._ended = False
        self._notes: list[str] = []

    def __repr__(self) -> str:
        return f"<Recorder: {self._places}>"

    def add(self, line: Line | LazyLine) -> None:
        """Add a line."""
        if self._ended:
            return
        if self._taken_over is not None:
            first, self._taken_over = self._taken_over, None
            self.add(first)
        for place in self._places:
            place.append(line)

    def clock(self, readings: Readings) -> None:
        """Record the times that the program has read in a turn."""
        self.add(recorded.Clock(readings.wall, readings.monotonic, readings.lost))

    def requests(self, requests: Sequence[RequestMessage]) -> None:
        """Record the requests of a turn."""
        if requests:
            self.add(recorded.Requests(tuple(requests)))

    def turn(self, batch: Sequence[Completion], elapsed_ms: float) -> None:
        """Record a batch before it is delivered."""
        self.add(recorded.Turn(elapsed_ms, tuple(map(_completed, batch))))

    def question(self, call: int, tool: str, about: str, params: str) -> None:
        """Record a question. `params`: JSON text."""
        self.add(recorded.Question(call, tool, about, params))

    def answer(self, call: int, by: str, result: str) -> None:
        """Record the answer to a question. `result`: JSON text."""
        self.add(recorded.Answer(call, by, result))

    async def suspended(self, reason: str, snapshot: bytes, *, durable: bool) -> None:
        """Record a suspension, before it is stored.

        Args:
            durable: True if another process may continue the run.
        """
        self.add(recorded.Suspended(reason, await self._digest(snapshot, durable=durable)))
        if self._file is not None:
            self._file.close()
            if durable:
                await anyio.to_thread.run_sync(self._file.flush)

    async def checkpoint(self, snapshot: bytes) -> None:
        """Record a checkpoint, before it is stored."""
        if self._file is not None:
            self.add(recorded.Checkpoint(await self._digest(snapshot, durable=True)))
            await anyio.to_thread.run_sync(self._file.flush)

    async def _digest(self, snapshot: bytes, *, durable: bool) -> str:
        if self._file is None or not durable:
            return ""
        return await anyio.to_thread.run_sync(snapshot_digest, snapshot)

    def resumed(self, elapsed_ms: float) -> None:
        """Record the restoring of the guest."""
        self.add(recorded.Resumed(elapsed_ms))

    def noted(self, notes: Sequence[str]) -> None:
        """Remember the notes of an answer for the end."""
        self._notes.extend(notes)

    def end(
        self,
        *,
        completed: bool,
        value: Any = None,
        outputs: Sequence[dict[str, Any]] = (),
        dropped: int = 0,
        error: str = "",
        code: str | None = None,
        notes: Sequence[str] = (),
        elapsed_ms: float = 0,
    ) -> None:
        """Record the end of the run. Only the first end counts."""
        if self._ended:
            return
        self.add(
            recorded.End(
                "completed" if completed else "failed",
                value,
                tuple(outputs),
                dropped,
                error,
                code,
                (*self._notes, *notes),
                elapsed_ms,
            )
        )
        self.leave()

    def leave(self) -> None:
        """Record nothing more: the run has ended, or another process has it."""
        self._ended = True
        if self._file is not None:
            self._file.close()


def snapshot_digest(snapshot: bytes) -> str:
    """Return the digest by which a recording names a snapshot."""
    return hashlib.sha256(snapshot).hexdigest()


def _completed(end: Completion) -> recorded.Completed:
    error = end.error
    if error is None:
        return recorded.Completed(end.id, end.value)
    return recorded.Completed(end.id, None, recorded.RecordedError(error.name, error.message, error.code, error.data))
