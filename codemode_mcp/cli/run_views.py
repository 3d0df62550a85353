"""The text of `codemode-mcp runs` for people. Pure.

Whatever programs and servers have made up is escaped, so that none of it can pass for a line of ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.timeline import deadline, size
from codemode_mcp.calls.outcome import MadeCall
from codemode_mcp.control.display import columns, counted, cut, plain, wrapped
from codemode_mcp.control.merging import is_here, where
from codemode_mcp.control.protocol import digest_of
from codemode_mcp.runs.made_calls import made_text
from declarations.untrusted_text import count_blanks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.control.endpoints import Endpoint
    from codemode_mcp.control.merging import ReportedRun

MAX_ARGUMENTS: Final = 20_000
"""Characters of the arguments of one call that a terminal shows."""

MAX_CELL: Final = 100
"""Characters of a cell of a table."""

RUN_HEAD: Final = ("RUN", "STATE", "BEGAN", "CALLS", "WAITS FOR", "PROCESS", "CALLER")
CALL_HEAD: Final = ("CALL", "TOOL", "STATUS", "AT", "TOOK", "BYTES", "SENT", "REPEATABLE", "ARGUMENTS")


class DigestMismatch(Exception):
    """The arguments of a call do not have the digest that was sent with them."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table, each cut to the width: a longer one would wrap, and could pass for a line of ours."""
    shown = [head, *([cut(cell, MAX_CELL) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [cell + " " * (room - columns(cell)) for cell, room in zip(row, widths, strict=True)]
        yield cut("  ".join(cells).rstrip(), width)


def run_row(run: ReportedRun[Endpoint | None], now: float) -> tuple[str, ...]:
    view = run.view
    waits = [f"approval of {view['approvals']}"] if view["approvals"] else []
    waits += [f"answers to {view['questions']}"] if view["questions"] else []
    if waits and view["expiresMs"] is not None:
        waits.append(f"until {deadline(view['expiresMs'], now)}")
    process = "another" if where(view) == "elsewhere" else "none"
    if run.source is not None and is_here(view):
        process = str(run.source.pid)
    return (
        view["id"],
        state_text(view),
        _ago(view["ageMs"]),
        str(view["callCount"]),
        ", ".join(waits),
        process,
        caller_text(view),
    )


def call_row(call: Mapping[str, Any]) -> tuple[str, ...]:
    arguments = call["arguments"]
    known = arguments.get("value", arguments.get("shape", arguments.get("text", arguments.get("omitted", ""))))
    return (
        str(call["call"]),
        call["tool"],
        call["status"],
        f"+{_duration(call['atMs'])}",
        _duration(call["ms"]),
        f"{call['bytes']:,}",
        "yes" if call["dispatched"] else "no",
        "yes" if call["repeatable"] else "no",
        known if isinstance(known, str) else json.dumps(known, ensure_ascii=False),
    )


def state_text(view: Mapping[str, Any]) -> str:
    return f"{view['state']} ({view['code']})" if view["code"] else str(view["state"])


def caller_text(view: Mapping[str, Any]) -> str:
    return f"{view['caller']}:{view['principal'] or '?'}"


def summary(view: Mapping[str, Any]) -> str:
    """Return one line about a run that may be cancelled."""
    return f"run {view['id']}: {state_text(view)}, began {_ago(view['ageMs'])}, {counted(view['callCount'], 'call')}"


def heading(view: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yield the lines about a run above its calls. `now`: Unix seconds."""
    ended = f", ended {_ago(view['endedMs'])}" if view["endedMs"] is not None else ""
    expires = ""
    if view["expiresMs"] is not None:
        until = f"{_duration(view['expiresMs'])}, at {deadline(view['expiresMs'], now)}"
        expires = f", dropped in {until}, unless a wait comes"
    yield f"{view['id']}  {state_text(view)}"
    yield f"  began {_ago(view['ageMs'])}{ended}{expires}"
    yield f"  caller {caller_text(view)}, {counted(view['waits'], 'wait')}, {counted(view['timers'], 'timer')}"


def location_text(view: Mapping[str, Any]) -> str:
    """Return where a run is that no serving process of this user has."""
    if where(view) == "elsewhere":
        return "taken over by a process that cannot be asked from here"
    if view["endedMs"] is not None:
        return "kept in the store since it ended"
    return "suspended in the store, and no codemode-mcp serve of this user resumes it"


def made_line(view: Mapping[str, Any]) -> str:
    """Return one line about the calls of a run whose records no process has."""
    made = view.get("made")  # a process of an earlier version does not report it
    if made is None:
        return "its calls are not known here"
    if not made:
        return "none of its calls may have changed anything"
    return f"calls that may have changed something: {made_text([MadeCall(**each) for each in made])}"


def totals_line(stores: Iterable[Mapping[str, Any]]) -> str | None:
    """Return one line about the runs in all stores together; None if none is suspended."""
    known = [store for store in stores if store.get("suspended")]
    if not known:
        return None
    oldest = max(store["oldestMs"] or 0 for store in known)
    count, stored = (sum(store[key] for store in known) for key in ("suspended", "bytes"))
    return f"{count} suspended, the oldest for {_duration(oldest)}, {size(stored)} in all"


def approval_lines(waiting: Iterable[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield the calls that wait for approval, in lines by which a person can judge them.

    Raises:
        DigestMismatch: the arguments of a call were changed on the way.
    """
    for call in waiting:
        effects = [name for name, applies in call["effects"].items() if applies]
        yield ""
        title = f"call {call['call']}: {plain(call['tool'])}"
        if columns(title) < width:
            yield title
        else:
            yield f"call {call['call']}:"
            yield from wrapped(call["tool"], width, "  ")
        yield from wrapped(f"as {call['path']}", width, "  ")
        yield f"  {', '.join(effects).replace('_', ' ') or 'changes something, stays within its server'}"
        yield from wrapped(f"because: {call['reason']}", width, "  ")
        if call.get("configured"):
            names = ", ".join(map(json.dumps, call["configured"]))
            yield from wrapped(f"set by the configuration, not by the program: {names}", width, "  ")
        text, length = call["arguments"], call["characters"]
        is_whole = len(text) == length
        if is_whole and digest_of(text) != call["digest"]:
            raise DigestMismatch(f"the arguments of call {call['call']} do not have their digest; nothing was decided")
        if is_whole:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        yield from wrapped(count_blanks(text[:MAX_ARGUMENTS], is_code=True), width, "  │ ")
        if len(text) > MAX_ARGUMENTS or not is_whole:
            yield f"  ✂ CUT: the arguments have {length:,} characters,"
            yield f"    SHA-256 {call['digest']};"
            yield "    runs show RUN --json gives more of them"


def _ago(ms: int) -> str:
    return f"{_duration(ms) if ms >= 10_000 else f'{ms // 1000} s'} ago"


def _duration(ms: int) -> str:
    seconds = ms // 1000
    if ms < 10_000:
        return f"{ms} ms"
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
