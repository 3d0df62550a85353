"""One guest: a program in an instance. Synchronous: use it on the engine's threads, one call at a time."""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from codemode_mcp.base.errors import InternalError, ProgramError
from codemode_mcp.sandbox import clock, images, snapshot
from codemode_mcp.sandbox.binary import PAGE
from codemode_mcp.sandbox.instance import GuestTrap, Instance

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from codemode_mcp.sandbox.engine import Engine

COLLECT_SECONDS = 1.0
"""Timeout for the prelude to make the report of a turn. Megabytes take a while on a busy machine."""
EPOCH_GRACE_SECONDS = 0.5
"""Seconds after the deadline at which the epoch stops a program that the engine's own check has not stopped."""

MAX_TURN_BYTES = 24 * 1024 * 1024
"""Maximum bytes of the JSON text of a turn. Decoded, it takes a multiple of that."""

_DONE: Final = b'{"state":"done",'
"""Beginning of the report of a program that has returned."""

_WORDS: Final = struct.Struct("<2I")

Stopped = Literal["time", "memory", "trap", "size"]

Steps: TypeAlias = "Generator[None, None, Turn]"
"""The computation of a turn. It yields each time it pauses, and may be continued on another thread."""


class Turn(Struct, frozen=True):
    """The end of one turn.

    Attributes:
        text: the report of the prelude (JSON, see `messages`); None if the guest can no longer make one.
        stopped: why the guest cannot continue; None if it is at rest. `size` means that the report is larger than
            `MAX_TURN_BYTES` and was not read.
        detail: the message of the engine for a trap.
        full: True if the program's memory is nearly used up. The engine may then be unable to make an error, and throw
            null.
        size: bytes of the report if it is too large.
        done: True if the program has returned, so that the report that is too large has its value.
    """

    text: str | None
    stopped: Stopped | None = None
    detail: str = ""
    full: bool = False
    size: int = 0
    done: bool = False


