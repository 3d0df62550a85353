"""The guests of runs: fair slots, a spare guest, turns in the event loop or on a thread, and snapshots.

There are two queues, both fair between owners (`Slots`). A run waits for room once, before it has a guest, and keeps
the room until it ends or is suspended. It waits for a turn before each turn. Both limits follow from `maxRunningRuns`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.base.errors import Exceeded, ProgramError
from codemode_mcp.sandbox import snapshot
from codemode_mcp.sandbox.engine import GUESTS_PER_THREAD, Engine
from codemode_mcp.sandbox.guest import Guest, Steps, Turn, finish
from upstream_clients.fair_limiter import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.store import SuspendedRun
    from codemode_mcp.sandbox.images import Image

SHORT_TURN = 0.002
"""Approximate seconds that a turn may compute in the event loop. A longer turn is continued in a thread."""

THREADED_TURNS = 16
"""Number of consecutive short turns after which a program that had a long turn returns to the event loop.

This limits how often such a program blocks the event loop for `SHORT_TURN`."""

LONG_MESSAGE = 100_000
"""A turn with a message of more characters is computed in a thread from its beginning."""


class Guests:
    """The guests of all runs, and the queues for them. It holds no state of any run.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, settings: Callable[[], CodeModeSettings], clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._turns = Slots(settings().max_running_runs)
        self._rooms = Slots(GUESTS_PER_THREAD * settings().max_running_runs)
        self._spare = SpareGuest()

    def close(self) -> None:
        """Free the guest that is kept for the next program."""
        self._spare.close()

    # queueing

    async def admit(self, run: Run, observation: Observation) -> bool:
        """Wait for room in memory and for the first turn. This time does not count as the program's.

        Returns:
            False if the request was given up, or has to be answered, before there is room and a turn.
        """
        if not await self.find_room(run, observation):
            return False
        began = self._clock()
        if not await self.get_turn(run, observation, observation.latest):
            return False
        observation.deadline = min(observation.deadline + self._clock() - began, observation.latest)
        return True

    async def find_room(self, run: Run, observation: Observation) -> bool:
        """Wait for room in memory. Returns as `admit`."""
        began = self._clock()
        run.has_room = await self._get(self._rooms, run, observation, observation.latest)
        observation.deadline = min(observation.deadline + self._clock() - began, observation.latest)
        return run.has_room

    async def get_turn(self, run: Run, observation: Observation, until: float) -> bool:
        """Wait for a turn, at most until a time by the clock. Returns as `admit`."""
        return await self._get(self._turns, run, observation, until)

    def end_turn(self, run: Run) -> None:
        self._turns.release(run.share, run.owner)

    async def _get(self, slots: Slots, run: Run, observation: Observation, until: float) -> bool:
        if observation.aborted or observation.released:
            return False
        if slots.try_acquire(run.share, run.owner):
            return True
        # `stop` and `release` in `live` cancel this scope, so that a request need not wait for its place in the queue.
        with anyio.move_on_after(max(0.0, until - self._clock())) as observation.queueing:
            await slots.acquire(run.share, run.owner)
            return True
        return False

    # guests

    async def launch(self, engine: Engine, run: Run, observation: Observation, message: str, budget: float) -> Turn:
        """Compute the first turn of a run.

        Args:
            budget: seconds that the turn may take.
        """
        image = engine.cached_image(run.manifest)
        if image is None:
            image = await self.on_thread(engine, engine.image, run.manifest)
        run.guest = self._spare.take(engine, image, run.memory_limit)
        # The run may have been aborted while the image was made. There was no guest to interrupt then.
        if observation.aborted:
            run.guest.interrupt()
        return await self._compute(engine, run, run.guest.start_steps, message, budget)

    async def deliver(self, engine: Engine, run: Run, message: str, budget: float) -> Turn:
        """Compute the next turn of a run. `budget`: seconds that it may take."""
        assert run.guest is not None
        return await self._compute(engine, run, run.guest.deliver_steps, message, budget)

    async def _compute(
        self, engine: Engine, run: Run, begin: Callable[[str, float, float | None], Steps], message: str, budget: float
    ) -> Turn:
        """Compute a turn in the event loop, or in a thread if it takes longer than `SHORT_TURN`.

        So a short turn needs no change of threads. A program that had a long turn is computed in threads, until
        `THREADED_TURNS` consecutive turns were short.
        """
        assert run.guest is not None
        if run.recorder is not None:
            run.guest.record_clock()
        if run.threaded_turns or len(message) > LONG_MESSAGE:
            steps = begin(message, budget, None)
        else:
            steps = begin(message, budget, SHORT_TURN)
            try:
                next(steps)
            except StopIteration as ended:
                short: Turn = ended.value
                return _with_clock(run, short)
            # The guest has paused with frames on its stack. The same steps continue on a thread.
            run.threaded_turns = THREADED_TURNS + 1
        turn: Turn
        turn, seconds = await self.on_thread(engine, _finish_timed, steps)
        run.threaded_turns = THREADED_TURNS if seconds >= SHORT_TURN else max(0, run.threaded_turns - 1)
        return _with_clock(run, turn)

    async def snapshot(self, engine: Engine, run: Run) -> bytes:
        """Return the snapshot of a run's guest.

        Raises:
            ProgramError: `snapshot_limit_exceeded`.
        """
        assert run.guest is not None
        data: bytes = await self.on_thread(engine, run.guest.snapshot)
        limit = self._settings().max_snapshot_bytes
        if len(data) > limit:
            raise ProgramError(
                "snapshot_limit_exceeded",
                f"suspending the program takes {len(data)} bytes, more than maxSnapshotBytes ({limit}); keep less data "
                "in variables while the program waits",
                Exceeded("maxSnapshotBytes", len(data), limit),
            )
        return data

    async def restore(self, engine: Engine, run: Run, suspended: SuspendedRun) -> None:
        """Restore the guest of a suspended run.

        Raises:
            ProgramError: `snapshot_restore_failed`.
        """
        await self.on_thread(engine, self._restore, engine, run, suspended)

    def _restore(self, engine: Engine, run: Run, suspended: SuspendedRun) -> None:
        image = engine.image(suspended.manifest)
        # The limits may be lower than when the program was suspended. The program keeps the lower memory limit.
        limit = self._settings().memory_limit_bytes
        snapshot.check_limits(
            suspended.snapshot,
            snapshot.about(suspended.snapshot).pages,
            image_bytes=image.size - image.beside,
            beside=image.beside,
            made_within=run.memory_limit,
            memory_limit=limit,
            max_bytes=self._settings().max_snapshot_bytes,
        )
        run.memory_limit = min(run.memory_limit, limit)
        run.guest = Guest(engine, image, memory_limit=run.memory_limit, suspended=suspended.snapshot)

    def take_back(self, run: Run) -> None:
        guest, run.guest = run.guest, None
        if guest is not None:
            # A suspended program is most likely resumed next, and then needs no fresh guest.
            self._spare.give_back(guest, make_next=run.state != "waiting")
        if run.state != "waiting":
            run.results.clear()  # a suspended program may still fail, and the next program then gets them
        run.signal.cancel_alarm()
        if run.has_room:
            run.has_room = False
            self._rooms.release(run.share, run.owner)

    async def on_thread(self, engine: Engine, work: Callable[..., Any], *args: Any) -> Any:
        """Call a function that works on a guest in a thread of the engine. Return its result. Cannot be cancelled."""
        # Nothing else may touch a guest that computes, so a cancelled caller waits as well. The wait is short, because
        # all work on a guest has a time limit.
        with anyio.CancelScope(shield=True):
            return await asyncio.wrap_future(engine.threads.submit(work, *args))


