"""Servers look the same to clients through this one as directly, apart from cells that are known to be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.matrix.subjects import SUBJECTS
from tests.matrix.table import columns

if TYPE_CHECKING:
    from pathlib import Path

    from tests.matrix.wire import Era

pytestmark = pytest.mark.anyio

LOST = {
    "everything": {("legacy", "logging"), ("modern", "logging"), ("modern", "roots")},
    "filesystem": set(),
    "memory": set(),
    "sequential-thinking": set(),
    "tasks": set(),
}
"""The lost cells of each server, by era and feature. A cell that is no longer lost has to be taken out."""


@pytest.mark.parametrize("name", LOST)
async def test_no_other_cell_of_the_matrix_is_lost(name: str, tmp_path: Path) -> None:
    subject = next(each for each in SUBJECTS if each.name == name)
    lost: dict[tuple[Era, str], str] = {}
    for era, column in (await columns(subject, tmp_path)).items():
        lost |= {(era, feature): seen for feature, (cell, seen) in column.items() if cell == "lost"}
    assert set(lost) == LOST[name], lost
