"""The answer to an `exec` or `wait`: structured result, readable content, limits and telemetry.

Some clients show a model the structured result, others show the content. So both contain everything that guides the
model: notes, and the next step of a suspended program. Telemetry is for programs that read results. By default it is in
`_meta`, which models do not see. docs/runs.md has the contract.

The value or error and the output share `maxOutputBytes`, in this order. Notes have another quarter of it. `next` and
`pendingToolCalls` have fixed limits. The values are plain dicts in the shape of the protocol. `server` converts them
into the SDK's types.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, structs

from codemode_mcp.base.errors import CodeModeError, ErrorCode, Exceeded
from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.base.text import clip
from codemode_mcp.runs.calls.outcome import CHALLENGES_KEY, Outcome, PendingCall, Usage
from codemode_mcp.runs.outputs import (
    REPEATED,
    STRUCTURED,
    TOO_MANY_PICTURES,
    Cut,
    content,
    escaped_size,
    fit_notes,
    fit_outputs,
    fit_texts,
    output_once,
    readable,
    shorten,
    shown_values,
    size,
    strings_without_base64,
    structured,
    too_much,
    value_once,
    value_text,
    without_apps,
)
from codemode_mcp.runs.values import StoredResult, binary_value, contents_of
from codemode_mcp.runs.views import repeat_note
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from codemode_mcp.base.settings import CodeModeSettings, ToolSettings


MAX_STORED_PICTURES = 8
"""Maximum number of pictures of one answer that are stored because the answer has no room for them."""


class Offload(Protocol):
    """Store a JSON text for an owner. Return its ref, or None if there is no room.

    Raises:
        CodeModeError: the text cannot be stored now.
    """

    async def __call__(self, owner: str, text: str) -> str | None: ...


class Rendered(Struct, frozen=True):
    """The answer to one `exec` or `wait`.

    Attributes:
        structured: a `CodeModeResult`.
        content: MCP content blocks: text, images, audio, embedded resources.
        is_error: True if the run failed.
        meta: `_meta` of the tool result.
        stored: the results that were stored because the answer has no room for them.
    """

    structured: dict[str, Any]
    content: list[dict[str, Any]]
    is_error: bool
    meta: dict[str, Any]
    stored: tuple[StoredResult, ...] = ()


async def render(
    ended: Outcome, settings: ToolSettings, offload: Offload, now: float, max_bytes: int | None = None
) -> Rendered:
    """Render the answer to one `exec` or `wait`. An answer that is too large is cut, even if the rest cannot be stored.

    Args:
        now: the time, on the clock of the call records.
        max_bytes: the size of the longest answer that the client shows; None if unknown.
    """
    # An answer of a waiting program never fails here, because the runId must not be lost. The driver has failed
    # programs with too much output already. Output that only exceeds the client's own limit is stored instead.
    failing = settings.code_mode.on_output_limit == "fail" and ended.status != "waiting"
    failures: list[str] = []
    stored: list[StoredResult] = []

    async def store(text: str) -> str | None:
        if failing:
            return None
        try:
            ref = await offload(ended.owner, text)
        except CodeModeError as error:
            failures.append(f"The part that was cut from this answer could not be stored: {error.message}")
            return None
        if ref is not None:
            stored.append(StoredResult(ref, contents_of(text).form))
        return ref

    answer = _Answer(settings, _cap(settings, max_bytes), ended.usage, now, ended.challenges)
    cap = answer.cap
    printed = without_apps(ended.outputs)
    once = list(map(output_once, printed))
    repeats = any(item is not before for item, before in zip(once, printed, strict=True))
    given = list(map(readable, once))
    value, value_size = ended.value, 0
    error = ""
    if ended.status == "failed":
        # If there is output too, a long error leaves half of the room to it.
        error = shorten(ended.error, cap // 2 if ended.outputs else cap)
        value_size = escaped_size(error)
    over = False
    if ended.status == "completed":
        text = compact_json(value)
        marked = strings_without_base64(text)
        if marked != text:
            value, text = json.loads(marked), marked
        whole = text
        if STRUCTURED in text and (shown := value_once(value)) is not value:
            value, text, repeats = shown, compact_json(shown), True
        value_size = size(text)
        if value_size > cap:
            over = True
            answer = answer.over(value_size)
            # If there is output too, a long value leaves it as much as it needs, up to half of the room.
            room = max(cap // 2, cap - size(compact_json(list(map(structured, given)))))
            value = Cut.made(value, size(whole), await store(whole), room)
            value_size = size(compact_json(value.marker))
    outputs, left, crowded = fit_outputs(given, cap - value_size)
    if left:  # the end of the output has a share of the room, too
        outputs, left, crowded = fit_outputs(given, cap - value_size - cap // 8)
    if crowded or left:
        outputs, left = await _store_pictures(outputs, left, store)
    if left:
        over = True
        text = compact_json(list(map(structured, left)))
        used = value_size + size(compact_json(list(map(structured, outputs))))
        answer = answer.over(used + size(text))
        # What was printed last is as likely to be wanted as what comes after the outputs that are shown.
        cut = Cut.made(shown_values(left), size(text), await store(text), max(cap // 8, cap - used), end=2)
        outputs.append({"type": "cut", "cut": cut})
    notes = (*ended.notes, *((REPEATED,) if repeats else ()))
    if failing and (over or crowded or ended.dropped):
        outputs = outputs[:-1] if left else outputs
        message = TOO_MANY_PICTURES if crowded and not over else too_much(cap)
        return answer.failed(message, "output_limit_exceeded", outputs, (*repeat_note(ended.made), *notes))
    notes = (*notes, *dict.fromkeys(failures))
    if ended.dropped:
        notes = (*notes, f"{ended.dropped} characters of output were discarded: the program printed too much")
    match ended.status:
        case "failed":
            rendered = answer.failed(error, ended.code, outputs, notes)
        case "waiting":
            rendered = answer.waiting(ended, outputs, notes)
        case _:
            rendered = answer.completed(value, outputs, notes)
    return structs.replace(rendered, stored=tuple(stored))


async def _store_pictures(
    outputs: list[dict[str, Any]], left: list[dict[str, Any]], store: Callable[[str], Awaitable[str | None]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Store the first pictures that an answer does not show. Return the outputs; such a picture has its `ref`.

    Args:
        outputs: the outputs of the answer; some pictures may be replaced by words.
        left: the other outputs.
    """
    stored: list[dict[str, Any]] = []
    count = 0
    for number, item in enumerate((*outputs, *left)):
        is_hidden = item["type"] == "image" and (number >= len(outputs) or "left_out" in item)
        if is_hidden and count < MAX_STORED_PICTURES:
            count += 1
            ref = await store(compact_json(binary_value(item["mimeType"], item["data"])))
            item = item if ref is None else {**item, "ref": ref}
        stored.append(item)
    return stored[: len(outputs)], stored[len(outputs) :]


