"""Batches of completions for a guest: settled calls, timers, look-ups, stored and loaded values, and proposals."""

from __future__ import annotations

import heapq
import json
import time
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.strict_json import compact_json, replace_lone_surrogates
from codemode_mcp.catalog.saved_programs.versions import Author
from codemode_mcp.runs.live_call import failure
from codemode_mcp.runs.store import is_bearer
from codemode_mcp.runs.values import Get, Put, Values
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError, Lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.catalog.saved_programs.proposing import Proposer
    from codemode_mcp.runs.calls.dispatch import Dispatcher
    from codemode_mcp.runs.run import Run

LOOK_UP_SLICE = 0.002
"""Maximum seconds of look-ups in one batch. They are computed in the event loop, which other tasks need, too."""

LOOK_UP_SECONDS = 2.0
"""Maximum seconds of all look-ups of one run."""

BATCH_CHARACTERS = 8 * 1024 * 1024
"""Characters of results after which further results wait for the next turn."""

VALUES_PER_BATCH = 256
"""Maximum number of values that are stored and loaded in one transaction."""

PROPOSALS_PER_RUN = 10
"""Maximum number of proposals of one run in one process. Each needs a parse and a write."""


def bounded_proposal(run: Run, request: messages.SaveProgram) -> messages.SaveProgram:
    """Return a proposal as it is queued: without its texts, if the program has proposed too often.

    Each request has the whole text of the program, so thousands of them would take gigabytes.
    """
    run.proposed += 1
    if run.proposed <= PROPOSALS_PER_RUN:
        return request
    return replace(request, source="", description="", input=None)