class Guest:
    """The instance of a program, new from an image or restored from a snapshot. A context manager that frees it.

    Args:
        memory_limit: maximum bytes of the program, including the prelude and the names of the catalog, but not `Intl`.
        suspended: a snapshot to restore.

    Raises:
        ProgramError: `snapshot_restore_failed`, or `memory_limit_exceeded` if the image alone is over the limit.
    """

    def __init__(
        self, engine: Engine, image: images.Image, *, memory_limit: int, suspended: bytes | None = None
    ) -> None:
        self._engine = engine
        self._image = image
        self._memory_limit = memory_limit + image.beside
        self._lock = threading.Lock()
        self._closed = False
        ceiling = self._memory_limit + images.IMAGE_SLACK_BYTES
        patches = None if suspended is None else snapshot.decode(suspended, image, max_bytes=ceiling)
        self._instance = Instance(engine.modules, ceiling)
        try:
            if not images.load_image(self._instance, image):
                raise ProgramError(
                    "memory_limit_exceeded",
                    f"memoryLimitBytes is {memory_limit}, but the names of the tools alone take "
                    f"{image.size - image.beside}",
                )
            if patches is not None:
                self._instance.grow_to(patches.pages)
                for offset, block in patches.blocks:
                    self._instance.write(offset, block)
            self._instance.call("JS_SetMemoryLimit", image.entries.rt, self._memory_limit)
            self._instance.watch(image.entries.scratch + images.STOP_OFFSET)
        except BaseException:
            self._instance.close()
            raise

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the instance. Further calls do nothing."""
        with self._lock:
            self._closed = True
            self._instance.close()

    def interrupt(self) -> None:
        """Stop the turn in progress, which then ends as out of time. May be called from any thread."""
        with self._lock:
            if not self._closed:
                self._instance.interrupt()

    def start(self, message: str, seconds: float) -> Turn:
        """Return the first turn.

        Args:
            message: from `messages.start_message`.
            seconds: the time that it may compute.
        """
        return finish(self.start_steps(message, seconds))

    def deliver(self, message: str, seconds: float) -> Turn:
        """Return a later turn. `message`: from `messages.deliver_message`."""
        return finish(self.deliver_steps(message, seconds))

    def start_steps(self, message: str, seconds: float, pause_after: float | None = None) -> Steps:
        """Begin the first turn, which pauses after `pause_after` seconds; see `finish`."""
        return self._turn(self._image.entries.start, message, seconds, pause_after)

    def deliver_steps(self, message: str, seconds: float, pause_after: float | None = None) -> Steps:
        """Begin a later turn, which pauses after `pause_after` seconds; see `finish`."""
        return self._turn(self._image.entries.deliver, message, seconds, pause_after)

    def record_clock(self) -> None:
        """Keep the readings of the clock in the next turn; see `readings`."""
        self._instance.write(clock.ADDRESS, clock.RECORDING)
        self._instance.write(clock.BLOCKS[1], clock.EMPTY)

    def replay_clock(self, readings: clock.Readings, *, wall: int, monotonic: int = 0) -> None:
        """Answer the readings of the clock in the next turn.

        Args:
            wall, monotonic: nanoseconds from which the clocks continue if there is no reading.
        """
        self._instance.write(clock.ADDRESS, clock.mode("replay"))
        pairs = readings.wall, readings.monotonic
        for at, given, start in zip(clock.BLOCKS, pairs, (wall, monotonic), strict=True):
            self._instance.write(at, clock.block(given, start=start))

    def readings(self) -> clock.Readings:
        """Return the readings of the clock in the last turn, which was recorded or replayed."""
        wall, monotonic = map(self._pairs, clock.BLOCKS)
        return clock.Readings(wall[0], monotonic[0], wall[1] + monotonic[1])

    def seen_readings(self) -> clock.Readings | None:
        """Return the readings of the last turn that the program can have seen; None if there are none.

        Nearly all turns have none, so this is fast.
        """
        first_wall, first_monotonic = (self._instance.read(at, clock.FIRST.size) for at in clock.BLOCKS)
        has_wall = clock.FIRST.unpack(first_wall)[0] > 0
        count, number = clock.FIRST.unpack(first_monotonic)
        is_unseen = not has_wall and (count == 0 or (count == 1 and number == 1))  # see `Readings.seen`
        return None if is_unseen else self.readings().seen

    def _pairs(self, at: int) -> tuple[clock.Pairs, int]:
        size, beyond = clock.pairs_in(self._instance.read(at, clock.HEADER))
        return clock.read_pairs(self._instance.read(at + clock.HEADER, size)), beyond

    def snapshot(self) -> bytes:
        """Return the snapshot of a guest at rest. The guest can continue afterwards."""
        # The limit of the last turn may have passed long ago.
        self._instance.limit(COLLECT_SECONDS + EPOCH_GRACE_SECONDS)
        self._instance.glue("release")
        # An interruption applies to this guest, not to restored ones, so only the copy is cleared.
        memory = self._instance.image()
        images.blank_scratch(memory, self._image.entries)
        return snapshot.encode(memory, self._image)

    def stack_pointer(self) -> int:
        return self._instance.stack_pointer()

    def _turn(self, entry: int, message: str, seconds: float, pause_after: float | None) -> Steps:
        instance = self._instance
        entries = self._image.entries
        budget = max(0.0, seconds)
        grace = _nanoseconds(COLLECT_SECONDS)
        raw = message.encode("utf-8", "surrogatepass") + b"\0"
        is_long = len(raw) > images.MAIL
        try:
            with self._engine.ticking():
                instance.limit(budget + EPOCH_GRACE_SECONDS)
                at = instance.call("malloc", len(raw)) & 0xFFFFFFFF if is_long else entries.scratch + images.MAIL_OFFSET
                if at == 0:
                    return Turn(None, "memory")
                instance.write(at, raw)
                if pause_after is not None:
                    instance.pause_after(pause_after)
                size = len(raw) - 1
                status = yield from instance.steps("run", entry, at, size, _nanoseconds(budget), entries.collect, grace)
                if is_long:
                    instance.call("free", at)
                # The statuses are those of `run` in `glue.wat`. 1 and 2: an exception is pending, and the prelude
                # reports it. 2, 4 and 7: the program was out of time. 0 and 4: the report is there already.
                if status in (1, 2):
                    instance.limit(COLLECT_SECONDS + EPOCH_GRACE_SECONDS)
                    instance.glue("report", entries.fault, grace)
                text = self._text() if status in (0, 4) else self._collect(grace)
        except _TooLarge as large:
            return Turn(None, "size", size=large.size, done=large.done)
        except GuestTrap as trap:
            words = self._last_words()
            if trap.interrupted:
                return Turn(words, "time", str(trap))
            # Without memory, the engine frees some values twice, which may trap.
            return Turn(words, "memory" if self._full else "trap", str(trap), full=self._full)
        full = self._full
        match status:
            case 2 | 4 | 7:
                return Turn(text, "time", full=full)
            case 1 if text is not None:
                return Turn(text, "trap", full=full)
        return Turn(text, None if text is not None else "memory", full=full)

    @property
    def memory_size(self) -> int:
        """Size of its memory in bytes."""
        return self._instance.pages * PAGE

    @property
    def _full(self) -> bool:
        return self.memory_size > 0.9 * self._memory_limit

    def _collect(self, grace: int) -> str | None:
        """Return the report after another attempt, or one with more memory: the program may have used up its own."""
        instance = self._instance
        entries = self._image.entries
        for extra in (0, images.IMAGE_SLACK_BYTES // 2):
            if extra:
                instance.call("JS_SetMemoryLimit", entries.rt, self._memory_limit + extra)
            began = time.monotonic()
            instance.limit(COLLECT_SECONDS + EPOCH_GRACE_SECONDS)
            if instance.glue("collect", entries.collect, grace) & 0xFFFFFFFF:
                return self._text()
            if time.monotonic() - began >= 0.9 * COLLECT_SECONDS:
                raise GuestTrap("describing its errors took too long", interrupted=True)
        return None

    def _last_words(self) -> str | None:
        """Return the last report of a guest that was stopped while it computed; None if its engine cannot make one.

        The interrupted frames stay on the engine's stack, below which the new frames go. So the guest must be dropped
        afterwards.
        """
        grace = _nanoseconds(COLLECT_SECONDS)
        try:
            with self._engine.ticking():
                self._instance.limit(COLLECT_SECONDS)
                collected = self._instance.glue("collect", self._image.entries.collect, grace) & 0xFFFFFFFF
                return self._text() if collected else None
        except (GuestTrap, InternalError, _TooLarge):
            return None

    def _text(self) -> str:
        """Return the text that was collected. The next turn or snapshot frees it in the guest.

        Raises:
            _TooLarge: it is larger than `MAX_TURN_BYTES`.
        """
        size, at = _WORDS.unpack(self._instance.read(self._image.entries.scratch + 8, 8))
        if size > MAX_TURN_BYTES:
            raise _TooLarge(size, done=self._instance.read(at, len(_DONE)) == _DONE)
        return self._instance.read(at, size).decode("utf-8", "replace")


class _TooLarge(Exception):
    """Error for the text of a turn that is larger than `MAX_TURN_BYTES`."""

    def __init__(self, size: int, *, done: bool) -> None:
        super().__init__(size)
        self.size = size
        self.done = done


def finish(steps: Steps) -> Turn:
    """Return a turn after computing it to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            turn: Turn = ended.value
            return turn


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
