"""Invoices: numbered pages of 40, amounts in cents, and lines only in the record of one invoice."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache

from benchmarks.agents.worlds.base import (
    Row,
    Tables,
    ToolError,
    World,
    number,
    only,
    optional,
    record,
    rows,
    text,
    tool,
)
from benchmarks.agents.worlds.shared import TODAY, Draw, customers, products

CURRENCIES = ("EUR", "USD", "NOK", "JPY")
SIZE = 40
_SHORT = {
    "number": "string",
    "customer": "string",
    "issued": "string",
    "due": "string",
    "currency": "string",
    "amount_cents": "integer",
    "status": "string",
}
_LINES = rows(sku="string", quantity="integer", unit_price_cents="integer")
_STATUS = ("open", "paid", "void")


@cache
def _invoices() -> tuple[Row, ...]:
    draw, first = Draw(21), date(2026, 1, 2)
    known, sold = customers(), products()
    made: list[Row] = []
    for index in range(200):
        issued = first + timedelta(days=index * 4 // 5)
        days = draw.pick((14, 30, 30, 45))
        lines = [
            {"sku": each["sku"], "quantity": draw.between(1, 12), "unit_price_cents": each["price_cents"]}
            for each in draw.some(sold, draw.between(1, 4))
        ]
        status = "void" if index % 23 == 7 else "paid" if draw.below(100) < 68 else "open"
        paid = issued + timedelta(days=draw.between(3, days + 12))
        if status == "paid" and paid.isoformat() > TODAY:
            status = "open"
        made.append(
            {
                "number": f"INV-{1001 + index}",
                "customer": draw.pick(known)["id"],
                "issued": issued.isoformat(),
                "due": (issued + timedelta(days=days)).isoformat(),
                "currency": draw.pick(("EUR", "EUR", *CURRENCIES)),
                "amount_cents": sum(line["quantity"] * line["unit_price_cents"] for line in lines),
                "status": status,
                "paid_on": paid.isoformat() if status == "paid" else None,
                "lines": lines,
            }
        )
    return tuple(made)


def invoices() -> list[Row]:
    """Return 200 invoices of 2026, by their date."""
    return list(_invoices())


class Billing(World):
    name = "billing"
    instructions = "Invoices in four currencies, credit notes and reminders. Amounts are in cents of the currency."

    @classmethod
    def make(cls) -> Tables:
        return {"invoices": invoices(), "credit_notes": [], "reminders": []}

    @tool(
        "list invoices by status, customer and date",
        output=record(invoices=rows(**_SHORT), page="integer", pages="integer"),
        status=optional(text("Only invoices with this status", one_of=_STATUS)),
        customer=optional(text("Only invoices of this customer, such as C-101")),
        issued_from=optional(text("Only invoices issued on this day or later, as 2026-05-01")),
        issued_to=optional(text("Only invoices issued on this day or earlier")),
        page=optional(number("Number of the page, 1 for the first", 1)),
    )
    def list_invoices(
        self,
        status: str | None = None,
        customer: str | None = None,
        issued_from: str | None = None,
        issued_to: str | None = None,
        page: int = 1,
    ) -> Row:
        """List invoices by date, 40 on a page. JPY is counted in cents too."""
        found = [
            only(row, *_SHORT)
            for row in self.tables["invoices"]
            if status in (None, row["status"])
            and customer in (None, row["customer"])
            and (issued_from or "") <= row["issued"] <= (issued_to or "9")
        ]
        pages = max(1, -(-len(found) // SIZE))
        if page > pages:
            raise ToolError(f"There is no page {page}; the last one is {pages}.")
        return {"invoices": found[(page - 1) * SIZE : page * SIZE], "page": page, "pages": pages}

    @tool(
        "one invoice with its lines and the day of payment",
        output=record(**_SHORT, paid_on="string?", lines=_LINES),
        number=text("Such as INV-1001"),
    )
    def get_invoice(self, number: str) -> Row:
        """Get one invoice with its lines and the day on which it was paid."""
        return self.find("invoices", "number", number)

    @tool(
        "make a credit note for an invoice",
        output=record(invoice="string", amount_cents="integer", reason="string"),
        writes=True,
        number=text("Such as INV-1001"),
        amount_cents=number("Amount in cents of the currency of the invoice", 1),
        reason=text("One word or sentence"),
    )
    def create_credit_note(self, number: str, amount_cents: int, reason: str) -> Row:
        """Make a credit note. It may not be larger than its invoice, and the invoice may not be void."""
        row = self.find("invoices", "number", number)
        if row["status"] == "void":
            raise ToolError(f"{number} is void; a void invoice takes no credit note.")
        if amount_cents > row["amount_cents"]:
            raise ToolError(f"{amount_cents} is more than the amount of {number}, {row['amount_cents']}.")
        note = {"invoice": number, "amount_cents": amount_cents, "reason": reason}
        self.tables["credit_notes"].append(note)
        return note

    @tool(
        "send a payment reminder",
        output=record(invoice="string"),
        writes=True,
        number=text("Such as INV-1001"),
    )
    def send_reminder(self, number: str) -> Row:
        """Remind a customer of an open invoice. Two reminders for one invoice annoy people."""
        row = self.find("invoices", "number", number)
        if row["status"] != "open":
            raise ToolError(f"{number} is {row['status']}; only open invoices have reminders.")
        self.tables["reminders"].append({"invoice": number})
        return {"invoice": number}
