"""Real clients with a scripted model: what the model is sent, and that it can act on that alone.

The clients are installed and run by `python3 tests/run.py clients`.
"""

from __future__ import annotations

import os

import pytest

from tests.real_clients.cases import CASES, CHECKS
from tests.real_clients.drivers import DRIVERS
from tests.real_clients.drivers.place import CLIENTS, Driver
from tests.real_clients.play import Played, play
from tests.real_clients.table import cells, keep

pytestmark = pytest.mark.skipif(
    os.environ.get("REAL_CLIENTS") != "1", reason="real clients are run by a command of their own: tests/run.py clients"
)


@pytest.fixture(scope="module", params=[pytest.param(driver, id=driver.folder) for driver in DRIVERS])
def driver(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    if not (CLIENTS / chosen.folder / ".installed").exists():
        pytest.skip(f"{chosen.name} is not installed; tests/run.py clients says why")
    return chosen


@pytest.fixture(scope="module")
def played(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Return the client after it has played all cases; its row of the table is kept."""
    result = play(driver, tmp_path_factory.mktemp(driver.folder))
    keep(cells(result, driver), driver)
    return result


@pytest.mark.parametrize("key", [case.key for case in CASES])
def test_the_model_is_sent_what_it_needs(played: Played, driver: Driver, key: str) -> None:
    CHECKS[key](played.seen, driver)


def test_the_model_has_both_tools_or_finds_them_by_its_task(played: Played) -> None:
    assert played.model.first is not None, played.output
    assert played.tools != "by name", [tool.name for tool in played.model.first.tools]


def test_the_client_comes_to_the_end_of_the_script(played: Played) -> None:
    assert played.model.done, played.output
    assert played.model.problems == []
    assert played.exit_code == 0, played.output


def test_the_client_says_its_name(played: Played) -> None:
    assert played.client_info.get("name"), played.wire[:2]


def test_no_process_is_left(played: Played) -> None:
    assert played.left == []
