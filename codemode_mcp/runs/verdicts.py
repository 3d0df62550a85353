"""The verdict on a turn: the program continues, has completed or has failed. The functions only return values.

The engine cannot always say why it stopped. Without memory it cannot make an error: it throws null, throws an error
without a message, or silently drops the work that would have settled a promise. A program can throw null, too. So
null counts as a lack of memory only if the memory is nearly used up (`full`).

`verdict` may take long for a large program that threw an error, because it searches the program for the position of
the error; see `Circumstances.takes_long`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.errors import ErrorCode, Exceeded
from codemode_mcp.base.settings import MIB, CodeModeSettings
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.program.global_uses import BROKEN
from codemode_mcp.program.program_form import NO_TOOL, mistaken_names
from codemode_mcp.runs.outputs import exceeds
from codemode_mcp.sandbox.guest import MAX_TURN_BYTES, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.described_values import Result
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.sandbox.messages import LeftOut, Thrown, TurnReport, UncheckedError


SEARCHED_IN_LOOP = 1000
"""A program of at most so many characters is searched in the event loop, a longer one in a thread."""

KEEP_LESS: Final = "keep less in memory at the same time"
RETURN_LESS: Final = (
    "return a part or a summary of it; store(key, part) keeps what later programs need, in parts with an awaited call "
    "between them"
)
"""Advice for values that do not fit into the memory, or into one message of the guest."""


class Completed(Struct, frozen=True):
    """The program has returned, and its value has left the guest."""

    report: TurnReport


class Failed(Struct, frozen=True):
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


class SyntaxFault(Struct, frozen=True):
    """The engine has refused the program's text, and nothing of it has run."""

    error: Thrown


Verdict = Completed | Failed | SyntaxFault


class Circumstances(Struct, frozen=True):
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
