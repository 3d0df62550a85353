"""The verdict on a turn, and the answer to a request: pending calls of a suspended run, or its end.

The functions only return values. There is one exception: `waiting` also marks the questions of its answer as shown.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import ErrorCode, Exceeded
from codemode_mcp.base.settings import MIB, CodeModeSettings
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.program.global_uses import BROKEN
from codemode_mcp.program.program_form import NO_TOOL, mistaken_names
from codemode_mcp.rules.policy.approval import ApprovalQuestion
from codemode_mcp.runs.calls.outcome import Outcome, PendingCall, PendingStatus, SnapshotUse, Usage, WaitingReason
from codemode_mcp.runs.outputs import exceeds
from codemode_mcp.runs.questions import WINDOW, Client, OpenQuestion
from codemode_mcp.runs.rendering import RETURNED
from codemode_mcp.runs.run import RECENT_CALLS, Run
from codemode_mcp.sandbox.guest import MAX_TURN_BYTES, Turn
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.runs.observation import Observation
    from codemode_mcp.sandbox.messages import LeftOut, Thrown, TurnReport, UncheckedError
    from upstream_clients.tools import Question


SHOWN_PENDING = 20
SHOWN_QUESTIONS = 5
SHOWN_UNCHECKED = 3
"""Maximum numbers of pending calls, questions, and unchecked results with `isError` that an answer lists."""

SHOWN_LEFT_OUT = 5
SHOWN_PARTS = 1000
"""Maximum number of tools of which an answer names what `unwrap` has left out, and of characters for each."""

SHOWN_UNREAD = 3
"""Maximum number of reads of absent members that an answer explains."""

MAX_HOLLOW = 1000
"""A text with more characters, and a value or output with more members, says something."""

SHOWN_TEXT = 300
"""Maximum characters that are shown of a result with `isError` that its program did not check."""

MAX_UNCHECKED = 32
"""Maximum number of results with `isError` that the guest remembers; see `30_bridge.js`."""

RESERVED_KEYS = "codemode-mcp "
"""Prefix of the keys under which this product itself stores values, such as those of `repl`."""


def questions_due(run: Run, observation: Observation) -> float:
    """Return the time at which a request is answered with questions, because its client gets questions as answers."""
    returned = run.questions.returned_to(observation.client)
    if not returned:
        return math.inf
    # Calls in flight that have asked nothing yet may ask within `WINDOW`. One answer can then have all questions.
    oldest = min(each.began for each in returned)
    return oldest if run.executing <= len(run.questions.calls) else oldest + WINDOW


def is_unanswerable(run: Run, client: Client | None) -> bool:
    """Return True if a run waits only for answers that this client cannot give."""
    questions = run.questions
    return (
        bool(questions.open or run.approvals.calls)
        and not questions.has_answer
        and not run.approvals.gathers
        and not questions.being_asked
        and not questions.returned_to(client)
        and not run.timers
        and run.executing <= len(questions.calls)
    )


def keeps_output(run: Run, client: Client | None) -> bool:
    """Return True if the answer for a suspended run has no room for output, so that the output stays for a later one.

    Such an answer has only questions, or only the state of the run.
    """
    return client is not None and (client.polls or bool(run.questions.returned_to(client)))


def waiting(
    run: Run, reason: WaitingReason, now: float, wall: float, command: str, address: str | None = None
) -> Outcome:
    """Return the answer for a suspended run, without its output.

    Args:
        now, wall: the time on both clocks; see `records`.
        command: the command that runs codemode-mcp in a terminal.
        address: the address of the page about the approvals of the run; None if no page is open.
    """
    client = None if run.observation is None else run.observation.client
    return Outcome(
        run.id,
        run.owner,
        "waiting",
        usage(run, now),
        reason=reason,
        pending=tuple(_pending(run, now)),
        pending_total=len(run.calls) + len(run.timers),
        yielded=run.yield_reason if reason == "yield" else None,
        questions=run.questions.hand_out(client),
        unanswerable=is_unanswerable(run, client) and not run.questions.put_later(client),
        asked=_asked(run, client, command, address),
        deadline=None if run.expires is None or not run.waits_for_person else wall + run.expires - now,
    )


def usage(run: Run, now: float) -> Usage:
    counts, store = run.context.counts, run.store
    return Usage(
        catalog_size=len(run.context.catalog),
        sources=run.context.catalog.sources,
        execs=1,
        waits=run.waits,
        searches=counts.search,
        describes=counts.describe,
        call_count=counts.call,
        calls=tuple([*run.recent, *(live.record for live in run.calls.values())][-RECENT_CALLS:]),
        snapshots=run.snapshots,
        ms=round((now - run.began) * 1000),
        snapshot=None if store is None else SnapshotUse(run.snapshot_size, store.kind, run.restored, run.taken_over),
        exceeded=run.exceeded,
    )


def _pending(run: Run, now: float) -> Iterator[PendingCall]:
    asking = run.questions.calls
    for live in list(run.calls.values())[:SHOWN_PENDING]:
        status: PendingStatus = "queued" if live.record.status == "queued" else "executing"
        if live.call.id in asking:
            status = "needs_input"
        elif live.call.id in run.approvals.calls:
            status = "needs_approval"
        why = ""
        if status == "queued":
            why = live.record.why_queued
            if not live.has_slot:
                why = f"waits for its turn: {run.executing} calls of this program are in flight"
        yield PendingCall(str(live.call.id), live.record.tool, status, live.record.milliseconds(now), why)
    for timer in list(run.timers)[: max(0, SHOWN_PENDING - len(run.calls))]:
        began = run.timers_began.get(timer, now)
        yield PendingCall(str(timer), "core:timer", "executing", round((now - began) * 1000))


def _asked(run: Run, client: Client | None, command: str, address: str | None) -> tuple[str, ...]:
    """Return sentences about the questions to a person, and who can answer them."""
    asked: list[str] = []
    approval = None
    for each in run.questions.open:
        if isinstance(each.question, ApprovalQuestion):
            approval = each
        elif len(asked) < SHOWN_QUESTIONS:
            how = "This client cannot be asked."
            if each.asking is not None:
                how = "The client is being asked."
            elif each.way is not None and each.way[1] == "later":
                how = "The client is asked during the next wait."
            whose = "The program" if each.question.by_program else f"Server {each.question.server!r}"
            asked.append(f"{whose} asks {_asked_for(each.question)}. {how}")
    if run.approvals.calls:
        tools = counted([request.tool for request in run.approvals.requests])
        asked.append(f"A person has to approve {tools}. {_how_to_approve(run, client, approval, command, address)}")
    return tuple(asked)


def _how_to_approve(
    run: Run, client: Client | None, approval: OpenQuestion | None, command: str, address: str | None
) -> str:
    if approval is not None and approval.asking is not None:
        return "The user is being asked."
    on_page = "" if address is None else f"The user can decide on the page {address}. "
    in_terminal = (
        f"{on_page}To approve, the user runs in a terminal: `{command} runs approve {run.id}` (or `runs deny`)."
    )
    if run.approvals.unasked_reason is not None:
        return f"{run.approvals.unasked_reason} {in_terminal}"
    if client is None or (approval is not None and client.way(approval.question) == "none"):
        return f"This client cannot ask the user. {in_terminal}"
    return f"{on_page}The user is asked during the next wait."


def _asked_for(question: Question) -> str:
    """Return the end of a sentence about a question of a server. The words of the server are quoted."""
    match question.method:
        case "elicitation/create":
            message = str(question.params.get("message", ""))
            return f"the user {_quoted(message, 200)}"
        case "sampling/createMessage":
            return "the client's model"
        case "roots/list":
            return "for the client's folders"


def program_notes(
    positions: Positions | None, tools: Mapping[int, str], catalog: Catalog, found: TurnReport | Failed
) -> tuple[str, ...]:
    """Return the notes about what a program has not handled, not checked, and not seen.

    Args:
        tools: the tools of the latest calls, by the number of the call.
        found: the last turn of the program, or the verdict on it.
    """
    notes = rejection_notes(positions, found.rejections) if found.rejections else ()
    return notes + unchecked_notes(tools, found.unchecked) + left_out_notes(catalog, found.left_out)


def rejection_notes(positions: Positions | None, rejections: Sequence[Thrown]) -> tuple[str, ...]:
    assert positions is not None
    short = len(positions.code) <= SEARCHED_IN_LOOP
    return tuple(
        f"Unhandled rejection: {positions.describe(each, search=short and number == 0)}"
        for number, each in enumerate(rejections)
    )


def unchecked_notes(tools: Mapping[int, str], unchecked: Sequence[UncheckedError]) -> tuple[str, ...]:
    """Return notes about results with `isError` that the program did not check.

    Args:
        tools: the tools of the latest calls, by the number of the call.
    """
    notes = []
    for each in unchecked[-SHOWN_UNCHECKED:]:
        text = f": {_quoted(each.text, SHOWN_TEXT)}" if each.text else ""
        tool = escape_line(tools.get(each.call, f"call {each.call}"))
        notes.append(
            f"{tool} returned isError, and the program did not check it{text}. unwrap(result) throws on isError."
        )
    if len(unchecked) > SHOWN_UNCHECKED:
        least = "At least " if len(unchecked) >= MAX_UNCHECKED else ""
        notes.append(f"{least}{len(unchecked) - SHOWN_UNCHECKED} more results with isError were not checked.")
    return tuple(notes)


def error_text_note(path: str, text: str) -> str:
    """Return a note about a result that reads like an error without being one."""
    whose = f"{escape_line(path)} returned a text that reads like an error, without isError"
    return f"{whose}, so unwrap does not throw: {_quoted(text, SHOWN_TEXT)}"


def left_out_notes(catalog: Catalog, left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    notes = []
    for each in left_out[:SHOWN_LEFT_OUT]:
        entry = catalog.get(each.tool)
        whose = escape_line(entry.path if entry is not None else each.tool or "a result")
        value = f"; its value is {escape_line(each.taken, SHOWN_PARTS)}" if each.taken else ""
        more = f"; {each.count - 1} more of its results had such parts" if each.count > 1 else ""
        notes.append(f"unwrap left out {escape_line(each.parts, SHOWN_PARTS)} of {whose}{value}{more}.")
    if len(left_out) > SHOWN_LEFT_OUT:
        notes.append(f"unwrap left out parts of the results of {len(left_out) - SHOWN_LEFT_OUT} more tools.")
    return tuple(notes)


def absent_value_notes(key: str | None) -> tuple[str, ...]:
    """Return a note that explains an empty result.

    Args:
        key: the latest key that the program has loaded without finding a value; None if there is none.
    """
    if key is None or key.startswith(RESERVED_KEYS):
        return ()
    return (f"load({json_text(key[:100])}) returned undefined: no value is stored under this key.",)


def unread_notes(positions: Positions | None, results: Sequence[Result], *, nothing: bool) -> tuple[str, ...]:
    """Return notes about reads of members that results of calls do not have, for a program without a result.

    Args:
        nothing: True if the program has neither a value nor output.
    """
    if positions is None or "MCP" not in positions.code:
        return ()
    from codemode_mcp.program.expression_values import unread_results  # imported late: few programs need it

    why = "The program returned undefined" if nothing else "The result may be empty for this reason"
    found = unread_results(positions.code, results)[:SHOWN_UNREAD]
    return tuple(f"{why}: {escape_line(each, SHOWN_PARTS)}." for each in found)


def needs_explanation(value: Any, outputs: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a program has ended with a value and outputs that say nothing, as those from undefined do."""
    left: list[Any] = [value, *outputs[:MAX_HOLLOW]]
    for number, each in enumerate(left):
        if number >= MAX_HOLLOW:
            return False
        match each:
            case {"type": "text", "text": str(text)} | str(text):
                if text and (len(text) > MAX_HOLLOW or _HOLLOW.search(text) is None):
                    return False
            case {"type": "json", "value": inner}:
                left.append(inner)
            case list():
                left += each[:MAX_HOLLOW]
            case dict():
                left += list(each.values())[:MAX_HOLLOW]
            case _ if each:
                return False
    return True


