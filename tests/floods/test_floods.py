"""A second of some floods by one principal; `python -m tests.floods` makes all of them, for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.floods.measure import pair

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

BOUND = 5.0
"""Seconds; `python -m tests.floods` has a bound of one. Here other tests run on the same processors."""


async def test_floods_of_one_principal_do_not_delay_another(tmp_path: Path) -> None:
    async with pair(tmp_path) as servers:
        for kind in ("bodies", "programs"):
            cost = await servers.cost(kind, 1.0)
            assert cost.flooded.count, kind
            assert cost.added < BOUND, (kind, cost)
