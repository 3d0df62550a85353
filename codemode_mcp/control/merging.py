"""The choice of one report for a run that several processes report. Pure.

All processes that share a store report its runs. For a moment, two processes may report the same run as theirs: the
process that has taken it over, and the process that has not noticed this yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class ReportedRun(Generic[Source]):
    """A run with the report of the process that is closest to it; see `rank`.

    Attributes:
        source: the process that has reported the run.
        disputed: True if another process reports that it has the run too.
    """

    source: Source
    view: Mapping[str, Any]
    disputed: bool = False


def merge_reports(reports: Iterable[tuple[Source, Iterable[Mapping[str, Any]]]]) -> list[ReportedRun[Source]]:
    """Return each run once, in the order of the first reports.

    Args:
        reports: pairs of a source and its views of runs.
    """
    found: dict[str, ReportedRun[Source]] = {}
    for source, views in reports:
        for view in views:
            other = found.get(str(view["id"]))
            if other is None or rank(view) < rank(other.view):
                found[str(view["id"])] = ReportedRun(source, view)
            elif rank(view) == rank(other.view) and is_here(view):
                found[str(view["id"])] = ReportedRun(other.source, other.view, disputed=True)
    return list(found.values())


def is_here(view: Mapping[str, Any]) -> bool:
    """Return True if the reporting process has the run."""
    return where(view) == "here"


def where(view: Mapping[str, Any]) -> str:
    """Return the place of a run from the view of the reporting process: `here`, `elsewhere` or `stored`."""
    return str(view.get("where", "here"))  # a process of an earlier version reports only its own runs


def rank(view: Mapping[str, Any]) -> int:
    """Return a number that is lower, the closer the reporting process is to a run.

    Among processes that have the run, a process with a client that waits for the run comes first.
    """
    if is_here(view):
        return 0 if view["observed"] else 1 if view["endedMs"] is not None else 2
    if where(view) == "elsewhere":
        return 3
    return 4 if view.get("adoptable") else 5