def _with_clock(run: Run, turn: Turn) -> Turn:
    if run.recorder is not None and run.guest is not None:
        readings = run.guest.seen_readings()
        if readings is not None:
            run.recorder.clock(readings)
    return turn


def _finish_timed(steps: Steps) -> tuple[Turn, float]:
    began = time.perf_counter()
    return finish(steps), time.perf_counter() - began


class Slots:
    """A bounded number of slots. Waiting shares take turns, and so do the owners of a share.

    A share is an authenticated owner, or an address with all owners behind it. Because of the two levels, an address
    cannot take the turns of others by using many owners, and owners behind one address take turns, too.

    If there was ever more than one share, the last free slot is only for a share that has none. Otherwise a share whose
    programs loop endlessly could have all slots, and others would have to wait until these programs are stopped. The
    same holds for owners.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._count = count
        self._held: Counter[str] = Counter()
        self._held_by: Counter[tuple[str, str]] = Counter()
        self._queue = FairQueue()
        self._first: tuple[str, str] | None = None
        self._many_shares = self._many_owners = False
        """True if there was ever more than one share, or owner. Until then, one user can have all slots."""

    def __repr__(self) -> str:
        return f"<Slots: {self._free} of {self._count} free, {len(self._queue.groups)} shares waiting>"

    def try_acquire(self, share: str, owner: str) -> bool:
        if self._first is None:
            self._first = (share, owner)
        self._many_shares = self._many_shares or share != self._first[0]
        self._many_owners = self._many_owners or owner != self._first[1]
        if owner in self._queue.groups.get(share, ()) or not self._admits(share, owner):
            return False
        self._take(share, owner)
        return True

    async def acquire(self, share: str, owner: str) -> None:
        """Wait for a slot and take it. Cancelling leaves the queue."""
        if not self.try_acquire(share, owner):
            await self._queue.wait(share, owner, partial(self.release, share, owner))

    def release(self, share: str, owner: str) -> None:
        self._free += 1
        self._held[share] -= 1
        if not self._held[share]:
            self._held.pop(share)  # faster than `del` of a Counter
        self._held_by[share, owner] -= 1
        if not self._held_by[share, owner]:
            self._held_by.pop((share, owner))
        while self._free and self._queue.groups:
            found = next((each for each in self._queue.members() if self._admits(*each)), None)
            if found is None:
                return
            self._take(*found)
            self._queue.give_turn(*found)

    def _admits(self, share: str, owner: str) -> bool:
        holds = (self._many_shares and self._held[share]) or (self._many_owners and self._held_by[share, owner])
        return self._free > (1 if holds and self._count > 1 else 0)

    def _take(self, share: str, owner: str) -> None:
        self._free -= 1
        self._held[share] += 1
        self._held_by[share, owner] += 1


log = logging.getLogger("codemode_mcp.runs")

ROUNDS: Final = 6
"""Rounds of the event loop between the end of a program and the freeing of its guest. The client has the answer by
then. Earlier, this work would delay the answer."""

MAX_OVER: Final = 2
"""Maximum number of guests of ended programs that are not freed yet."""


class SpareGuest:
    """A provider of guests, which takes back the guests of ended programs.

    It makes the next guest for the catalog and the memory limit of the previous program, because most programs have the
    same.
    """

    def __init__(self) -> None:
        self._next_form: tuple[Engine, Image, int] | None = None
        self._guest: Guest | None = None
        self._over: deque[Guest] = deque()
        self._makes_next = False
        self._next: asyncio.Handle | None = None

    def take(self, engine: Engine, image: Image, memory_limit: int) -> Guest:
        """Return a fresh guest. It is the spare one if that has this image. Raises the errors of `Guest`."""
        form = engine, image, memory_limit
        guest, self._guest = self._guest, None
        if self._next_form == form and guest is not None:
            return guest
        if guest is not None:
            guest.close()
        self._free(0)
        self._next_form = form
        return Guest(engine, image, memory_limit=memory_limit)

    def give_back(self, guest: Guest, *, make_next: bool = True) -> None:
        """Free a guest and make the next one, later, when the process is idle.

        Args:
            make_next: False to make no next guest, for a program that is suspended. It is most likely resumed next.
        """
        self._over.append(guest)
        self._makes_next = make_next
        self._free(MAX_OVER)
        if self._next is None:
            self._after(ROUNDS)

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._free(0)
        self._next_form = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _after(self, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_soon(self._after, rounds - 1) if rounds else loop.call_soon(self._tidy)

    def _tidy(self) -> None:
        self._next = None
        self._free(0)
        if self._makes_next:
            self._make()

    def _free(self, max_left: int) -> None:
        """Free guests of ended programs, the oldest first, until at most `max_left` are left."""
        while len(self._over) > max_left:
            self._over.popleft().close()

    def _make(self) -> None:
        if self._next_form is not None and self._guest is None:
            engine, image, memory_limit = self._next_form
            try:
                self._guest = Guest(engine, image, memory_limit=memory_limit)
            except Exception as error:
                log.debug("no guest could be made in advance: %r", error)
                self._next_form = None  # the next program gets the error