RETURNED: Final = "The program returned"
"""Beginning of a note about a value that is null because JSON has no form for it."""

_NOTHING = Usage()


def render_error(
    error: CodeModeError,
    settings: ToolSettings,
    max_bytes: int | None = None,
    notes: tuple[str, ...] = (),
    usage: Usage = _NOTHING,
) -> Rendered:
    """Render the answer to a request that was refused, so that nothing of its program has run.

    Args:
        max_bytes: see `render`.
        usage: the telemetry of the refused request.
    """
    answer = _Answer(settings, _cap(settings, max_bytes), structs.replace(usage, exceeded=error.exceeded), 0.0)
    return answer.failed(shorten(error.message, answer.cap), error.code, [], notes)


def _cap(settings: ToolSettings, max_bytes: int | None) -> int:
    most = settings.code_mode.max_output_bytes
    return most if max_bytes is None else min(most, max_bytes)


class _Answer(Struct, frozen=True):
    """The common parts of answers of every status.

    Attributes:
        cap: maximum bytes of the value or error and the output together.
        now: the time, on the clock of the call records.
        challenges: authentication challenges of nested calls.
    """

    settings: ToolSettings
    cap: int
    usage: Usage
    now: float
    challenges: tuple[str, ...] = ()

    def over(self, size: int) -> _Answer:
        """Return the answer with a note in its telemetry that the cap was exceeded."""
        return structs.replace(
            self, usage=structs.replace(self.usage, exceeded=Exceeded("maxOutputBytes", size, self.cap))
        )

    @property
    def _markdown(self) -> bool:
        return self.settings.result_format == "markdown"

    def completed(self, value: Any, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        if isinstance(value, Cut):
            tail = [value_text(value.preview, markdown=self._markdown), value.last_line]
            value = value.marker
        else:
            tail = [] if value is None else [value_text(value, markdown=self._markdown)]
        if value is None and not outputs and not any(note.startswith(RETURNED) for note in notes):
            tail = ["The program returned nothing (undefined or null); use return, text() or json()."]
        return self._made({"status": "completed", "value": value}, outputs, tail, notes)

    def failed(self, message: str, code: ErrorCode, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        tail = f"**Error** `{code}`: {message}" if self._markdown else f"Error {code}: {message}"
        return self._made({"status": "failed", "error": message, "code": code}, outputs, [tail], notes)

    def waiting(self, ended: Outcome, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        result: dict[str, Any] = {"status": "waiting", "runId": ended.run_id, "reason": ended.reason}
        if pending := pending_json(ended.pending):
            result["pendingToolCalls"] = pending
        return self._made(result, outputs, [], notes, next_step(ended))

    def _made(
        self,
        result: dict[str, Any],
        outputs: Sequence[dict[str, Any]],
        tail: Sequence[str],
        notes: tuple[str, ...],
        step: str = "",
    ) -> Rendered:
        fitted = fit_notes(notes, self.cap // 4)
        if outputs:
            result["output"] = list(map(structured, outputs))
        if fitted:
            result["notes"] = fitted
        if step:
            result["next"] = step
        meta: dict[str, Any] = {CHALLENGES_KEY: list(self.challenges)} if self.challenges else {}
        match self.settings.code_mode.telemetry:
            case "meta":
                meta[TELEMETRY_KEY] = telemetry_json(self.usage, self.settings.code_mode, self.now)
            case "result":
                result["telemetry"] = telemetry_json(self.usage, self.settings.code_mode, self.now)
        lines = [*tail, *fitted, *filter(None, (step,))]
        return Rendered(result, content(outputs, lines, markdown=self._markdown), result["status"] == "failed", meta)


# The pending calls of a suspended program, and the step that resumes it, as its answer shows them.


NEXT_BYTES = 4 * 1024
"""Maximum bytes of the next step of a suspended program."""

PENDING_BYTES = 4 * 1024
"""Maximum bytes of the list of pending calls, the oldest first. `next` has the number of the calls left out."""

MAX_REASON = 300
"""Maximum characters that are shown of a program's reason for yielding."""


def pending_json(calls: Iterable[PendingCall]) -> list[dict[str, Any]]:
    """Return the pending calls as JSON, as many as fit into `PENDING_BYTES`."""
    room = PENDING_BYTES
    fitted: list[dict[str, Any]] = []
    for call in calls:
        tool = shorten(call.tool, PENDING_BYTES // 8)
        shown = {"id": call.id, "tool": tool, "status": call.status, "elapsedMs": call.elapsed_ms}
        room -= size(compact_json(shown)) + 1
        if room < 0:
            break
        fitted.append(shown)
    return fitted


def why_waiting(waiting: Outcome) -> str:
    """Say why a program is suspended, in words that follow "because" or a colon."""
    if waiting.reason == "yield":
        said = "" if waiting.yielded is None else f" ({escape_line(waiting.yielded, MAX_REASON)})"
        why = f"it yielded control{said}"
    else:
        shown = shorten(", ".join(map(_pending_text, waiting.pending[:5])), NEXT_BYTES // 4)
        more = waiting.pending_total - min(5, len(waiting.pending))
        why = f"it waits for {shown}{f' and {more} more' if more > 0 else ''}" if shown else "its time was over"
    return shorten(why, NEXT_BYTES // 2)


def next_step(waiting: Outcome) -> str:
    """Say why a program is suspended, who has to act, and which call of `wait` resumes it."""
    resume, cancel = _wait_call(runId=waiting.run_id), _wait_call(runId=waiting.run_id, cancel=True)
    if not waiting.unanswerable:
        step = f"Resume it with {resume}."
    elif any(call.status == "needs_approval" for call in waiting.pending):
        step = f"Tell the user. After the decision, resume it with {resume}; to give up, call {cancel}."
    else:
        step = (
            f"Tell the user what is asked. A client that can show the question resumes the program with {resume}; "
            f"to give up, call {cancel}."
        )
    if waiting.deadline is not None:
        until = datetime.fromtimestamp(waiting.deadline, UTC)
        step += f" The program is kept until {until:%Y-%m-%d %H:%M} UTC; a decision prolongs this."
    suspended = f"The program is suspended: {why_waiting(waiting)}."
    # One byte for the space between two sentences. Long sentences are cut in the middle, because their end says what to
    # do.
    room = NEXT_BYTES - escaped_size(suspended) - escaped_size(step) - len(waiting.asked) - 1
    return " ".join([suspended, *fit_texts(waiting.asked, room, end=2), step])


def _wait_call(**arguments: object) -> str:
    return f"wait {json.dumps(arguments)}"


def _pending_text(call: PendingCall) -> str:
    state = f"{call.status}: {escape_line(call.why)}" if call.why else call.status
    return f"{escape_line(call.tool)} ({state}, {call.elapsed_ms / 1000:.1f} s)"


TELEMETRY_BYTES = 900
"""Maximum bytes of the telemetry in one answer."""

TELEMETRY_KEY = "codemode-mcp/telemetry"
"""Key of telemetry in the `_meta` of a tool result."""

VISIBLE_TOOLS = ("exec", "wait")
"""Names of the tools that a client sees."""


def telemetry_json(usage: Usage, limits: CodeModeSettings, now: float) -> dict[str, Any]:
    """Return the usage of a run as JSON of at most `TELEMETRY_BYTES`, with the latest calls that fit.

    Args:
        now: the time, on the clock of the call records.
    """
    telemetry: dict[str, Any] = {
        "visibleTools": list(VISIBLE_TOOLS),
        "catalog": {"size": usage.catalog_size, "sources": dict(usage.sources)},
        "counts": {
            "exec": usage.execs,
            "wait": usage.waits,
            "search": usage.searches,
            "describe": usage.describes,
            "call": usage.call_count,
        },
        "calls": [],
        "caps": {"timeoutMs": limits.timeout_ms, "maxOutputBytes": limits.max_output_bytes},
        "snapshots": usage.snapshots,
        "ms": usage.ms,
    }
    if usage.exceeded is not None:
        telemetry["exceeded"] = usage.exceeded._asdict()
    if (snapshot := usage.snapshot) is not None:
        telemetry["snapshot"] = {
            "bytes": snapshot.size,
            "store": snapshot.store,
            "restored": snapshot.restored,
            "takenOver": snapshot.taken_over,
        }
    calls = [
        {
            "tool": clip(record.tool, 60),
            "ms": record.milliseconds(now),
            "bytes": record.size,
            "status": record.status,
            "dispatched": record.dispatched,
            "repeatable": record.may_be_repeated,
        }
        for record in usage.calls
    ]
    while True:
        telemetry["calls"] = calls
        if usage.call_count > len(calls):
            telemetry["callsOmitted"] = usage.call_count - len(calls)
        if not calls or size(compact_json(telemetry)) <= TELEMETRY_BYTES:
            return telemetry
        calls = calls[1:]
