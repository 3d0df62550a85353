"""Offsets of the time zones that a program names, from the time zone database of this machine.

A program cannot query its host while it computes, so it receives the offsets when it starts. A zone is named if its
whole name is a string in the program's text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MAX_ZONES: Final = 32
"""Maximum number of zones of one program."""

_NAME: Final = re.compile(r"[\"'`]([A-Z][A-Za-z_]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,2})[\"'`]")
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(days=12)
"""A time within which no zone changes its offset twice."""


def named_zones(source: str) -> dict[str, tuple[int, ...]]:
    """Return the offsets of all zones that a program names, by name. See `_offsets`."""
    if "timeZone" not in source:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for match in _NAME.finditer(source):
        if len(found) == MAX_ZONES:
            break
        offsets = _offsets(match[1])
        if offsets:
            found[match[1]] = offsets
    return found


@lru_cache(maxsize=64)
def _offsets(name: str) -> tuple[int, ...]:
    """Return the first offset, then the time of each change and the offset after it, in seconds.

    The tuple is empty for an unknown zone.
    """
    # The import takes 4 ms, and few programs name a zone.
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return ()
    offset = _offset(zone, _FIRST)
    offsets = [offset]
    before = _FIRST
    while before < _LAST:
        after = before + _STEP
        following = _offset(zone, after)
        if following != offset:
            offsets += [int(_change(zone, before, after).timestamp()), following]
            offset = following
        before = after
    return tuple(offsets)


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Find the second at which the offset becomes that of `after`."""
    following = _offset(zone, after)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=int((after - before).total_seconds()) // 2)
        if _offset(zone, middle) == following:
            after = middle
        else:
            before = middle
    return after


def _offset(zone: ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
