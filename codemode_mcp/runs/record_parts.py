"""Parts of the texts by which runs are stored: their format, their errors, and records of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from codemode_mcp.calls.outcome import CallRecord, CallStatus
from codemode_mcp.errors import ProgramError
from codemode_mcp.strict_json import integer, text

if TYPE_CHECKING:
    from codemode_mcp.strict_json import Fields

FORMAT: Final = 1
"""The format of all stored texts of runs."""

_CALL: Final[tuple[CallStatus, ...]] = get_args(CallStatus)


def check_format(fields: Fields) -> None:
    """Refuse a text of another version. Called first, since other versions may write any other form."""
    found = fields.any("format")
    if found != FORMAT or isinstance(found, bool):
        if isinstance(found, int) and not isinstance(found, bool):
            raise not_restorable(f"it was written by another version of codemode-mcp (format {str(found)[:20]})")
        raise TypeError


# its calls


def output_of(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise TypeError
    return raw


def call_record_json(record: CallRecord, zero: float) -> dict[str, Any]:
    return {
        "id": record.id,
        "tool": record.tool,
        "began": record.began - zero,
        "took": None if record.ended is None else record.ended - record.began,
        "status": record.status,
        "size": record.size,
        "dispatched": record.dispatched,
        "repeatable": record.repeatable,
        "readOnly": record.read_only,
        "path": record.path,
        "watched": record.watched,
        "seen": dict(record.seen),
    }


def call_record_of(fields: Fields, zero: float) -> CallRecord:
    began, took = zero + fields.number("began"), fields.number_or_none("took")
    seen = fields.any("seen")
    record = CallRecord(
        id=fields.integer("id"),
        tool=fields.text("tool"),
        began=began,
        status=fields.one_of("status", _CALL),
        ended=None if took is None else began + took,
        size=fields.integer("size"),
        dispatched=fields.flag("dispatched"),
        repeatable=fields.flag("repeatable"),
        read_only=fields.flag("readOnly"),
        path=fields.text("path"),
        watched=fields.flag("watched"),
        seen={text(name): integer(size) for name, size in seen.items()},
    )
    fields.end()
    return record


def not_restorable(why: str) -> ProgramError:
    return ProgramError("snapshot_restore_failed", f"the suspended program cannot be restored: {why}; start it again")
