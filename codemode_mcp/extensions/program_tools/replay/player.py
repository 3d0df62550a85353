"""The player of recordings, and the matching of requests with those of a recording. Synchronous.

Why it is built so:

- A guest never calls the host. Its state depends only on the start message, on the messages of its turns and on the
  times that it reads. So a guest that gets the same three does the same, on any machine: the random generator is in its
  memory, and the clock is that of the recording (`sandbox.clock`).
- The player does not use the driver of runs. There is nothing to wait for: `Matching` knows all ends, and their order.
- Suspensions need no snapshots here. With `restores`, the guest is nevertheless restored from a snapshot at every
  suspension of the recording, or before every turn. The result is the same, which the tests check.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.extensions.program_tools.replay.script import (
    Divergence,
    Identity,
    differences,
    identity,
    is_call,
    value_of,
)
from codemode_mcp.runs.calls.host_calls import begin_text, program_error
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.clock import Readings
from codemode_mcp.sandbox.guest import Guest, Turn
from codemode_mcp.sandbox.messages import Completion, GuestError, decode_turn, deliver_message
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from codemode_mcp.catalog.saved_programs.compiling import CompiledProgram
    from codemode_mcp.extensions.program_tools.replay.script import Asked, Script
    from codemode_mcp.runs.run_recording import RecentResults
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.messages import Lookup, Request, TurnReport


# The matching of a program's requests with those of a recording, and the order in which they end.
#
# A request is matched with the first recorded one that has the same identity (tool and arguments) and was not matched
# yet; with `loose`, with the next one of the same tool. Its end is the recorded one, and ends come in the recorded
# order: the next turn gets the ends of the earliest recorded turn that has an end for a request of this program. So the
# same program gets exactly the recorded turns. Another program, which asks in another order, gets the ends as soon as
# it has asked.
#
# For another program, timers, look-ups, stored values and `yield_control()` that are not in the recording are answered
# here. Time is that of the recording, and timers advance it.


_NOT_SAVED: Final = "a replay saves no programs; run the program without --replay to propose it"


class Delivery(Struct, frozen=True):
    """The ends for the next turn of a replay.

    Attributes:
        elapsed: milliseconds since the beginning of the run.
        readings: the recorded readings of the clock; None if the recorded run had no such turn.
        suspended: True if the recorded run was suspended before this turn.
    """

    elapsed: float
    completions: tuple[Completion, ...]
    readings: Readings | None = None
    suspended: bool = False


class NotRecorded(Struct, frozen=True):
    """A request that has no recorded answer. `divergence`: what differs from the recording."""

    request: Request
    divergence: Divergence


@dataclass(frozen=True, slots=True, order=True)
class _Own:
    """An end that is not from the recording. `order`: ends of the same time are delivered in this order."""

    due: float
    order: int
    completion: Completion = field(compare=False)
    is_timer: bool = field(compare=False)


class Matching:
    """The state of a replay between two turns.

    Args:
        look_up: answers a look-up that was not recorded.
        exact: take the first request that is not in the recording as the end of the replay, whatever it is.
        loose: match calls by their tool alone.
        programs: texts of saved programs to use instead of the recorded ones, by their ids.
        elapsed: milliseconds since the beginning of the run.
    """

    def __init__(
        self,
        script: Script,
        look_up: Callable[[Lookup], Completion],
        *,
        exact: bool = False,
        loose: bool = False,
        programs: Mapping[str, CompiledProgram] | None = None,
        elapsed: float = 0.0,
    ) -> None:
        self._script = script
        self._look_up = look_up
        self._exact = exact
        self._loose = loose
        self._programs = programs or {}
        self._begun: dict[int, str] = {}
        """The answers to calls of saved programs that are not the recorded ones, by the recorded request."""
        self._free: defaultdict[Identity | str, deque[int]] = defaultdict(deque)
        for index, each in enumerate(script.asked):
            self._free[self._key(each)].append(index)
        self._batch_of = {index: number for number, batch in enumerate(script.batches) for index, _ in batch.ends}
        self._ready: list[int] = []
        """The recorded turns that have an end for a request of this program, as a heap."""
        self._waiting: dict[int, int] = {}
        """The numbers of this program's requests that wait for recorded ends, by the index of the recorded request."""
        self._own: list[_Own] = []
        """Ends that are not from the recording, as a heap."""
        self._late: list[_Own] = []
        """Ends of requests whose recorded ones never ended. They are delivered when there is nothing else."""
        self._order = 0
        self._timers: dict[int, int] = {}
        """The indexes of recorded timers by this program's numbers."""
        self._cleared: set[int] = set()
        self._stored: dict[str, str] = {}
        self._used: set[int] = set()
        self._calls = 0
        self.turns = 0
        """The number of turns since the start."""
        self.other_turns = 0
        """The number of those that are not in the recording."""
        self.elapsed = elapsed
        self.names: dict[int, str] = {}
        """The tools of this program's calls, and the functions of its look-ups, by the number of the request."""
        self.absent_key: str | None = None
        """The latest key that the program has loaded without finding a value."""

    def __repr__(self) -> str:
        return f"<Matching: {len(self._used)} of {len(self._script.asked)} requests>"

    def ask(self, requests: Iterable[Request]) -> NotRecorded | None:
        """Take the requests of a turn. Return the first one without an answer, if there is one."""
        for request in requests:
            if isinstance(request, messages.ProgramEnd) and request.error is None:
                continue  # it has no answer
            missing = self._ask(request)
            if missing is not None:
                return missing
        return None

    @property
    def unused(self) -> tuple[Asked, ...]:
        return tuple(
            each for index, each in enumerate(self._script.asked) if index not in self._used and is_call(each.request)
        )

    @property
    def is_at_end(self) -> bool:
        """True if the program has had as many turns as the recorded one."""
        return self.turns >= len(self._script.batches)

    @property
    def is_waiting(self) -> bool:
        """True if the program waits for a request that never ended in the recording."""
        return bool(self._waiting)

    def next(self) -> Delivery | None:
        """Return the ends for the next turn, which count as delivered from now on. None if there are none."""
        while self._ready and not self._has_end(self._ready[0]):
            heapq.heappop(self._ready)
        for own in (self._own, self._late):
            while own and own[0].completion.id in self._cleared and own[0].is_timer:
                heapq.heappop(own)
        if self._ready:
            elapsed = max(self.elapsed, self._script.batches[self._ready[0]].elapsed)
            if not self._own or self._own[0].due > elapsed:
                return self._delivery_of(heapq.heappop(self._ready), elapsed)
        return self._own_delivery(self._own or self._late)

    def _own_delivery(self, own: list[_Own]) -> Delivery | None:
        if not own:
            return None
        first = heapq.heappop(own)
        completions = [first.completion]
        self.elapsed = max(self.elapsed, first.due)
        # A timer is a turn of its own, as in a run.
        while not first.is_timer and own and own[0].due <= self.elapsed and not own[0].is_timer:
            completions.append(heapq.heappop(own).completion)
        self.turns += 1
        self.other_turns += 1
        return Delivery(self.elapsed, tuple(completions))

    def _key(self, asked: Asked) -> Identity | str:
        return asked.identity.name if self._loose and is_call(asked.request) else asked.identity

    def _ask(self, request: Request) -> NotRecorded | None:
        who = identity(request)
        called = is_call(request)
        if called:
            self._calls += 1
        if called or isinstance(request, messages.Lookup):
            self.names[request.id] = who.name
        if isinstance(request, messages.Store):
            self._stored[request.key] = request.value
        free = self._free[who.name if self._loose and called else who]
        if not free:
            begun = self._begin(request)
            if begun is not None:
                self._own_end(Completion(request.id, begun))
                return None
            if self._exact or (called and not self._loose):
                return NotRecorded(request, self._missing(request, who))
            self._answer(request, who, self._own)
            return None
        index = free.popleft()
        self._used.add(index)
        begun = self._begin(request)
        if begun is not None:
            self._begun[index] = begun
        if index in self._batch_of:
            self._waiting[index] = request.id
            heapq.heappush(self._ready, self._batch_of[index])
            if isinstance(request, messages.Timer):
                self._timers[request.id] = index
        elif called or self._exact:
            if not isinstance(request, messages.ClearTimer):
                self._waiting[index] = request.id
        else:
            self._answer(request, who, self._late)
        if isinstance(request, messages.ClearTimer):
            self._clear(request.target)
        return None

    def _answer(self, request: Request, who: Identity, own: list[_Own]) -> None:
        """Answer a request that has no recorded end."""
        due, is_timer = self.elapsed, False
        match request:
            case messages.ToolCall() | messages.NamespaceCall():
                message = f"{escape_line(who.name)}: the recording has no further answer of this tool"
                completion = Completion(request.id, error=GuestError(message))
            case messages.Timer(id=timer, ms=ms):
                completion, due, is_timer = Completion(timer), due + ms, True
            case messages.Load(id=load, key=key):
                completion = Completion(load, self._loaded(key), of_call=False)
            case messages.Store() | messages.YieldControl():
                completion = Completion(request.id, of_call=False)
            case messages.ClearTimer(target=target):
                self._clear(target)
                return
            case messages.ProgramEnd(name=name, error=error) if error is not None:
                compiled = self._programs.get(program_id(name))
                completion = Completion(request.id, error=program_error(name, error, compiled), of_call=False)
            case messages.ProgramEnd():
                return
            case messages.SaveProgram():
                completion = Completion(request.id, error=GuestError(_NOT_SAVED), of_call=False)
            case _:
                completion = self._look_up(request)
        self._own_end(completion, own, due=due, is_timer=is_timer)

    def _own_end(
        self,
        completion: Completion,
        own: list[_Own] | None = None,
        *,
        due: float | None = None,
        is_timer: bool = False,
    ) -> None:
        self._order += 1
        end = _Own(self.elapsed if due is None else due, self._order, completion, is_timer)
        heapq.heappush(self._own if own is None else own, end)

    def _begin(self, request: Request) -> str | None:
        """Return the answer to a call of a saved program with another text than the recorded one; None otherwise."""
        compiled = self._programs.get(request.target) if isinstance(request, messages.ToolCall) else None
        if compiled is None:
            return None
        assert isinstance(request, messages.ToolCall)
        given = value_of(request.input or "{}")
        return begin_text(request, compiled, given if isinstance(given, dict) else {})

    def _takes_text(self, asked: Asked) -> bool:
        """Return True if the guest may lack the text of a saved program that its answer has to have."""
        return (
            not self._exact
            and isinstance(asked.request, messages.ToolCall)
            and asked.request.target.startswith(program_id(""))
        )

    def _with_text(self, asked: Asked, begun: str) -> str:
        """Return the recorded answer to a call of a saved program, with the text of the program.

        The recorded guest may have had the text from an earlier call, which this program has not made.
        """
        answer = value_of(begun)
        if not isinstance(answer, dict) or "code" in answer:
            return begun
        for batch in self._script.batches:
            for index, end in batch.ends:
                if end.error is None and self._script.asked[index].identity.name == asked.identity.name:
                    other = value_of(end.value)
                    if isinstance(other, dict) and "code" in other:
                        return json_text({**answer, "code": other["code"]})
        return begun

    def _loaded(self, key: str) -> str:
        """Return the end of a `load()`: a list with the value, if there is one."""
        if key in self._stored:
            return f"[{self._stored[key]}]"
        for batch in self._script.batches:
            for index, completion in batch.ends:
                request = self._script.asked[index].request
                if isinstance(request, messages.Load) and request.key == key and completion.error is None:
                    return completion.value
        self.absent_key = key
        return "[]"

    def _clear(self, timer: int) -> None:
        self._cleared.add(timer)
        index = self._timers.pop(timer, None)
        if index is not None:
            self._waiting.pop(index, None)

    def _has_end(self, number: int) -> bool:
        return any(index in self._waiting for index, _ in self._script.batches[number].ends)

    def _delivery_of(self, number: int, elapsed: float) -> Delivery:
        batch = self._script.batches[number]
        completions = [self._as_asked(index, end) for index, end in batch.ends if index in self._waiting]
        whole = len(completions) == len(batch.ends) and number == self.turns
        self.elapsed = elapsed
        self.turns += 1
        return Delivery(elapsed, tuple(completions), batch.readings if whole else None, batch.suspended and whole)

    def _as_asked(self, index: int, end: Completion) -> Completion:
        number = self._waiting.pop(index)
        asked = self._script.asked[index]
        if isinstance(asked.request, messages.Load) and end.value == "[]" and end.error is None:
            self.absent_key = asked.request.key
        value = self._begun.pop(index, end.value)
        if self._takes_text(asked) and end.error is None:
            value = self._with_text(asked, value)
        return Completion(number, value, end.error, end.of_call)

    def _missing(self, request: Request, who: Identity) -> Divergence:
        name = escape_line(who.name)
        what = f"call {self._calls} of the program, {name}," if is_call(request) else f"the program calls {name}, which"
        free = [each for index, each in enumerate(self._script.asked) if index not in self._used]
        same = next((each for each in free if each.identity.name == who.name), None)
        if same is not None:
            changed = differences(value_of(same.identity.given), value_of(who.given))
            return Divergence(f"{what} has other arguments than in the recording", changed)
        earlier = sum(each.identity.name == who.name for each in self._script.asked)
        if earlier:
            times = "once" if earlier == 1 else f"{earlier} times"
            return Divergence(f"{what} is made once more than in the recording, where it is made {times}")
        calls = [each for each in free if is_call(each.request)]
        following = f"; the next call there is {escape_line(calls[0].identity.name)}" if calls else ""
        return Divergence(f"{what} is not in the recording{following}")


