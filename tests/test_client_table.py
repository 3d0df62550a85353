"""The table of real clients on the page."""

from __future__ import annotations

import re

from tests.real_clients.cases import CASES, OWN_BYTES
from tests.real_clients.drivers import DRIVERS
from tests.real_clients.table import HEADINGS, pinned_version, written

CELL = re.compile(r"yes|-|whole|\d+\.\d kB, told|answered by the client")


def test_the_table_has_a_column_for_each_case_and_a_row_for_each_pinned_client() -> None:
    headings, *rows = written()
    assert tuple(headings) == HEADINGS
    assert [row[:2] for row in rows] == [[driver.name, pinned_version(driver)] for driver in DRIVERS]


def test_each_cell_of_the_table_is_one_that_a_passing_check_gives() -> None:
    for row in written()[1:]:
        assert len(row) == len(HEADINGS)
        assert row[3] in ("up front", "by a search")
        size, *cells = row[-len(CASES) :]
        assert int(size) <= OWN_BYTES
        for cell in cells:
            assert CELL.fullmatch(cell), (row[0], cell)
