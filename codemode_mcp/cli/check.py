"""The result of one check, the list of all checks, and the report. Pure, except for reading the clock."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct, structs

from codemode_mcp.base.display import counted, plain

Status = Literal["ok", "info", "warn", "fail"]

CHECKS: Final = {
    "config": "the configuration file",
    "variables": "the environment variables that it refers to",
    "version": "this package and its parts",
    "python": "the interpreter and the system",
    "nesting": "whether codemode-mcp has started this process itself",
    "cache folder": "the folder for the compiled engine and for tool lists",
    "data folder": "the folder for logins",
    "control folder": "the folder in which `codemode-mcp runs` finds serving processes",
    "instance": "the shared instance of this configuration",
    "engine": "the sandbox",
    "compile cache": "the compiled engine on disk",
    "esbuild": "TypeScript",
    "intl": "`Intl`, and locales and options of `toLocaleString` and its kin, in programs",
    "type check": "the compiler of TypeScript, for `tools.codeMode.check`",
    "search": "search by meaning, the extra `semantic`",
    "store": "the store of suspended programs",
    "trajectory": "the file of `audit.trajectory`",
    "http": "the section `http`",
    "notify": "the command of `tools.approval.notify`",
    "server": "one upstream server each: `server NAME`",
    "other clients": "clients that start the same servers themselves",
    "client entry": "each entry of this server in the file of a client",
    "client code mode": "clients that start this server and have a code mode of their own",
    "client": "one connected client each, with its profile: `client NAME`",
    "names": "names that several servers or tools would have in programs",
    "plugin": "one plugin each: `plugin NAME`",
    "saved programs": "the folder `programs`, and changed definitions of tools that its programs use",
    "policy": "rules and contexts",
    "byte budget": "the texts that a client gets before any program has run",
}
"""The subject of each check, by the name of the check, in the order of the report.

The names of checks of servers, clients and plugins end with the name of one server, client or plugin.
"""


CORRECT: Final = "correct the configuration file; docs/configuration.md has every key"
"""Advice for a mistake in the configuration."""


class Check(Struct, frozen=True):
    """The result of one check, which is one line of the report.

    Attributes:
        status: `ok`, `info` (no problem, but worth knowing), `warn` (works, but needs attention) or `fail`.
        advice: what to do; empty if nothing has to be done.
        ms: the duration in milliseconds; None if the duration is counted in another result of the same check.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
    ms: int | None = None


def elapsed_ms(began: float) -> int:
    """Return the milliseconds since `began`, a time of `time.monotonic`."""
    return round((time.monotonic() - began) * 1000)


# The report on all checks: lines for a terminal, JSON, and the exit code.


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
    return structs.replace(check, detail=detail, advice=advice)


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
    lines = counted(len(checks), "line")
    fails, warnings = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
    return f"{lines}: {fails} failed, {counted(warnings, 'warning')}"


def as_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON, in the stable shape of docs/doctor.md."""
    return [structs.asdict(check) for check in checks]


def exit_code(checks: Sequence[Check], *, config_is_valid: bool) -> int:
    """Return 2 for an invalid configuration, 1 if any check has failed, else 0."""
    if not config_is_valid:
        return 2
    return 1 if any(check.status == "fail" for check in checks) else 0
