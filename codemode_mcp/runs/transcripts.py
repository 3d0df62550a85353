"""The programs and outputs of runs that ended recently, for the operator, within a limit. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final

MAX_ONE: Final = 64 * 1024
"""Maximum characters of one program, and of one output. Longer ones are not kept."""

MAX_ALL: Final = 8 * 1024 * 1024
"""Maximum characters of everything that is kept. The oldest is dropped first."""

_MAX_VALUES: Final = 2000
"""A value with more members is not kept."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The program of a run, and its output.

    Attributes:
        source: empty if it is not known.
        outputs: as `Outcome.outputs`; None if they were too large to keep.
        value: the result of a completed run.
        error: the error of a failed run.
        ended: True if value and error are known.
    """

    source: str
    outputs: tuple[dict[str, Any], ...] | None = ()
    value: Any = None
    error: str = ""
    ended: bool = False


class Transcripts:
    """The transcripts of ended runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Transcript, int]] = OrderedDict()
        self._size = 0

    def __repr__(self) -> str:
        return f"<Transcripts: {len(self._kept)} runs, about {self._size} characters>"

    def keep(self, run_id: str, transcript: Transcript) -> None:
        """Keep a transcript, without what is too large."""
        source, outputs, value = transcript.source, transcript.outputs, transcript.value
        used = approximate_size(outputs, MAX_ONE)
        result = approximate_size(value, MAX_ONE)
        if used > MAX_ONE or result > MAX_ONE:
            transcript = replace(transcript, outputs=None, value=None)
            used = result = 0
        if len(source) > MAX_ONE:
            transcript = replace(transcript, source=source[:MAX_ONE])
        size = used + result + len(transcript.source) + len(transcript.error)
        self._kept[run_id] = transcript, size
        self._size += size
        while self._size > MAX_ALL:
            self._size -= self._kept.popitem(last=False)[1][1]

    def of(self, run_id: str) -> Transcript | None:
        """Return a transcript; None if it is not kept."""
        found = self._kept.get(run_id)
        return None if found is None else found[0]


def approximate_size(value: Any, most: int) -> int:
    """Return the approximate number of characters of a JSON value. Stop when it is larger than `most`."""
    size = 0
    values = [value]
    count = 0
    while values and size <= most:
        each = values.pop()
        count += 1
        size += 8
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            if count + len(values) + len(each) > _MAX_VALUES:
                return most + 1
            size += sum(map(len, each))
            values.extend(each.values())
        elif isinstance(each, list | tuple):
            if count + len(values) + len(each) > _MAX_VALUES:
                return most + 1
            values.extend(each)
    return size