_HOLLOW: Final = re.compile(r"\b(?:undefined|null|NaN)\b")


def lost_value_notes(lost: str) -> tuple[str, ...]:
    """Return a note about a part of a value that JSON has no form for. `lost`: as in `TurnReport`."""
    if not lost:
        return ()
    if " is " not in lost:
        return (f"{RETURNED} {escape_line(lost)}, which JSON has no form for; the value is null.",)
    place, _, what = escape_line(lost).rpartition(" is ")
    return (f"{place} is {what} in the program. JSON has no form for that, so it is null here, as others may be.",)


_FOR_EACH: Final = re.compile(r"\.forEach\(\s*async\b")


def how_to_await(run: Run) -> str:
    if run.positions is not None and _FOR_EACH.search(run.positions.code):
        return "forEach does not wait for async functions: write `for (const x of list)` with await inside"
    return "await such calls"


def _quoted(text: str, limit: int) -> str:
    """Return the start of a server's text in quotation marks, with hidden characters escaped."""
    quoted = json_text(text if len(text) <= limit else text[:limit] + "...")
    return escape_line(quoted, len(quoted))


def counted(tools: list[str]) -> str:
    """Return the ids of tools as text, each once, with the number of its calls."""
    counted = [tool if count == 1 else f"{tool} ({count} times)" for tool, count in Counter(tools).items()]
    shown = ", ".join(counted[:10])
    return shown + (f" and {len(counted) - 10} more tools" if len(counted) > 10 else "")


