"""The report: its order, its lines, its JSON, its exit code. Pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.doctor.check import Check

MARGIN: Final = "      "
"""Under the name of a check."""

COLUMNS: Final = 100


def lines(checks: Sequence[Check], arrow: str = "→") -> list[str]:
    """For a person, in lines that fit; a longer word, such as a path, stays whole. Whatever a server or a file has made
    up is escaped."""
    shown: list[str] = []
    for number, check in enumerate(checks):
        shown += _folded(f"{check.status:<5} ", f"{plain(check.name)}: {plain(check.detail)}", MARGIN)
        following = checks[number + 1].advice if number + 1 < len(checks) else ""
        # Once for all that it is about.
        if check.advice and check.advice != following:
            shown += _folded(f"{MARGIN}{arrow} ", plain(check.advice), MARGIN + " " * (len(arrow) + 1))
    return shown


def _folded(first: str, text: str, margin: str) -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summary(checks: Sequence[Check]) -> str:
    """How many of each kind, where any needs a look."""
    counts = {status: sum(check.status == status for check in checks) for status in ("fail", "warn")}
    if not any(counts.values()):
        return f"{len(checks)} lines, nothing to do"
    return f"{len(checks)} lines: {counts['fail']} failed, {counts['warn']} to look at"


def as_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The stable shape that docs/doctor.md describes."""
    return [
        {"name": each.name, "status": each.status, "detail": each.detail, "advice": each.advice, "ms": each.ms}
        for each in checks
    ]


def exit_code(checks: Sequence[Check], *, config_is_valid: bool) -> int:
    """0 all right, 1 something failed, 2 the configuration is invalid."""
    if not config_is_valid:
        return 2
    return 1 if any(check.status == "fail" for check in checks) else 0