class Deliveries:
    """The source of the batches for all runs. It holds no state of any run.

    Args:
        proposer: keeps the programs that are proposed to be saved; None if none can be.
    """

    def __init__(self, dispatcher: Dispatcher, values: Values, proposer: Proposer | None = None) -> None:
        self._dispatcher = dispatcher
        self._values = values
        self._proposer = proposer

    def take(self, run: Run, now: float) -> list[Completion]:
        """Take the next batch from a run.

        A timer is a batch of its own, so that the promises of its callback settle before the next callback runs. If a
        timer and other completions are due, they take turns, so that neither keeps the other waiting.
        """
        due = run.next_timer
        if due is not None and due <= now and not run.timer_was_last:
            return _fire(run)
        batch: list[Completion] = []
        size = 0
        # Requests are answered in order. One at the front that needs the disk waits for `execute_values`.
        slice_ends = time.perf_counter() + LOOK_UP_SLICE
        while size < BATCH_CHARACTERS:
            if run.settled:
                completion = run.settled.popleft()
                run.made.deliver(completion.id)
            elif (
                run.requests
                and not isinstance(lookup := run.requests[0], _AWAITED)
                and (not batch or time.perf_counter() < slice_ends)
            ):
                completion = self._look_up(run, lookup)
                run.requests.popleft()
            else:
                break
            batch.append(completion)
            size += completion.size
        if not batch and due is not None and due <= now:
            return _fire(run)
        run.timer_was_last = False
        return batch

    def _look_up(self, run: Run, lookup: Lookup) -> Completion:
        if run.looking_up > LOOK_UP_SECONDS:
            message = f"this program has used {LOOK_UP_SECONDS:g} s for look-ups in API and $api; make fewer"
            return Completion(lookup.id, error=GuestError(message))
        began = time.perf_counter()
        completion = self._dispatcher.answer(lookup, run.context, run.note)
        run.looking_up += time.perf_counter() - began
        if completion.error is None:
            run.results.add(_LOOK_UPS[type(lookup)], completion.value)
        return completion

    async def execute_values(self, run: Run) -> None:
        """Execute the next `store()`s and `load()`s of a program, up to the first request of another kind.

        A `save_program()` is executed alone, and the ends of failed saved programs are answered before others.
        """
        while run.requests and isinstance(end := run.requests[0], messages.ProgramEnd):
            answer = await failure(self._dispatcher.saved, run, end)
            run.requests.popleft()
            run.settled.append(answer)
        if run.requests and isinstance(proposed := run.requests[0], messages.SaveProgram):
            completion = await self._propose(run, proposed)
            run.requests.popleft()
            run.settled.append(completion)
            return
        requests: list[messages.Store | messages.Load] = []
        for each in run.requests:
            if not isinstance(each, messages.Store | messages.Load) or len(requests) == VALUES_PER_BATCH:
                break
            requests.append(each)
        room = BATCH_CHARACTERS - run.settled.size if requests else 0
        if room > 0:
            for completion in await self._execute(run, requests, room):
                run.requests.popleft()
                run.settled.append(completion)

    async def execute_last_stores(self, run: Run) -> tuple[str, ...]:
        """Execute the `store()`s and `save_program()`s of the last turn. Return notes: the reasons for refusals.

        Their program has ended, so it does not see the reasons itself.
        """
        stores = [each for each in run.requests if isinstance(each, messages.Store)]
        proposed = [each for each in run.requests if isinstance(each, messages.SaveProgram)]
        run.requests.clear()
        refused: list[str] = []
        for request in proposed:
            answer = await self._propose(run, request)
            refused.append(json.loads(answer.value)["message"] if answer.error is None else answer.error.message)
        while stores:
            answers = await self._execute(run, stores[:VALUES_PER_BATCH], BATCH_CHARACTERS)
            del stores[: len(answers)]
            refused += [answer.error.message for answer in answers if answer.error is not None]
        return tuple(dict.fromkeys(refused))

    async def keep_finished_calls(self, run: Run) -> tuple[str, ...]:
        """Store the results of the calls of a failed program for its owner. Return the note that names them."""
        # The client of a cancelled `exec` gets no answer.
        is_read = run.state != "aborted" or run.waits > 0
        finished = run.results.finished_calls(run.context.catalog)
        if finished is None or is_bearer(run.owner) or run.fenced or not is_read:
            return ()
        try:
            ref = await self._values.offload(run.owner, finished.text)
        except CodeModeError:
            return ()  # the answer is right without them
        return () if ref is None else (finished.note(ref, run.source),)

    async def _propose(self, run: Run, request: messages.SaveProgram) -> Completion:
        run.check_fence()
        try:
            proposer = self._proposer
            if proposer is None or not request.source:
                why = "nothing can be saved here" if proposer is None else f"a program may do this {PROPOSALS_PER_RUN}x"
                raise ProgramError("nested_tool_failed", f"save_program(): {why}")
            caller = run.context.caller
            answer: dict[str, Any] = await proposer.propose(
                request.name,
                source=request.source,
                language=request.language,
                description=request.description,
                schema=request.input,
                author=None if is_bearer(run.owner) else Author(run.owner, caller.principal, caller.kind, run.id),
                read_only=caller.read_only,
                find=run.context.catalog.definition_at,
            )
        except CodeModeError as error:
            return Completion(request.id, error=GuestError.of(error), of_call=False)
        return Completion(request.id, compact_json(answer), of_call=False)

    async def _execute(
        self, run: Run, requests: Sequence[messages.Store | messages.Load], room: int
    ) -> list[Completion]:
        """Execute the first of these requests, at least one; see `Values.execute`."""
        run.check_fence()
        if is_bearer(run.owner):
            message = (
                "store() and load() need a client with a login or a session, and this one has none; return the value"
            )
            return [Completion(each.id, error=GuestError(message), of_call=False) for each in requests]
        puts_and_gets = [
            Put(each.key, replace_lone_surrogates(each.value)) if isinstance(each, messages.Store) else Get(each.key)
            for each in requests
        ]
        try:
            answers = await self._values.execute(run.owner, puts_and_gets, room)
        except CodeModeError as error:
            answers = [error] * len(requests)
        completions = []
        # There may be fewer answers than requests. The other requests are executed in the next batch.
        for each, answer in zip(requests, answers, strict=False):
            if isinstance(answer, CodeModeError):
                completions.append(Completion(each.id, error=GuestError.of(answer), of_call=False))
            elif isinstance(each, messages.Load):
                if answer is None:
                    run.absent_key = each.key
                completions.append(Completion(each.id, "[]" if answer is None else f"[{answer}]", of_call=False))
            else:
                completions.append(Completion(each.id, of_call=False))
        return completions


_AWAITED: Final = (messages.Store, messages.Load, messages.SaveProgram, messages.ProgramEnd)
"""Requests that `execute_values` answers."""


def _fire(run: Run) -> list[Completion]:
    """Return a batch of the timer that is due first, which is removed."""
    _, timer = heapq.heappop(run.timer_heap)
    del run.timers[timer]
    run.timers_began.pop(timer, None)
    run.timer_was_last = True
    return [Completion(timer)]


_LOOK_UPS: Final = {
    messages.ApiList: "API.list",
    messages.ApiRead: "API.read",
    messages.ApiSearch: "API.search",
    messages.Header: "$api",
    messages.ToolSearch: "tools.search",
    messages.Describe: "tools.describe",
}
"""The expressions of a program that make look-ups."""
