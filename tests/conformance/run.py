"""`python -m tests.conformance.run`: Test262 in the bare engine and behind the prelude, compared.

Without arguments it runs the selection that the tests run; `--all` runs the whole suite, in minutes. `--update` writes
what came out to `pass_rate.json`, to commit with what changed it: of the whole suite the numbers, of the selection also
the names of what fails. The exit code is 1 when the prelude breaks something that `CHANGED` does not name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codemode_mcp.sandbox.binary import VERSION
from codemode_mcp.sandbox.engine import Engine, open_engine
from tests.conformance.hosts import Program, Realm
from tests.conformance.suite import ONE_IN, PACKAGE, Case, cases, selected

RATES = Path(__file__).with_name("pass_rate.json")

CHANGED = {
    "built-ins/JSON/stringify/bigint.js": "JSON.stringify writes a bigint as its digits, so that no result loses any",
    "built-ins/JSON/stringify/bigint-order.js": "JSON.stringify writes a bigint as its digits",
}
"""Tests that pass in the bare engine and not behind the prelude, each with the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The reasons for which a case failed in each place, None where it passed.

    Attributes:
        hardened: as a script among the guest's globals; not run, and None, where the program passed.
    """

    case: Case
    bare: str | None
    program: str | None
    hardened: str | None

    @property
    def broken(self) -> bool:
        """Return True if the prelude breaks the case, and not `eval` alone."""
        return self.bare is None and self.hardened is not None


class Places:
    """The hosts of the tests, made once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.bare = engine.threads.submit(Realm.bare, engine).result()
        self.program = Program(engine)
        self.hardened = Realm.hardened(engine)

    def compare(self, chosen: Iterable[Case]) -> list[Outcome]:
        """Run every case in the bare engine and in a program; what the program fails, among its globals too.

        One thread runs them all. Several would mostly wait for the interpreter's lock.
        """
        return self._engine.threads.submit(lambda: [self._outcome(case) for case in chosen]).result()

    def everywhere(self, case: Case) -> list[str | None]:
        """Return the reason for which it failed in each place, or None."""
        places = (self.bare, self.program, self.hardened)
        return [self._engine.threads.submit(place.run, case).result() for place in places]

    def _outcome(self, case: Case) -> Outcome:
        bare, program = self.bare.run(case), self.program.run(case)
        return Outcome(case, bare, program, None if program is None else self.hardened.run(case))


def numbers(outcomes: list[Outcome]) -> dict[str, Any]:
    """Count the cases in each folder of the suite, and those that pass in each place."""
    counts: dict[str, Counter[str]] = {}
    for one in outcomes:
        count = counts.setdefault(one.case.folder, Counter(cases=0, bare=0, program=0, hardened=0))
        count.update(cases=1, bare=one.bare is None, program=one.program is None, hardened=one.hardened is None)
    return {folder: dict(count) for folder, count in counts.items()}


def failing(outcomes: list[Outcome]) -> dict[str, list[str]]:
    """Return the names of what fails: `bare` in the engine as it comes, `eval` in a program but not as a script."""
    return {
        "bare": sorted(one.case.name for one in outcomes if one.bare is not None),
        "eval": sorted(
            one.case.name for one in outcomes if one.program is not None and one.bare is None and not one.broken
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the whole suite")
    parser.add_argument("--update", action="store_true", help=f"write {RATES.name}")
    parser.add_argument("--show", action="store_true", help="print every failure")
    options = parser.parse_args()
    with open_engine(None, max_threads=1) as engine:
        outcomes = Places(engine).compare(cases() if options.all else cases(selected))
    for one in outcomes:
        if options.show and (one.bare or one.program):
            print(f"{one.case.name}\n  bare: {one.bare}\n  program: {one.program}\n  hardened: {one.hardened}")
    print(json.dumps(numbers(outcomes), indent=2))
    if options.update:
        update(outcomes, whole=options.all)
    broken = [one for one in outcomes if one.broken and one.case.path not in CHANGED]
    for one in broken:
        print(f"BROKEN {one.case.name}: {one.hardened}")
    return 1 if broken else 0


def update(outcomes: list[Outcome], *, whole: bool) -> None:
    rates = json.loads(RATES.read_text("utf-8")) if RATES.is_file() else {}
    rates |= {"suite": PACKAGE, "engine": VERSION}
    if whole:
        rates["whole"] = numbers(outcomes)
        outcomes = [one for one in outcomes if selected(one.case.path)]
    rates["selection"] = {"oneIn": ONE_IN, **numbers(outcomes), "failing": failing(outcomes)}
    RATES.write_text(json.dumps(rates, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
