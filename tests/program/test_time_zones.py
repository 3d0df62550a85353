"""Offsets of the zones that a program names."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from codemode_mcp.program.time_zones import MAX_ZONES, named_zones

ZONES = ("America/New_York", "Asia/Kolkata", "Africa/Casablanca", "Australia/Lord_Howe", "Europe/Dublin")


def offset_at(offsets: tuple[int, ...], moment: int) -> int:
    found = offsets[0]
    for change, following in zip(offsets[1::2], offsets[2::2], strict=True):
        if change <= moment:
            found = following
    return found


@pytest.mark.parametrize("name", ZONES)
def test_offsets_are_those_of_the_machine_at_every_moment(name: str) -> None:
    offsets = named_zones(f"d.toLocaleString('en-US', {{ timeZone: '{name}' }})")[name]
    moments = [change + shift for change in offsets[1::2] for shift in (-1, 0)] + [0, 1_790_000_000, 3_900_000_000]
    for moment in moments:
        expected = datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(name)).utcoffset()
        assert expected is not None
        assert offset_at(offsets, moment) == expected.total_seconds()


def test_only_whole_names_of_zones_that_there_are_count() -> None:
    source = """timeZone: "Europe/Berlin" + 'Mars/Olympus' + `Etc/../passwd` + "../../etc/passwd" + Asia/Tokyo"""
    assert set(named_zones(source)) == {"Europe/Berlin"}
    assert named_zones('"Europe/Berlin"') == {}


def test_a_program_gets_only_so_many_zones() -> None:
    names = " ".join(f"'Etc/GMT+{n}' 'Etc/GMT-{n}'" for n in range(1, 13)) + " ".join(
        f"'America/{city}'"
        for city in ("Chicago", "Denver", "Bogota", "Lima", "Halifax", "Regina", "Panama", "Toronto")
    )
    assert len(named_zones("timeZone " + names + " 'Asia/Tokyo'")) == MAX_ZONES
