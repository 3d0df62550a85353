"""Servers look the same to clients through this one as directly, and the page on the matrix says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.probes import FEATURES
from tests.matrix.subjects import SUBJECTS
from tests.matrix.table import ERAS, columns, groups, page_cells
from tests.matrix.wire import Era

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("group", groups())
async def test_no_cell_of_the_matrix_is_lost(group: str, tmp_path: Path) -> None:
    lost: dict[tuple[str, Era, str], str] = {}
    cells: dict[tuple[str, Era, str], str] = {}
    for name, by_era in (await columns(groups()[group], tmp_path)).items():
        for era, column in by_era.items():
            for feature, (cell, seen) in column.items():
                cells[name, era, feature] = cell
                if cell == "lost":
                    lost[name, era, feature] = seen
    assert lost == {}
    shown = page_cells()
    assert {key: shown.get(key) for key in cells} == cells, "python -m tests.matrix.table --update writes the page"


def test_the_page_has_all_servers_and_features_and_every_feature_is_seen_in_both_eras() -> None:
    shown = page_cells()
    names = {subject.name for subject in SUBJECTS}
    assert shown.keys() == {(name, era, feature) for name in names for era in ERAS for feature in FEATURES}
    for era in ERAS:
        unseen = {feature for feature in FEATURES if all(shown[name, era, feature] == "-" for name in names)}
        assert unseen == set()
