"""The table of `docs/clients.md`, made from what the clients have shown: `python -m tests.real_clients.table`.

The tests leave one file of results for each client in `.cache/clients/results`.
"""

from __future__ import annotations

import json
import re
import sys

from tests.real_clients.cases import CASES, CHECKS
from tests.real_clients.drivers import DRIVERS
from tests.real_clients.drivers.place import CLIENTS, REPOSITORY, Driver
from tests.real_clients.play import Played
from tests.run import CLIENT_PINS

PAGE = REPOSITORY / "docs" / "clients.md"
RESULTS = CLIENTS / "results"
BEGIN, END = "<!-- real clients: begin -->", "<!-- real clients: end -->"
HEADINGS = ("client", "version", "name in `clientInfo`", "tools", *(case.heading for case in CASES))


def pinned_version(driver: Driver) -> str:
    """Return the version of the package that the client is, the first of its pins."""
    return re.split(r"(?<!^)@|==", CLIENT_PINS[driver.folder][0])[-1]


def cells(played: Played, driver: Driver) -> list[str]:
    """Return the row of one client; "no" is a cell whose test fails."""
    row = [driver.name, pinned_version(driver), f"`{played.client_info.get('name', '')}`"]
    row.append(played.tools)
    for case in CASES:
        try:
            row.append(CHECKS[case.key](played.seen, driver))
        except AssertionError:
            row.append("no")
    return row


def keep(row: list[str], driver: Driver) -> None:
    """Write the row of one client where the table is made from."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{driver.folder}.json").write_text(json.dumps(row), "utf-8")


def written() -> list[list[str]]:
    """Return the rows of the page, the headings first."""
    lines = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not set("".join(row)) <= {"-", ":"}]


def main() -> int:
    rows = []
    for driver in DRIVERS:
        path = RESULTS / f"{driver.folder}.json"
        if not path.exists():
            print(f"There are no results of {driver.name}; python3 tests/run.py clients makes them.", file=sys.stderr)
            return 1
        rows.append(json.loads(path.read_text("utf-8")))
    lines = [f"| {' | '.join(row)} |" for row in (HEADINGS, *rows)]
    lines.insert(1, "|" + "---|" * len(HEADINGS))
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{PAGE} has no lines {BEGIN} and {END} to put the table between.", file=sys.stderr)
        return 1
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
