"""From a run's outcome to what the client gets: structured result, readable content, caps (SPEC 3.3, 3.4, 9).

Plain dicts in the shape of the protocol; `server` puts them into the SDK's types.
"""

from __future__ import annotations

import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from codemode_mcp.entries import within_line
from codemode_mcp.errors import CodeModeError
from codemode_mcp.outcome import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.errors import ErrorCode
    from codemode_mcp.outcome import Outcome, PendingCall
    from codemode_mcp.settings import ToolSettings

TELEMETRY_BYTES = 600
PREVIEW_CHARACTERS = 400

MAX_ITEMS = 1000
"""Outputs in one answer."""

PICTURE_BYTES = 8 * 1024 * 1024
"""Of base64 in one answer."""

MAX_PICTURES = 100
"""In one answer. Some models refuse a conversation with more."""

_FRAME = 20
"""Bytes of an output that are not its own, about: they are not counted."""


class Offload(Protocol):
    """Keep a JSON text for an owner; its ref, or None when there is no room.

    Raises:
        CodeModeError: it cannot be kept now.
    """

    async def __call__(self, owner: str, text: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer.

    Attributes:
        structured: a `CodeModeResult`.
        content: MCP content blocks: text, images, audio, embedded resources.
        is_error: the run failed.
    """

    structured: dict[str, Any]
    content: list[dict[str, Any]]
    is_error: bool


async def render(ended: Outcome, settings: ToolSettings, offload: Offload, now: float) -> Rendered:
    """The answer to one `exec` or `wait`, cut where it is too large, whether or not the rest can be kept.

    Args:
        now: on the clock of the call records.
    """
    lost: list[str] = []

    async def keep(text: str) -> str | None:
        try:
            return await offload(ended.owner, text)
        except CodeModeError as error:
            lost.append(f"What was cut from this answer could not be kept for later: {error.message}")
            return None

    telemetry = _telemetry(ended.usage, settings, now)
    cap = settings.code_mode.max_output_bytes
    value, value_size = ended.value, 0
    over = False
    if ended.status == "completed":
        value_text = _dump(value)
        value_size = _size(value_text)
        if value_size > cap:
            over = True
            value = _truncated(value_size, value_text, await keep(value_text))
            value_size = _size(_dump(value))
    outputs, left, crowded = _fit([_readable(item) for item in ended.outputs], cap - value_size)
    if left:
        over = True
        text = _dump([_shown(item) for item in left])
        outputs.append({"type": "json", "value": _truncated(_size(text), text, await keep(text))})
    # A suspended program goes on, and its runId must not be lost: what is over is offloaded there in any case.
    failing = settings.code_mode.on_output_limit == "fail" and ended.status != "waiting"
    if failing and (over or crowded or ended.dropped):
        outputs = outputs[:-1] if left else outputs
        message = f"value and output together are larger than maxOutputBytes ({cap}); return or print less"
        if crowded and not over:
            message = f"more pictures than an answer has room for ({_PICTURE_ROOM}); show fewer, or smaller ones"
        return _failed(message, "output_limit_exceeded", outputs, ended.notes, telemetry, settings)
    notes = (*ended.notes, *dict.fromkeys(lost))
    if ended.dropped:
        notes = (*notes, f"{ended.dropped} characters of output were thrown away: it was far over the limit")
    match ended.status:
        case "failed":
            return _failed(ended.error, ended.code, outputs, notes, telemetry, settings)
        case "waiting":
            return _waiting(ended, outputs, notes, telemetry, settings)
        case _:
            structured = {"status": "completed", "value": value, **_structured(outputs), "telemetry": telemetry}
            nothing = value is None and not outputs
            tail = (
                "The program ended without returning anything; use return, text() or json()."
                if nothing
                else _value_text(value, settings)
            )
            skip = value is None and outputs
            return Rendered(structured, _content(outputs, [*([] if skip else [tail]), *notes], settings), False)


def render_error(error: CodeModeError, settings: ToolSettings) -> Rendered:
    """The answer when nothing of a program has run."""
    return _failed(error.message, error.code, [], (), _telemetry(Usage(), settings, 0.0), settings)


def _failed(
    message: str,
    code: ErrorCode,
    outputs: list[dict[str, Any]],
    notes: tuple[str, ...],
    telemetry: dict[str, Any],
    settings: ToolSettings,
) -> Rendered:
    structured = {"status": "failed", "error": message, "code": code, **_structured(outputs), "telemetry": telemetry}
    tail = f"**Error** `{code}`: {message}" if settings.result_format == "markdown" else f"Error {code}: {message}"
    return Rendered(structured, _content(outputs, [tail, *notes], settings), True)


def _waiting(
    ended: Outcome,
    outputs: list[dict[str, Any]],
    notes: tuple[str, ...],
    telemetry: dict[str, Any],
    settings: ToolSettings,
) -> Rendered:
    pending = [
        {"id": call.id, "tool": call.tool, "status": call.status, "elapsedMs": call.elapsed_ms}
        for call in ended.pending
    ]
    structured = {
        "status": "waiting",
        "runId": ended.run_id,
        "reason": ended.reason,
        **({"pendingToolCalls": pending} if pending else {}),
        **_structured(outputs),
        "telemetry": telemetry,
    }
    what = ", ".join(
        f"{within_line(call.tool)} ({_state(call)}, {call.elapsed_ms / 1000:.1f} s)" for call in ended.pending[:5]
    )
    more = ended.pending_total - min(5, len(ended.pending))
    if more > 0:
        what += f" and {more} more"
    if ended.reason == "yield":
        why = "it yielded control" if ended.yielded is None else f"it yielded control ({ended.yielded})"
    else:
        why = f"it waits for {what}" if what else "its time was over"
    line = f'The program is suspended: {why}. Go on with wait {{"runId": "{ended.run_id}"}}.'
    if ended.nobody_answers and any(call.status == "needs_approval" for call in ended.pending):
        # Who decides, and how, is in the note about these calls.
        line = (
            f"The program is suspended: {why}. It goes on when the user has decided: tell them what is asked, then "
            f'call wait {{"runId": "{ended.run_id}"}}; give it up with '
            f'wait {{"runId": "{ended.run_id}", "cancel": true}}.'
        )
    elif ended.nobody_answers:
        line = (
            f"The program is suspended: {why}. Nobody can answer that here: tell the user what is asked. "
            f'It goes on by a wait for "{ended.run_id}" from a client that shows such questions; give it up with '
            f'wait {{"runId": "{ended.run_id}", "cancel": true}}.'
        )
    return Rendered(structured, _content(outputs, [*notes, line], settings), False)


def _state(call: PendingCall) -> str:
    """The status of a call and, where it is queued, the reason."""
    return f"{call.status}: {within_line(call.why)}" if call.why else call.status


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


def _structured(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"output": [_shown(item) for item in outputs]} if outputs else {}


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """An output as `CodeModeOutput`: the bytes of an image travel in `content` only."""
    if item["type"] != "image":
        return item
    return {"type": "image", "mimeType": item["mimeType"], "bytes": item["bytes"]}


def _readable(item: dict[str, Any]) -> dict[str, Any]:
    """An output with the base64 that clients take, who refuse a whole answer otherwise: on one line, in the standard
    alphabet, padded. An image gets its `bytes`; without valid data it is a line that says so."""
    if item["type"] != "image":
        return item
    data = item["data"].translate(_PLAIN_BASE64).rstrip("=")
    data += "=" * (-len(data) % 4)
    try:
        size = len(binascii.a2b_base64(data.encode(), strict_mode=True))
    except ValueError:
        return {"type": "text", "text": f"[{item['mimeType']}: cannot be shown, its data is not valid base64]"}
    return {**item, "data": data, "bytes": size}


_PLAIN_BASE64 = str.maketrans({"-": "+", "_": "/", "\n": None, "\r": None, " ": None, "\t": None})
_PICTURE_ROOM = f"{PICTURE_BYTES * 3 // 4 // 1024 // 1024} MiB, {MAX_PICTURES} pictures"


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
    text = _dump(value)
    if settings.result_format == "markdown" and isinstance(value, dict | list) and value:
        return f"```json\n{text}\n```"
    return text


def _fit(outputs: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """What fits into `room` bytes, the rest, and whether pictures were left out of it.

    The data of pictures has room of its own, as it is no text. A picture for which that is too little leaves its place.
    """
    pictures, count = PICTURE_BYTES, 0
    fitting: list[dict[str, Any]] = []
    crowded = False
    for number, item in enumerate(outputs):
        room -= _size(_dump(_shown(item))) - _FRAME
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


def _truncated(size: int, text: str, ref: str | None) -> dict[str, Any]:
    marker: dict[str, Any] = {"truncated": True, "bytes": size, "preview": text[:PREVIEW_CHARACTERS]}
    if ref is not None:
        marker["ref"] = ref
        marker["read"] = f"await load({json.dumps(ref)})"
    return marker


def _telemetry(usage: Usage, settings: ToolSettings, now: float) -> dict[str, Any]:
    limits = settings.code_mode
    telemetry: dict[str, Any] = {
        "visibleTools": 2,
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
        if not calls or _size(_dump(telemetry)) <= TELEMETRY_BYTES:
            return telemetry
        calls = calls[1:]


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