Restores = Literal["never", "recorded", "always"]
"""The turns before which the guest is restored from a snapshot: none, those that followed a suspension, or each."""

TURN_SECONDS: Final = 60.0
"""Maximum seconds of one turn. The recorded run had at most as much time for a request."""

MAX_ELAPSED: Final = 1e12
"""Milliseconds since the beginning of a run after which its clock stands still."""

MAX_NANOSECONDS: Final = 2**63 - 1
"""The latest time of a clock, whatever a recording says."""

MAX_OTHER_TURNS: Final = 100_000
"""Maximum number of turns beyond those of the recording. A program that polls with timers would never end."""

START_NANOSECONDS: Final = 1_000_000_000
"""Beginning of the monotonic clock where the recording has no reading."""


class Part(Struct, frozen=True):
    """The guest of a replay: what it starts from.

    Attributes:
        manifest: the source of its image; see `Engine.image`.
        message: the start message.
        readings: the recorded readings of the clock in the first turn; None if there are none.
        began: nanoseconds since 1970 at which the recorded run began.
        elapsed: milliseconds since then at which the program started.
    """

    manifest: str
    message: str
    memory_limit: int
    readings: Readings | None
    began: int
    elapsed: float = 0.0


class Played(Struct, frozen=True):
    """The end of a replay.

    Attributes:
        turn: the last turn, and its report; the report is None if the guest could not make one.
        outputs: all outputs.
        not_recorded: the call that ended the replay, if any.
        is_stuck: True if the program waits and nothing is left to deliver.
        is_endless: True if the program has taken `MAX_OTHER_TURNS`.
        lost: number of readings of the clock that were not recorded, in turns that were.
    """

    turn: Turn
    report: TurnReport | None
    outputs: tuple[dict[str, Any], ...]
    not_recorded: NotRecorded | None = None
    is_stuck: bool = False
    is_endless: bool = False
    lost: int = 0


