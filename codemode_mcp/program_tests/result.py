"""The results of tests. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "error"]


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test.

    Attributes:
        file: the file of the saved program, such as `programs/report.ts`.
        case: the name of the recording.
        status: `failed` if the program does not do what is expected; `error` if it cannot be tested.
        lines: what is wrong, in lines; the first one is a summary.
        seconds: the duration.
        updated: the file that `--update` has written, and lines about what has changed; empty if nothing was written.
    """

    __test__ = False  # pytest would collect a class of this name

    file: str
    case: str
    status: Status
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    updated: str = ""

    @property
    def name(self) -> str:
        """The name of the test, such as `programs/report.ts::first`."""
        return f"{self.file}::{self.case}"
