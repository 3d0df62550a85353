"""The report: its order, its lines, its JSON, its exit code. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.control.display import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.cli.doctor.check import Check

MARGIN: Final = "      "
"""Under the name of a check."""

COLUMNS: Final = 100


def lines(checks: Sequence[Check], arrow: str = "→") -> list[str]:
    """Return the report in lines that fit a terminal; a longer word, such as a path, stays whole.

    Texts of servers and files are escaped.
    """
    shown: list[str] = []
    for number, check in enumerate(checks):
        shown += _folded(f"{check.status:<5} ", f"{plain(check.name)}: {plain(check.detail)}", MARGIN)
        following = checks[number + 1].advice if number + 1 < len(checks) else ""
        # Once for all that it is about.
        if check.advice and check.advice != following:
            shown += _folded(f"{MARGIN}{arrow} ", plain(check.advice), MARGIN + " " * (len(arrow) + 1))
    return shown


def joined(checks: Sequence[Check]) -> list[Check]:
    """Put what is said of a variable into the finding about the server that failed and refers to it."""
    failed = {check.name.removeprefix("server "): check for check in checks if _is_failed_server(check)}
    found: list[Check] = []
    said: dict[str, list[Check]] = {}
    for check in checks:
        used_by = [name for name in failed if check.name == "variables" and _refers(check, name)]
        for name in used_by:
            said.setdefault(name, []).append(check)
        if not used_by:
            found.append(check)
    return [_with_variables(check, said.get(check.name.removeprefix("server "), [])) for check in found]


def _is_failed_server(check: Check) -> bool:
    return check.name.startswith("server ") and check.status == "fail"


def _refers(check: Check, server: str) -> bool:
    return check.status in ("info", "warn") and f"ervers.{server}." in check.detail


def _with_variables(check: Check, variables: Sequence[Check]) -> Check:
    if not variables or not _is_failed_server(check):
        return check
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
    """Return how many of each kind, where any needs a look."""
    counts = {status: sum(check.status == status for check in checks) for status in ("fail", "warn")}
    found = f"{len(checks)} line{'' if len(checks) == 1 else 's'}"
    if not any(counts.values()):
        return f"{found}, nothing to do"
    return f"{found}: {counts['fail']} failed, {counts['warn']} to look at"


def as_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the stable shape that docs/doctor.md describes."""
    return [
        {"name": each.name, "status": each.status, "detail": each.detail, "advice": each.advice, "ms": each.ms}
        for each in checks
    ]


def exit_code(checks: Sequence[Check], *, config_is_valid: bool) -> int:
    """0 all right, 1 something failed, 2 the configuration is invalid."""
    if not config_is_valid:
        return 2
    return 1 if any(check.status == "fail" for check in checks) else 0
