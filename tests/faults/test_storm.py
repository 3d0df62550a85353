"""Random faults from a fixed seed; `python -m tests.faults chaos` causes more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.storm import brewing

pytestmark = pytest.mark.anyio

SEED = 20
SECONDS = 3.0


async def test_after_a_storm_every_server_answers_and_nothing_is_left_behind(folder: Path) -> None:
    async with brewing(folder, random.Random(SEED)) as storm:
        await storm.episode(SECONDS)
        await storm.settle()
        await storm.episode(SECONDS)
        await storm.at_rest()
        assert sum(job.outcomes is not None for job in storm.chaos.jobs) > 20
