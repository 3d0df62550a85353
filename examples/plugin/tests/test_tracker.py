"""The tracker by itself, as any library is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from issues_plugin.tracker import NoSuchIssue, Tracker

if TYPE_CHECKING:
    from pathlib import Path


def test_issues_outlive_their_tracker(tmp_path: Path) -> None:
    path = tmp_path / "issues.json"
    tracker = Tracker(path)
    tracker.create("First", ["bug"], "me")
    tracker.create("Second", [], None)
    tracker.close(1)
    again = Tracker(path)
    assert [(issue.number, issue.state, issue.author) for issue in again.find()] == [
        (1, "closed", "me"),
        (2, "open", None),
    ]
    assert [issue.title for issue in again.find("open")] == ["Second"]
    assert [issue.title for issue in again.find(label="bug")] == ["First"]
    assert again.purge() == 1
    assert again.create("Third", [], None).number == 3


def test_an_issue_that_is_not_there_cannot_be_closed() -> None:
    with pytest.raises(NoSuchIssue):
        Tracker().close(1)
