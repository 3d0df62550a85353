"""The best hits of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Item = TypeVar("Item")


class Found(list[Item]):
    """The best hits, best first.

    Attributes:
        total: the number of hits, including those beyond the limit.
    """

    def __init__(self, hits: Iterable[Item], total: int) -> None:
        super().__init__(hits)
        self.total = total
