"""The end of a replay: its outcome, and how it differs from the recorded end. Pure.

The same program ends as it did in the recorded run. Where the host has ended that run (at a deadline, at a limit, or
because a person has cancelled it), the replay ends with the recorded error as soon as it has come as far.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from msgspec import Struct, structs

from codemode_mcp.audit.recordings.format import End, Recording, Turn
from codemode_mcp.audit.recordings.masking import masked_names
from codemode_mcp.base.errors import ErrorCode
from codemode_mcp.base.strict_json import ascii_json
from codemode_mcp.catalog.plugins.api import NamespaceTool
from codemode_mcp.extensions.program_tools.replay.player import MAX_OTHER_TURNS, Matching, NotRecorded, Played
from codemode_mcp.extensions.program_tools.replay.script import Asked, Divergence, differences, places_of
from codemode_mcp.runs import run_notes
from codemode_mcp.runs.calls.outcome import Outcome, Usage
from codemode_mcp.runs.namespaces import OpenNamespace, OpenNamespaces
from codemode_mcp.runs.verdicts import Circumstances, Completed, Failed, stuck, verdict
from codemode_mcp.sandbox.messages import ToolCall
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.runs.run_recording import RecentResults

OWNER: Final = "replay"
"""The owner of the outcome of a replay."""

SHOWN_CALLS: Final = 5
"""Maximum number of calls that a message lists."""

STOPPED: Final = frozenset({"timeout", "aborted"})
"""Codes of runs that may have been stopped while their program computed."""

_BY_HOST: Final = frozenset(
    {"timeout", "aborted", "memory_limit_exceeded", "output_limit_exceeded", "snapshot_limit_exceeded"}
    | {"snapshot_expired", "snapshot_restore_failed", "runtime_unavailable", "internal_error"}
)
"""Codes of errors with which the host ends a run. What the program has done until then need not be the same twice."""

_ENDLESS: Final = (
    f"the program has waited {MAX_OTHER_TURNS:,} times for timers and the like since the recorded answers; wait for "
    "something that ends, or stop after some attempts"
)


class Replayed(Struct, frozen=True):
    """The result of a replay.

    Attributes:
        outcome: the end of the program, as `run` prints it.
        divergence: the first difference from the recording; None if there is none.
        notes: sentences about the replay itself.
        unused: the recorded calls that the program has not made.
        is_cut: True if the replay ended before the program, at a request that has no recorded answer.
    """

    outcome: Outcome
    divergence: Divergence | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[Asked, ...] = ()
    is_cut: bool = False


class About(Struct, frozen=True):
    """The program of a replay.

    Attributes:
        source: the author's text.
        namespaces: its namespaces.
        exact: True if it is the recorded program, which must end as recorded.
    """

    source: str
    positions: Positions
    catalog: Catalog
    namespaces: OpenNamespaces
    settings: CodeModeSettings
    exact: bool


def replayed(played: Played, matching: Matching, results: RecentResults, about: About, end: End | None) -> Replayed:
    """Return the result of a replay.

    Args:
        end: the end of the recorded run; None if the recording has none.
    """
    notes = _clock_notes(played.lost)
    if about.exact and end is not None and end.code in STOPPED and matching.is_at_end:
        # How far the program came in its last turn depended on the time, so nothing of that turn is compared.
        return Replayed(recorded_outcome(end), None, notes, matching.unused)
    if played.not_recorded is not None:
        divergence = _placed(played.not_recorded, about)
        outcome = _failed("nested_tool_failed", divergence.what, played)
        return Replayed(outcome, divergence, notes, matching.unused, is_cut=True)
    if played.is_endless:
        return Replayed(_failed("timeout", _ENDLESS, played), None, notes, matching.unused)
    if about.exact and end is not None and _ended_by_host(played, end):
        return Replayed(recorded_outcome(end), None, notes, matching.unused)
    outcome = _outcome(played, matching, results, about)
    if not about.exact:
        return Replayed(outcome, None, notes, matching.unused)
    if end is None:
        if played.is_stuck and matching.is_waiting:
            message = "the recording ends here, before its program does"
            return Replayed(_failed("aborted", message, played), None, notes, matching.unused)
        return Replayed(outcome, None, notes, matching.unused)
    different = _unmade(matching.unused) or _different_end(outcome, end)
    if different is None:
        # The notes of the recorded run are also about what the host has done, such as sending unawaited calls.
        outcome = structs.replace(outcome, notes=end.notes, dropped=end.dropped)
    return Replayed(outcome, different, notes, matching.unused)


def masked_note(recording: Recording) -> str | None:
    """Return a note for a divergence that masked secrets may have caused; None if there are no masked secrets."""
    names: dict[str, None] = {}
    for text in _texts(recording):
        names.update(dict.fromkeys(masked_names(text)))
    if not names:
        return None
    shown = ", ".join(list(names)[:SHOWN_CALLS])
    return f"The recording has placeholders of secrets ({shown}); a program that computes with one may differ."


def _texts(recording: Recording) -> Iterator[str]:
    yield recording.opening.source
    yield from recording.opening.args
    for line in recording.steps:
        if isinstance(line, Turn):
            for each in line.completions:
                yield each.value or ""


def recorded_outcome(end: End) -> Outcome:
    code = end.code if end.code in get_args(ErrorCode) else "internal_error"
    return Outcome(
        "replay",
        OWNER,
        end.status,
        Usage(),
        outputs=end.outputs,
        notes=end.notes,
        dropped=end.dropped,
        value=end.value,
        error=end.error,
        code=cast("ErrorCode", code),
    )


def namespaces_of(text: str, catalog: Catalog) -> OpenNamespaces:
    """Return the namespaces of a recording. Their functions are known by their paths.

    Raises:
        ValueError, TypeError, LookupError: the text is damaged.
    """
    offered = {each.id: each for each in catalog.namespaces}
    opened = []
    for each in json.loads(text):
        known = offered.get(each["id"])
        if known is not None:
            paths = [".".join(path) for path in each["functions"]]
            opened.append(OpenNamespace(known, None, dict.fromkeys(paths, NamespaceTool(""))))
    return OpenNamespaces(opened, text)


def _outcome(played: Played, matching: Matching, results: RecentResults, about: About) -> Outcome:
    if played.is_stuck and matching.is_waiting:
        return _failed("aborted", "the program waits for a call that never ended in the recorded run", played)
    found = stuck(about.settings, full=played.turn.full) if played.is_stuck else _verdict(played, results, about)
    report = played.report
    if isinstance(found, Completed):
        made = run_notes.program_notes(about.positions, matching.names, about.catalog, found.report)
        if found.report.value is None and not played.outputs:
            made += run_notes.absent_value_notes(matching.absent_key)
        if run_notes.needs_explanation(found.report.value, played.outputs):
            nothing = found.report.value is None and not played.outputs
            made += run_notes.unread_notes(about.positions, results.of(about.catalog), nothing=nothing)
        dropped = found.report.dropped_size
        return Outcome(
            "replay",
            OWNER,
            "completed",
            Usage(),
            outputs=played.outputs,
            notes=made,
            dropped=dropped,
            value=found.report.value,
        )
    made = run_notes.program_notes(about.positions, matching.names, about.catalog, found)
    dropped = 0 if report is None else report.dropped_size
    return structs.replace(_failed(found.code, found.message, played), notes=made, dropped=dropped)


def _verdict(played: Played, results: RecentResults, about: About) -> Completed | Failed:
    circumstances = Circumstances(
        settings=about.settings,
        positions=about.positions,
        catalog=about.catalog,
        namespaces=about.namespaces,
        results=results.of(about.catalog),
        exceeded=None,
        overdue_seconds=0.0,
    )
    found = verdict(played.turn, played.report, circumstances)
    if isinstance(found, Completed | Failed):
        return found
    error = None if found is None else found.error
    message = "the engine refuses the program" if error is None else f"{error.name}: {error.message}"
    return Failed("invalid_input", message)


def _failed(code: ErrorCode, message: str, played: Played) -> Outcome:
    return Outcome("replay", OWNER, "failed", Usage(), outputs=played.outputs, error=message, code=code)


def _ended_by_host(played: Played, end: End) -> bool:
    """Return True if the recorded run was ended by its host, and the replay has come as far."""
    if end.status != "failed":
        return False
    if played.turn.stopped is not None or played.report is None:
        return end.code in _BY_HOST
    if played.report.state == "syntax":
        return True  # the recorded error has the position
    return played.report.state == "pending" and played.is_stuck


def _placed(missing: NotRecorded, about: About) -> Divergence:
    request = missing.request
    entry = about.catalog.get(request.target) if isinstance(request, ToolCall) else None
    if entry is None:
        return missing.divergence
    return structs.replace(missing.divergence, places=places_of(entry.path, about.source, about.positions.file))


def _unmade(unused: Sequence[Asked]) -> Divergence | None:
    if not unused:
        return None
    shown = [f"{escape_line(each.identity.name)} with {escape_line(each.identity.given, 160)}" for each in unused]
    lines = shown[:SHOWN_CALLS]
    if len(shown) > SHOWN_CALLS:
        lines.append(f"and {len(shown) - SHOWN_CALLS} more")
    count = "a call" if len(unused) == 1 else f"{len(unused)} calls"
    return Divergence(f"the program has ended without {count} of the recorded run", tuple(lines))


def _different_end(outcome: Outcome, end: End) -> Divergence | None:
    recorded = recorded_outcome(end)
    parts: list[tuple[str, Any, Any]] = [
        ("status", recorded.status, outcome.status),
        ("output", list(recorded.outputs), list(outcome.outputs)),
        ("value", recorded.value, outcome.value),
    ]
    if recorded.status == outcome.status == "failed":
        parts.append(("error", f"{recorded.code}: {recorded.error}", f"{outcome.code}: {outcome.error}"))
    elif outcome.status == "failed":
        parts.append(("error", None, f"{outcome.code}: {outcome.error}"))
    for name, old, new in parts:
        if ascii_json(old) != ascii_json(new):
            return Divergence(f"the program ends with another {name} than in the recording", differences(old, new))
    return None


def _clock_notes(lost: int) -> tuple[str, ...]:
    if not lost:
        return ()
    return (
        f"The program has read the clock {lost} times more than was recorded; these times are not the recorded ones.",
    )
