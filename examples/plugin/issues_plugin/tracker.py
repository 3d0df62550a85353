"""The tracker itself. It knows nothing of plugins."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, TypeAdapter

if TYPE_CHECKING:
    from pathlib import Path

State = Literal["open", "closed"]


class Issue(BaseModel):
    """One issue."""

    number: int
    title: str
    labels: list[str] = Field(default_factory=list)
    state: State = "open"
    author: str | None = None


_ISSUES = TypeAdapter(list[Issue])


class NoSuchIssue(Exception):
    """There is no issue of this number."""


class Tracker:
    """Issues, in a JSON file or, without one, in memory. May be used from several threads."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._issues: dict[int, Issue] = {}
        if path is not None and path.exists():
            self._issues = {issue.number: issue for issue in _ISSUES.validate_json(path.read_bytes())}

    def find(self, state: State | None = None, label: str | None = None) -> list[Issue]:
        with self._lock:
            return [
                issue.model_copy(deep=True)
                for issue in self._issues.values()
                if state in (None, issue.state) and (label is None or label in issue.labels)
            ]

    def create(self, title: str, labels: list[str], author: str | None) -> Issue:
        with self._lock:
            issue = Issue(number=max(self._issues, default=0) + 1, title=title, labels=labels, author=author)
            self._issues[issue.number] = issue
            self._save()
            return issue.model_copy(deep=True)

    def close(self, number: int) -> Issue:
        with self._lock:
            issue = self._issues.get(number)
            if issue is None:
                raise NoSuchIssue(number)
            issue.state = "closed"
            self._save()
            return issue.model_copy(deep=True)

    def purge(self) -> int:
        """Forget closed issues; how many there were."""
        with self._lock:
            closed = [number for number, issue in self._issues.items() if issue.state == "closed"]
            for number in closed:
                del self._issues[number]
            self._save()
            return len(closed)

    def _save(self) -> None:
        if self._path is None:
            return
        rows = [issue.model_dump(mode="json") for issue in self._issues.values()]
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.write_text(json.dumps(rows, indent=2), "utf-8")
        os.replace(temporary, self._path)
