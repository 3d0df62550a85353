"""The process of a run that several processes report. Pure.

Processes that share a store all report its runs. For a moment two of them may have the same run: one that has taken it
over, and one that has not heard of that yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Claimed(Generic[Source]):
    """A run, as the one tells it that has most to do with it.

    Attributes:
        source: who that is.
        disputed: others say of themselves that they have it, too.
    """

    source: Source
    view: Mapping[str, Any]
    disputed: bool = False


def merged(told: Iterable[tuple[Source, Iterable[Mapping[str, Any]]]]) -> list[Claimed[Source]]:
    """Return each run once, in the order in which they are told."""
    found: dict[str, Claimed[Source]] = {}
    for source, views in told:
        for view in views:
            other = found.get(str(view["id"]))
            if other is None or rank(view) < rank(other.view):
                found[str(view["id"])] = Claimed(source, view)
            elif rank(view) == rank(other.view) and is_here(view):
                found[str(view["id"])] = Claimed(other.source, other.view, disputed=True)
    return list(found.values())


def is_here(view: Mapping[str, Any]) -> bool:
    """Return True if the run is of the process that tells of it."""
    return where(view) == "here"


def where(view: Mapping[str, Any]) -> str:
    """`here`, `elsewhere` or `stored`, as the process has it that tells of the run."""
    return str(view.get("where", "here"))  # one of an earlier version has no others


def rank(view: Mapping[str, Any]) -> int:
    """Return the lower, the more a process has to do with a run."""
    if is_here(view):
        return 0 if view["observed"] else 1 if view["endedMs"] is not None else 2
    if where(view) == "elsewhere":
        return 3
    return 4 if view.get("adoptable") else 5
