"""The answer to an `exec` or `wait`, made from a run's outcome: structured result, readable content, caps, telemetry.

Some clients show a model the structured result, others the content. Both have everything that guides the model: notes,
and the next step of a suspended program. Telemetry is for programs that read results, and is in neither unless the
configuration says so. docs/runs.md has the contract.

The value or error and the output share `maxOutputBytes`, in this order. Notes have another quarter of it. `next` and
`pendingToolCalls` have caps that no setting changes. Texts are counted with their JSON escapes. The values are plain
dicts in the shape of the protocol; `server` puts them into the SDK's types.
"""

from __future__ import annotations

import binascii
import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from codemode_mcp.calls.outcome import Usage
from codemode_mcp.errors import CodeModeError, Exceeded
from codemode_mcp.json_text import compact_json
from codemode_mcp.sandbox.pictures import strings_without_base64, without_base64
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.calls.outcome import Outcome, PendingCall
    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.settings import ToolSettings

TELEMETRY_BYTES = 900
TELEMETRY_KEY = "codemode-mcp/telemetry"
"""Key of telemetry in the `_meta` of a tool result."""

VISIBLE_TOOLS = ("exec", "wait")
"""Names of the tools that a client sees."""

LEAST_PREVIEW = 400
"""Bytes that are shown of a value that is too long. If nothing else is shown, an eighth of the cap if that is more."""

LINE_BYTES = 2 * 1024
"""JSON that is longer has a line for each element of its arrays of objects: clients cut or hide long lines."""

_LINE_DEPTH = 4
"""Levels of nesting at which such arrays are searched for."""

MAX_ITEMS = 1000
"""Outputs in one answer."""

PICTURE_BYTES = 8 * 1024 * 1024
"""Bytes of base64 in one answer."""

MAX_PICTURES = 100
"""Pictures in one answer. Some models refuse a conversation with more."""

NEXT_BYTES = 4 * 1024
"""Bytes of the next step of a suspended program."""

PENDING_BYTES = 4 * 1024
"""Bytes of the pending calls that are listed, the oldest first. `next` has the number of the others."""

_FRAME = 20
"""Bytes around an output, about. They are not counted."""


