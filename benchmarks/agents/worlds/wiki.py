"""Pages of text that a reader must understand: rules, and reports about incidents."""

from __future__ import annotations

from functools import cache

from benchmarks.agents.worlds.base import Row, Tables, ToolError, World, only, record, rows, text, tool
from benchmarks.agents.worlds.metrics import incidents
from benchmarks.agents.worlds.shared import Draw, employees

_HIT = {"id": "string", "title": "string", "beginning": "string"}

_FILLER = (
    "Changes to this page are announced in the weekly letter.",
    "Ask in the channel of the team if a case is not covered here.",
    "The page is reviewed twice a year, in spring and in autumn.",
    "Older versions of this page are kept for the auditors.",
    "Examples are in the handbook for new colleagues.",
    "The rule was shorter once; each exception here has a story.",
)
_RULES = (
    (
        "refunds",
        "Refunds and credit notes",
        "A delivery that came more than 3 days after the promised day earns a credit note of 10 percent of the invoice,"
        " rounded down to whole cents. A delivery that came later than the promised day, by 3 days or less, earns none."
        " Credit notes above 40000 cents are approved by the lead of the finance team; smaller ones by the owner of"
        " the customer.",
    ),
    (
        "travel",
        "Travel and expenses",
        "Trains before planes. A night in a hotel costs 140 euros at most, in Toronto 190 euros. Expenses are handed in"
        " within 30 days; after that, the lead of the team has to sign them.",
    ),
    (
        "on-call",
        "On call",
        "A week on call begins on Wednesday at 10:00 in Oslo. An incident of severity 1 is answered within 15 minutes,"
        " one of severity 2 within one hour. A report is due within 5 working days after an incident of severity 1 or"
        " 2; incidents of severity 3 need none.",
    ),
    (
        "meetings",
        "Meetings",
        "No meetings on Wednesday afternoon. A meeting with more than eight people needs an agenda. Meetings of people"
        " in Toronto and Oslo begin between 14:00 and 17:00 in Oslo, so that none of them gets up at night.",
    ),
    (
        "reminders",
        "Payment reminders",
        "The first reminder goes out 10 days after the due date, not earlier. Enterprise customers get a call from"
        " their owner instead of a reminder. Nothing is sent to customers whose status is churned.",
    ),
    (
        "passwords",
        "Passwords and keys",
        "Passwords have at least 14 characters and live in the manager. A key that was seen by a third person is"
        " changed the same day. Devices lock after 4 minutes.",
    ),
)


@cache
def _pages() -> tuple[Row, ...]:
    draw, made = Draw(95), []
    for key, title, rule in _RULES:
        before, after = " ".join(draw.some(_FILLER, 3)), " ".join(draw.some(_FILLER, 3))
        made.append({"id": key, "title": title, "text": f"# {title}\n\n{before}\n\n{rule}\n\n{after}\n"})
    authors = [each["name"] for each in employees() if each["team"] == "platform"]
    for incident in incidents():
        if draw.below(3) == 0 or incident["ended"] is None:
            continue
        cause = draw.pick(("a full disk", "an expired certificate", "a slow query", "a wrong flag", "a lost leader"))
        filler = " ".join(draw.some(_FILLER, 4))
        words = f"# Report {incident['id']}\n\nService: {incident['service']}. Author: {draw.pick(authors)}."
        words += f"\n\nThe cause was {cause}. {filler}\n"
        made.append({"id": f"report-{incident['id'].lower()}", "title": f"Report {incident['id']}", "text": words})
    return tuple(made)


class Wiki(World):
    name = "wiki"
    instructions = "Rules of the company, and reports about incidents."

    @classmethod
    def make(cls) -> Tables:
        return {"pages": list(_pages())}

    @tool(
        "search pages of the wiki",
        output=record(pages=rows(**_HIT)),
        words=text("Words that must be in the title or in the text"),
    )
    def search_pages(self, words: str) -> Row:
        """Search pages that have all words. Returns the first 10, with the beginning of their text."""
        wanted = words.lower().split()
        found = [
            row
            for row in self.tables["pages"]
            if all(word in f"{row['title']} {row['text']}".lower() for word in wanted)
        ]
        return {"pages": [{**only(row, "id", "title"), "beginning": row["text"][:80]} for row in found[:10]]}

    @tool(
        "text of one page of the wiki",
        output=record(id="string", title="string", text="string"),
        id=text("Such as travel"),
    )
    def get_page(self, id: str) -> Row:  # noqa: A002 - the argument's name
        """Get the text of one page."""
        return self.find("pages", "id", id)

    @tool(
        "make a new page in the wiki",
        output=record(id="string"),
        writes=True,
        id=text("Such as report-in-41"),
        title=text("The title"),
        text=text("The text"),
    )
    def create_page(self, id: str, title: str, text: str) -> Row:  # noqa: A002
        """Make a page. There may be none with the same id."""
        if any(row["id"] == id for row in self.tables["pages"]):
            raise ToolError(f"There is a page {id} already.")
        self.tables["pages"].append({"id": id, "title": title, "text": text})
        return {"id": id}