# The verdict on a turn: the program continues, has completed or has failed. The functions only return values.
#
# The engine cannot always say why it stopped. Without memory it cannot make an error: it throws null, throws an error
# without a message, or silently drops the work that would have settled a promise. A program can throw null, too. So
# null counts as a lack of memory only if the memory is nearly used up (`full`).
#
# `verdict` may take long for a large program that threw an error, because it searches the program for the position of
# the error; see `Circumstances.takes_long`.


SEARCHED_IN_LOOP = 1000
"""A program of at most so many characters is searched in the event loop, a longer one in a thread."""

KEEP_LESS: Final = "keep less in memory at the same time"
RETURN_LESS: Final = (
    "return a part or a summary of it; store(key, part) keeps what later programs need, in parts with an awaited call "
    "between them"
)
"""Advice for values that do not fit into the memory, or into one message of the guest."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The program has returned, and its value has left the guest."""

    report: TurnReport


@dataclass(frozen=True, slots=True)
class Failed:
    """The program has failed.

    Attributes:
        exceeded: the limit that the program exceeded. If it is the memory, the caller sets it, because only the caller
            knows the size.
    """

    code: ErrorCode
    message: str
    rejections: tuple[Thrown, ...] = ()
    unchecked: tuple[UncheckedError, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """The engine has refused the program's text, and nothing of it has run."""

    error: Thrown


Verdict = Completed | Failed | SyntaxFault


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Everything on which a verdict depends, besides the turn.

    Attributes:
        results: the latest results of the run, which help to explain an error.
        exceeded: the latest limit that the run exceeded.
        overdue_seconds: seconds since the deadline of the request.
    """

    settings: CodeModeSettings
    positions: Positions
    catalog: Catalog
    namespaces: OpenNamespaces
    results: Sequence[Result]
    exceeded: Exceeded | None
    overdue_seconds: float

    @property
    def takes_long(self) -> bool:
        """True if an error should be described in a thread."""
        return len(self.positions.code) > SEARCHED_IN_LOOP


def verdict(turn: Turn, report: TurnReport | None, about: Circumstances) -> Verdict | None:
    """Return the verdict on a turn, or None if the program continues."""
    if turn.stopped is not None:
        return _stopped(turn, report, about)
    assert report is not None
    match report.state:
        case "done" if report.too_large:
            return _too_large(report.too_large, report.rejections, returned=True)
        case "done":
            return Completed(report)
        case "failed":
            assert report.error is not None
            return _thrown(report.error, report, about, full=turn.full)
        case "syntax":
            assert report.error is not None
            return SyntaxFault(report.error)
        case "pending":
            return None


def stuck(settings: CodeModeSettings, *, full: bool) -> Failed:
    """Return the verdict on a program that awaits a promise which nothing can settle.

    Args:
        full: True if the memory of its guest is nearly used up.
    """
    if full:
        # Without memory, the engine drops the work that would have settled a promise.
        return Failed("memory_limit_exceeded", _out_of_memory(settings, ""))
    return Failed(
        "internal_error",
        "the program awaits a promise that nothing can settle: no call, timer or yield_control is pending; "
        "await only promises of calls and timers, or settle the promise in the program",
    )


def turned_away(*, released: bool) -> Failed:
    """Return the verdict on a program that could not begin before its request had to be answered.

    Args:
        released: True if the server is about to end.
    """
    if released:
        return Failed("aborted", "the server is shutting down, and nothing of the program has run; try again")
    return Failed(
        "timeout",
        "other programs kept the server busy until the request had to be answered; nothing of this one has run, "
        "try again",
    )


def over_output_limit(outputs: Sequence[dict[str, Any]], settings: CodeModeSettings) -> Failed | None:
    message = exceeds(outputs, settings.max_output_bytes) if settings.on_output_limit == "fail" else None
    if message is None:
        return None
    size = len(json_text(list(outputs)).encode("utf-8", "replace"))
    exceeded = Exceeded("maxOutputBytes", size, settings.max_output_bytes)
    return Failed("output_limit_exceeded", message, exceeded=exceeded)


def _stopped(turn: Turn, report: TurnReport | None, about: Circumstances) -> Failed:
    rejections = () if report is None else report.rejections
    fault = None if report is None else report.fault
    where = "" if fault is None else _location(about.positions, fault)
    settings = about.settings
    match turn.stopped:
        case "time":
            seconds = settings.timeout_ms / 1000
            return Failed(
                "timeout",
                f"the program was still computing when its time of {seconds:g} s was over{_function(fault)}; "
                "split the work into several programs, or let tools do it",
                rejections,
                exceeded=Exceeded("timeoutMs", round((seconds + about.overdue_seconds) * 1000), settings.timeout_ms),
            )
        case "memory":
            return Failed("memory_limit_exceeded", _out_of_memory(settings, where), rejections)
        case "size":
            return _too_large(turn.size, rejections, returned=turn.done)
        case _:
            # "[uninitialized]" is the message of an error for which the engine had no memory.
            if fault is not None and (_is_out_of_memory(fault, full=turn.full) or fault.message == "[uninitialized]"):
                return Failed("memory_limit_exceeded", _out_of_memory(settings, where), rejections)
            detail = turn.detail or (fault.message if fault is not None else "")
            return Failed("internal_error", f"the sandbox stopped the program: {detail}", rejections)


def _thrown(error: Thrown, report: TurnReport, about: Circumstances, *, full: bool) -> Failed:
    settings, exceeded = about.settings, about.exceeded
    if _is_out_of_memory(error, full=full):
        where = " while its value was written as JSON" if report.returning else _location(about.positions, error)
        message = _out_of_memory(settings, where, RETURN_LESS if report.returning else KEEP_LESS)
        return Failed("memory_limit_exceeded", message, report.rejections)
    code: ErrorCode = "internal_error"
    match error.code:
        case "too_many_pending_tool_calls" | "module_access_denied" as known:
            code = known
            if known == "too_many_pending_tool_calls" and exceeded is None:
                # The guest has refused the calls itself, so the host has recorded no limit.
                limit = settings.max_pending_tool_calls + settings.max_queued_tool_calls
                exceeded = Exceeded("maxQueuedToolCalls", limit + 1, limit)
        case str():
            code = "nested_tool_failed"
    message = about.positions.describe(error, results=about.results)
    message = _with_expression(message, error, about.catalog)
    message = _with_nearest_function(message, error, about.namespaces)
    message = _with_nearest_program(message, error, about.catalog)
    return Failed(code, message, report.rejections, report.unchecked, report.left_out, exceeded)


def _out_of_memory(settings: CodeModeSettings, where: str, advice: str = KEEP_LESS) -> str:
    return f"the program used more than its memory of {settings.memory_limit_bytes // MIB} MiB{where}; {advice}"


def _is_out_of_memory(thrown: Thrown, *, full: bool) -> bool:
    """Return True if an error means that the memory is full.

    If the engine has no memory for an error, it throws null or an error without a message. In a regular expression it
    throws a SyntaxError.
    """
    if full and (
        thrown.is_null or thrown.is_blank or (thrown.name, thrown.message) == ("SyntaxError", "out of memory")
    ):
        return True
    return thrown.engine and ("out of memory" in thrown.message or thrown.message == "string too long")


def _too_large(size: int, rejections: tuple[Thrown, ...], *, returned: bool) -> Failed:
    sent, limit = f"{math.ceil(10 * size / MIB) / 10:g} MiB", f"{MAX_TURN_BYTES // MIB} MiB"
    message = (
        f"the program sent {sent} in one turn, in arguments of calls and values for store(); the limit is {limit}; "
        "send less, or send it in parts with an await between them"
    )
    if returned:
        message = f"the program returned a value of {sent} as JSON; the limit is {limit}; {RETURN_LESS}"
    exceeded = Exceeded("turnBytes", size, MAX_TURN_BYTES)
    return Failed("output_limit_exceeded", message, rejections, exceeded=exceeded)


def _with_expression(message: str, error: Thrown, catalog: Catalog) -> str:
    """Add the right expression to the first line of a message about a name that is not a tool or a server."""
    first, newline, frames = message.partition("\n")
    expressions = list(filter(None, map(catalog.expression_for, mistaken_names(error, first))))
    if expressions:
        first = first.removesuffix(NO_TOOL) + "".join(f" (write {each})" for each in expressions)
    return first + newline + frames


_NO_FUNCTION = re.compile(r"(?<![\w$.])([\w$]+(?:\.[\w$]+)+) is not a function")
"""The message about a name with dots that is not a function.

It matches only at the start of a word. Otherwise its time would be quadratic in the length of the word."""


def _with_nearest_function(message: str, error: Thrown, namespaces: OpenNamespaces) -> str:
    first, newline, frames = message.partition("\n")
    match = _NO_FUNCTION.search(first) if error.name == "TypeError" else None
    found = None if match is None else namespaces.nearest_function(match[1])
    return message if found is None else f"{first} (nearest: {found}){newline}{frames}"


_NO_PROGRAM = re.compile(r"(?<![\w$.])programs\.([\w$]{1,200}) is (?:not a function|undefined)")


def _with_nearest_program(message: str, error: Thrown, catalog: Catalog) -> str:
    """Add advice to the first line of a message, if a saved program does not exist or its file has a problem."""
    first, newline, frames = message.partition("\n")
    match = _NO_PROGRAM.search(first) if error.name == "TypeError" else None
    if match is None or match[1] in catalog.programs:
        return message
    if match[1] in catalog.broken_programs:
        return f"{first.removesuffix(NO_TOOL)} ({BROKEN}){newline}{frames}"
    if not catalog.programs:
        return message
    near = nearest(match[1], catalog.programs)
    advice = f"nearest: {', '.join(f'programs.{name}' for name in near)}" if near else 'see API.list("programs/")'
    return f"{first.removesuffix(NO_TOOL)} ({advice}){newline}{frames}"


def _function(fault: Thrown | None) -> str:
    """Return the name of the interrupted function, after a comma. The line is not known in a loop without calls."""
    match = None if fault is None else re.match(r"\s*at (\S+) \(<input>", fault.stack)
    return "" if match is None or match[1] == "anonymous" else f", in {match[1]}"


def _location(positions: Positions, thrown: Thrown) -> str:
    frames = positions.frames(thrown)
    return f" ({frames[0].removeprefix('at ')})" if frames else ""