class Offload(Protocol):
    """Keep a JSON text for an owner, and return its ref, or None if there is no room.

    Raises:
        CodeModeError: it cannot be kept now.
    """

    async def __call__(self, owner: str, text: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """The answer to one `exec` or `wait`.

    Attributes:
        structured: a `CodeModeResult`.
        content: MCP content blocks: text, images, audio, embedded resources.
        is_error: the run failed.
        meta: `_meta` of the tool result.
    """

    structured: dict[str, Any]
    content: list[dict[str, Any]]
    is_error: bool
    meta: dict[str, Any]


async def render(
    ended: Outcome, settings: ToolSettings, offload: Offload, now: float, max_bytes: int | None = None
) -> Rendered:
    """Render the answer to one `exec` or `wait`. An answer that is too large is cut, also if the rest cannot be kept.

    Args:
        now: on the clock of the call records.
        max_bytes: of an answer that the client shows; None when no limit is known.
    """
    lost: list[str] = []

    async def keep(text: str) -> str | None:
        try:
            return await offload(ended.owner, text)
        except CodeModeError as error:
            lost.append(f"What was cut from this answer could not be kept for later: {error.message}")
            return None

    answer = _Answer(settings, _cap(settings, max_bytes), ended.usage, now)
    cap = answer.cap
    preview = max(LEAST_PREVIEW, cap // 8)
    value, value_size = ended.value, 0
    error = ""
    if ended.status == "failed":
        # Where there is output too, some of it is shown beside a long error.
        error = _shortened(ended.error, cap // 2 if ended.outputs else cap)
        value_size = _sent(error)
    over = False
    if ended.status == "completed":
        value_text = compact_json(value)
        marked = strings_without_base64(value_text)
        if marked != value_text:
            value, value_text = json.loads(marked), marked
        value_size = _size(value_text)
        if value_size > cap:
            over = True
            answer = answer.over(value_size)
            value = _truncated(value_size, value_text, await keep(value_text), preview)
            value_size = _size(compact_json(value))
    outputs, left, crowded = _fit([_readable(item) for item in ended.outputs], cap - value_size)
    if left:
        over = True
        text = compact_json([_shown(item) for item in left])
        answer = answer.over(value_size + _size(compact_json([_shown(item) for item in outputs])) + _size(text))
        outputs.append(
            {
                "type": "json",
                "value": _truncated(_size(text), text, await keep(text), LEAST_PREVIEW if outputs else preview),
            }
        )
    # The driver fails a program whose output is over the cap before it suspends it. What is over the smaller cap of a
    # client is offloaded: the program is not over, and its runId must not be lost.
    failing = settings.code_mode.on_output_limit == "fail" and ended.status != "waiting"
    if failing and (over or crowded or ended.dropped):
        outputs = outputs[:-1] if left else outputs
        message = _TOO_MANY_PICTURES if crowded and not over else _too_much(cap)
        return answer.failed(message, "output_limit_exceeded", outputs, ended.notes)
    notes = (*ended.notes, *dict.fromkeys(lost))
    if ended.dropped:
        notes = (*notes, f"{ended.dropped} characters of output were thrown away: it was far over the limit")
    match ended.status:
        case "failed":
            return answer.failed(error, ended.code, outputs, notes)
        case "waiting":
            return answer.waiting(ended, outputs, notes)
        case _:
            return answer.completed(value, outputs, notes)


def exceeds(outputs: Iterable[dict[str, Any]], cap: int) -> str | None:
    """Say why outputs are more than an answer shows; None if they fit."""
    _, left, crowded = _fit([_readable(item) for item in outputs], cap)
    return _too_much(cap) if left else _TOO_MANY_PICTURES if crowded else None


def _too_much(cap: int) -> str:
    return f"value and output together are larger than maxOutputBytes ({cap}); return or print less"


_NOTHING = Usage()


def render_error(
    error: CodeModeError,
    settings: ToolSettings,
    max_bytes: int | None = None,
    notes: tuple[str, ...] = (),
    usage: Usage = _NOTHING,
) -> Rendered:
    """Render the answer for a program of which nothing has run.

    Args:
        max_bytes: see `render`.
        usage: the request that was refused, and the catalog of its caller.
    """
    answer = _Answer(settings, _cap(settings, max_bytes), replace(usage, exceeded=error.exceeded), 0.0)
    return answer.failed(_shortened(error.message, answer.cap), error.code, [], notes)


def _cap(settings: ToolSettings, max_bytes: int | None) -> int:
    most = settings.code_mode.max_output_bytes
    return most if max_bytes is None else min(most, max_bytes)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The parts that answers of every status share.

    Attributes:
        cap: bytes of value or error and output.
        now: on the clock of the call records.
    """

    settings: ToolSettings
    cap: int
    usage: Usage
    now: float

    def over(self, size: int) -> _Answer:
        """Return the answer with the cap that was exceeded."""
        return replace(self, usage=replace(self.usage, exceeded=Exceeded("maxOutputBytes", size, self.cap)))

    def completed(self, value: Any, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        if value is None and not outputs:
            tail = ["The program returned nothing (undefined or null); use return, text() or json()."]
        else:
            tail = [] if value is None else [_value_text(value, self.settings)]
        return self._made({"status": "completed", "value": value}, outputs, tail, notes, "")

    def failed(self, message: str, code: ErrorCode, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        markdown = self.settings.result_format == "markdown"
        tail = f"**Error** `{code}`: {message}" if markdown else f"Error {code}: {message}"
        return self._made({"status": "failed", "error": message, "code": code}, outputs, [tail], notes, "")

    def waiting(self, ended: Outcome, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Rendered:
        structured: dict[str, Any] = {"status": "waiting", "runId": ended.run_id, "reason": ended.reason}
        if pending := _fitted_pending(ended.pending):
            structured["pendingToolCalls"] = pending
        return self._made(structured, outputs, [], notes, _next_step(ended))

    def _made(
        self,
        structured: dict[str, Any],
        outputs: list[dict[str, Any]],
        tail: list[str],
        notes: tuple[str, ...],
        next_step: str,
    ) -> Rendered:
        fitted = _fitted_notes(notes, self.cap // 4)
        if outputs:
            structured["output"] = [_shown(item) for item in outputs]
        if fitted:
            structured["notes"] = fitted
        if next_step:
            structured["next"] = next_step
        meta: dict[str, Any] = {}
        match self.settings.code_mode.telemetry:
            case "meta":
                meta[TELEMETRY_KEY] = _telemetry(self.usage, self.settings, self.now)
            case "result":
                structured["telemetry"] = _telemetry(self.usage, self.settings, self.now)
        lines = [*tail, *fitted, *([next_step] if next_step else [])]
        return Rendered(structured, _content(outputs, lines, self.settings), structured["status"] == "failed", meta)


def _fitted_pending(calls: Iterable[PendingCall]) -> list[dict[str, Any]]:
    """Return the pending calls, as many as there is room for."""
    room = PENDING_BYTES
    fitted: list[dict[str, Any]] = []
    for call in calls:
        tool = _shortened(call.tool, PENDING_BYTES // 8)
        shown = {"id": call.id, "tool": tool, "status": call.status, "elapsedMs": call.elapsed_ms}
        room -= _size(compact_json(shown)) + 1
        if room < 0:
            break
        fitted.append(shown)
    return fitted


def _next_step(ended: Outcome) -> str:
    """Return the step that resumes a suspended program: why it is suspended, who has to act, and the call to make."""
    what = ", ".join(_pending_text(call) for call in ended.pending[:5])
    more = ended.pending_total - min(5, len(ended.pending))
    if ended.reason == "yield":
        said = "" if ended.yielded is None else f" ({escape_line(ended.yielded, MAX_REASON)})"
        why = f"it yielded control{said}"
    else:
        shown = _shortened(what, NEXT_BYTES // 4) + (f" and {more} more" if more > 0 else "")
        why = f"it waits for {shown}" if shown else "its time was over"
    resume, cancel = _wait_call(ended.run_id), _wait_call(ended.run_id, cancel=True)
    if ended.unanswerable and any(call.status == "needs_approval" for call in ended.pending):
        step = f"Tell the user. After the decision, resume it with {resume}; to give up, call {cancel}."
    elif ended.unanswerable:
        step = (
            f"Tell the user what is asked. A client that can show the question resumes the program with {resume}; "
            f"to give up, call {cancel}."
        )
    else:
        step = f"Resume it with {resume}."
    suspended = f"The program is suspended: {_shortened(why, NEXT_BYTES // 2)}."
    # Spaces between the sentences are counted as well.
    asked = _shares(ended.asked, NEXT_BYTES - _sent(suspended) - _sent(step) - len(ended.asked) - 1)
    return " ".join([suspended, *asked, step])


def _shares(texts: Sequence[str], room: int) -> list[str]:
    """Fit texts into `room` bytes together. Half of what is shown of a long one is its end, which says what to do."""
    fitted: list[str] = []
    for number, text in enumerate(texts):
        fitted.append(_shortened(text, room // (len(texts) - number), end=2))
        room -= _sent(fitted[-1])
    return fitted


MAX_REASON = 300
"""Characters of a program's reason for yielding that are shown."""


def _wait_call(run_id: str, *, cancel: bool = False) -> str:
    arguments: dict[str, Any] = {"runId": run_id}
    if cancel:
        arguments["cancel"] = True
    return f"wait {json.dumps(arguments)}"


def _pending_text(call: PendingCall) -> str:
    state = f"{call.status}: {escape_line(call.why)}" if call.why else call.status
    return f"{escape_line(call.tool)} ({state}, {call.elapsed_ms / 1000:.1f} s)"


def _fitted_notes(notes: tuple[str, ...], room: int) -> list[str]:
    """Fit notes into `room` bytes together: each gets an equal share of what the ones before have left."""
    fitted: list[str] = []
    for number, note in enumerate(notes):
        share = room // (len(notes) - number)
        if share < _LEAST_NOTE:
            fitted.append(f"{len(notes) - number} more notes were left out.")
            break
        shown = _shortened(note, share)
        fitted.append(shown)
        room -= _sent(shown)
    return fitted


_LEAST_NOTE = 60
"""Bytes of a note that are worth showing."""


def _shortened(text: str, limit: int, end: int = 4) -> str:
    """Cut a text to `limit` bytes in its middle, with a mark that says how much is left out.

    The end is kept, since an error has its stack frames there: of what is shown, one part in `end`.
    """
    size = _sent(text)
    if size <= limit:
        return text
    mark = f" ... [{size - limit} of {size} bytes left out] ... "
    room = max(0, limit - len(mark) - len(str(size)))
    tail = room // end
    return _begin(text, room - tail) + mark + _begin(text[: -tail - 1 : -1], tail)[::-1]


def _begin(text: str, room: int) -> str:
    """Return as much of the begin of a text as `room` bytes hold."""
    text = text[:room]  # a character takes a byte at least
    fitting = bisect_right(range(len(text) + 1), room, key=lambda length: _sent(text[:length])) - 1
    return text[:fitting]


def printed(item: Mapping[str, Any]) -> str:
    """One output of a program for a person, however large: text as it is, JSON on one line, pictures in words."""
    shown = _shown(_readable(dict(item)))
    match shown["type"]:
        case "text":
            return str(shown["text"])
        case "json":
            return json.dumps(shown["value"], ensure_ascii=False)
        case _:
            return f"[{shown['mimeType']}, {shown['bytes']:,} bytes]"


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """An output as `CodeModeOutput`: the bytes of an image travel in `content` only."""
    if item["type"] != "image":
        return item
    return {"type": "image", "mimeType": item["mimeType"], "bytes": item["bytes"]}


def _readable(item: dict[str, Any]) -> dict[str, Any]:
    """Return an output as clients take it.

    An image has its base64 on one line, in the standard alphabet, padded: clients refuse a whole answer otherwise. It
    gets its `bytes`; without valid data it becomes a line that says so. Text has no base64 of pictures.
    """
    if item["type"] == "text":
        return {**item, "text": without_base64(item["text"])}
    if item["type"] == "json":
        text = compact_json(item["value"])
        marked = strings_without_base64(text)
        return item if marked == text else {**item, "value": json.loads(marked)}
    data = item["data"].translate(_PLAIN_BASE64).rstrip("=")
    data += "=" * (-len(data) % 4)
    try:
        size = len(binascii.a2b_base64(data.encode(), strict_mode=True))
    except ValueError:
        return {"type": "text", "text": f"[{item['mimeType']}: cannot be shown, its data is not valid base64]"}
    return {**item, "data": data, "bytes": size}


_PLAIN_BASE64 = str.maketrans({"-": "+", "_": "/", "\n": None, "\r": None, " ": None, "\t": None})
_PICTURE_ROOM = f"{PICTURE_BYTES * 3 // 4 // 1024 // 1024} MiB, {MAX_PICTURES} pictures"
_TOO_MANY_PICTURES = f"more pictures than an answer has room for ({_PICTURE_ROOM}); show fewer, or smaller ones"


def _block(item: dict[str, Any]) -> dict[str, Any]:
    """The content block of an image, or of what else `image()` passes on."""
    kind, mime_type = item["mimeType"].partition("/")[0].lower(), item["mimeType"]
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": mime_type, "data": item["data"]}
    resource = {"uri": item.get("uri", f"data:{mime_type}"), "mimeType": mime_type, "blob": item["data"]}
    return {"type": "resource", "resource": resource}


def _content(outputs: list[dict[str, Any]], tail: list[str], settings: ToolSettings) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    lines: list[str] = []

    def flush() -> None:
        if lines:
            blocks.append({"type": "text", "text": "\n".join(lines)})
            lines.clear()

    for item in outputs:
        match item["type"]:
            case "text":
                lines.append(item["text"])
            case "json":
                lines.append(_value_text(item["value"], settings))
            case _ if item.get("left_out"):
                size = f"{item['bytes']:,} bytes"
                lines.append(f"[{item['mimeType']}, {size}: left out, an answer has room for {_PICTURE_ROOM}]")
            case _:
                flush()
                blocks.append(_block(item))
    lines.extend(tail)
    flush()
    return blocks


def _value_text(value: Any, settings: ToolSettings) -> str:
    if isinstance(value, str):
        return value
    text = _laid_out(value, _LINE_DEPTH)
    if settings.result_format == "markdown" and isinstance(value, dict | list) and value:
        return f"```json\n{text}\n```"
    return text


def _laid_out(value: Any, depth: int) -> str:
    """Write JSON on one line, or in lines where it is long."""
    text = compact_json(value)
    if not depth or len(text) <= LINE_BYTES:
        return text
    match value:
        case list() if any(isinstance(each, dict) for each in value):
            return "[\n" + ",\n".join(_laid_out(each, depth - 1) for each in value) + "\n]"
        case dict() if any(isinstance(each, dict | list) for each in value.values()):
            members = (f"{compact_json(key)}:{_laid_out(each, depth - 1)}" for key, each in value.items())
            return "{" + ",\n".join(members) + "}"
    return text


def _fit(outputs: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Return the outputs that fit into `room` bytes, the rest, and whether pictures were left out.

    The data of pictures has room of its own, since it is no text. A picture that does not fit there is replaced by
    words.
    """
    pictures, count = PICTURE_BYTES, 0
    fitting: list[dict[str, Any]] = []
    crowded = False
    for number, item in enumerate(outputs):
        room -= _size(compact_json(_shown(item))) - _FRAME
        if room < 0 or number == MAX_ITEMS:
            return fitting, outputs[number:], crowded
        if item["type"] == "image":
            if count == MAX_PICTURES or len(item["data"]) > pictures:
                item, crowded = {**item, "left_out": True}, True
            else:
                pictures -= len(item["data"])
                count += 1
        fitting.append(item)
    return fitting, [], crowded


def _truncated(size: int, text: str, ref: str | None, shown: int) -> dict[str, Any]:
    preview = text[:shown].encode("utf-8", "replace")[:shown].decode("utf-8", "ignore")
    marker: dict[str, Any] = {"truncated": True, "bytes": size, "preview": preview}
    if ref is not None:
        marker["ref"] = ref
        marker["read"] = f"await load({json.dumps(ref)})"
    return marker


def _telemetry(usage: Usage, settings: ToolSettings, now: float) -> dict[str, Any]:
    limits = settings.code_mode
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
        telemetry["exceeded"] = asdict(usage.exceeded)
    if (snapshot := usage.snapshot) is not None:
        telemetry["snapshot"] = {
            "bytes": snapshot.size,
            "store": snapshot.store,
            "restored": snapshot.restored,
            "takenOver": snapshot.taken_over,
        }
    calls = [
        {
            "tool": record.tool if len(record.tool) <= 60 else record.tool[:59] + "…",
            "ms": record.milliseconds(now),
            "bytes": record.size,
            "status": record.status,
            "dispatched": record.dispatched,
            "repeatable": record.repeatable,
        }
        for record in usage.calls
    ]
    # The latest ones, as many as there is room for.
    while True:
        telemetry["calls"] = calls
        if usage.call_count > len(calls):
            telemetry["callsOmitted"] = usage.call_count - len(calls)
        if not calls or _size(compact_json(telemetry)) <= TELEMETRY_BYTES:
            return telemetry
        calls = calls[1:]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _sent(text: str) -> int:
    """Return the bytes of a text in an answer, which is JSON: control characters take six, quotation marks two."""
    return _size(compact_json(text)) - 2
