"""Products and what three warehouses have of them: levels are in a call of their own for each product."""

from __future__ import annotations

from functools import cache

from benchmarks.agents.worlds.base import (
    Row,
    Tables,
    ToolError,
    World,
    number,
    only,
    optional,
    page,
    record,
    rows,
    text,
    tool,
)
from benchmarks.agents.worlds.shared import CATEGORIES, Draw, products

WAREHOUSES = ("north", "south", "west")
_PRODUCT = {
    "sku": "string",
    "name": "string",
    "category": "string",
    "weight_grams": "integer",
    "price_cents": "integer",
}
_LEVELS = record(north="integer", south="integer", west="integer")


@cache
def _levels() -> tuple[Row, ...]:
    draw = Draw(61)
    return tuple(
        {
            "sku": each["sku"],
            "reorder_at": draw.between(20, 90),
            **{warehouse: draw.pick((0, 2, 9, 15, 30, 44, 61)) for warehouse in WAREHOUSES},
        }
        for each in products()
    )


class Stock(World):
    name = "stock"
    instructions = "Products, and how many of them the warehouses north, south and west have."

    @classmethod
    def make(cls) -> Tables:
        return {"products": products(), "levels": list(_levels()), "orders": []}

    @tool(
        "list products of a category",
        output=record(products=rows(**_PRODUCT), next_cursor="string?"),
        category=optional(text("Only this category", one_of=CATEGORIES)),
        cursor=optional(text("next_cursor of the page before")),
    )
    def list_products(self, category: str | None = None, cursor: str | None = None) -> Row:
        """List products, 15 on a page, without their levels."""
        found = [row for row in self.tables["products"] if category in (None, row["category"])]
        return page(found, cursor, 15, "products")

    @tool(
        "stock level of a product in each warehouse",
        output=record(sku="string", reorder_at="integer", levels=_LEVELS),
        sku=text("Such as CA-200"),
    )
    def get_stock(self, sku: str) -> Row:
        """Get the number of pieces in each warehouse, and the number below which the sum should be ordered again."""
        row = self.find("levels", "sku", sku)
        return {**only(row, "sku", "reorder_at"), "levels": only(row, *WAREHOUSES)}

    @tool(
        "move pieces of a product between warehouses",
        output=record(sku="string", levels=_LEVELS),
        writes=True,
        sku=text("Such as CA-200"),
        source=text("Warehouse that gives", one_of=WAREHOUSES),
        target=text("Warehouse that gets", one_of=WAREHOUSES),
        quantity=number("Number of pieces", 1),
    )
    def transfer(self, sku: str, source: str, target: str, quantity: int) -> Row:
        """Move pieces from one warehouse to another."""
        row = self.find("levels", "sku", sku)
        if row[source] < quantity:
            raise ToolError(f"{source} has only {row[source]} of {sku}.")
        row[source] -= quantity
        row[target] += quantity
        return {"sku": sku, "levels": only(row, *WAREHOUSES)}

    @tool(
        "order more pieces of a product from the supplier",
        output=record(sku="string", warehouse="string", quantity="integer"),
        writes=True,
        sku=text("Such as CA-200"),
        warehouse=text("Warehouse that gets them", one_of=WAREHOUSES),
        quantity=number("Number of pieces, a multiple of 10", 10),
    )
    def order(self, sku: str, warehouse: str, quantity: int) -> Row:
        """Order pieces from the supplier, who sells them by tens."""
        self.find("levels", "sku", sku)
        if quantity % 10:
            raise ToolError(f"{quantity} is no multiple of 10.")
        made = {"sku": sku, "warehouse": warehouse, "quantity": quantity}
        self.tables["orders"].append(made)
        return made
