"""Rooms and meetings in three offices: local times with their offset from UTC, and no output schemas."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from functools import cache

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, optional, text, texts, tool
from benchmarks.agents.worlds.shared import OFFICES, Draw, employees

OFFSETS = {"Oslo": 2, "Lisbon": 1, "Toronto": -4}
ROOMS = tuple(
    {"room": f"{office}-{number}", "office": office, "seats": seats}
    for office in OFFICES
    for number, seats in ((1, 4), (2, 8), (3, 16))
)
_TOPICS = ("Planning", "Review", "Hiring", "Budget", "Retrospective", "Design", "Customer call", "Training")


@cache
def _events() -> tuple[Row, ...]:
    draw, known = Draw(51), [each["email"] for each in employees()]
    made: list[Row] = []
    number = 0
    for day in range(12):
        on = date(2026, 6, 15) + timedelta(days=day)
        if on.weekday() > 4:
            continue
        for room in ROOMS:
            zone = timezone(timedelta(hours=OFFSETS[str(room["office"])]))
            start = datetime(on.year, on.month, on.day, 8, 0, tzinfo=zone)
            for _ in range(draw.between(1, 3)):
                start += timedelta(minutes=30 * draw.between(0, 5))
                end = start + timedelta(minutes=draw.pick((30, 45, 60, 90)))
                number += 1
                made.append(
                    {
                        "id": f"E{number}",
                        "title": draw.pick(_TOPICS),
                        "room": room["room"],
                        "start": start.isoformat(),
                        "end": end.isoformat(),
                        "attendees": draw.some(known, draw.between(2, 5)),
                    }
                )
                start = end
    return tuple(made)


def moment(words: str) -> datetime:
    """Return a time with its offset, or refuse."""
    try:
        found = datetime.fromisoformat(words)
    except ValueError:
        raise ToolError(f"{words} is no time; write it as 2026-06-15T09:00:00+02:00.") from None
    if found.tzinfo is None:
        raise ToolError(f"{words} has no offset; write it as 2026-06-15T09:00:00+02:00.")
    return found


class Calendar(World):
    name = "calendar"
    instructions = "Rooms and meetings in Oslo (+02:00), Lisbon (+01:00) and Toronto (-04:00)."
    structured = False

    @classmethod
    def make(cls) -> Tables:
        return {"events": list(_events()), "rooms": [dict(each) for each in ROOMS]}

    @tool("list meeting rooms and their seats")
    def list_rooms(self) -> Row:
        """List the rooms of all offices. Returns {rooms: [{room, office, seats}]}."""
        return {"rooms": self.tables["rooms"]}

    @tool(
        "list meetings of a day",
        day=text("The day on which they begin, in local time, as 2026-06-15"),
        office=optional(text("Only rooms of this office", one_of=OFFICES)),
    )
    def list_events(self, day: str, office: str | None = None) -> Row:
        """List the meetings of one day. Returns {events: [{id, title, room, start, end, attendees}]}; times have the
        offset of their office."""
        found = [row for row in self.tables["events"] if row["start"][:10] == day]
        return {"events": [row for row in found if office is None or row["room"].startswith(office)]}

    @tool(
        "book a room for a meeting",
        writes=True,
        title=text("The title"),
        room=text("Such as Oslo-1"),
        start=text("As 2026-06-15T09:00:00+02:00"),
        end=text("As 2026-06-15T10:00:00+02:00"),
        attendees=texts("Addresses of employees"),
    )
    def book(self, title: str, room: str, start: str, end: str, attendees: list[str]) -> Row:
        """Book a room. It must be free and have a seat for each attendee. Returns the meeting."""
        seats = self.find("rooms", "room", room)["seats"]
        if len(attendees) > seats:
            raise ToolError(f"{room} has {seats} seats.")
        begin, until = moment(start), moment(end)
        for row in self.tables["events"]:
            if row["room"] == room and moment(row["start"]) < until and moment(row["end"]) > begin:
                raise ToolError(f"{room} is taken by {row['id']} from {row['start']} to {row['end']}.")
        made = {
            "id": f"E{len(self.tables['events']) + 1}",
            "title": title,
            "room": room,
            "start": begin.isoformat(),
            "end": until.isoformat(),
            "attendees": sorted(attendees),
        }
        self.tables["events"].append(made)
        return made

    @tool("cancel a meeting", writes=True, id=text("Such as E12"))
    def cancel(self, id: str) -> Row:  # noqa: A002 - the argument's name
        """Cancel a meeting."""
        row = self.find("events", "id", id)
        self.tables["events"].remove(row)
        return {"id": id}
