"""The common parts of the stored texts of runs: the format, the errors, and shared forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from codemode_mcp.calls.outcome import CallRecord, CallStatus
from codemode_mcp.errors import ProgramError
from codemode_mcp.strict_json import (
    AnyForm,
    Form,
    Integer,
    Number,
    ascii_json,
    convert_versioned,
    form_from,
    parse_json,
    rejecting_damage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT: Final = 1
"""The format of all stored texts of runs."""

CallerKind = Literal["stdio", "http"]


class CallForm(Form, rename={"ended": "took", "read_only": "readOnly"}):
    """The stored form of a `CallRecord`.

    Attributes:
        began: seconds from the beginning of the run to the call.
        ended: seconds from `began`; None if the call has not ended.
    """

    id: Integer
    tool: str
    began: Number
    ended: Number | None
    status: CallStatus
    size: Integer
    dispatched: bool
    repeatable: bool
    read_only: bool
    path: str
    watched: bool
    seen: dict[str, Integer]


def stored_text(form: Form) -> str:
    """Return the text to store. Raises as `strict_json.ascii_json`."""
    return f'{{"format":{FORMAT},{ascii_json(form)[1:]}'


def read_stored(text: str, form: type[AnyForm], parse: Callable[[str], Any] = parse_json) -> AnyForm:
    """Return the content of a stored text.

    Args:
        parse: returns the JSON object that the text contains.

    Raises:
        ProgramError: `snapshot_restore_failed`: the text is damaged, or of another version.
    """
    with rejecting_damage(not_restorable):
        return convert_versioned(parse(text), form, FORMAT, not_restorable)


def call_form(record: CallRecord, zero: float) -> CallForm:
    """Return the form of a record. `zero`: the time at which the run began, on the clock of the record."""
    ended = None if record.ended is None else record.ended - record.began
    return form_from(CallForm, record, began=record.began - zero, ended=ended)


def call_record_of(form: CallForm, zero: float) -> CallRecord:
    """Return the record of a form. `zero`: the time at which the run began, on the clock of the record."""
    began = zero + form.began
    ended = None if form.ended is None else began + form.ended
    return CallRecord(**msgspec.structs.asdict(form) | {"began": began, "ended": ended})


def check_outputs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of a program unchanged. Raises `TypeError` if an output has no type."""
    if not all(isinstance(output.get("type"), str) for output in outputs):
        raise TypeError
    return outputs


def not_restorable(why: str) -> ProgramError:
    """Return the error for a run that cannot be restored."""
    return ProgramError("snapshot_restore_failed", f"the suspended program cannot be restored: {why}")
