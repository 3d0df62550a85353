"""Finds runs for `codemode-mcp runs`: in all serving processes of this user, and in the store of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from codemode_mcp.cli import store_contents
from codemode_mcp.cli.messages import say_line, stop_line
from codemode_mcp.cli.serving_processes import ask_process, ask_processes
from codemode_mcp.control.merging import merge_reports
from codemode_mcp.control.protocol import Request
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from codemode_mcp.cli.store_contents import StoreContents
    from codemode_mcp.control.endpoints import Endpoint
    from codemode_mcp.control.merging import ReportedRun

MIN_PREFIX: Final = 12
"""Minimum length of the beginning of a run's id that may stand for the whole id."""


@dataclass(frozen=True)
class Listing:
    """The runs of all processes and stores.

    Attributes:
        answers: the answers of the serving processes.
        stored: the store of the configuration, unless one of the processes has reported it.
        runs: each run once. Its source is None if only `stored` has it.
        problems: processes and stores that could not be read, and why.
    """

    answers: tuple[tuple[Endpoint, dict[str, Any]], ...]
    stored: StoreContents
    runs: list[ReportedRun[Endpoint | None]]
    problems: tuple[str, ...]

    @property
    def stores(self) -> list[dict[str, Any]]:
        """The totals of each store once."""
        by_name: dict[tuple[str, int], dict[str, Any]] = {}
        for endpoint, answer in self.answers:
            store = answer.get("store") or {}
            # The memory of each process is a store.
            by_name[store.get("name", ""), endpoint.pid if store.get("kind") == "memory" else 0] = store
        if self.stored.totals is not None:
            by_name[self.stored.name, 0] = self.stored.totals
        return list(by_name.values())


def list_all(config: str | None) -> Listing:
    """Return all runs; with a configuration, those of the processes that serve it."""
    found = ask_processes(Request("list"), config)
    answers = tuple((endpoint, answer) for endpoint, answer in found.answers if isinstance(answer.get("runs"), list))
    reported = [(endpoint, answer.get("store") or {}) for endpoint, answer in answers]
    stored = store_contents.read_store(
        config, {str(store.get("name")) for _, store in reported if "problem" not in store}
    )
    problems = [*found.problems]
    problems += [f"process {endpoint.pid}: {store['problem']}" for endpoint, store in reported if "problem" in store]
    if stored.problem is not None:
        problems.append(stored.problem)
    sources: list[tuple[Endpoint | None, Any]] = [(endpoint, answer["runs"]) for endpoint, answer in answers]
    return Listing(answers, stored, merge_reports([*sources, (None, stored.runs)]), tuple(problems))


def recording_folder(config: str | None) -> Path | None:
    """Return the folder for recordings of the configuration; None if there is none."""
    from codemode_mcp.cli.confirming import find, refuse_unknown
    from codemode_mcp.config.confirmation import Gate
    from codemode_mcp.config.load import load_audit

    gate = Gate(refuse_unknown)
    try:
        path = find(config, gate.remember)
        settings = None if path is None else load_audit(path, admit=gate.admit)
    except ConfigError:
        return None
    return None if settings is None or settings.recordings is None else Path(settings.recordings)


def find_run(run: str, config: str | None) -> tuple[Endpoint | None, dict[str, Any]]:
    """Return a run in the form of the answer to `show`, and the process that has it or could resume it.

    The process is None for a run in a store that no process serves. End the command unless there is exactly one run.
    """
    found = list_all(config)
    matches = [each for each in found.runs if each.view["id"] == run]
    if not matches and len(run) >= MIN_PREFIX:
        matches = [each for each in found.runs if str(each.view["id"]).startswith(run)]
    if not matches:
        for problem in found.problems:
            say_line(problem)
        hint = f"; give at least {MIN_PREFIX} characters of an id" if len(run) < MIN_PREFIX else ""
        stop_line(1, f"no serving process of this user has a run {run!r}{hint}; see codemode-mcp runs list")
    if len(matches) > 1:
        names = ", ".join(sorted(str(each.view["id"]) for each in matches)[:10])
        stop_line(1, f"several runs begin with {run!r}: {names}; give more of the id")
    (match,) = matches
    if match.disputed:
        stop_line(1, f"several processes claim the run {run!r}; run the command again in a moment")
    if match.source is None:
        return None, {"server": None, "run": {**match.view, "calls": [], "waiting": [], "waitingOmitted": 0}}
    return match.source, ask_process(match.source, Request("show", str(match.view["id"])))


def stop_unserved(done: str, view: dict[str, Any]) -> NoReturn:
    """End the command because no process serves the store of a run."""
    stop_line(
        1,
        f"run {view['id']} is suspended, and no codemode-mcp serve of this user that could resume it is running; "
        f"nothing was {done}; start one with its configuration, then run this again",
    )
