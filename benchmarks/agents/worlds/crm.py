"""A register of customers: pages of 20, and records that have more than the list."""

from __future__ import annotations

from benchmarks.agents.worlds.base import Row, Tables, World, only, optional, page, record, rows, text, tool
from benchmarks.agents.worlds.shared import COUNTRIES, SEGMENTS, customers

_SHORT = {"id": "string", "name": "string", "segment": "string", "country": "string"}
_FULL = {**_SHORT, "status": "string", "owner": "string", "since": "string", "contact_email": "string"}
_STATUS = ("active", "trial", "churned")


class Crm(World):
    name = "crm"
    instructions = "Customers, who looks after them, and notes about them."

    @classmethod
    def make(cls) -> Tables:
        return {"customers": customers(), "notes": []}

    @tool(
        "list customers by segment and country",
        output=record(customers=rows(**_SHORT), next_cursor="string?"),
        segment=optional(text("Only customers of this segment", one_of=SEGMENTS)),
        country=optional(text("Only customers in this country", one_of=COUNTRIES)),
        cursor=optional(text("next_cursor of the page before")),
    )
    def list_customers(self, segment: str | None = None, country: str | None = None, cursor: str | None = None) -> Row:
        """List customers by their ids, 20 on a page. The list has no owners and states; get_customer has them."""
        found = [
            only(row, *_SHORT)
            for row in self.tables["customers"]
            if segment in (None, row["segment"]) and country in (None, row["country"])
        ]
        return page(found, cursor, 20, "customers")

    @tool("one customer with owner, status and contact address", output=record(**_FULL), id=text("Such as C-101"))
    def get_customer(self, id: str) -> Row:  # noqa: A002 - the argument's name
        """Get one customer: also the status, the owner's address, the date of the first contract and the contact."""
        return self.find("customers", "id", id)

    @tool(
        "find a customer by name or contact address",
        output=record(customers=rows(**_SHORT)),
        words=text("A part of the name or of the contact address"),
    )
    def find_customers(self, words: str) -> Row:
        """Find customers by a part of their name or contact address."""
        wanted = words.lower()
        found = [
            each for each in self.tables["customers"] if wanted in f"{each['name']} {each['contact_email']}".lower()
        ]
        return {"customers": [only(each, *_SHORT) for each in found[:20]]}

    @tool(
        "change the owner or status of a customer",
        output=record(**_FULL),
        writes=True,
        id=text("Such as C-101"),
        owner=optional(text("Address of the employee who looks after the customer from now on")),
        status=optional(text("The new status", one_of=_STATUS)),
    )
    def update_customer(self, id: str, owner: str | None = None, status: str | None = None) -> Row:  # noqa: A002
        """Change the owner or the status of a customer."""
        row = self.find("customers", "id", id)
        row.update({key: value for key, value in (("owner", owner), ("status", status)) if value is not None})
        return row

    @tool(
        "add a note to a customer",
        output=record(customer="string", text="string"),
        writes=True,
        id=text("Such as C-101"),
        text=text("The note"),
    )
    def add_note(self, id: str, text: str) -> Row:  # noqa: A002
        """Add a note to a customer."""
        note = {"customer": self.find("customers", "id", id)["id"], "text": text}
        self.tables["notes"].append(note)
        return note