def play(
    engine: Engine,
    part: Part,
    matching: Matching,
    results: RecentResults,
    *,
    restores: Restores = "never",
    seconds: float = TURN_SECONDS,
) -> Played:
    """Run a program with recorded answers, on a guest thread, and return its end.

    Args:
        results: takes the results that the program gets.
        seconds: maximum seconds of one turn.
    """
    image = engine.image(part.manifest)
    outputs: list[dict[str, Any]] = []
    lost = 0
    with contextlib.ExitStack() as stack:
        guest = stack.enter_context(Guest(engine, image, memory_limit=part.memory_limit))
        _set_clock(guest, part, part.readings, part.elapsed)
        turn = guest.start(part.message, seconds)
        recorded = part.readings
        while True:
            found = guest.readings()
            if recorded is None:
                # Each reading that is not recorded is one millisecond later, so time has passed for the program.
                matching.elapsed += found.lost
            else:
                # Each turn reads the monotonic clock once at its beginning, which alone is not recorded.
                lost += max(0, found.lost - (not recorded.monotonic))
            report = None if turn.text is None else decode_turn(turn.text)
            if report is None:
                return Played(turn, None, tuple(outputs), lost=lost)
            outputs.extend(report.outputs)
            if report.state != "syntax":
                missing = matching.ask(report.requests)
                if missing is not None:
                    return Played(turn, report, tuple(outputs), missing, lost=lost)
            if turn.stopped is not None or report.state != "pending":
                return Played(turn, report, tuple(outputs), lost=lost)
            delivery = matching.next()
            if delivery is None:
                return Played(turn, report, tuple(outputs), is_stuck=True, lost=lost)
            if matching.other_turns > MAX_OTHER_TURNS:
                return Played(turn, report, tuple(outputs), is_endless=True, lost=lost)
            if restores == "always" or (restores == "recorded" and delivery.suspended):
                data = guest.snapshot()
                guest.close()
                guest = stack.enter_context(Guest(engine, image, memory_limit=part.memory_limit, suspended=data))
            for each in delivery.completions:
                name = matching.names.get(each.id)
                if name is not None and each.error is None:
                    results.add(name, each.value)
            recorded = delivery.readings
            _set_clock(guest, part, recorded, delivery.elapsed)
            turn = guest.deliver(deliver_message(delivery.completions, elapsed_ms=delivery.elapsed), seconds)


def _set_clock(guest: Guest, part: Part, readings: Readings | None, elapsed: float) -> None:
    passed = int(min(elapsed, MAX_ELAPSED) * 1_000_000)
    guest.replay_clock(
        Readings() if readings is None else readings,
        wall=min(part.began + passed, MAX_NANOSECONDS),
        monotonic=START_NANOSECONDS + passed,
    )
