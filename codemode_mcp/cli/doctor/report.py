"""The report on all checks: lines for a terminal, JSON, and the exit code. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import counted, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.cli.doctor.check import Check

MARGIN: Final = "      "
"""Indentation of the second and further lines of a check."""

COLUMNS: Final = 100
"""Width of the report."""


def lines(checks: Sequence[Check], arrow: str = "→") -> list[str]:
    """Return the lines of the report. Texts of servers and files are escaped.

    Lines have at most `COLUMNS` columns, except for a longer word such as a path, which is not broken.
    """
    shown: list[str] = []
    for number, check in enumerate(checks):
        shown += _folded(f"{check.status:<5} ", f"{plain(check.name)}: {plain(check.detail)}", MARGIN)
        following = checks[number + 1].advice if number + 1 < len(checks) else ""
        # Successive checks with the same advice show the advice once, after the last of them.
        if check.advice and check.advice != following:
            shown += _folded(f"{MARGIN}{arrow} ", plain(check.advice), MARGIN + " " * (len(arrow) + 1))
    return shown


def joined(checks: Sequence[Check]) -> list[Check]:
    """Move checks of variables into the check of the failed server that refers to them."""
    failed = {check.name for check in checks if check.name.startswith("server ") and check.status == "fail"}
    remaining: list[Check] = []
    moved: dict[str, list[Check]] = {}
    for check in checks:
        used_by = [name for name in failed if _refers(check, name.removeprefix("server "))]
        for name in used_by:
            moved.setdefault(name, []).append(check)
        if not used_by:
            remaining.append(check)
    return [_with_variables(check, moved[check.name]) if check.name in moved else check for check in remaining]


def _refers(check: Check, server: str) -> bool:
    return check.name == "variables" and check.status in ("info", "warn") and f"ervers.{server}." in check.detail


def _with_variables(check: Check, variables: Sequence[Check]) -> Check:
    detail = "; ".join([check.detail, *(each.detail for each in variables)])
    advice = "; ".join([*(each.advice for each in variables), f"if that is not it: {check.advice}"])
    return replace(check, detail=detail, advice=advice)


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
    """Return the number of lines, failures and warnings."""
    lines = counted(len(checks), "line")
    fails, warnings = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    return f"{lines}: {fails} failed, {counted(warnings, 'warning')}"


def as_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON, in the stable shape of docs/doctor.md."""
    return [asdict(check) for check in checks]


def exit_code(checks: Sequence[Check], *, config_is_valid: bool) -> int:
    """Return 2 for an invalid configuration, 1 if any check has failed, else 0."""
    if not config_is_valid:
        return 2
    return 1 if any(check.status == "fail" for check in checks) else 0
